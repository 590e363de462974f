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
//!
//! What is promised to VMs that are confined to sets of pCPUs must also fit these, and every union of
//! them ([`Room`]); where cores have two threads, a core holds 100 % ([`Pcpus`]). When pCPUs go, or VMs are
//! confined anew, what was promised may not fit any more: then promises shrink alike wherever they do not
//! ([`kept_mcpu`]).

use super::pcpus::Pcpus;
use super::room::{Bottleneck, Room, keep};
use super::{Affinity, Tree};
use crate::cpu_list::{CpuList, cpus_text};
use crate::percent;
use std::collections::BTreeMap;

/// Why a reservation is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}; {fix}", self.what())]
pub struct Refusal {
    /// What was to be reserved, thousandths of a pCPU.
    pub asked_mcpu: u64,
    /// Where it did not fit, with its verb: `pool "prod" has`, `this host has`, `pCPUs 2-3 have`.
    pub place: String,
    /// What is left there.
    pub free_mcpu: u64,
    /// What it has in all.
    pub size_mcpu: u64,
    /// What of that the host's own tasks keep.
    pub host_mcpu: u64,
    /// What to do about it.
    pub fix: String,
}

impl Refusal {
    /// What is wrong, without the fix.
    pub fn what(&self) -> String {
        let [asked, free, size] =
            [self.asked_mcpu, self.free_mcpu, self.size_mcpu].map(percent::text64);
        let host = match self.host_mcpu {
            0 => String::new(),
            mcpu => format!(" ({} kept for the host's own tasks)", percent::text64(mcpu)),
        };
        format!("{asked} cannot be reserved: {} {free} left of {size}{host}", self.place)
    }
}

/// What is promised so far.
#[derive(Debug, Clone)]
pub struct Ledger<'a> {
    tree: &'a Tree,
    /// The pCPUs promises are made on.
    pcpus: Pcpus,
    /// What people are told they are, with its verb.
    whole: String,
    /// What was promised to VMs that are confined, by where; those of one set that all their vCPUs have together.
    confined: BTreeMap<Affinity, Vec<u64>>,
    /// What was promised to each pool itself.
    own_mcpu: Vec<u64>,
    /// What was promised within each pool.
    within_mcpu: Vec<u64>,
    /// What was promised by the host.
    total_mcpu: u64,
}

impl<'a> Ledger<'a> {
    /// Nothing is promised yet on these pCPUs, which people are told are `whole`: `this host has`.
    pub fn new(tree: &'a Tree, pcpus: Pcpus, whole: String) -> Self {
        let none = vec![0; tree.pools().len()];
        Self {
            tree,
            pcpus,
            whole,
            confined: BTreeMap::new(),
            own_mcpu: none.clone(),
            within_mcpu: none,
            total_mcpu: 0,
        }
    }

    /// From now on promises are made on these pCPUs. What was promised stays.
    pub fn set_pcpus(&mut self, pcpus: Pcpus) {
        self.pcpus = pcpus;
    }

    /// Promises a pool its own reservation. Parents come before their children.
    ///
    /// # Errors
    /// When it does not fit; nothing is promised then.
    pub fn promise_pool(&mut self, pool: usize) -> Result<(), Refusal> {
        let asked_mcpu = u64::from(self.tree.pools()[pool].spec.reservation_mcpu);
        assert!(self.own_mcpu[pool] == 0 && self.within_mcpu[pool] == 0, "parents come first");
        self.promise(self.tree.pools()[pool].parent, &Affinity::ANYWHERE, asked_mcpu)?;
        self.own_mcpu[pool] = asked_mcpu;
        Ok(())
    }

    /// Promises something within a pool, or directly on the host, on the pCPUs of `affinity`: a VM's
    /// reservation.
    ///
    /// # Errors
    /// When it does not fit; nothing is promised then.
    pub fn promise(
        &mut self,
        pool: Option<usize>,
        affinity: &Affinity,
        asked_mcpu: u64,
    ) -> Result<(), Refusal> {
        self.check(pool, asked_mcpu)?;
        self.check_sets(&self.pcpus, affinity, asked_mcpu)?;
        self.enter(pool, affinity, asked_mcpu);
        Ok(())
    }

