// SPDX-License-Identifier: GPL-2.0-only
//! What a VM mostly does, from what the kernel counts of it whatever it runs: its profile.
//!
//! Idea. Three figures tell most of it: how long its threads run between two sleeps (the burst), how much it moves to
//! and from devices for each second of CPU time, and which part of its CPU time its helper threads take, which do its
//! I/O. Who hardly runs is idle. Who runs in short bursts and moves much, or has helpers that work, does I/O. Who
//! sleeps seldom computes, or, where the host counts what goes to memory, waits for memory. All else is mixed: it is
//! in nobody's way, and to be left where it is.
//!
//! Worked example. In 5 s a web server's threads ran for 1.5 s, of this 0.4 s in its vhost thread, slept 9,000 times
//! and moved 180 MiB: bursts of 0.17 ms, 27 % by helpers, 120 MiB for each second of CPU time. It does I/O.
//!
//! A profile changes when three windows in a row say the same other one: who backs up its disk once an hour for some
//! seconds keeps its profile.
//!
//! Limitations. What a guest does within its memory is not seen: one that answers from a cache in bursts looks like
//! one that waits for timers, which is mixed. Bytes of a network are known where its tap is in the host's own network
//! namespace. The borders are estimates: twice or half of each moved none of the workloads it was tried on.

use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Below that many pCPUs used or waited for a VM is idle.
const IDLE_PCPUS: f64 = 0.02;
/// Who does I/O runs for less than that between two sleeps, ms,
const IO_BURST_MS: f64 = 2.0;
/// and moves that much for each second of CPU time, MiB,
const IO_MIB_PER_CPU_S: f64 = 20.0;
/// or has helpers that take that part of its CPU time, %.
const IO_HELPER_PCT: f64 = 20.0;
/// Who computes runs for longer, ms.
const CPU_BURST_MS: f64 = 10.0;
/// Who is bound by memory moves that much of it for each second of CPU time, MiB.
const MEMORY_MIB_PER_CPU_S: f64 = 2000.0;
/// So many windows in a row change a profile.
const WINDOWS: u32 = 3;
const MIB: f64 = (1 << 20) as f64;

/// What a VM mostly does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Hardly anything.
    Idle,
    /// It moves bytes, in short bursts.
    Io,
    /// It computes.
    Cpu,
    /// It computes, and waits for memory.
    Memory,
    /// All else.
    Mixed,
}

impl Profile {
    /// The words for them.
    pub const WORDS: [(&'static str, Profile); 5] = [
        ("idle", Self::Idle),
        ("io", Self::Io),
        ("cpu", Self::Cpu),
        ("memory", Self::Memory),
        ("mixed", Self::Mixed),
    ];
}

words!(Profile);

/// What was counted of a VM in a window of time.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// How long the window was, s.
    pub window_s: f64,
    /// CPU time of all its threads, s.
    pub cpu_s: f64,
    /// Of that, of threads that are no vCPUs, s.
    pub helper_cpu_s: f64,
    /// For how long its threads were ready and did not run, summed up, s.
    pub ready_s: f64,
    /// How often its threads went to sleep.
    pub sleeps: u64,
    /// What it moved to and from disks and networks, bytes; none: nobody counts that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_bytes: Option<u64>,
    /// What it moves to and from memory, MiB/s; none: the host does not count that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib_s: Option<f64>,
}

impl Evidence {
    /// pCPUs it used or waited for.
    pub fn wanted_pcpus(&self) -> f64 {
        (self.cpu_s + self.ready_s) / self.window_s
    }

    /// How long it runs between two sleeps, ms; the whole CPU time where it never slept.
    #[allow(clippy::cast_precision_loss, reason = "counts of some seconds")]
    pub fn burst_ms(&self) -> f64 {
        1e3 * self.cpu_s / self.sleeps.max(1) as f64
    }

    /// The part of its CPU time that helpers take, %.
    pub fn helper_pct(&self) -> f64 {
        100.0 * self.helper_cpu_s / self.cpu_s.max(f64::MIN_POSITIVE)
    }

    /// What it moves, MiB/s.
    #[allow(clippy::cast_precision_loss, reason = "bytes of some seconds")]
    pub fn moved_mib_s(&self) -> Option<f64> {
        self.moved_bytes.map(|bytes| bytes as f64 / MIB / self.window_s)
    }

