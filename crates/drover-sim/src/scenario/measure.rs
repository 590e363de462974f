// SPDX-License-Identifier: GPL-2.0-only
//! Reads a simulated host at the beginning and end of the measured time.

use super::ThreadFigures;
use super::one_run::Job;
use crate::class::Class;
use crate::guest::SleepTimes;
use crate::local_accesses::LocalAccesses;
use crate::machine::TaskId;
use crate::sim::Sim;
use drover_core::counters::VmCounters;
use drover_core::histogram::Histogram;
use drover_scenario::Scenario;
use drover_scenario::entitlement::owed_s;
use drover_scenario::results::{HostFigures, Run, Timeline, VcpuFigures, VmFigures, WakeupUs};

/// What a host's clocks and counters say at one moment.
#[derive(Debug, Default)]
struct Reading {
    at_ns: u64,
    idle_ns: u64,
    switches: u64,
    pause_exits: u64,
    pause_exit_ns: u64,
    preempted_siblings: u64,
    preempted_holders: u64,
    page_fault_ns: u64,
    page_fault_spin_ns: u64,
    accesses: LocalAccesses,
    cpu_ns: Vec<u64>,
    work_ns: Vec<u64>,
    wake_delays: Vec<SleepTimes>,
    progress: Vec<u64>,
    spin_ns: Vec<u64>,
    dispatches: Vec<u64>,
    moves: Vec<u64>,
    sleeps: Vec<Histogram>,
    counters: Vec<Option<VmCounters>>,
}

impl Reading {
    fn of<C: Class>(sim: &Sim<C>) -> Self {
        let tasks = || 0..sim.m.tasks.len() as TaskId;
        Self {
            at_ns: sim.m.now_ns,
            idle_ns: (0..sim.m.pcpus.len() as u32).map(|cpu| sim.m.idle_now_ns(cpu)).sum(),
            switches: sim.m.counts.switches,
            pause_exits: sim.m.counts.pause_exits,
            pause_exit_ns: sim.m.counts.pause_exit_ns,
            preempted_siblings: sim.m.counts.preempted_siblings,
            preempted_holders: sim.m.counts.preempted_holders,
            page_fault_ns: sim.m.counts.page_fault_ns,
            page_fault_spin_ns: sim.m.counts.page_fault_spin_ns,
            accesses: sim.accesses.clone(),
            cpu_ns: cpu_ns_of_threads(sim),
            work_ns: tasks().map(|task| sim.guests.work_ns(&sim.m, task)).collect(),
            wake_delays: sim.guests.vcpus.iter().map(|vcpu| vcpu.wake_delays.clone()).collect(),
            progress: tasks().map(|task| sim.guests.progress(&sim.m, task)).collect(),
            spin_ns: tasks().map(|task| sim.guests.spin_ns(&sim.m, task)).collect(),
            dispatches: sim.m.tasks.iter().map(|task| task.dispatches).collect(),
            moves: sim.m.tasks.iter().map(|task| task.moves).collect(),
            sleeps: sim.guests.vms.iter().map(|vm| vm.sleeps.histogram()).collect(),
            counters: (0..sim.vms.len() as u32).map(|vm| counters(sim, vm)).collect(),
        }
    }
}

/// What the scheduler counts of that VM, and the placer.
fn counters<C: Class>(sim: &Sim<C>, vm: u32) -> Option<VmCounters> {
    let mut counters = sim.class.counters(&sim.m, vm);
    let numa = counters.as_mut().and_then(|counters| counters.numa.as_mut());
    if let (Some(placer), Some(numa)) = (&sim.placer, numa) {
        placer.tell(vm, numa);
    }
    counters
}

/// A measured run.
#[derive(Debug, Default)]
pub(super) struct Measured {
    begin: Reading,
    /// CPU time of each thread at the end of each interval.
    samples: Vec<Vec<u64>>,
}

impl Measured {
    /// The measured time begins.
    pub(super) fn begin<C: Class>(&mut self, sim: &Sim<C>) {
        self.begin = Reading::of(sim);
    }

    /// An interval of the record ends.
    pub(super) fn sample<C: Class>(&mut self, sim: &Sim<C>) {
        self.samples.push(cpu_ns_of_threads(sim));
    }

    /// The measured time is over: the figures.
    pub(super) fn end<C: Class>(
        &self,
        sim: &Sim<C>,
        scenario: &Scenario,
        job: &Job,
        fault: Option<String>,
    ) -> Run {
        let end = Reading::of(sim);
        let pcpus = scenario.host.pcpus();
        let exits = end.pause_exits - self.begin.pause_exits;
        let faults = |ns: u64| (end.page_fault_ns > 0).then(|| seconds(ns));
        let at_exit = |count: u64| (exits > 0).then(|| count as f64 / exits as f64);
        let mut run = Run {
            case: job.case.name.clone(),
            scheduler: job.scheduler().to_owned(),
            repeat: job.repeat,
            seed: Some(job.seed),
            duration_s: seconds(end.at_ns - self.begin.at_ns),
            fault,
            host: HostFigures {
                pcpus,
                idle_s: Some(seconds(end.idle_ns - self.begin.idle_ns)),
                context_switches: Some(end.switches - self.begin.switches),
                bpf_run_ns: None,
                pause_exits: Some(exits),
                pause_exit_s: Some(seconds(end.pause_exit_ns - self.begin.pause_exit_ns)),
                preempted_siblings: at_exit(end.preempted_siblings - self.begin.preempted_siblings),
                preempted_holders: at_exit(end.preempted_holders - self.begin.preempted_holders),
                page_fault_s: faults(end.page_fault_ns - self.begin.page_fault_ns),
                page_fault_spin_s: faults(end.page_fault_spin_ns - self.begin.page_fault_spin_ns),
            },
            vms: Vec::new(),
        };
        for number in 0..job.case.vms.len() {
            run.vms.push(self.vm(sim, scenario, job, &end, number));
        }
        run.set_owed(owed_s(job.case, pcpus, scenario.duration_s));
        run.set_share_got();
        run
    }