    /// Promises what was promised before to a VM that is confined anew, if the pCPUs of `affinity` that are
    /// `online` hold it beside what is promised there.
    ///
    /// # Errors
    /// When they do not, or it does not fit its pool or the host; nothing is promised then.
    pub fn move_in(
        &mut self,
        pool: Option<usize>,
        affinity: &Affinity,
        promised_mcpu: u64,
        online: &Pcpus,
    ) -> Result<(), Refusal> {
        self.check(pool, promised_mcpu)?;
        self.check_sets(online, affinity, promised_mcpu)?;
        self.enter(pool, affinity, promised_mcpu);
        Ok(())
    }

    /// Promises what was promised before, whether or not the pCPUs of `affinity` still hold it.
    ///
    /// # Errors
    /// When it does not fit its pool or the host; nothing is promised then.
    pub fn renew(
        &mut self,
        pool: Option<usize>,
        affinity: &Affinity,
        promised_mcpu: u64,
    ) -> Result<(), Refusal> {
        self.check(pool, promised_mcpu)?;
        self.enter(pool, affinity, promised_mcpu);
        Ok(())
    }

    /// Takes back what was promised to a VM there.
    pub fn withdraw(&mut self, pool: Option<usize>, affinity: &Affinity, promised_mcpu: u64) {
        if promised_mcpu > 0 && !affinity.is_anywhere() {
            let all = affinity.is_split();
            let there = self.confined.get_mut(affinity).expect("it was promised");
            let is_it = |mcpu: &u64| !all || *mcpu == promised_mcpu;
            let at = there.iter().position(is_it).expect("it was promised");
            there[at] -= promised_mcpu;
            there.retain(|mcpu| *mcpu > 0);
            if there.is_empty() {
                self.confined.remove(affinity);
            }
        }
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
        affinity: &Affinity,
        before_mcpu: u64,
        asked_mcpu: u64,
    ) -> Result<(), Refusal> {
        self.withdraw(pool, affinity, before_mcpu);
        let promised = self.promise(pool, affinity, asked_mcpu);
        if promised.is_err() {
            self.enter(pool, affinity, before_mcpu);
        }
        promised
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
            None => self.host_free_mcpu(),
        };
        let taken = self.own_mcpu[pool].max(self.within_mcpu[pool]);
        let under_limit =
            spec.limit_mcpu.map_or(u64::MAX, |limit| u64::from(limit).saturating_sub(taken));
        own + above.min(under_limit)
    }

    /// What the host can still promise, thousandths of a pCPU.
    pub fn host_free_mcpu(&self) -> u64 {
        self.pcpus.promisable_mcpu().saturating_sub(self.total_mcpu)
    }

    /// What of a promise a pool hands on to its parent.
    fn beyond(&self, pool: usize, more_mcpu: u64) -> u64 {
        let taken = self.own_mcpu[pool].max(self.within_mcpu[pool]);
        self.own_mcpu[pool].max(self.within_mcpu[pool] + more_mcpu) - taken
    }

    fn check(&self, pool: Option<usize>, asked_mcpu: u64) -> Result<(), Refusal> {
        let refuse = |place: String, free_mcpu, size_mcpu, fix: &str| {
            let fix = fix.to_owned();
            Err(Refusal { asked_mcpu, place, free_mcpu, size_mcpu, host_mcpu: 0, fix })
        };
        let mut more_mcpu = asked_mcpu;
        for index in self.tree.path(pool) {
            let spec = &self.tree.pools()[index].spec;
            let place = format!("pool \"{}\" has", spec.name);
            let (own, within) = (self.own_mcpu[index], self.within_mcpu[index]);
            let beyond = self.beyond(index, more_mcpu);
            if !spec.expandable && beyond > 0 {
                let fix = "reserve less, reserve more for the pool, or make it expandable";
                return refuse(place, own - within.min(own), own, fix);
            }
            if let Some(limit) = spec.limit_mcpu.map(u64::from).filter(|_| beyond > 0) {
                if own.max(within) + beyond > limit {
                    let fix = "reserve less, or raise the pool's limit";
                    return refuse(place, limit - within.min(limit), limit, fix);
                }
            }
            more_mcpu = beyond;
        }
        let free_mcpu = self.host_free_mcpu();
        if more_mcpu <= free_mcpu {
            return Ok(());
        }
        Err(Refusal {
            asked_mcpu,
            place: self.whole.clone(),
            free_mcpu,
            size_mcpu: self.pcpus.capacity_mcpu(),
            host_mcpu: self.pcpus.host_mcpu(),
            fix: self.fix("reserve less, or lower another reservation"),
        })
    }

    /// Whether the sets of pCPUs hold it beside what else is promised to VMs that are confined. Others may
    /// run anywhere: for them the host as a whole counts, which was looked at.
    fn check_sets(
        &self,
        pcpus: &Pcpus,
        affinity: &Affinity,
        asked_mcpu: u64,
    ) -> Result<(), Refusal> {
        if affinity.is_anywhere() || asked_mcpu == 0 {
            return Ok(());
        }
        let each = |(affinity, there): (&'_ Affinity, &'_ Vec<u64>)| {
            there.iter().map(|mcpu| (affinity.clone(), *mcpu)).collect::<Vec<_>>()
        };
        let promises: Vec<(Affinity, u64)> =
            (self.confined.iter().flat_map(each)).chain([(affinity.clone(), asked_mcpu)]).collect();
        let room = Room::of(pcpus, promises.iter().map(|(affinity, _)| (affinity, 1.0)));
        let promised = promises.iter().map(|(_, mcpu)| *mcpu);
        let (fits, Some(full)) = room.last(&promised.map(pcpus_of).collect::<Vec<_>>()) else {
            return Ok(());
        };
        Err(Refusal {
            asked_mcpu,
            place: match full.cpus == *pcpus.all() {
                true => self.whole.clone(),
                false => format!("{} {}", cpus_text(&full.cpus), have(&full.cpus)),
            },
            free_mcpu: mcpu_of(fits),
            size_mcpu: mcpu_of(full.pcpus),
            host_mcpu: 0,
            fix: self
                .fix("reserve less, lower another reservation there, or let it run on more pCPUs"),
        })
    }

    /// What to do about it, and why there is less than people may think.
    fn fix(&self, fix: &str) -> String {
        let why = if self.pcpus.share_cores() { "a core of two threads has 100%; " } else { "" };
        format!("{why}{fix}")
    }

    fn enter(&mut self, pool: Option<usize>, affinity: &Affinity, asked_mcpu: u64) {
        if asked_mcpu > 0 && !affinity.is_anywhere() {
            let there = self.confined.entry(affinity.clone()).or_default();
            match there.first_mut().filter(|_| !affinity.is_split()) {
                Some(mcpu) => *mcpu += asked_mcpu,
                None => there.push(asked_mcpu),
            }
        }
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

/// Promises that cannot all be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// Where; none: on the host as a whole.
    pub cpus: Option<CpuList>,
    /// What is promised there, thousandths of a pCPU.
    pub promised_mcpu: u64,
    /// What is there.
    pub size_mcpu: u64,
    /// Who has the same part of its promise as the others in it.
    pub members: Vec<bool>,
}

