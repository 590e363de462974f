// SPDX-License-Identifier: GPL-2.0-only
//! A whole NUMA node goes while VMs are confined to it, and comes back: everybody gets on, and shares go on.

use std::thread;
use std::time::Duration;

use crate::host::{say, set_online};
use crate::tasks::may_run_on;
use crate::vms::{CPU, MicroVm, SLEEP, all_progress_within, parts_pct_during};

/// The pCPUs of each node, and of both.
const NODES: [[usize; 2]; 2] = [[0, 1], [2, 3]];
const ALL: [usize; 4] = [0, 1, 2, 3];
const PROGRESS: Duration = Duration::from_secs(1);
/// Who comes from an emptier set waits so long at most, and is level with the others then.
const FORGIVEN: Duration = Duration::from_millis(1250);
const SHARES_WINDOW: Duration = Duration::from_millis(1500);
/// So many percentage points parts may be off.
const OFF_MAX: f64 = 2.0;

/// Without a pCPU where they may run the kernel lets threads run everywhere, and leaves it at that: who confined
/// them has to do so again.
pub fn one_goes_and_comes_back() {
    let beside = MicroVm::start("beside", 3, CPU);
    let (small, large) = (MicroVm::start("small", 1, CPU), MicroVm::start("large", 3, CPU));
    let sleeper = MicroVm::start("sleeper", 2, SLEEP);
    let vms = [&beside, &small, &large, &sleeper];
    let confine = || {
        beside.confine(&NODES[0]);
        [&small, &large, &sleeper].iter().for_each(|vm| vm.confine(&NODES[1]));
    };
    let may_run_on_are = |pcpus: &[usize]| {
        let threads = [&small, &large].into_iter().flat_map(MicroVm::vcpu_threads);
        threads.for_each(|thread| assert_eq!(may_run_on(thread), pcpus));
    };
    confine();
    shares_are("on a node", &[&small, &large], &[25.0, 75.0]);
    say("a node goes");
    NODES[1].iter().for_each(|&pcpu| set_online(pcpu, false));
    all_progress_within(PROGRESS, &vms);
    may_run_on_are(&NODES[0]);
    // A VM counts for no more vCPUs than there are pCPUs.
    shares_are("on the other node", &[&beside, &small, &large], &[40.0, 20.0, 40.0]);
    say("it comes back");
    NODES[1].iter().for_each(|&pcpu| set_online(pcpu, true));
    all_progress_within(PROGRESS, &vms);
    may_run_on_are(&ALL);
    confine();
    shares_are("on the node again", &[&small, &large], &[25.0, 75.0]);
    all_progress_within(PROGRESS, &vms);
}

/// Demands that VMs have these parts, in percent, of what they get together.
fn shares_are(place: &str, vms: &[&MicroVm], due: &[f64]) {
    thread::sleep(FORGIVEN);
    let parts = parts_pct_during(SHARES_WINDOW, vms);
    println!("{place}: {parts:.1?} %, due {due:.1?}");
    let off = parts.iter().zip(due).map(|(part, due)| (part - due).abs()).fold(0.0, f64::max);
    assert!(off <= OFF_MAX, "{place}: parts of {parts:.1?} % instead of {due:.1?}");
}
