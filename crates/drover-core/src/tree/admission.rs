// SPDX-License-Identifier: GPL-2.0-only
//! Which reservations can be promised.
//!
//! A reservation is taken from the pool it is in. What a pool has for its children is its own
//! reservation; when that is used up, an expandable pool takes the rest from its parent, up to its
//! own limit, and a fixed one has no more. At the top is the host with its online pCPUs. Promises are
//! made one after the other, and one that does not fit is refused with the numbers.
//!
//! Worked example: a host of 400%, pool *prod* with 200% reserved, expandable. VM *web* asks for 150%
//! in it: there is room. VM *db* asks for 100%: 50% of it are left in *prod*, the other 50% come from
//! the host, which has 200% left. Were *prod* fixed, *db* would be refused: it has 50% left.

use super::Tree;
use crate::percent;

/// Why a reservation is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}; {mend}", self.what())]
pub struct Refusal {
    /// What was to be reserved, thousandths of a pCPU.
    pub asked_mcpu: u64,
    /// Where it did not fit: a pool or the host.
    pub place: String,
    /// What is left there.
    pub free_mcpu: u64,
    /// What it has in all.
    pub size_mcpu: u64,
    /// What to do about it.
    pub mend: String,
}

impl Refusal {
    /// What is wrong, without the mend.
    pub fn what(&self) -> String {
        let [asked, free, size] =
            [self.asked_mcpu, self.free_mcpu, self.size_mcpu].map(percent::text64);
        format!("{asked} cannot be reserved: {} has {free} left of {size}", self.place)
    }
}

/// What is promised so far.
#[derive(Debug, Clone)]
pub struct Ledger<'a> {
    tree: &'a Tree,
    /// The host's pCPUs, in thousandths.
    capacity_mcpu: u64,
    /// What was promised to each pool itself.
    own_mcpu: Vec<u64>,
    /// What was promised within each pool.
    within_mcpu: Vec<u64>,
    /// What was promised by the host.
    total_mcpu: u64,
}

impl<'a> Ledger<'a> {
    /// Nothing is promised yet on a host of that many pCPUs, in thousandths.
    pub fn new(tree: &'a Tree, capacity_mcpu: u64) -> Self {
        let none = vec![0; tree.pools().len()];
        Self { tree, capacity_mcpu, own_mcpu: none.clone(), within_mcpu: none, total_mcpu: 0 }
    }

    /// From now on promises are made on that many pCPUs, in thousandths. What was promised stays.
    pub fn set_capacity(&mut self, capacity_mcpu: u64) {
        self.capacity_mcpu = capacity_mcpu;
    }

    /// Promises a pool its own reservation. Parents come before their children.
    ///
    /// # Errors
    /// When it does not fit; nothing is promised then.
    pub fn promise_pool(&mut self, pool: usize) -> Result<(), Refusal> {
        let asked_mcpu = u64::from(self.tree.pools()[pool].spec.reservation_mcpu);
        assert!(self.own_mcpu[pool] == 0 && self.within_mcpu[pool] == 0, "parents come first");
        self.promise(self.tree.pools()[pool].parent, asked_mcpu)?;
        self.own_mcpu[pool] = asked_mcpu;
        Ok(())
    }

    /// Promises something within a pool, or directly on the host: a VM's reservation.
    ///
    /// # Errors
    /// When it does not fit; nothing is promised then.
    pub fn promise(&mut self, pool: Option<usize>, asked_mcpu: u64) -> Result<(), Refusal> {
        self.check(pool, asked_mcpu)?;
        self.enter(pool, asked_mcpu);
        Ok(())
    }

    /// Takes back what was promised to a VM there.
    pub fn withdraw(&mut self, pool: Option<usize>, promised_mcpu: u64) {
        let mut less_mcpu = promised_mcpu;
        let tree = self.tree;
        for index in tree.path(pool) {
            let taken = self.own_mcpu[index].max(self.within_mcpu[index]);
            self.within_mcpu[index] -= less_mcpu;
            less_mcpu = taken - self.own_mcpu[index].max(self.within_mcpu[index]);
        }
        self.total_mcpu -= less_mcpu;
    }

    /// Promises a VM something else than before.
    ///
    /// # Errors
    /// When it does not fit; what was promised before is still promised then.
    pub fn promise_instead(
        &mut self,
        pool: Option<usize>,
        before_mcpu: u64,
        asked_mcpu: u64,
    ) -> Result<(), Refusal> {
        self.withdraw(pool, before_mcpu);
        let checked = self.check(pool, asked_mcpu);
        self.enter(pool, if checked.is_ok() { asked_mcpu } else { before_mcpu });
        checked
    }

    /// What the host has promised in all, thousandths of a pCPU.
    pub fn total_mcpu(&self) -> u64 {
        self.total_mcpu
    }