/// Promises to VMs as they can be kept on the pCPUs that are online, and where they are short. On the host
/// as a whole, and within each set that does not hold what is promised in it, everyone has the same
/// part. `total_mcpu` is all that the host has promised, to VMs and to their pools beyond that. The host's own tasks
/// keep their part.
pub fn kept_mcpu(
    promises: &[(&Affinity, u32)],
    total_mcpu: u64,
    online: &Pcpus,
) -> (Vec<u32>, Vec<Shortage>) {
    let of_vms: u64 = promises.iter().map(|(_, mcpu)| u64::from(*mcpu)).sum();
    let of_pools = total_mcpu.saturating_sub(of_vms);
    let anywhere = Affinity::ANYWHERE;
    let affinities = promises.iter().map(|(affinity, _)| *affinity).chain([&anywhere]);
    let room = Room::of(online, affinities.map(|affinity| (affinity, 1.0)));
    let promised: Vec<u64> =
        promises.iter().map(|(_, mcpu)| u64::from(*mcpu)).chain([of_pools]).collect();
    // If more is promised than the pCPUs have, all promises shrink by the same factor. The host's share is scaled up first,
    // so that it has its full size after that.
    let left_mcpu = online.promisable_mcpu();
    let host_mcpu = online.host_mcpu() * total_mcpu.max(left_mcpu) / left_mcpu.max(1);
    let amounts = promised[..promises.len()].iter().copied().chain([of_pools + host_mcpu]);
    let kept = keep(&room, &amounts.map(pcpus_of).collect::<Vec<_>>());
    let mut seen = vec![false; promised.len()];
    let shortage = |full: &Bottleneck| {
        let is_new = |(member, seen): (&bool, &mut bool)| *member && !std::mem::replace(seen, true);
        let is_host = full.cpus == *online.all();
        let members: Vec<bool> = full.members.iter().zip(&mut seen).map(is_new).collect();
        let within = promised.iter().zip(&full.members).filter(|(_, member)| **member);
        Shortage {
            cpus: (!is_host).then(|| full.cpus.clone()),
            promised_mcpu: within.map(|(mcpu, _)| mcpu).sum(),
            size_mcpu: if is_host { left_mcpu } else { mcpu_of(full.pcpus) },
            members,
        }
    };
    let shortages = kept.bottlenecks.iter().map(shortage).collect();
    let kept = kept.amounts.iter().zip(promises);
    let kept = kept.map(|(pcpus, (_, mcpu))| whole_mcpu(*pcpus).min(*mcpu)).collect();
    (kept, shortages)
}