    fn vm<C: Class>(
        &self,
        sim: &Sim<C>,
        scenario: &Scenario,
        job: &Job,
        end: &Reading,
        number: usize,
    ) -> VmFigures {
        let vm = &job.case.vms[number];
        let mut figures = VmFigures::unmeasured(vm);
        let vcpu = |task: TaskId| VcpuFigures {
            cpu_s: Some(seconds(end.cpu_ns[task as usize] - self.begin.cpu_ns[task as usize])),
            progress: Some(end.progress[task as usize] - self.begin.progress[task as usize]),
            counters: None,
        };
        let mut vcpus: Vec<VcpuFigures> = sim.tasks_of(number as u32).map(vcpu).collect();
        figures.cpu_s = vcpus.iter().map(|vcpu| vcpu.cpu_s).sum();
        let helpers = vcpus.split_off(vm.vcpus as usize);
        if !helpers.is_empty() {
            figures.helpers_cpu_s = helpers.iter().map(|helper| helper.cpu_s).sum();
        }
        let since = |end: &[u64], begin: &[u64]| -> u64 {
            sim.tasks_of(number as u32).map(|task| end[task as usize] - begin[task as usize]).sum()
        };
        figures.dispatches = Some(since(&end.dispatches, &self.begin.dispatches));
        figures.moves = Some(since(&end.moves, &self.begin.moves));
        figures.spin_s = Some(seconds(since(&end.spin_ns, &self.begin.spin_ns)));
        figures.longest_spin_ms = Some(sim.guests.longest_spin_ns(number as u32) as f64 / 1e6);
        figures.local_access_pct = end.accesses.pct_since(&self.begin.accesses, number as u32);
        figures.progress = vcpus.iter().map(|vcpu| vcpu.progress).sum();
        figures.set_vcpus(vcpus);
        // One that began meanwhile has counted nothing before.
        let begin = self.begin.counters[number].as_ref();
        let since = |end: &VmCounters| begin.map_or(end.clone(), |begin| end.since(begin));
        figures.set_counters(end.counters[number].as_ref().map(since).as_ref());
        let sleeps = end.sleeps[number].since(&self.begin.sleeps[number]);
        figures.wakeup_us = WakeupUs::from_histogram(&sleeps);
        figures.profile = sim.profile(number as u32);
        figures.timeline = scenario.sample_ms.map(|interval_ms| {
            let (cpu_s, length_s) = (self.timeline(sim, number), Vec::new());
            Timeline { interval_ms, cpu_s, length_s }
        });
        figures
    }

    fn timeline<C: Class>(&self, sim: &Sim<C>, number: usize) -> Vec<f64> {
        let of_vm = |sample: &[u64]| -> u64 {
            sim.tasks_of(number as u32).map(|task| sample[task as usize]).sum()
        };
        let ends = self.samples.iter().map(|sample| of_vm(sample));
        let starts = std::iter::once(of_vm(&self.begin.cpu_ns)).chain(ends.clone());
        ends.zip(starts).map(|(end, start)| seconds(end - start)).collect()
    }

    /// What each thread of the VMs did, VM by VM, for the rig.
    pub(super) fn threads<C: Class>(&self, sim: &Sim<C>, vms: usize) -> Vec<Vec<ThreadFigures>> {
        let thread = |task: TaskId| {
            let index = task as usize;
            let ends = self.samples.iter().map(|sample| sample[index]);
            let starts = std::iter::once(self.begin.cpu_ns[index]).chain(ends.clone());
            ThreadFigures {
                cpu_s: seconds(sim.m.cpu_time_now_ns(task) - self.begin.cpu_ns[index]),
                work_s: seconds(sim.guests.work_ns(&sim.m, task) - self.begin.work_ns[index]),
                cpu_s_by_interval: ends
                    .zip(starts)
                    .map(|(end, start)| seconds(end - start))
                    .collect(),
                wake_delays: sim.guests.vcpus[index]
                    .wake_delays
                    .since(&self.begin.wake_delays[index]),
            }
        };
        (0..vms as u32).map(|vm| sim.tasks_of(vm).map(thread).collect()).collect()
    }
}

fn cpu_ns_of_threads<C: Class>(sim: &Sim<C>) -> Vec<u64> {
    (0..sim.m.tasks.len() as TaskId).map(|task| sim.m.cpu_time_now_ns(task)).collect()
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
