// SPDX-License-Identifier: GPL-2.0-only
//! Where time went between two moments. docs/counters.md defines each figure.
//!
//! For each vCPU %RUN + %RDY + %CSTP + %WAIT = 100. What is said of a VM is the sum over its vCPUs, but
//! for %USED: that is of all threads of its process.

use std::collections::HashMap;

use drover_core::counters::Yields;
use drover_core::io::Io;
use drover_core::profile::Class;
use jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::delays::{self, VmDelays};
use crate::observer::VcpuTimes;
use crate::pcpus::Ticks;
use crate::snapshot::Snapshot;

/// What happened between two moments.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// The second of them.
    pub time: Timestamp,
    /// From the first to the second.
    pub interval_s: f64,
    /// The sched_ext scheduler in charge; none: the kernel's own.
    pub scheduler: Option<String>,
    /// The pCPUs that are online, in their order.
    pub pcpus: Vec<Pcpu>,
    /// The VMs, in the order of their process numbers.
    pub vms: Vec<Vm>,
    /// What could not be known, a line each.
    pub notes: Vec<String>,
}

/// A pCPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Pcpu {
    /// Its number.
    pub pcpu: u32,
    /// Its socket.
    pub socket: u32,
    /// Its core: the lowest pCPU of it.
    pub core: u32,
    /// Time it was not idle.
    #[serde(serialize_with = "rounded")]
    pub busy_pct: f64,
    /// Of that, time in guests.
    #[serde(serialize_with = "rounded")]
    pub guest_pct: f64,
}

/// A VM.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Vm {
    /// What it is called.
    pub name: String,
    /// Its VMM.
    pub pid: u32,
    /// Where the time of its vCPUs went.
    #[serde(flatten)]
    pub times: Times,
    /// What its I/O moved, and how late threads on the way of it ran.
    pub io: Io,
    /// What Drover knows of it, where it is in charge.
    pub terms: Option<Terms>,
    /// Its vCPUs, in the order of their numbers.
    pub vcpus: Vec<Vcpu>,
}

/// What Drover knows of a VM.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Terms {
    /// Its shares.
    pub shares: u32,
    /// CPU time it was owed lately, in % of a pCPU; none: not known yet.
    #[serde(serialize_with = "rounded_if_any")]
    pub owed_pct: Option<f64>,
    /// %HZD: of the time in which any of its vCPUs ran, that in which a sibling was ready and did not.
    #[serde(serialize_with = "rounded_if_any")]
    pub hazard_pct: Option<f64>,
    /// %MLMTD: time its threads were ready and a limit held it, summed over them, in % of the time that passed.
    #[serde(serialize_with = "rounded_if_any")]
    pub limited_pct: Option<f64>,
    /// YLD/s: how often its vCPUs asked that a sibling run in their place, a second.
    #[serde(serialize_with = "rounded_if_any")]
    pub yields_s: Option<f64>,
    /// %VAIN: those of them that came too soon after the last, or after which the vCPU asked again at once.
    #[serde(serialize_with = "rounded_if_any")]
    pub yields_in_vain_pct: Option<f64>,
    /// The NUMA nodes that are its home; none: it has no home, or the host has no nodes.
    pub home: Vec<u32>,
    /// What of its memory lies there, %; none: not known.
    #[serde(serialize_with = "rounded_if_any")]
    pub local_pct: Option<f64>,
    /// What kind of work it does; none: not known yet.
    pub profile: Option<Class>,
}

/// A vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Vcpu {
    /// Its number in its VM.
    pub number: u32,
    /// Its thread.
    pub tid: u32,
    /// Where its time went.
    #[serde(flatten)]
    pub times: Times,
}

/// In % of the time that passed.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Times {
    /// %USED: CPU time it was charged.
    #[serde(serialize_with = "rounded")]
    pub used_pct: f64,
    /// %RUN: time it ran.
    #[serde(serialize_with = "rounded")]
    pub run_pct: f64,
    /// %RDY: time it was ready and did not run.
    #[serde(serialize_with = "rounded")]
    pub ready_pct: f64,
    /// %CSTP: time it was ready and stopped for the sake of its siblings.
    #[serde(serialize_with = "rounded")]
    pub costop_pct: f64,
    /// %WAIT: time it had nothing to do, or waited for something.
    #[serde(serialize_with = "rounded")]
    pub wait_pct: f64,
}

/// A thousandth of a percent is 10 us in a second.
fn rounded<S: Serializer>(pct: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((pct * 1000.0).round() / 1000.0)
}