    /// What a pool can still promise, thousandths of a pCPU.
    pub fn free_mcpu(&self, pool: usize) -> u64 {
        let own = self.own_mcpu[pool].saturating_sub(self.within_mcpu[pool]);
        let spec = &self.tree.pools()[pool].spec;
        if !spec.expandable {
            return own;
        }
        let above = match self.tree.pools()[pool].parent {
            Some(parent) => self.free_mcpu(parent),
            None => self.capacity_mcpu.saturating_sub(self.total_mcpu),
        };
        let taken = self.own_mcpu[pool].max(self.within_mcpu[pool]);
        let under_limit =
            spec.limit_mcpu.map_or(u64::MAX, |limit| u64::from(limit).saturating_sub(taken));
        own + above.min(under_limit)
    }

    /// What of a promise a pool hands on to its parent.
    fn beyond(&self, pool: usize, more_mcpu: u64) -> u64 {
        let taken = self.own_mcpu[pool].max(self.within_mcpu[pool]);
        self.own_mcpu[pool].max(self.within_mcpu[pool] + more_mcpu) - taken
    }

    fn check(&self, pool: Option<usize>, asked_mcpu: u64) -> Result<(), Refusal> {
        let refuse = |place: String, free_mcpu, size_mcpu, mend: &str| {
            Err(Refusal { asked_mcpu, place, free_mcpu, size_mcpu, mend: mend.to_owned() })
        };
        let mut more_mcpu = asked_mcpu;
        for index in self.tree.path(pool) {
            let spec = &self.tree.pools()[index].spec;
            let place = format!("pool \"{}\"", spec.name);
            let (own, within) = (self.own_mcpu[index], self.within_mcpu[index]);
            let beyond = self.beyond(index, more_mcpu);
            if !spec.expandable && beyond > 0 {
                let mend = "reserve less, reserve more for the pool, or make it expandable";
                return refuse(place, own - within.min(own), own, mend);
            }
            if let Some(limit) = spec.limit_mcpu.map(u64::from).filter(|_| beyond > 0) {
                if own.max(within) + beyond > limit {
                    let mend = "reserve less, or raise the pool's limit";
                    return refuse(place, limit - within.min(limit), limit, mend);
                }
            }
            more_mcpu = beyond;
        }
        let free_mcpu = self.capacity_mcpu.saturating_sub(self.total_mcpu);
        if more_mcpu > 0 && more_mcpu > free_mcpu {
            let mend = "reserve less, or lower another reservation";
            return refuse("this host".to_owned(), free_mcpu, self.capacity_mcpu, mend);
        }
        Ok(())
    }

    fn enter(&mut self, pool: Option<usize>, asked_mcpu: u64) {
        let mut more_mcpu = asked_mcpu;
        let tree = self.tree;
        for index in tree.path(pool) {
            let beyond = self.beyond(index, more_mcpu);
            self.within_mcpu[index] += more_mcpu;
            more_mcpu = beyond;
        }
        self.total_mcpu += more_mcpu;
    }
}

/// A promise as it can be kept on what is left of the host, when all promises of `total_mcpu` were
/// made on more: everyone gets the same part of what was promised.
pub fn degraded_mcpu(promised_mcpu: u32, total_mcpu: u64, capacity_mcpu: u64) -> u32 {
    if total_mcpu <= capacity_mcpu {
        return promised_mcpu;
    }
    let kept = u64::from(promised_mcpu) * capacity_mcpu / total_mcpu;
    u32::try_from(kept).expect("less than was promised")
}

#[cfg(test)]
mod tests {
    use super::super::PoolSpec;
    use super::*;
    use proptest::prelude::*;

    fn prod(expandable: bool, limit_mcpu: Option<u32>) -> Tree {
        let reservation_mcpu = 2000;
        let spec = PoolSpec::named("prod");
        Tree::of(&[PoolSpec { reservation_mcpu, limit_mcpu, expandable, ..spec }]).unwrap()
    }

