// SPDX-License-Identifier: GPL-2.0-only
//! What things cost on the simulated host, and where each default comes from.
//!
//! All times are CPU time in ns taken from whoever runs (or latency, where it says so). They do not
//! depend on who runs beside whom; how fast work gets on does (crate::speed_model). One
//! exception: [`Costs::in_turns`].

use drover_scenario::Host;

/// The price list of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Costs {
    /// Interval of the scheduler's tick. 250 Hz is what Debian, Ubuntu and Fedora build.
    pub tick_interval_ns: u64,
    /// pCPUs tick one after the other, spread over half an interval (tick_setup_sched_timer with
    /// skew_tick=1), not all at the same moment. The kernel's default is off, and no distribution
    /// turns it on.
    pub skew_tick: bool,
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
    /// What Drover's daemon does for one VM each time it looks. Nothing by default: some 60,000
    /// instructions five times a second are a ten-thousandth of a real CPU.
    pub daemon_look_ns: u64,
    /// How long a hand-over of a spinlock or the opening of a barrier takes to be seen by a vCPU
    /// that spins: one transfer of a cache line between cores, 50 to 150 ns.
    pub handover_ns: u64,
    /// One atomic operation on a lock or barrier.
    pub atomic_ns: u64,
    /// A cache line that another core of the same last-level cache has written: 109 cycles on a Xeon E7-8867L
    /// at 2.13 GHz (David, Guerraoui, Trigonakis, "Everything you always wanted to know about synchronization
    /// but were afraid to ask", SOSP 2013, table of latencies by distance).
    pub line_near_ns: u64,
    /// The same from another socket's cache, one hop away: 289 cycles there.
    pub line_far_ns: u64,
    /// A vCPU whose VM is killed: leaving KVM_RUN and exiting, until the thread is gone.
    pub exit_thread_ns: u64,
    /// A VM exit for a request of the guest (an interrupt sent to a sibling, a hypercall, a kick
    /// of a device) and the entry after it. kvm-unit-tests vmexit, "vmcall" and "ipi" on server
    /// CPUs of the last ten years: 1,200 to 2,500 cycles.
    pub vm_exit_ns: u64,
    /// Added to a switch to a task that last ran on another pCPU: two run queue locks instead of
    /// one, and the task's own structures fetched from another core's cache, some ten lines of 50
    /// to 100 ns. What the guest's own data lose is the speed model's.
    pub migration_ns: u64,
    /// One round of a guest's spin loop: PAUSE, a load, a compare. PAUSE takes about 40 cycles
    /// before Skylake and 140 from then on (Intel's optimization manual).
    pub spin_round_cycles: u64,
    /// Clock that turns cycles into time, where the host does not state its own.
    pub clock_mhz: u64,
    /// pCPUs are emulated one after the other, so long each; 0: they are there all at once.
    pub turn_ns: u64,
    /// Pause-loop exits; none: the CPU has no pause filter (as TCG).
    pub pause_loop: Option<PauseLoop>,
}

/// Pause-loop exits as KVM sets them up, windows in cycles of spinning, and what they cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PauseLoop {
    /// Whose KVM.
    pub kvm: Kvm,
    /// Of the exits of a vCPU within one tick only the first looks for a sibling, the others yield to anybody: seed
    /// 002's patch, as its slides tell of it.
    pub throttled: bool,
    /// PAUSEs farther apart than this are no loop (kvm_intel's ple_gap).
    pub gap_cycles: u64,
    /// First window (ple_window).
    pub window_cycles: u64,
    /// An exit multiplies the window by this, or adds it if it is larger than a window
    /// (ple_window_grow).
    pub grow: u64,
    /// A switch to the vCPU divides the window by this, or takes it off; 0: back to the first
    /// (ple_window_shrink).
    pub shrink: u64,
    /// Largest window (ple_window_max).
    pub window_max_cycles: u64,
    /// The exit, kvm_vcpu_on_spin without what follows, and the entry: as a VM exit that does
    /// something.
    pub exit_ns: u64,
    /// To look at one vCPU that might be yielded to: from the vCPU to its task.
    pub candidate_ns: u64,
    /// Both run queues' locks are held for so long by a yield; whoever needs either waits. Two
    /// locked instructions on lines that others write, 100 to 200 ns each between sockets, and the
    /// work between.
    pub yield_ns: u64,
}