#[allow(clippy::ref_option, reason = "serde hands it over so")]
fn rounded_if_any<S: Serializer>(pct: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match pct {
        Some(pct) => rounded(pct, serializer),
        None => serializer.serialize_none(),
    }
}

impl Times {
    fn add(&mut self, other: &Self) {
        self.used_pct += other.used_pct;
        self.run_pct += other.run_pct;
        self.ready_pct += other.ready_pct;
        self.costop_pct += other.costop_pct;
        self.wait_pct += other.wait_pct;
    }
}

impl Figures {
    /// What happened between these. `name` says what the VM of a process is called.
    pub fn between(
        before: &Snapshot,
        after: &Snapshot,
        time: Timestamp,
        mut name: impl FnMut(u32) -> String,
    ) -> Self {
        let interval = after.at.duration_since(before.at);
        let io = delays::between(&before.io, &after.io);
        let mut vms: Vec<Vm> = Vec::new();
        for (pid, vcpu) in vcpus_between(before, after) {
            if vms.last().is_none_or(|vm| vm.pid != pid) {
                let io = io.get(&pid).map(VmDelays::figures).unwrap_or_default();
                let bytes = |snapshot: &Snapshot| snapshot.bytes.get(&pid).copied();
                let since = bytes(after).zip(bytes(before)).map(|(now, then)| now.since(&then));
                let io = io.with_bytes(since.unwrap_or_default());
                let (name, times) = (name(pid), Times::default());
                let terms = terms_between(before, after, pid);
                vms.push(Vm { name, pid, times, io, terms, vcpus: Vec::new() });
            }
            let vm = vms.last_mut().expect("it is there now");
            vm.times.add(&vcpu.times);
            vm.vcpus.push(vcpu);
        }
        for vm in &mut vms {
            let cpu_time = |snapshot: &Snapshot| snapshot.process_cpu.get(&vm.pid).copied();
            // Of one that has just come all that is known is what its vCPUs used.
            if let (Some(then), Some(now)) = (cpu_time(before), cpu_time(after)) {
                let used = now.saturating_sub(then).as_secs_f64();
                vm.times.used_pct = 100.0 * used / interval.as_secs_f64();
            }
        }
        Self {
            time,
            interval_s: interval.as_secs_f64(),
            scheduler: after.scheduler.clone(),
            pcpus: pcpus_between(&before.pcpus, &after.pcpus),
            vms,
            notes: after.notes.clone(),
        }
    }
}

/// The vCPUs, each with its process, in order.
fn vcpus_between(before: &Snapshot, after: &Snapshot) -> Vec<(u32, Vcpu)> {
    let earlier: HashMap<u32, &VcpuTimes> =
        before.vcpus.iter().map(|times| (times.thread, times)).collect();
    let one = |now: &VcpuTimes| {
        let costop_s = |snapshot: &Snapshot| {
            let told = snapshot.told.get(&now.process)?;
            let vcpu = told.vcpu.iter().find(|vcpu| vcpu.number == now.number)?;
            Some(vcpu.counters.costop_s)
        };
        let costop_s = costop_s(after).zip(costop_s(before)).map_or(0.0, |(now, then)| now - then);
        // One that is new, or has a thread's number that another had, began its books at nothing.
        let then = earlier.get(&now.thread).filter(|then| then.all_ns() <= now.all_ns());
        let then = then.map_or_else(VcpuTimes::default, |then| **then);
        let times = times_between(&then, now, costop_s)?;
        Some((now.process, Vcpu { number: now.number, tid: now.thread, times }))
    };
    let mut vcpus: Vec<(u32, Vcpu)> = after.vcpus.iter().filter_map(one).collect();
    vcpus.sort_by_key(|(pid, vcpu)| (*pid, vcpu.number, vcpu.tid));
    vcpus
}

/// What Drover tells of that VM; none: it tells nothing.
fn terms_between(before: &Snapshot, after: &Snapshot, pid: u32) -> Option<Terms> {
    let now = after.told.get(&pid)?;
    let since = before.told.get(&pid).map(|before| now.counters.since(&before.counters));
    let interval_s = after.at.duration_since(before.at).as_secs_f64();
    let limited_s = since.as_ref().and_then(|since| since.limited_s);
    let yields = since.as_ref().and_then(|since| since.yields);
    let hazard_pct = || {
        let since = since.as_ref()?;
        let pct = 100.0 * since.hazard_s? / since.progressed_s?;
        // Nothing ran: there was no hazard.
        Some(if pct.is_finite() { pct } else { 0.0 })
    };
    Some(Terms {
        shares: now.shares,
        owed_pct: now.owed_pcpus.map(|pcpus| 100.0 * pcpus),
        hazard_pct: hazard_pct(),
        limited_pct: limited_s.map(|limited_s| 100.0 * limited_s / interval_s),
        yields_s: yields.map(|yields| yields.asked_per_s(interval_s)),
        yields_in_vain_pct: yields.and_then(Yields::in_vain_pct),
        home: now.numa.as_ref().map_or_else(Vec::new, |numa| numa.home.clone()),
        local_pct: now.numa.as_ref().and_then(|numa| numa.local_pct),
        profile: now.profile.map(|profile| profile.class),
    })
}