    fn ledger(tree: &Tree) -> Ledger<'_> {
        let mut ledger = Ledger::new(tree, 4000);
        ledger.promise_pool(0).unwrap();
        ledger.promise(Some(0), 1500).unwrap();
        ledger
    }

    #[test]
    fn the_worked_example_of_the_header_holds() {
        let tree = prod(true, None);
        let mut expandable = ledger(&tree);
        assert_eq!(expandable.free_mcpu(0), 2500);
        expandable.promise(Some(0), 1000).unwrap();
        assert_eq!((expandable.total_mcpu(), expandable.free_mcpu(0)), (2500, 1500));
        let tree = prod(false, None);
        let mut fixed = ledger(&tree);
        assert_eq!(
            fixed.promise(Some(0), 1000).unwrap_err().to_string(),
            "100% cannot be reserved: pool \"prod\" has 50% left of 200%; \
             reserve less, reserve more for the pool, or make it expandable"
        );
        assert_eq!(fixed.total_mcpu(), 2000, "nothing was promised");
        fixed.promise(Some(0), 500).unwrap();
    }

    #[test]
    fn an_expandable_pool_ends_at_its_limit() {
        let tree = prod(true, Some(2500));
        let mut ledger = ledger(&tree);
        assert_eq!(ledger.free_mcpu(0), 1000);
        let refusal = ledger.promise(Some(0), 1100).unwrap_err().to_string();
        assert!(refusal.contains("pool \"prod\" has 100% left of 250%"), "{refusal}");
        ledger.promise(Some(0), 1000).unwrap();
    }

    #[test]
    fn the_host_has_no_more_than_its_pcpus() {
        let tree = prod(true, None);
        let mut ledger = ledger(&tree);
        assert_eq!(
            ledger.promise(None, 2001).unwrap_err().to_string(),
            "200.1% cannot be reserved: this host has 200% left of 400%; \
             reserve less, or lower another reservation"
        );
        ledger.promise(None, 2000).unwrap();
        assert!(ledger.promise(Some(0), 501).is_err());
    }

    #[test]
    fn when_pcpus_go_everyone_keeps_the_same_part() {
        assert_eq!(degraded_mcpu(1500, 3000, 4000), 1500);
        assert_eq!(degraded_mcpu(1500, 3000, 2000), 1000);
        assert_eq!(degraded_mcpu(1500, 3000, 0), 0);
    }

    /// Random trees of up to eight pools, and promises in them.
    fn trees() -> impl Strategy<Value = (Tree, Vec<(Option<usize>, u64)>)> {
        let pool = (any::<prop::sample::Index>(), 0u32..3000, any::<bool>(), 0u32..6000);
        let promise = (any::<prop::sample::Index>(), 0u64..2000);
        let pools = prop::collection::vec(pool, 0..8);
        (pools, prop::collection::vec(promise, 0..40)).prop_map(|(pools, promises)| {
            let mut specs: Vec<PoolSpec> = Vec::new();
            for (parent, reservation_mcpu, expandable, room_mcpu) in pools {
                let parent = parent.index(specs.len() + 1).checked_sub(1);
                let parent = parent.map(|index| specs[index].name.clone());
                let limit_mcpu = (room_mcpu < 3000).then_some(reservation_mcpu + room_mcpu);
                let spec = PoolSpec::named(&format!("p{}", specs.len()));
                specs.push(PoolSpec { parent, reservation_mcpu, limit_mcpu, expandable, ..spec });
            }
            let tree = Tree::of(&specs).unwrap();
            let place = |index: prop::sample::Index| index.index(specs.len() + 1).checked_sub(1);
            let promises = promises.into_iter().map(|(at, mcpu)| (place(at), mcpu)).collect();
            (tree, promises)
        })
    }

    proptest! {
        #[test]
        fn whatever_is_promised_fits_everywhere((tree, promises) in trees()) {
            let mut ledger = Ledger::new(&tree, 4000);
            let mut vms: Vec<(Option<usize>, u64)> = Vec::new();
            for pool in 0..tree.pools().len() {
                let _ = ledger.promise_pool(pool);
            }
            let pools_within: u64 = ledger.within_mcpu.iter().sum();
            for (pool, mcpu) in promises {
                let free = pool.map_or(4000 - ledger.total_mcpu(), |pool| ledger.free_mcpu(pool));
                let fits = ledger.promise(pool, mcpu).is_ok();
                prop_assert_eq!(fits, mcpu <= free, "what is free is what fits");
                vms.extend(fits.then_some((pool, mcpu)));
            }
            // What is taken back leaves nothing, wherever it was.
            let (before, total_mcpu) = (ledger.clone(), ledger.total_mcpu());
            for (pool, mcpu) in &vms {
                ledger.withdraw(*pool, *mcpu);
                prop_assert!(ledger.total_mcpu() <= total_mcpu);
            }
            prop_assert_eq!(ledger.within_mcpu.iter().sum::<u64>(), pools_within);
            let ledger = before;
            // From the leaves up, without the ledger's own arithmetic.
            let mut within = vec![0u64; tree.pools().len()];
            let mut host = 0;
            vms.iter().for_each(|(pool, mcpu)| match pool {
                Some(pool) => within[*pool] += mcpu,
                None => host += mcpu,
            });
            for (index, pool) in tree.pools().iter().enumerate().rev() {
                let taken = ledger.own_mcpu[index].max(within[index]);
                prop_assert!(pool.spec.expandable || within[index] <= ledger.own_mcpu[index]);
                prop_assert!(pool.spec.limit_mcpu.is_none_or(|limit| taken <= u64::from(limit)));
                match pool.parent {
                    Some(parent) => within[parent] += taken,
                    None => host += taken,
                }
            }
            prop_assert_eq!(host, ledger.total_mcpu());
            prop_assert!(host <= 4000);
        }
    }
}
