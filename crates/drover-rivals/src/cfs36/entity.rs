// SPDX-License-Identifier: GPL-2.0-only
//! Virtual time, buddies and wake-up granularity: the arithmetic of CFS as of Linux 3.6.
//!
//! Worked example. Three entities of weight 1024 at 0, 3 and 9 ms, granularity 4 ms. The leftmost
//! is the first. A buddy at 3 ms is within the granularity of it and goes first; a buddy at 9 ms is
//! too far ahead and has to wait.

/// Weight of a task of nice 0.
pub(super) const NICE_0: u64 = 1024;

/// Something that competes for a pCPU: a vCPU in its group, or a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entity {
    /// Virtual time received.
    pub(super) vruntime: u64,
    /// Its weight.
    pub(super) weight: u64,
    /// CPU time since it was picked.
    pub(super) ran_ns: u64,
}

impl Entity {
    pub(super) fn new() -> Self {
        Self { vruntime: 0, weight: NICE_0, ran_ns: 0 }
    }

    /// CPU time as its virtual time sees it (calc_delta_fair).
    pub(super) fn virtual_ns(&self, ns: u64) -> u64 {
        ns * NICE_0 / self.weight
    }

    pub(super) fn ran(&mut self, ns: u64) {
        self.vruntime = self.vruntime.wrapping_add(self.virtual_ns(ns));
        self.ran_ns += ns;
    }

    /// place_entity for one that wakes: half a latency behind the others at most.
    pub(super) fn place(&mut self, min_vruntime: u64, latency_ns: u64) {
        let floor = min_vruntime.wrapping_sub(latency_ns / 2);
        if before(self.vruntime, floor) {
            self.vruntime = floor;
        }
    }
}

/// Is virtual time a before b?
pub(super) fn before(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) < 0
}

/// wakeup_preempt_entity: is `se` so far behind `current` that it takes its place?
pub(super) fn preempts(current: &Entity, se: &Entity, granularity_ns: u64) -> bool {
    let ahead = current.vruntime.wrapping_sub(se.vruntime) as i64;
    ahead > 0 && ahead as u64 > se.virtual_ns(granularity_ns)
}

/// Those whom somebody would rather have run, or not, among equals; by any name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Buddies {
    /// Somebody yielded to it.
    pub(super) next: Option<u32>,
    /// It was preempted by a wake-up.
    pub(super) last: Option<u32>,
    /// It yielded.
    pub(super) skip: Option<u32>,
}

impl Buddies {
    pub(super) fn clear(&mut self, name: u32) {
        for buddy in [&mut self.next, &mut self.last, &mut self.skip] {
            *buddy = buddy.filter(|&other| other != name);
        }
    }
}

/// pick_next_entity: the leftmost, unless it would rather not or a buddy is hardly worse.
pub(super) fn pick<'a>(
    entities: impl Iterator<Item = (u32, &'a Entity)> + Clone,
    buddies: &Buddies,
    granularity_ns: u64,
) -> Option<u32> {
    let least = |without: Option<u32>| {
        let others = entities.clone().filter(move |(name, _)| Some(*name) != without);
        others.reduce(
            |best, next| {
                if before(next.1.vruntime, best.1.vruntime) { next } else { best }
            },
        )
    };
    let (left_name, left) = least(None)?;
    let fair = |entity: &Entity| !preempts(entity, left, granularity_ns);
    let mut chosen = left_name;
    if buddies.skip == Some(left_name) {
        if let Some((second, _)) = least(buddies.skip).filter(|(_, second)| fair(second)) {
            chosen = second;
        }
    }
    for buddy in [buddies.last, buddies.next].into_iter().flatten() {
        if entities.clone().any(|(name, entity)| name == buddy && fair(entity)) {
            chosen = buddy;
        }
    }
    Some(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn at(vruntime_ms: u64) -> Entity {
        Entity { vruntime: vruntime_ms * MS, ..Entity::new() }
    }

    fn picked(all: &[Entity], buddies: &Buddies) -> Option<u32> {
        pick(all.iter().enumerate().map(|(name, entity)| (name as u32, entity)), buddies, 4 * MS)
    }

    #[test]
    fn buddies_go_first_when_they_are_hardly_worse() {
        let all = [at(0), at(3), at(9)];
        let next = |name| Buddies { next: Some(name), ..Buddies::default() };
        assert_eq!(picked(&all, &Buddies::default()), Some(0));
        assert_eq!((picked(&all, &next(1)), picked(&all, &next(2))), (Some(1), Some(0)));
        let skip = Buddies { skip: Some(0), ..Buddies::default() };
        assert_eq!(picked(&all, &skip), Some(1));
        assert_eq!(picked(&[at(0), at(9)], &skip), Some(0), "too far ahead to take its turn");
        let both = Buddies { next: Some(1), skip: Some(0), last: Some(2) };
        assert_eq!(picked(&all, &both), Some(1));
        assert_eq!(picked(&[], &both), None);
    }

    #[test]
    fn a_sleeper_comes_back_half_a_latency_behind_at_most() {
        let mut long = at(0);
        long.place(100 * MS, 24 * MS);
        assert_eq!(long.vruntime, 88 * MS);
        let mut short = at(95);
        short.place(100 * MS, 24 * MS);
        assert_eq!(short.vruntime, 95 * MS);
    }

    #[test]
    fn virtual_time_wraps() {
        let (early, late) = (Entity { vruntime: u64::MAX - 5, ..at(0) }, at(0));
        assert!(before(early.vruntime, late.vruntime));
        assert_eq!(picked(&[late, early], &Buddies::default()), Some(1));
        assert!(!preempts(&early, &late, 0) && preempts(&late, &early, 0));
    }
}