/// What a vCPU did from one reading to the next. `costop_s` of its ready time is counted as co-stopped. `None`
/// when no time has passed.
fn times_between(then: &VcpuTimes, now: &VcpuTimes, costop_s: f64) -> Option<Times> {
    let since = |of: fn(&VcpuTimes) -> u64| of(now).saturating_sub(of(then));
    let running_ns = since(|times| times.running_ns);
    let all_ns = since(VcpuTimes::all_ns);
    // Where a wait is known only when it ends it may have begun before that.
    let running_ns = running_ns.min(all_ns);
    let ready_ns = since(|times| times.ready_ns).min(all_ns - running_ns);
    let waiting_ns = all_ns - running_ns - ready_ns;
    #[allow(clippy::cast_precision_loss, reason = "52 bits are enough for what is shown")]
    let pct = |ns: u64| 100.0 * ns as f64 / all_ns as f64;
    // The kernel knows it as ready. Drover was asked a moment later, and books a co-stop when it ends.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is not below 0")]
    let costop_ns = ((costop_s.max(0.0) * 1e9) as u64).min(ready_ns);
    (all_ns > 0).then(|| Times {
        used_pct: pct(since(|times| times.used_ns)),
        run_pct: pct(running_ns),
        ready_pct: pct(ready_ns - costop_ns),
        costop_pct: pct(costop_ns),
        wait_pct: pct(waiting_ns),
    })
}