impl PauseLoop {
    /// kvm_intel's defaults of Linux 6.18.
    pub fn linux_6_18() -> Self {
        Self {
            kvm: Kvm::Linux618,
            throttled: false,
            gap_cycles: 128,
            window_cycles: 4096,
            grow: 2,
            shrink: 0,
            window_max_cycles: u64::from(u32::MAX),
            exit_ns: 1_000,
            candidate_ns: 50,
            yield_ns: 500,
        }
    }

    /// Those of Linux 3.6, whose window neither grows nor shrinks.
    pub fn linux_3_6() -> Self {
        Self { kvm: Kvm::Linux36, grow: 1, ..Self::linux_6_18() }
    }

    /// The window after an exit (grow_ple_window).
    pub fn grown(&self, window_cycles: u64) -> u64 {
        let grown = match self.grow {
            0 => self.window_cycles,
            grow if grow < self.window_cycles => window_cycles.saturating_mul(grow),
            grow => window_cycles.saturating_add(grow),
        };
        grown.min(self.window_max_cycles)
    }

    /// The window when the vCPU is switched to (shrink_ple_window).
    pub fn entered(&self, window_cycles: u64) -> u64 {
        let shrunk = match self.shrink {
            0 => self.window_cycles,
            shrink if shrink < self.window_cycles => window_cycles / shrink,
            shrink => window_cycles.saturating_sub(shrink),
        };
        shrunk.max(self.window_cycles)
    }
}

/// Which kernel's KVM yields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kvm {
    /// Linux 3.6: a window that stays as it is, any sibling that is not halted and eligible, no
    /// look at the run queues before both are locked.
    Linux36,
    /// Linux 6.18.
    Linux618,
}

impl Costs {
    /// The prices of that host: the default ones, but for what it states.
    pub fn of(host: &Host) -> Self {
        let mut costs = Self { skew_tick: host.skew_tick, ..Self::default() };
        if let Some(clock_mhz) = host.clock_mhz {
            costs.clock_mhz = clock_mhz.into();
        }
        if let Some(round_us) = host.round_us {
            costs.turn_ns = (u64::from(round_us) * 1000 / u64::from(host.pcpus())).max(1);
        }
        let stated = &host.costs;
        for (price_ns, stated_ns) in [
            (&mut costs.tick_ns, stated.tick_ns),
            (&mut costs.context_switch_ns, stated.context_switch_ns),
            (&mut costs.interrupt_ns, stated.interrupt_ns),
            (&mut costs.idle_exit_ns, stated.idle_exit_ns),
            (&mut costs.halt_ns, stated.halt_ns),
            (&mut costs.resume_ns, stated.resume_ns),
            (&mut costs.daemon_look_ns, stated.daemon_look_ns),
        ] {
            *price_ns = stated_ns.map_or(*price_ns, u64::from);
        }
        costs
    }

    /// These prices on a host whose pCPUs are emulated in turn, so many of which want one (at least
    /// 1). Virtual time passes in all turns, so that whatever takes instructions takes so many times
    /// as long; and who is interrupted notices when its turn comes, on average after half of the
    /// others'. So it is in the lab on the exact clock (scenarios/lab-turns.toml): an otherwise equal
    /// sleep took a VM 43, 89, 166 and 187 us of CPU time beside 0 to 3 busy pCPUs.
    pub fn in_turns(&self, busy: u64) -> Self {
        assert!(self.turn_ns > 0 && busy > 0);
        let times = |ns: u64| ns * busy;
        let others_ns = self.turn_ns * (busy - 1);
        Self {
            context_switch_ns: times(self.context_switch_ns),
            tick_ns: times(self.tick_ns),
            ipi_latency_ns: times(self.ipi_latency_ns),
            interrupt_ns: times(self.interrupt_ns),
            idle_exit_ns: times(self.idle_exit_ns),
            kick_latency_ns: times(self.kick_latency_ns),
            // Timers are armed on the way to sleep, and that ends the turn.
            halt_ns: times(self.halt_ns) + others_ns,
            resume_ns: times(self.resume_ns),
            atomic_ns: times(self.atomic_ns),
            exit_thread_ns: times(self.exit_thread_ns),
            vm_exit_ns: times(self.vm_exit_ns),
            migration_ns: times(self.migration_ns),
            ..self.clone()
        }
    }

