// SPDX-License-Identifier: GPL-2.0-only
//! What things cost on the simulated host, and where each default comes from.
//!
//! All times are CPU time in ns taken from whoever runs (or latency, where it says so). They do not
//! depend on who runs beside whom: caches, hardware threads and memory have no speed model yet.

/// The price list of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Costs {
    /// Interval of the scheduler's tick. 250 Hz is what Debian, Ubuntu and Fedora build.
    pub tick_interval_ns: u64,
    /// From one thread to another. lmbench's lat_ctx of two processes on server CPUs of the last
    /// ten years: 1 to 2 µs; a vCPU also reloads guest state (vmcs/vmcb) at the next entry.
    pub context_switch_ns: u64,
    /// The timer interrupt with its VM exit, scheduler_tick and re-entry. "osnoise" of the kernel's
    /// tracing reports 1 to 3 µs for the tick on an isolated CPU.
    pub tick_ns: u64,
    /// Latency from sending a reschedule interrupt to its handler. kvm-unit-tests and the
    /// kernel's ipi benchmark module: about 1 µs between cores of a socket.
    pub ipi_latency_ns: u64,
    /// What an interrupt costs the one who runs there: VM exit, handler, re-entry.
    pub interrupt_ns: u64,
    /// Latency added when the interrupted pCPU was idle: exit latency of C1 as intel_idle and
    /// acpi_idle state it, 1 to 2 µs. Deeper states are not modelled.
    pub idle_exit_ns: u64,
    /// Latency of a kick a scheduler gives from within its own callbacks: sched_ext sends it
    /// through irq_work, one self-interrupt more.
    pub kick_latency_ns: u64,
    /// A vCPU that goes to sleep: it arms its timer (one exit), halts (another), and KVM finds
    /// nothing to do and blocks. kvm-unit-tests vmexit: 1,200 to 2,000 cycles an exit.
    pub halt_ns: u64,
    /// From the scheduler's switch to a vCPU that wakes from a halt to its guest's next
    /// instruction: interrupt injection, entry, and the guest's own handler.
    pub resume_ns: u64,
    /// How long a hand-over of a spinlock or the opening of a barrier takes to be seen by a vCPU
    /// that spins: one transfer of a cache line between cores, 50 to 150 ns.
    pub handover_ns: u64,
    /// One atomic operation on a lock or barrier.
    pub atomic_ns: u64,
    /// A vCPU whose VM is killed: leaving KVM_RUN and exiting, until the thread is gone.
    pub exit_thread_ns: u64,
    /// Pause-loop exits; none: the CPU has no pause filter (as TCG).
    pub pause_loop: Option<PauseLoop>,
}

/// Pause-loop exits as KVM sets them up. Windows are in ns of spinning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PauseLoop {
    /// First window: kvm_intel's ple_window is 4096 cycles, 1.6 µs at 2.6 GHz.
    pub window_ns: u64,
    /// Factor by which an exit grows it: ple_window_grow, 2.
    pub grow: u64,
    /// Largest window: ple_window_max, the product of 16 bits and the factor.
    pub window_max_ns: u64,
    /// The exit and the search for a vCPU to yield to.
    pub exit_ns: u64,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            tick_interval_ns: 4_000_000,
            context_switch_ns: 1_500,
            tick_ns: 2_000,
            ipi_latency_ns: 1_000,
            interrupt_ns: 1_500,
            idle_exit_ns: 1_500,
            kick_latency_ns: 500,
            halt_ns: 2_500,
            resume_ns: 1_500,
            handover_ns: 100,
            atomic_ns: 20,
            exit_thread_ns: 20_000,
            pause_loop: None,
        }
    }
}
