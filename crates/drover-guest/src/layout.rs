// SPDX-License-Identifier: GPL-2.0-only
//! guest/layout.h in Rust: what a micro VM and the host see of each other.
//!
//! Every word is an atomic: guest, VMM and observers touch them at the same time. Orderings matter
//! only where a comment says so; a counter is a number of its own.

use drover_core::histogram::BUCKETS;
use std::mem::{offset_of, size_of};
use std::sync::atomic::{AtomicU32, AtomicU64};

pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"Dguest01");
pub(crate) const VERSION: u32 = 4;

pub(crate) const CODE_ADDRESS: u64 = 0x1000;
pub(crate) const CODE_END: u64 = 0x10000;
pub(crate) const PAGE_TABLES_ADDRESS: u64 = 0x10000;
pub(crate) const STEAL_ADDRESS: u64 = 0x20000;
pub(crate) const STEAL_RECORD_BYTES: u64 = 64;
pub(crate) const STACKS_ADDRESS: u64 = 0x10_0000;
pub(crate) const STACK_BYTES: u64 = 0x4000;
pub(crate) const STATS_ADDRESS: u64 = 0x1000_0000;

pub(crate) const CONTROL_BYTES: usize = 4096;
pub(crate) const PANIC_PORT: u16 = 0xf4;
pub(crate) const IO_PORTS: u16 = 0x500;
pub(crate) const IO_VECTOR: u8 = 0x21;

/// What `Control::workload` may hold.
pub(crate) const WORKLOAD_CPU: u32 = 1;
pub(crate) const WORKLOAD_LOCK: u32 = 2;
pub(crate) const WORKLOAD_BARRIER: u32 = 3;
pub(crate) const WORKLOAD_SLEEP: u32 = 4;
pub(crate) const WORKLOAD_MIX: u32 = 5;
pub(crate) const WORKLOAD_YIELD: u32 = 6;
pub(crate) const WORKLOAD_IO: u32 = 7;

/// What `Vcpu::state` holds once the guest has taken its place at the gate.
pub(crate) const VCPU_AT_GATE: u32 = 1;

/// The control page.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Control {
    /// Stored last, with Release: who sees it (Acquire) sees all the rest.
    pub magic: AtomicU64,
    pub version: AtomicU32,
    pub vcpus: AtomicU32,
    pub workload: AtomicU32,
    pub go: AtomicU32,
    pub tsc_deadline: AtomicU32,
    pub cpu_duty_pct: AtomicU32,
    pub cpu_then_duty_pct: AtomicU32,
    pub reserved: AtomicU32,
    pub ns_per_cycle_q32: AtomicU64,
    pub gate_poll_cycles: AtomicU64,
    pub start_tsc: AtomicU64,
    pub cpu_unit_loops: AtomicU64,
    pub cpu_period_cycles: AtomicU64,
    pub cpu_then_cycles: AtomicU64,
    pub lock_hold_loops: AtomicU64,
    pub lock_think_loops: AtomicU64,
    pub barrier_work_loops: AtomicU64,
    pub sleep_period_cycles: AtomicU64,
    pub sleep_work_loops: AtomicU64,
    pub yield_work_loops: AtomicU64,
    pub io_work_loops: AtomicU64,
    pub notify_cycles: AtomicU64,
}

/// What one vCPU counts.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Vcpu {
    pub state: AtomicU32,
    pub reserved: AtomicU32,
    pub progress: AtomicU64,
    pub wake_count: AtomicU64,
    pub wake_sum_ns: AtomicU64,
    pub wake_max_ns: AtomicU64,
    pub yields: AtomicU64,
    /// Written by its back end alone.
    pub answers: AtomicU64,
    pub padding: AtomicU64,
    pub wake_buckets: [AtomicU64; BUCKETS],
}

const _: () = assert!(size_of::<Control>() == 152 && size_of::<Control>() <= CONTROL_BYTES);
const _: () = assert!(offset_of!(Control, go) == 20);
const _: () = assert!(offset_of!(Control, ns_per_cycle_q32) == 40);
const _: () = assert!(offset_of!(Control, notify_cycles) == 144);
const _: () = assert!(size_of::<Vcpu>() == 8256);
const _: () = assert!(offset_of!(Vcpu, wake_buckets) == 64);

// The regions of guest memory do not overlap.
const _: () = assert!(CODE_ADDRESS < CODE_END && CODE_END <= PAGE_TABLES_ADDRESS);
const _: () = assert!(PAGE_TABLES_ADDRESS + 3 * 4096 <= STEAL_ADDRESS);
const _: () = assert!(STEAL_ADDRESS + 256 * STEAL_RECORD_BYTES <= STACKS_ADDRESS);
const _: () = assert!(STACKS_ADDRESS + 256 * STACK_BYTES <= STATS_ADDRESS);

/// Size of the shared file of a VM with `vcpus` vCPUs: whole pages, as a memory slot must be.
pub(crate) fn stats_bytes(vcpus: u32) -> usize {
    (CONTROL_BYTES + vcpus as usize * size_of::<Vcpu>()).next_multiple_of(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_holds_every_vcpu_and_is_whole_pages() {
        assert_eq!(stats_bytes(1), 4096 + 3 * 4096);
        for vcpus in 1..=256 {
            let bytes = stats_bytes(vcpus);
            assert!(bytes >= CONTROL_BYTES + vcpus as usize * 8256 && bytes % 4096 == 0);
        }
    }
}
