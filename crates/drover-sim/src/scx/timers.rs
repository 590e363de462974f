// SPDX-License-Identifier: GPL-2.0-only
//! The timers of a policy, one for each slot of a VM, as the kernel keeps them.

use std::collections::BTreeMap;

/// Timers that are set.
#[derive(Debug, Default)]
pub(super) struct Timers {
    /// By when each goes off, by the machine's clock, and its slot: when it is due by the policy's.
    set: BTreeMap<(u64, u32), u64>,
    /// When the timer of a slot goes off, 0 for not at all.
    goes_off_ns: Vec<u64>,
}

impl Timers {
    /// Sets the slot's timer, which is not set for any other moment any more; returns when the first of all
    /// goes off.
    pub(super) fn set(&mut self, slot: u32, goes_off_ns: u64, due_ns: u64) -> u64 {
        let index = slot as usize;
        if self.goes_off_ns.len() <= index {
            self.goes_off_ns.resize(index + 1, 0);
        }
        self.set.remove(&(self.goes_off_ns[index], slot));
        self.goes_off_ns[index] = goes_off_ns;
        self.set.insert((goes_off_ns, slot), due_ns);
        self.next_ns().unwrap_or(goes_off_ns)
    }

    /// When the first goes off.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.set.keys().next().map(|&(at_ns, _)| at_ns)
    }

    /// The slot whose timer goes off first, and when it was due.
    pub(super) fn take_first(&mut self) -> Option<(u32, u64)> {
        self.set.pop_first().map(|((_, slot), due_ns)| (slot, due_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_one_timer_and_the_first_goes_off_first() {
        let mut timers = Timers::default();
        assert_eq!(timers.set(1, 50, 49), 50);
        assert_eq!(timers.set(2, 30, 29), 30);
        assert_eq!(timers.set(2, 70, 69), 50);
        assert_eq!(timers.take_first(), Some((1, 49)));
        assert_eq!(timers.next_ns(), Some(70));
        assert_eq!(timers.take_first(), Some((2, 69)));
        assert_eq!((timers.take_first(), timers.next_ns()), (None, None));
    }
}
