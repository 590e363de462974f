// SPDX-License-Identifier: GPL-2.0-only
//! The observer must not be at the mercy of the observed.

use nix::errno::Errno;

/// While this lives, this thread goes before all normal ones, so that readings are taken when they are
/// due whatever the scheduler under test does. It runs for about a ms at each. What it starts is
/// normal.
///
/// A host that does not allow it measures a little less exactly, no more.
#[derive(Debug)]
pub(crate) struct Precedence;

impl Precedence {
    /// Takes it.
    pub fn take() -> Self {
        let _ = set(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1);
        Self
    }
}

impl Drop for Precedence {
    fn drop(&mut self) {
        let _ = set(libc::SCHED_OTHER, 0);
    }
}

fn set(policy: i32, priority: i32) -> Result<i32, Errno> {
    // SAFETY: sched_param is plain numbers.
    let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
    param.sched_priority = priority;
    // SAFETY: reads the parameter given; 0 is this thread.
    Errno::result(unsafe { libc::sched_setscheduler(0, policy, &raw const param) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> i32 {
        // SAFETY: takes a number and returns one; 0 is this thread.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn precedence_ends_with_its_guard() {
        let before = policy();
        let guard = Precedence::take();
        let during = policy() & !libc::SCHED_RESET_ON_FORK;
        assert!([libc::SCHED_FIFO, before].contains(&during), "taken, or not allowed here");
        drop(guard);
        assert_eq!(policy() & !libc::SCHED_RESET_ON_FORK, libc::SCHED_OTHER);
    }
}