fn pcpus_between(before: &[Ticks], after: &[Ticks]) -> Vec<Pcpu> {
    let one = |now: &Ticks| {
        let then = before.iter().find(|then| then.pcpu == now.pcpu)?;
        let since = |of: fn(&Ticks) -> u64| of(now).saturating_sub(of(then));
        let all = since(|ticks| ticks.all).max(1);
        #[allow(clippy::cast_precision_loss, reason = "52 bits are enough for what is shown")]
        let pct = |ticks: u64| 100.0 * ticks as f64 / all as f64;
        let busy_pct = pct(since(|ticks| ticks.busy));
        // The two are read one after the other: guests may have a tick more.
        let guest_pct = pct(since(|ticks| ticks.guest)).min(busy_pct);
        let Ticks { pcpu, socket, core, .. } = *now;
        Some(Pcpu { pcpu, socket, core, busy_pct, guest_pct })
    };
    after.iter().filter_map(one).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::statuses::tests::told;
    use drover_core::counters::{Counters, Numa, Yields};
    use drover_core::io::Bytes;
    use drover_host::status::{VcpuStatus, VmStatus};
    use std::time::{Duration, Instant};

    const S: u64 = 1_000_000_000;

    /// VMs of one vCPU each, by name, process and what of the time it was ready; it ran in the rest.
    pub(crate) fn figures(vms: &[(&str, u32, f64)]) -> Figures {
        let vm = |(name, pid, ready_pct): &(&str, u32, f64)| {
            let run_pct = 100.0 - ready_pct;
            let times =
                Times { used_pct: run_pct, run_pct, ready_pct: *ready_pct, ..Times::default() };
            let vcpus = vec![Vcpu { number: 0, tid: pid + 1, times }];
            let (name, io) = ((*name).to_owned(), Io::default());
            Vm { name, pid: *pid, times, io, terms: None, vcpus }
        };
        Figures {
            time: "2026-11-24T14:31:07Z".parse().unwrap(),
            interval_s: 1.0,
            scheduler: None,
            pcpus: vec![Pcpu { pcpu: 0, socket: 0, core: 0, busy_pct: 75.0, guest_pct: 50.0 }],
            vms: vms.iter().map(vm).collect(),
            notes: Vec::new(),
        }
    }

    fn vcpu(process: u32, number: u32, [running, ready, waiting]: [u64; 3]) -> VcpuTimes {
        VcpuTimes {
            process,
            thread: process + 1 + number,
            number,
            at_ns: running + ready + waiting,
            running_ns: running,
            ready_ns: ready,
            waiting_ns: waiting,
            used_ns: running,
        }
    }

    fn snapshot(at: Instant, vcpus: Vec<VcpuTimes>) -> Snapshot {
        Snapshot {
            at,
            scheduler: None,
            vcpus,
            io: Vec::new(),
            bytes: HashMap::new(),
            process_cpu: HashMap::new(),
            told: HashMap::new(),
            pcpus: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Drover tells how long the first vCPU of process 10 was co-stopped.
    fn tell(snapshot: &mut Snapshot, costop_s: f64) {
        let counters = Counters { costop_s, ..Counters::default() };
        let vcpu = vec![VcpuStatus { counters, ..VcpuStatus::numbered(0) }];
        snapshot.told.insert(10, VmStatus { vcpu, ..told() });
    }

    fn between(before: &Snapshot, after: &Snapshot) -> Figures {
        Figures::between(before, after, Timestamp::now(), |pid| format!("vm{pid}"))
    }

    fn sum(times: &Times) -> f64 {
        times.run_pct + times.ready_pct + times.costop_pct + times.wait_pct
    }

    #[test]
    fn what_a_vcpu_did_adds_up_to_all_the_time() {
        let begun = Instant::now();
        let before = snapshot(begun, vec![vcpu(10, 0, [S, S, S]), vcpu(10, 1, [0, 0, 5 * S])]);
        let mut after = snapshot(
            begun + Duration::from_secs(2),
            vec![vcpu(10, 1, [0, 0, 7 * S]), vcpu(10, 0, [S + S / 2, 2 * S, S + S / 2])],
        );
        tell(&mut after, 0.75);
        let mut co_stopped_before = before.clone();
        tell(&mut co_stopped_before, 0.25);
        let figures = between(&co_stopped_before, &after);
        let [vm] = &figures.vms[..] else { panic!("{figures:?}") };
        let [first, second] = &vm.vcpus[..] else { panic!("{vm:?}") };
        let times = first.times;
        assert_eq!(
            (times.run_pct, times.ready_pct, times.costop_pct, times.wait_pct),
            (25.0, 25.0, 25.0, 25.0)
        );
        assert_eq!((second.number, second.times.wait_pct), (1, 100.0));
        assert_eq!((vm.name.as_str(), vm.times.wait_pct, sum(&vm.times)), ("vm10", 125.0, 200.0));
    }

    #[test]
    fn a_co_stop_is_never_more_than_the_time_it_was_ready() {
        let begun = Instant::now();
        let mut before = snapshot(begun, vec![vcpu(10, 0, [0, 0, 0])]);
        let mut after =
            snapshot(begun + Duration::from_secs(1), vec![vcpu(10, 0, [S / 2, S / 2, 0])]);
        tell(&mut before, 1.0);
        for (costop_s, costop_pct) in [(3.0, 50.0), (1.0, 0.0), (0.5, 0.0)] {
            tell(&mut after, costop_s);
            let times = between(&before, &after).vms[0].times;
            assert_eq!((times.costop_pct, sum(&times)), (costop_pct, 100.0), "{costop_s}");
        }
    }

    #[test]
    fn who_came_meanwhile_is_measured_from_when_it_was_found_and_who_went_is_gone() {
        let begun = Instant::now();
        let before = snapshot(begun, vec![vcpu(10, 0, [S, 0, 0])]);
        let new = vec![vcpu(20, 0, [S / 8, S / 8, 0]), vcpu(30, 0, [0, 0, 0])];
        let after = snapshot(begun + Duration::from_secs(1), new);
        let figures = between(&before, &after);
        let names: Vec<&str> = figures.vms.iter().map(|vm| vm.name.as_str()).collect();
        assert_eq!(names, ["vm20"], "of vm30 nothing is known yet");
        assert_eq!((figures.vms[0].times.run_pct, figures.vms[0].times.used_pct), (50.0, 50.0));
    }

    #[test]
    fn what_drover_knows_of_a_vm_stands_beside_its_times() {
        let begun = Instant::now();
        let mut before = snapshot(begun, vec![vcpu(10, 0, [0, 0, 0])]);
        let mut after = snapshot(begun + Duration::from_secs(1), vec![vcpu(10, 0, [S, 0, 0])]);
        assert_eq!(between(&before, &after).vms[0].terms, None, "another scheduler");
        let counted = |progressed_s, hazard_s| Counters {
            limited_s: Some(progressed_s / 8.0),
            progressed_s: Some(progressed_s),
            hazard_s: Some(hazard_s),
            yields: Some(Yields { asked: 1000, granted: 900, throttled: 100, wasted: 650 }),
            ..Counters::default()
        };
        let numa = Numa { home: vec![1], local_pct: Some(87.5), ..Numa::default() };
        let now = VmStatus {
            counters: counted(5.0, 1.5),
            owed_pcpus: Some(1.25),
            numa: Some(numa),
            ..told()
        };
        after.told.insert(10, now);
        let terms = |before: &Snapshot| between(before, &after).vms[0].terms.clone().unwrap();
        let first = terms(&before);
        assert_eq!(
            (first.hazard_pct, first.limited_pct),
            (None, None),
            "told of for the first time"
        );
        let yields = Some(Yields { asked: 800, granted: 760, throttled: 40, wasted: 560 });
        let counters = Counters { yields, ..counted(4.0, 1.25) };
        before.told.insert(10, VmStatus { counters, ..told() });
        let terms = terms(&before);
        assert_eq!((terms.owed_pct, terms.hazard_pct), (Some(125.0), Some(25.0)));
        assert_eq!(terms.limited_pct, Some(12.5), "an eighth of the second");
        assert_eq!((terms.yields_s, terms.yields_in_vain_pct), (Some(200.0), Some(75.0)));
        assert_eq!((terms.home, terms.local_pct, terms.profile), (vec![1], Some(87.5), None));
    }

    #[test]
    fn what_a_vm_moved_stands_beside_its_delays() {
        let begun = Instant::now();
        let mut before = snapshot(begun, vec![vcpu(10, 0, [0, 0, 0])]);
        let mut after = snapshot(begun + Duration::from_secs(2), vec![vcpu(10, 0, [S, 0, S])]);
        let moved = |block, network| Bytes { block_bytes: block, network_bytes: network };
        after.bytes.insert(10, moved(Some(7_000_000), Some(5_000_000)));
        assert_eq!(between(&before, &after).vms[0].io, Io::default(), "it has just come");
        before.bytes.insert(10, moved(Some(1_000_000), None));
        let io = between(&before, &after).vms[0].io;
        assert_eq!(io.bytes(), moved(Some(6_000_000), None), "a tap that has just been found");
        assert_eq!(io.ms_per_mb.map(|lost| lost.to_guest), Some(0.0));
    }

    #[test]
    fn a_vm_uses_what_all_its_threads_do() {
        let begun = Instant::now();
        let mut before = snapshot(begun, vec![vcpu(10, 0, [0, 0, 0])]);
        let mut after = snapshot(begun + Duration::from_secs(2), vec![vcpu(10, 0, [S, 0, S])]);
        before.process_cpu.insert(10, Duration::from_secs(5));
        after.process_cpu.insert(10, Duration::from_millis(6_500));
        let vm = &between(&before, &after).vms[0];
        assert_eq!((vm.times.used_pct, vm.times.run_pct), (75.0, 50.0));
        assert_eq!(vm.vcpus[0].times.used_pct, 50.0);
    }

    #[test]
    fn pcpus_are_as_busy_as_their_ticks_say() {
        let ticks = |pcpu, guest, busy, all| Ticks { pcpu, socket: 1, core: 0, guest, busy, all };
        let before = [ticks(0, 5, 10, 100), ticks(2, 0, 0, 50)];
        let after = [ticks(0, 30, 60, 200), ticks(1, 9, 9, 9), ticks(2, 0, 0, 50)];
        let pcpus = pcpus_between(&before, &after);
        let first = Pcpu { pcpu: 0, socket: 1, core: 0, busy_pct: 50.0, guest_pct: 25.0 };
        assert_eq!(pcpus[0], first);
        assert_eq!((pcpus[1].pcpu, pcpus[1].busy_pct, pcpus[1].guest_pct), (2, 0.0, 0.0));
        assert_eq!(pcpus.len(), 2, "of one that came online nothing is known yet");
    }

    #[test]
    fn a_line_of_json_has_units_in_its_names() {
        let line = serde_json::to_string(&figures(&[("web", 185, 100.0 / 3.0)])).unwrap();
        let json: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(json["time"], "2026-11-24T14:31:07Z");
        assert_eq!(json["scheduler"], serde_json::Value::Null);
        assert_eq!(json["pcpus"][0]["guest_pct"], 50.0);
        assert_eq!(json["vms"][0]["name"], "web");
        assert_eq!(json["vms"][0]["ready_pct"], 33.333);
        assert_eq!(json["vms"][0]["vcpus"][0]["tid"], 186);
        assert_eq!(json["vms"][0]["vcpus"][0]["wait_pct"], 0.0);
        assert!(!line.contains('\n'));
    }
}
