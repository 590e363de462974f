// SPDX-License-Identifier: GPL-2.0-only
//! Guaranteed delay: the longest that a ready vCPU of a VM may wait on a host.
//!
//! Two promises hold at once, and the shorter counts.
//!
//! *By turns* (policy/wait_bound.h), whatever the shares: with n threads of its own and m of
//! others, on cells of p pCPUs each, where nobody runs unasked for longer than U (a slice and a tick),
//!
//! ```text
//!     2 B(n, p) + W / 4 + (1 + m / p) U,    B(n, p) = n / p * 25 slices, W at least, 8 W at most
//! ```
//!
//! three times B where there are several cells; a confined VM waits its turn in one pCPU's queue,
//! W + B(n + m, 1) + (n + m) U.
//!
//! *By its reservation* r, in pCPUs, on a host of one cell, when it may run everywhere
//! (policy/reserve.h): it may be ahead of its reservation by a slice for each thread and one more;
//! then it is due, and each of its n threads runs once in its turn; and at each pick others that are
//! due, or have a turn, may come first, once each:
//!
//! ```text
//!     (2 n + 1) U / r + (1 + m / p) U
//! ```
//!
//! Time held back by a limit (policy/limit.h) is no waiting and is bounded apart: a VM is released
//! when it may have a burst again, which it may at the latest when the last 101 ms are empty.
//!
//! Worked example. 4 pCPUs, one cell, slices of 7 ms, ticks of 4 ms, U = 11 ms. A VM of one thread
//! with 100 % reserved beside 8 threads of others: by turns 2 s + 0.25 s + 33 ms; by its reservation
//! 33 ms + 33 ms = 66 ms.
//!
//! What it is bad at: it knows no shares. A VM that is owed much by shares alone waits far less than
//! this, but what shares bring depends on who else comes.

/// What of a host decides how long VMs wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host {
    /// pCPUs online.
    pub pcpus: u32,
    /// Last-level caches, each with a run queue of its own.
    pub cells: u32,
    /// How long a thread runs before it is asked again.
    pub slice_ns: u64,
    /// The kernel's tick, at which slices end.
    pub tick_ns: u64,
    /// W: who waits longer has turns.
    pub wait_bound_ns: u64,
}

/// What of a VM decides how long it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vm {
    /// vCPUs and helpers.
    pub threads: u32,
    /// What can be kept of its reservation now, thousandths of a pCPU.
    pub reservation_mcpu: u32,
    /// Its limit or the least of its pools', thousandths of a pCPU.
    pub limit_mcpu: Option<u32>,
    /// Some pCPUs are barred to it.
    pub confined: bool,
}

/// The longest a thread may be kept from running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delay {
    /// Ready, while others run.
    pub ready_ns: u64,
    /// Held back by a limit, on top; 0 without one.
    pub held_ns: u64,
}

/// Turns take one part in so many of a cell's time.
const TURNS_TAKE_ONE_IN: u64 = 50;
/// B is at most so many W.
const THREAD_FACTOR: u64 = 8;
/// The record of a limit goes so far back; a look may be a millisecond late.
const LIMIT_RECORD_NS: u64 = 102_000_000;

/// What that VM is guaranteed on that host, beside so many threads of others.
pub fn guaranteed(host: &Host, vm: &Vm, other_threads: u32) -> Delay {
    let (n, m) = (u64::from(vm.threads.max(1)), u64::from(other_threads));
    let unasked_ns = host.slice_ns + host.tick_ns;
    let per_cell = u64::from((host.pcpus / host.cells.max(1)).max(1));
    let others_ns = unasked_ns + m.div_ceil(per_cell) * unasked_ns;
    let turns = if host.cells > 1 { 3 } else { 2 };
    let by_turns_ns = if vm.confined {
        host.wait_bound_ns + sweep_ns(host, n + m, 1) + (n + m) * unasked_ns
    } else {
        turns * sweep_ns(host, n, per_cell) + host.wait_bound_ns / 4 + others_ns
    };
    let reserved = u64::from(vm.reservation_mcpu).min(n * 1000);
    let by_reservation_ns = if reserved == 0 || host.cells > 1 || vm.confined {
        u64::MAX
    } else {
        (2 * n + 1) * unasked_ns * 1000 / reserved + others_ns
    };
    let held_ns = vm.limit_mcpu.map_or(0, |_| LIMIT_RECORD_NS);
    Delay { ready_ns: by_turns_ns.min(by_reservation_ns), held_ns }
}

/// B: how long each of n threads on p pCPUs waits for its turn.
fn sweep_ns(host: &Host, n: u64, p: u64) -> u64 {
    let sweep_ns = n * (host.slice_ns / 2) * TURNS_TAKE_ONE_IN / p;
    sweep_ns.clamp(host.wait_bound_ns, THREAD_FACTOR * host.wait_bound_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOST: Host = Host {
        pcpus: 4,
        cells: 1,
        slice_ns: 7_000_000,
        tick_ns: 4_000_000,
        wait_bound_ns: 1_000_000_000,
    };
    const VM: Vm = Vm { threads: 1, reservation_mcpu: 0, limit_mcpu: None, confined: false };

    #[test]
    fn the_worked_example_of_the_header_holds() {
        assert_eq!(guaranteed(&HOST, &VM, 8).ready_ns, 2_283_000_000);
        let reserved = Vm { reservation_mcpu: 1000, ..VM };
        assert_eq!(guaranteed(&HOST, &reserved, 8), Delay { ready_ns: 66_000_000, held_ns: 0 });
    }

    #[test]
    fn turns_bound_what_a_small_reservation_would_not() {
        let little = Vm { reservation_mcpu: 1, ..VM };
        assert_eq!(guaranteed(&HOST, &little, 8), guaranteed(&HOST, &VM, 8));
    }

    #[test]
    fn a_limit_is_told_apart() {
        let limited = Vm { limit_mcpu: Some(500), ..VM };
        let delay = guaranteed(&HOST, &limited, 8);
        assert_eq!(delay.ready_ns, guaranteed(&HOST, &VM, 8).ready_ns);
        assert_eq!(delay.held_ns, 102_000_000);
    }

    proptest! {
        #[test]
        fn more_company_and_less_reservation_never_shorten_it(
            pcpus in 1u32..64, cells in 1u32..4, threads in 1u32..64, mcpu in 0u32..64_000,
            others in 0u32..500, confined: bool,
        ) {
            let host = Host { pcpus, cells: cells.min(pcpus), ..HOST };
            let vm = Vm { threads, reservation_mcpu: mcpu, confined, ..VM };
            let delay = guaranteed(&host, &vm, others).ready_ns;
            let less = Vm { reservation_mcpu: mcpu / 2, ..vm };
            prop_assert!(guaranteed(&host, &vm, others + 1).ready_ns >= delay);
            prop_assert!(guaranteed(&host, &less, others).ready_ns >= delay);
        }
    }
}
