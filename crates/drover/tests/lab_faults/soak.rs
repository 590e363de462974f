// SPDX-License-Identifier: GPL-2.0-only
//! Mixed load at 3:1: no stall, no warning, nobody waits long. Ten seconds on the exact clock, or for as long
//! as asked on the real one.
//!
//! An hour: `DROVER_SOAK_S=3600 cargo test --release -p drover --test lab_faults soak -- --nocapture`.

use std::time::{Duration, Instant};

use crate::host::{self, Daemon, say};
use crate::vms::{CPU, MicroVm, SLEEP, all_progress_within};

/// How long, in seconds.
pub const SECONDS: &str = "DROVER_SOAK_S";
const SECONDS_DEFAULT: u64 = 10;
/// The wait bound is 1 s; the kernel's watchdog waits for 26.
const WAIT_MAX_MS: f64 = 1500.0;
/// One of poor siblings waits for a turn of its VM's, and then of its own.
const PROGRESS: Duration = Duration::from_secs(4);

/// The length of the soak.
pub fn seconds() -> u64 {
    asked_seconds().unwrap_or(SECONDS_DEFAULT)
}

/// The length somebody asked for, if anybody did.
pub fn asked_seconds() -> Option<u64> {
    std::env::var(SECONDS).ok().map(|text| text.parse().expect("a number"))
}

#[test]
#[ignore = "runs inside the lab"]
fn inside() {
    host::must_be_lab();
    let lock = r#"{"kind":"lock"}"#;
    let barrier = r#"{"kind":"barrier"}"#;
    let kinds = [lock, barrier, SLEEP, CPU, r#"{"kind":"mix"}"#];
    let mut daemon = Daemon::start();
    let mut vms = Vec::new();
    for (index, kind) in kinds.into_iter().enumerate() {
        vms.push(MicroVm::start(&format!("poor{index}"), 2, kind));
        vms.push(MicroVm::start(&format!("rich{index}"), 2, kind));
    }
    let vms: Vec<&MicroVm> = vms.iter().collect();
    let patience = Duration::from_secs(10);
    host::wait_until("VMs are found", patience, || host::list().len() == vms.len());
    vms.iter().filter(|vm| vm.name.starts_with("rich")).for_each(|vm| {
        host::set_shares(&vm.name, 6000);
    });
    let (begun, limit) = (Instant::now(), Duration::from_secs(seconds()));
    let mut next_word = Duration::ZERO;
    while begun.elapsed() < limit {
        all_progress_within(PROGRESS, &vms);
        daemon.must_serve();
        if begun.elapsed() >= next_word {
            next_word += limit / 10;
            say(&format!("longest wait so far {:.0} ms", longest_wait_ms()));
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    let longest_ms = longest_wait_ms();
    say(&format!("soaked for {} s, longest wait {longest_ms:.0} ms", limit.as_secs()));
    assert!(longest_ms < WAIT_MAX_MS, "somebody waited for {longest_ms} ms");
}

fn longest_wait_ms() -> f64 {
    host::list().iter().filter_map(|vm| vm.counters.longest_ready_ms).fold(0.0, f64::max)
}
