// SPDX-License-Identifier: GPL-2.0-only
//! Watches for core-scheduling cookies on a host that they freeze (`check::freezes`).
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

use crate::files::{self, ENTRIES_MAX, THREADS_MAX};
use crate::release::version;

/// The first kernel on which cookies freeze no host.
const COOKIES_MENDED: (u32, u32, u32) = (7, 3, 4);
/// How often threads are asked, and how many times longer than that takes.
const INTERVAL: Duration = Duration::from_secs(1);
const COST_FACTOR: u32 = 200;

/// A thread that has a cookie, and how many there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tagged {
    /// How many threads have one.
    pub count: usize,
    /// What the first is called.
    pub name: String,
    /// Its process.
    pub pid: i32,
    /// Its own number.
    pub tid: i32,
}

impl std::fmt::Display for Tagged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { count, name, pid, tid } = self;
        let threads = if *count == 1 { "1 thread has" } else { &format!("{count} threads have") };
        write!(f, "{threads} a core-scheduling cookie, {name} of process {pid} (thread {tid})")?;
        if *count > 1 { write!(f, " first") } else { Ok(()) }
    }
}

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

/// Would a cookie freeze this host?
pub fn cookies_freeze(root: &Path) -> bool {
    let active = files::kernel(&root.join("sys/devices/system/cpu/smt/active"));
    let has_siblings = active.is_ok_and(|it| it.trim() == "1");
    has_siblings && version(root) < COOKIES_MENDED
}

/// Who has a cookie, of all threads of this host.
pub fn tagged(root: &Path, cookie_of: impl Fn(i32) -> u64) -> Option<Tagged> {
    let number = |entry: &std::fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    let mut found: Option<Tagged> = None;
    for process in files::entries(&root.join("proc"), ENTRIES_MAX) {
        let Some(pid) = number(&process) else { continue };
        let threads = files::entries(&process.path().join("task"), THREADS_MAX);
        for (thread, tid) in threads.filter_map(|thread| Some((thread.path(), number(&thread)?))) {
            if cookie_of(tid) == 0 {
                continue;
            }
            let name = || files::kernel(&thread.join("comm")).unwrap_or_default().trim().to_owned();
            found.get_or_insert_with(|| Tagged { count: 0, name: name(), pid, tid }).count += 1;
        }
    }
    found
}

/// The core-scheduling cookie of a thread; 0 where it has none, is gone, or may not be asked.
pub fn cookie_of(tid: i32) -> u64 {
    asked(tid).unwrap_or(0)
}

/// Does this kernel know cookies? Debian's do not, built without CONFIG_SCHED_CORE.
pub fn knows_cookies() -> bool {
    asked(0).is_some()
}

/// The cookie of a thread, 0: of this one; none: it cannot be asked.
fn asked(tid: i32) -> Option<u64> {
    let mut cookie: u64 = 0;
    // SAFETY: the kernel writes one u64 there, and nothing when it fails. The 0 means a single thread (PIDTYPE_PID).
    let done = unsafe {
        libc::prctl(libc::PR_SCHED_CORE, libc::PR_SCHED_CORE_GET, tid, 0, &raw mut cookie)
    };
    (done == 0).then_some(cookie)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_host::host;
    use std::cell::Cell;

    /// Of Cloud Hypervisor only the two vCPU threads have a cookie.
    const VMM: [(&str, &str); 4] = [
        ("proc/1/task/1/comm", "systemd\n"),
        ("proc/20/task/20/comm", "cloud-hyperviso\n"),
        ("proc/20/task/21/comm", "vcpu0\n"),
        ("proc/20/task/22/comm", "vcpu1\n"),
    ];

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

    #[test]
    fn each_thread_is_asked_not_the_leaders_of_processes_only() {
        let host = host(&VMM);
        let found = tagged(host.path(), |tid| u64::from(tid > 20)).unwrap();
        assert_eq!((found.count, found.pid), (2, 20));
        assert!(found.to_string().starts_with("2 threads have a core-scheduling cookie, vcpu"));
        assert_eq!(tagged(host.path(), |_| 0), None);
        assert_eq!(cookie_of(0x3fff_fff0), 0, "nobody has that number");
    }
}
