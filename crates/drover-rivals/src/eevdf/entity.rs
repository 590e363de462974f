// SPDX-License-Identifier: GPL-2.0-only
//! Lag, deadline and eligibility: the arithmetic of EEVDF.
//!
//! A group of VMs' vCPUs and a vCPU are entities alike. Virtual time runs at 1 / weight. An entity
//! is eligible when it has had no more than its due, that is when its virtual time is not ahead of
//! the weighted mean of all that compete; of the eligible, the earliest deadline runs.
//!
//! Worked example. Two entities of weight 1024 at 0 and 4 ms: the mean is 2 ms, only the first is
//! eligible, whatever their deadlines. It runs 4 ms: now both are at the mean, and the deadline
//! decides.

/// Weight of a task of nice 0; a group's 1000 shares weigh the same.
pub const NICE_0: u64 = 1024;

/// Something that competes for a pCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entity {
    /// Virtual time received.
    pub vruntime: u64,
    /// Virtual time by which it is to have had its present slice.
    pub deadline: u64,
    /// How far it was behind (positive) the mean when it last left.
    pub lag: i64,
    /// Until this virtual time it is not to be disturbed by equals (RUN_TO_PARITY).
    pub protected: u64,
    /// Its weight.
    pub weight: u64,
}

impl Entity {
    /// An entity that has not competed yet.
    pub fn new(weight: u64) -> Self {
        Self { vruntime: 0, deadline: 0, lag: 0, protected: 0, weight }
    }

    /// CPU time as its virtual time sees it.
    pub fn virtual_ns(&self, ns: u64) -> u64 {
        ns * NICE_0 / self.weight
    }

    /// It has run; true when that was its slice and it has a new one.
    pub fn ran(&mut self, ns: u64, slice_ns: u64) -> bool {
        self.vruntime = self.vruntime.wrapping_add(self.virtual_ns(ns));
        if before(self.vruntime, self.deadline) {
            return false;
        }
        self.deadline = self.vruntime.wrapping_add(self.virtual_ns(slice_ns));
        true
    }

    /// It leaves those with that mean: its lag is kept, within bounds.
    pub fn leave(&mut self, mean: u64, slice_ns: u64, tick_ns: u64) {
        let most = self.virtual_ns((2 * slice_ns).max(tick_ns)) as i64;
        self.lag = (mean.wrapping_sub(self.vruntime) as i64).clamp(-most, most);
    }

    /// It joins others of that mean and total weight, as far behind as when it left: its coming
    /// moves the mean, which the lag is blown up for.
    pub fn join(&mut self, mean: u64, others_weight: u64, slice_ns: u64) {
        let mut lag = self.lag;
        if others_weight > 0 {
            let blown = i128::from(lag) * i128::from(others_weight + self.weight);
            lag = (blown / i128::from(others_weight)) as i64;
        }
        self.vruntime = mean.wrapping_sub(lag as u64);
        self.deadline = self.vruntime.wrapping_add(self.virtual_ns(slice_ns));
    }

    /// Its weight changes while it competes: what it is ahead or behind in real time stays.
    pub fn reweigh(&mut self, weight: u64, mean: u64) {
        let scale = |apart: u64| {
            let apart = i128::from(apart as i64) * i128::from(self.weight) / i128::from(weight);
            apart as i64 as u64
        };
        let lag = scale(mean.wrapping_sub(self.vruntime));
        let left = scale(self.deadline.wrapping_sub(self.vruntime));
        self.vruntime = mean.wrapping_sub(lag);
        self.deadline = self.vruntime.wrapping_add(left);
        self.weight = weight;
    }
}

/// Is virtual time a before b?
pub fn before(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) < 0
}

/// The weighted mean virtual time of the entities, and their total weight; none of none.
pub fn mean<'a>(entities: impl Iterator<Item = &'a Entity> + Clone) -> Option<(u64, u64)> {
    let base = entities.clone().next()?.vruntime;
    let mut weight = 0;
    let mut sum = 0i128;
    for entity in entities {
        weight += entity.weight;
        sum += i128::from(entity.weight) * i128::from(entity.vruntime.wrapping_sub(base) as i64);
    }
    Some((base.wrapping_add(sum.div_euclid(i128::from(weight)) as i64 as u64), weight))
}

/// pick_eevdf: the number of the entity to run. `current` runs now; with `protect` it goes on
/// while it is protected and eligible.
pub fn pick<'a>(
    entities: impl Iterator<Item = &'a Entity> + Clone,
    current: Option<usize>,
    protect: bool,
) -> Option<usize> {
    let (mean, _) = mean(entities.clone())?;
    let eligible = |entity: &Entity| !before(mean, entity.vruntime);
    let mut best: Option<(usize, &Entity)> = None;
    for (number, entity) in entities.enumerate() {
        if !eligible(entity) {
            continue;
        }
        let is_current = current == Some(number);
        if is_current && protect && before(entity.vruntime, entity.protected) {
            return current;
        }
        let sooner = best.is_none_or(|(_, best)| before(entity.deadline, best.deadline));
        if sooner {
            best = Some((number, entity));
        }
    }
    best.map(|(number, _)| number).or(current)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(vruntime: u64, deadline: u64) -> Entity {
        Entity { vruntime, deadline, ..Entity::new(NICE_0) }
    }

    #[test]
    fn who_had_too_much_is_not_eligible() {
        let entities = [at(0, 9), at(4, 5)];
        assert_eq!(mean(entities.iter()), Some((2, 2 * NICE_0)));
        assert_eq!(pick(entities.iter(), None, true), Some(0));
        let entities = [at(4, 9), at(4, 5)];
        assert_eq!(pick(entities.iter(), None, true), Some(1));
        assert_eq!(pick([].iter(), None, true), None);
    }

    #[test]
    fn the_running_one_is_protected_for_its_slice() {
        let mut entities = [at(2, 9), at(2, 5)];
        entities[0].protected = 3;
        assert_eq!(pick(entities.iter(), Some(0), true), Some(0));
        assert_eq!(pick(entities.iter(), Some(0), false), Some(1));
        entities[0].vruntime = 3;
        assert_eq!(pick(entities.iter(), Some(0), true), Some(1));
    }

    proptest! {
        #[test]
        fn lag_is_kept_over_a_sleep(
            others in prop::collection::vec((0u64..1_000_000, 1u64..4096), 1..6),
            lag in -500_000i64..500_000, base in prop::sample::select(vec![0u64, u64::MAX - 1000])
        ) {
            let other = |&(at, weight): &(u64, u64)|
                Entity { vruntime: base.wrapping_add(at), ..Entity::new(weight) };
            let mut all: Vec<Entity> = others.iter().map(other).collect();
            let (old_mean, weight) = mean(all.iter()).unwrap();
            let mut joining = Entity { lag, ..Entity::new(NICE_0) };
            joining.join(old_mean, weight, 1000);
            all.push(joining);
            let (mean, _) = mean(all.iter()).unwrap();
            all.last_mut().unwrap().leave(mean, 1_000_000, 0);
            let kept = all.last().unwrap().lag;
            prop_assert!((kept - lag).abs() <= 2, "{} became {}", lag, kept);
        }
    }
}
