// SPDX-License-Identifier: GPL-2.0-only
//! A VM that is killed at its limit goes, soon, and takes nobody along: the kernel queues threads on their
//! way out by itself, and whoever stops them stops them for ever.

use std::thread;
use std::time::{Duration, Instant};

use crate::host::{self, Daemon, drover, say, wait_until};
use crate::vms::{CPU, MicroVm, all_progress_within};

const ROUNDS: u32 = 5;
/// All its threads leave in a few ms of CPU time; others want the two pCPUs, too.
const GOES_WITHIN: Duration = Duration::from_secs(3);
const FOUND_WITHIN: Duration = Duration::from_secs(20);

#[test]
#[ignore = "runs inside the lab"]
fn inside() {
    host::must_be_lab();
    let mut daemon = Daemon::start();
    let rival = MicroVm::start("rival", 4, CPU);
    for round in 0..ROUNDS {
        // An order outlives its VM: one of the same name would have 16 vCPUs boot on 2 % of a pCPU.
        let name = format!("limited{round}");
        let limited = MicroVm::start(&name, 16, CPU);
        wait_until("both are found", FOUND_WITHIN, || host::list().len() == 2);
        let set = drover(&["vm", "set", &name, "--limit", "2%"]);
        assert!(set.status.success(), "{set:?}");
        // At another moment of its budget each time.
        thread::sleep(Duration::from_millis(u64::from(400 + 130 * round)));
        say("kill");
        let begun = Instant::now();
        drop(limited);
        let took = begun.elapsed();
        println!("gone after {took:.2?}");
        daemon.must_serve();
        assert!(took < GOES_WITHIN, "gone after {took:.2?}");
    }
    all_progress_within(Duration::from_millis(200), &[&rival]);
}