    /// Cycles as time.
    pub fn cycles_ns(&self, cycles: u64) -> u64 {
        cycles.saturating_mul(1000) / self.clock_mhz
    }

    /// How long a vCPU with that window spins until the pause filter lets it out; never where
    /// there is none, or where it does not take the guest's loop for one.
    pub fn window_ns(&self, window_cycles: u64) -> u64 {
        match &self.pause_loop {
            Some(filter) if self.spin_round_cycles <= filter.gap_cycles => {
                self.cycles_ns(window_cycles)
            }
            _ => u64::MAX,
        }
    }
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            tick_interval_ns: 4_000_000,
            skew_tick: false,
            context_switch_ns: 1_500,
            tick_ns: 2_000,
            ipi_latency_ns: 1_000,
            interrupt_ns: 1_500,
            idle_exit_ns: 1_500,
            kick_latency_ns: 500,
            halt_ns: 2_500,
            resume_ns: 1_500,
            daemon_look_ns: 0,
            handover_ns: 100,
            atomic_ns: 20,
            line_near_ns: 51,
            line_far_ns: 136,
            exit_thread_ns: 20_000,
            vm_exit_ns: 700,
            migration_ns: 1_000,
            spin_round_cycles: 40,
            clock_mhz: 2_600,
            turn_ns: 0,
            pause_loop: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_scenario::HostCosts;

    #[test]
    fn windows_grow_and_shrink_as_kvms() {
        let new = PauseLoop::linux_6_18();
        assert_eq!((new.grown(4096), new.grown(u64::from(u32::MAX))), (8192, u64::from(u32::MAX)));
        assert_eq!((new.entered(1 << 20), new.entered(0)), (4096, 4096));
        let old = PauseLoop::linux_3_6();
        assert_eq!((old.grown(4096), old.entered(4096)), (4096, 4096));
        let by_steps = PauseLoop { grow: 5000, shrink: 6000, ..new.clone() };
        assert_eq!((by_steps.grown(4096), by_steps.entered(12_000)), (9096, 6000));
        let halving = PauseLoop { grow: 0, shrink: 2, ..new };
        assert_eq!((halving.grown(9000), halving.entered(9000)), (4096, 4500));
    }

    #[test]
    fn a_host_states_its_own_prices_and_those_of_turns_grow_with_who_wants_one() {
        let costs = HostCosts {
            tick_ns: Some(1),
            context_switch_ns: Some(2),
            interrupt_ns: Some(3),
            idle_exit_ns: Some(4),
            halt_ns: Some(5),
            resume_ns: Some(6),
            daemon_look_ns: Some(7),
        };
        let host = Host { cores: 4, round_us: Some(50), costs, ..Host::default() };
        let costs = Costs::of(&host);
        let stated = |costs: &Costs| {
            let woken = [costs.idle_exit_ns, costs.halt_ns, costs.resume_ns];
            [[costs.tick_ns, costs.context_switch_ns, costs.interrupt_ns], woken]
        };
        assert_eq!((stated(&costs), costs.daemon_look_ns), ([[1, 2, 3], [4, 5, 6]], 7));
        assert_eq!(costs.turn_ns, 12_500);
        assert_eq!(costs.in_turns(1), costs);
        assert_eq!(stated(&costs.in_turns(3)), [[3, 6, 9], [12, 15 + 2 * 12_500, 18]]);
        assert_eq!(costs.in_turns(3).ipi_latency_ns, 3 * costs.ipi_latency_ns);
        assert_eq!(Costs::of(&Host::default()), Costs::default());
    }

    #[test]
    fn the_hosts_clock_makes_the_window_and_slow_loops_are_none() {
        let host = Host { clock_mhz: Some(2048), ..Host::default() };
        let mut costs = Costs::of(&host);
        assert_eq!(costs.window_ns(4096), u64::MAX);
        costs.pause_loop = Some(PauseLoop::linux_6_18());
        assert_eq!(costs.window_ns(4096), 2_000);
        costs.spin_round_cycles = 140;
        assert_eq!(costs.window_ns(4096), u64::MAX);
    }
}
