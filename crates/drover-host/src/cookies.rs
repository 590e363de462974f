// SPDX-License-Identifier: GPL-2.0-only
//! Watches for core-scheduling cookies on a host that they freeze ([`crate::check::freezes`]).
//!
//! A VM that starts while Drover runs may bring one, as Cloud Hypervisor's do. Nothing says so but the threads
//! themselves, so all of them are asked from time to time, by a process of its own (`helper`): the daemon may not ask others'.
//! With the first that has one the host is given back to the kernel's own scheduler, which bears it.
//!
//! Limitations. The host may freeze in the second until it is noticed. Whoever knows that a VMM sets cookies switches
//! that off before.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::check::freezes::{Tagged, cookies_freeze, knows_cookies};

/// How often threads are asked, and how many times longer than that takes.
const INTERVAL: Duration = Duration::from_secs(1);
const COST_FACTOR: u32 = 200;

/// Is there anything to watch for on this host?
pub fn are_a_danger() -> bool {
    knows_cookies() && cookies_freeze(Path::new("/"))
}

/// Looks until somebody is found.
pub fn watch(look: impl Fn() -> Option<Tagged>) -> Tagged {
    loop {
        let begun = Instant::now();
        if let Some(found) = look() {
            return found;
        }
        thread::sleep(INTERVAL.max(begun.elapsed() * COST_FACTOR));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_cookie_that_comes_later_is_found() {
        let looks = Cell::new(0);
        let vcpu = Tagged { count: 1, name: "vcpu0".to_owned(), pid: 20, tid: 21 };
        let found = watch(|| {
            looks.set(looks.get() + 1);
            (looks.get() == 2).then(|| vcpu.clone())
        });
        assert_eq!((found, looks.get()), (vcpu, 2));
    }
}