    /// What that says of the VM.
    pub fn profile(&self) -> Profile {
        if self.wanted_pcpus() < IDLE_PCPUS {
            return Profile::Idle;
        }
        let per_cpu_s = |mib_s: f64| mib_s * self.window_s / self.cpu_s.max(f64::MIN_POSITIVE);
        let moves = self.moved_mib_s().is_some_and(|mib_s| per_cpu_s(mib_s) >= IO_MIB_PER_CPU_S);
        if self.burst_ms() < IO_BURST_MS && (moves || self.helper_pct() >= IO_HELPER_PCT) {
            return Profile::Io;
        }
        if self.burst_ms() < CPU_BURST_MS {
            return Profile::Mixed;
        }
        match self.memory_mib_s {
            Some(mib_s) if per_cpu_s(mib_s) >= MEMORY_MIB_PER_CPU_S => Profile::Memory,
            _ => Profile::Cpu,
        }
    }
}

/// A VM's profile as it is shown: it changes when it is sure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profiled {
    /// What it is.
    pub profile: Profile,
    /// What windows have said lately, and how many.
    other: (Profile, u32),
}

impl Profiled {
    /// Of a VM of which that is the first window.
    pub fn new(first: Profile) -> Self {
        Self { profile: first, other: (first, 0) }
    }

    /// Another window says that.
    pub fn look(&mut self, seen: Profile) {
        let (other, windows) = self.other;
        let windows = if seen == other { windows + 1 } else { 1 };
        self.other = (seen, windows);
        if windows >= WINDOWS {
            self.profile = seen;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIBS: u64 = 1 << 20;

    /// In 5 s: CPU time in s, part of helpers in %, sleeps, bytes, MiB/s of memory.
    fn of(cpu_s: f64, helper_pct: f64, sleeps: u64, moved: u64, memory: f64) -> Evidence {
        Evidence {
            window_s: 5.0,
            cpu_s,
            helper_cpu_s: cpu_s * helper_pct / 100.0,
            ready_s: 0.0,
            sleeps,
            moved_bytes: Some(moved),
            memory_mib_s: Some(memory),
        }
    }

    #[test]
    fn workloads_that_are_known_have_their_profile() {
        for (workload, evidence, profile) in [
            ("idle guest: its timer tick", of(0.02, 10.0, 1250, 4096, 0.0), Profile::Idle),
            ("compute, four vCPUs", of(20.0, 0.1, 40, 0, 300.0), Profile::Cpu),
            ("compute beside a guest's tick", of(4.9, 0.5, 300, 8192, 200.0), Profile::Cpu),
            ("memory stream", of(10.0, 0.0, 20, 0, 12_000.0), Profile::Memory),
            ("web server", of(1.5, 27.0, 9000, 180 * MIBS, 900.0), Profile::Io),
            ("disk reader, 4 KiB each", of(0.8, 45.0, 20_000, 39 * MIBS, 50.0), Profile::Io),
            ("disk writer, 1 MiB each", of(0.3, 60.0, 2400, 600 * MIBS, 700.0), Profile::Io),
            ("network, received", of(2.2, 50.0, 30_000, 2000 * MIBS, 2500.0), Profile::Io),
            ("wakes every 2 ms", of(0.5, 0.0, 2500, 0, 10.0), Profile::Mixed),
            ("kernel build", of(12.0, 3.0, 3000, 120 * MIBS, 4000.0), Profile::Mixed),
            ("barrier of four, spinning", of(9.9, 0.0, 600, 0, 100.0), Profile::Cpu),
            (
                "database: computes and reads",
                of(6.0, 8.0, 2000, 300 * MIBS, 3000.0),
                Profile::Mixed,
            ),
        ] {
            assert_eq!(evidence.profile(), profile, "{workload}: {evidence:?}");
        }
    }

    #[test]
    fn who_only_waits_is_not_idle() {
        let evidence = Evidence { window_s: 5.0, ready_s: 4.0, ..Evidence::default() };
        assert_ne!(evidence.profile(), Profile::Idle);
    }

    #[test]
    fn what_nobody_counts_is_no_evidence() {
        let web = of(1.5, 5.0, 9000, 0, 0.0);
        assert_eq!(Evidence { moved_bytes: None, ..web }.profile(), Profile::Mixed);
        let stream = of(10.0, 0.0, 20, 0, 0.0);
        assert_eq!(Evidence { memory_mib_s: None, ..stream }.profile(), Profile::Cpu);
    }

    #[test]
    fn a_profile_changes_when_three_windows_say_so() {
        let mut shown = Profiled::new(Profile::Io);
        for seen in [Profile::Cpu, Profile::Cpu, Profile::Io, Profile::Cpu, Profile::Cpu] {
            shown.look(seen);
            assert_eq!(shown.profile, Profile::Io);
        }
        shown.look(Profile::Cpu);
        assert_eq!(shown.profile, Profile::Cpu);
        // One that swings stays what it is.
        for _ in 0..20 {
            shown.look(Profile::Idle);
            shown.look(Profile::Mixed);
            assert_eq!(shown.profile, Profile::Cpu);
        }
    }
}