/// The part of a pool's promise that can be kept when all promises of `total_mcpu` were made on more than
/// the host has left.
pub fn kept_of_pool(promised_mcpu: u32, total_mcpu: u64, online: &Pcpus) -> u32 {
    let capacity_mcpu = online.promisable_mcpu();
    if total_mcpu <= capacity_mcpu {
        return promised_mcpu;
    }
    let kept = u64::from(promised_mcpu) * capacity_mcpu / total_mcpu;
    u32::try_from(kept).expect("less than was promised")
}

fn have(cpus: &CpuList) -> &'static str {
    if cpus.cpus().len() == 1 { "has" } else { "have" }
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn pcpus_of(mcpu: u64) -> f64 {
    mcpu as f64 / 1e3
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "never below 0")]
fn mcpu_of(pcpus: f64) -> u64 {
    (pcpus.max(0.0) * 1e3).round() as u64
}

/// What is whole of it, but for what sums of fractions lose.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "never below 0")]
fn whole_mcpu(pcpus: f64) -> u32 {
    (pcpus.max(0.0) * 1e3 + 1e-6) as u32
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
        let mut ledger =
            Ledger::new(tree, Pcpus::cores(CpuList::all(4)), "this host has".to_owned());
        ledger.promise_pool(0).unwrap();
        ledger.promise(Some(0), &Affinity::ANYWHERE, 1500).unwrap();
        ledger
    }

    #[test]
    fn the_worked_example_of_the_header_holds() {
        let tree = prod(true, None);
        let mut expandable = ledger(&tree);
        assert_eq!(expandable.free_mcpu(0), 2500);
        expandable.promise(Some(0), &Affinity::ANYWHERE, 1000).unwrap();
        assert_eq!((expandable.total_mcpu(), expandable.free_mcpu(0)), (2500, 1500));
        let tree = prod(false, None);
        let mut fixed = ledger(&tree);
        assert_eq!(
            fixed.promise(Some(0), &Affinity::ANYWHERE, 1000).unwrap_err().to_string(),
            "100% cannot be reserved: pool \"prod\" has 50% left of 200%; \
             reserve less, reserve more for the pool, or make it expandable"
        );
        assert_eq!(fixed.total_mcpu(), 2000, "nothing was promised");
        fixed.promise(Some(0), &Affinity::ANYWHERE, 500).unwrap();
    }

    #[test]
    fn an_expandable_pool_ends_at_its_limit() {
        let tree = prod(true, Some(2500));
        let mut ledger = ledger(&tree);
        assert_eq!(ledger.free_mcpu(0), 1000);
        let refusal = ledger.promise(Some(0), &Affinity::ANYWHERE, 1100).unwrap_err().to_string();
        assert!(refusal.contains("pool \"prod\" has 100% left of 250%"), "{refusal}");
        ledger.promise(Some(0), &Affinity::ANYWHERE, 1000).unwrap();
    }

    #[test]
    fn the_host_has_no_more_than_its_pcpus() {
        let tree = prod(true, None);
        let mut ledger = ledger(&tree);
        assert_eq!(
            ledger.promise(None, &Affinity::ANYWHERE, 2001).unwrap_err().to_string(),
            "200.1% cannot be reserved: this host has 200% left of 400%; \
             reserve less, or lower another reservation"
        );
        ledger.promise(None, &Affinity::ANYWHERE, 2000).unwrap();
        assert!(ledger.promise(Some(0), &Affinity::ANYWHERE, 501).is_err());
    }

    fn within(text: &str) -> Affinity {
        Affinity::within(text.parse().unwrap())
    }

    #[test]
    fn a_set_has_no_more_than_its_pcpus() {
        let tree = Tree::default();
        let mut ledger =
            Ledger::new(&tree, Pcpus::cores(CpuList::all(4)), "this host has".to_owned());
        ledger.promise(None, &within("2-3"), 800).unwrap();
        ledger.promise(None, &within("2-3"), 600).unwrap();
        let refusal = ledger.promise(None, &within("2-3"), 900).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "90% cannot be reserved: pCPUs 2-3 have 60% left of 200%; \
             reserve less, lower another reservation there, or let it run on more pCPUs"
        );
        assert_eq!(ledger.total_mcpu(), 1400, "nothing was promised");
        ledger.promise(None, &within("2-3"), 600).unwrap();
        ledger.promise(None, &within("0-1"), 900).unwrap();
        ledger.promise(None, &Affinity::ANYWHERE, 1100).unwrap();
        ledger.withdraw(None, &within("2-3"), 600);
        ledger.promise(None, &within("3"), 600).unwrap();
    }

    #[test]
    fn a_core_has_100_percent_for_all_its_threads() {
        let tree = Tree::default();
        let (host, siblings) = (CpuList::all(4), [(0, 1), (1, 0), (2, 3), (3, 2)]);
        let pcpus = Pcpus::of(host.clone(), &host, &siblings.into_iter().collect());
        let mut ledger = Ledger::new(&tree, pcpus, "this host has".to_owned());
        let refusal = ledger.promise(None, &within("0"), 600).unwrap_err().to_string();
        assert!(
            refusal.contains("pCPU 0 has 50% left of 50%; a core of two threads has"),
            "{refusal}"
        );
        ledger.promise(None, &within("0-1"), 900).unwrap();
        ledger.promise(None, &Affinity::ANYWHERE, 600).unwrap();
        let refusal = ledger.promise(None, &Affinity::ANYWHERE, 600).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "60% cannot be reserved: this host has 50% left of 200%; \
             a core of two threads has 100%; reserve less, or lower another reservation"
        );
    }

    #[test]
    fn a_union_of_sets_has_no_more_than_its_pcpus() {
        let tree = Tree::default();
        let mut ledger =
            Ledger::new(&tree, Pcpus::cores(CpuList::all(4)), "this host has".to_owned());
        ledger.promise(None, &within("0-1"), 1500).unwrap();
        ledger.promise(None, &within("1-2"), 1300).unwrap();
        let refusal = ledger.promise(None, &within("0,2"), 900).unwrap_err().to_string();
        assert!(
            refusal.contains("90% cannot be reserved: pCPUs 0-2 have 20% left of 300%"),
            "{refusal}"
        );
        ledger.promise(None, &within("0,2-3"), 900).unwrap();
        let refusal = ledger.promise(None, &within("0"), 400).unwrap_err().to_string();
        assert!(refusal.contains("this host has 30% left of 400%"), "{refusal}");
    }

    #[test]
    fn vcpus_of_sets_of_their_own_are_promised_what_each_set_holds() {
        let tree = Tree::default();
        let mut ledger =
            Ledger::new(&tree, Pcpus::cores(CpuList::all(4)), "this host has".to_owned());
        let pinned = Affinity::of_vcpus(["0", "1"].map(|cpus| cpus.parse().unwrap()));
        ledger.promise(None, &within("0"), 700).unwrap();
        let refusal = ledger.promise(None, &pinned, 1500).unwrap_err().to_string();
        assert!(
            refusal.contains("150% cannot be reserved: pCPUs 0-1 have 130% left of 200%"),
            "{refusal}"
        );
        ledger.promise(None, &pinned, 1300).unwrap();
        let refusal = ledger.promise(None, &within("1"), 1).unwrap_err().to_string();
        assert!(refusal.contains("0% left"), "{refusal}");
        ledger.withdraw(None, &pinned, 1300);
        ledger.promise(None, &within("1"), 1000).unwrap();
    }

    #[test]
    fn when_pcpus_go_everyone_keeps_the_same_part() {
        let anywhere = Affinity::ANYWHERE;
        let kept = |promises: &[(&Affinity, u32)], total, online: &str| {
            kept_mcpu(promises, total, &Pcpus::cores(online.parse().unwrap()))
        };
        assert_eq!(
            kept(&[(&anywhere, 1500), (&anywhere, 1500)], 3000, "0-3"),
            (vec![1500; 2], vec![])
        );
        let (mcpu, short) = kept(&[(&anywhere, 1500), (&anywhere, 1500)], 3000, "0-1");
        assert_eq!((mcpu, short.len()), (vec![1000; 2], 1));
        assert_eq!((short[0].cpus.as_ref(), short[0].promised_mcpu), (None, 3000));
        // 1000 more are promised to a pool.
        assert_eq!(kept(&[(&anywhere, 1500), (&anywhere, 1500)], 4000, "0-1").0, [750, 750]);
        let online = Pcpus::cores("0-1".parse().unwrap());
        assert_eq!(kept_of_pool(1500, 3000, &online), 1000);
        assert_eq!(kept_of_pool(1500, 2000, &online), 1500);
    }

    #[test]
    fn the_host_keeps_its_part_whatever_is_promised() {
        let tree = Tree::default();
        let host = |cpus: &str| Pcpus::cores(cpus.parse().unwrap()).kept_for_host(100);
        let mut ledger = Ledger::new(&tree, host("0-3"), "this host has".to_owned());
        assert_eq!(
            ledger.promise(None, &Affinity::ANYWHERE, 4000).unwrap_err().to_string(),
            "400% cannot be reserved: this host has 360% left of 400% (40% kept for the host's own tasks); \
             reserve less, or lower another reservation"
        );
        ledger.promise(None, &within("3"), 1000).unwrap();
        ledger.promise(None, &Affinity::ANYWHERE, 2600).unwrap();
        assert_eq!(ledger.host_free_mcpu(), 0);
        let anywhere = Affinity::ANYWHERE;
        let (kept, short) = kept_mcpu(&[(&anywhere, 1800), (&anywhere, 1800)], 3600, &host("0-1"));
        assert_eq!((kept, short[0].promised_mcpu, short[0].size_mcpu), (vec![900; 2], 3600, 1800));
        let (kept, short) = kept_mcpu(&[(&anywhere, 1700)], 1700, &host("0-1"));
        assert_eq!((kept, short), (vec![1700], vec![]));
    }

    #[test]
    fn when_a_set_shrinks_those_in_it_keep_the_same_part() {
        let (node, anywhere) = (within("2-3"), Affinity::ANYWHERE);
        let promises = [(&node, 1200), (&node, 800), (&anywhere, 1500)];
        let (mcpu, short) = kept_mcpu(&promises, 3500, &Pcpus::cores("0-2".parse().unwrap()));
        assert_eq!(mcpu, [600, 400, 1500]);
        let cpus = Some("2".parse().unwrap());
        let members = vec![true, true, false, false];
        assert_eq!(short, [Shortage { cpus, promised_mcpu: 2000, size_mcpu: 1000, members }]);
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
            let mut ledger = Ledger::new(&tree, Pcpus::cores(CpuList::all(4)), "this host has".to_owned());
            let mut vms: Vec<(Option<usize>, u64)> = Vec::new();
            for pool in 0..tree.pools().len() {
                let _ = ledger.promise_pool(pool);
            }
            let pools_within: u64 = ledger.within_mcpu.iter().sum();
            for (pool, mcpu) in promises {
                let free = pool.map_or(4000 - ledger.total_mcpu(), |pool| ledger.free_mcpu(pool));
                let fits = ledger.promise(pool, &Affinity::ANYWHERE, mcpu).is_ok();
                prop_assert_eq!(fits, mcpu <= free, "what is free is what fits");
                vms.extend(fits.then_some((pool, mcpu)));
            }
            // What is taken back leaves nothing, wherever it was.
            let (before, total_mcpu) = (ledger.clone(), ledger.total_mcpu());
            for (pool, mcpu) in &vms {
                ledger.withdraw(*pool, &Affinity::ANYWHERE, *mcpu);
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
