// SPDX-License-Identifier: GPL-2.0-only
//! Watches for core-scheduling cookies on a host that they freeze ([`crate::check::freezes`]).
//!
//! A VM that starts while Drover runs may bring one, as Cloud Hypervisor's do. Nothing says so but the threads
//! themselves, so all of them are asked from time to time, by a thread of its own: who is confined may not ask others'.
//! With the first that has one the host is given back to the kernel's own scheduler, which bears it.
//!
//! Limitations. The host may freeze in the second until it is noticed. Whoever knows that a VMM sets cookies switches
//! that off before.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::check::freezes::{Tagged, cookie_of, cookies_freeze, knows_cookies, tagged};

/// How often threads are asked, and how many times longer than that takes.
const INTERVAL: Duration = Duration::from_secs(1);
const COST_FACTOR: u32 = 200;

/// Somebody who watches.
#[derive(Debug)]
pub struct CookieWatch(Receiver<Tagged>);

impl CookieWatch {
    /// Begins to watch; none where cookies freeze nothing.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start() -> std::io::Result<Option<Self>> {
        let root = Path::new("/");
        if !knows_cookies() || !cookies_freeze(root) {
            return Ok(None);
        }
        let (tell, told) = channel();
        let watch = move || watch(&tell, || tagged(root, cookie_of));
        thread::Builder::new().name("drover-cookies".to_owned()).spawn(watch)?;
        Ok(Some(Self(told)))
    }

    /// Who has a cookie, if anybody was found.
    pub fn found(&self) -> Option<Tagged> {
        self.0.try_recv().ok()
    }
}

/// Looks until somebody is found, or nobody listens any more.
fn watch(tell: &Sender<Tagged>, look: impl Fn() -> Option<Tagged>) {
    loop {
        let begun = Instant::now();
        if let Some(found) = look() {
            // Who does not listen has ended.
            let _ = tell.send(found);
            return;
        }
        thread::sleep(INTERVAL.max(begun.elapsed() * COST_FACTOR));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_cookie_that_comes_later_is_told_once() {
        let (tell, told) = channel();
        let (watch_, looks) = (CookieWatch(told), Cell::new(0));
        let vcpu = Tagged { count: 1, name: "vcpu0".to_owned(), pid: 20, tid: 21 };
        watch(&tell, || {
            assert_eq!(watch_.found(), None);
            looks.set(looks.get() + 1);
            (looks.get() == 2).then(|| vcpu.clone())
        });
        assert_eq!((watch_.found(), watch_.found()), (Some(vcpu), None));
    }
}
