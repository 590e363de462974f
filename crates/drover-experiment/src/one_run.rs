// SPDX-License-Identifier: GPL-2.0-only
//! One run: a case under a scheduler, measured once.

use crate::bpf_cost::BpfStats;
use crate::case_groups::{Group, groups};
use crate::failure::Failure;
use crate::figures::{self, Measured, Sample};
use crate::kit::Kit;
use crate::moments::{Action, moments};
use crate::observer::Precedence;
use crate::pause;
use crate::process::Place;
use crate::reading::{Edge, Prepared, Reading};
use crate::recorder::Recorder;
use crate::scheduler::RunningScheduler;
use crate::vm::RunningVm;
use anyhow::Result;
use drover_observe::observer::{Keep, Observer};
use drover_scenario::results::Run;
use drover_scenario::schedule::{Schedule, Who, window_s};
use drover_scenario::{Case, Pin, Scenario, Vm};
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// How long VMs may take to boot; Linux guests in the lab take some ten seconds.
const BOOT_PATIENCE: Duration = Duration::from_secs(120);
/// How often the scheduler is looked at while VMs are measured.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// A case, and what to measure it with.
pub(crate) struct OneRun<'a> {
    /// What all runs use.
    pub kit: &'a Kit,
    /// The scenario.
    pub scenario: &'a Scenario,
    /// The case.
    pub case: &'a Case,
    /// Number of pCPUs of this host.
    pub pcpus: u32,
    /// Measures BPF programs, where asked for.
    pub bpf: Option<&'a BpfStats>,
    /// Whether to record who runs where.
    pub records: bool,
    /// Set when the user wants to stop.
    pub stop: &'a AtomicBool,
}

impl OneRun<'_> {
    /// Makes the run under `scheduler`, which is in charge already. A fault of what is under test is a
    /// result, without figures.
    ///
    /// # Errors
    /// When the experiment cannot go on.
    pub fn make(&self, scheduler: &mut RunningScheduler) -> Result<(Run, Option<Schedule>)> {
        let mut schedule = None;
        let measured = self.measure(scheduler, &mut schedule);
        self.kit.groups.remove_all()?;
        // A scheduler that ended explains whatever else went wrong.
        let fault = match (&measured, scheduler.fault()) {
            (_, Some(fault)) => Some(fault),
            (Err(Failure::Fault(fault)), None) => Some(fault.clone()),
            _ => None,
        };
        match (measured, fault) {
            (Err(Failure::Error(error)), None) => Err(error),
            (Ok(measured), None) => {
                Ok((figures::of_run(self.scenario, self.case, self.pcpus, &measured), schedule))
            }
            (_, fault) => Ok((figures::without_figures(self.case, self.pcpus, fault), None)),
        }
    }

    /// `schedule` is for who ran where, if that is recorded.
    fn measure(
        &self,
        scheduler: &mut RunningScheduler,
        schedule: &mut Option<Schedule>,
    ) -> Result<Measured, Failure> {
        scheduler.add_partitions(&self.case.partitions)?;
        scheduler.set_auto_partitions(self.case.auto_partitions)?;
        scheduler.add_pools(&self.case.pools)?;
        scheduler.add_sets(&self.case.sets)?;
        let mut vms = self.start_vms()?;
        self.wait_until_ready(&mut vms, scheduler)?;
        // Beside containers, which take no orders, everybody has what cgroups say.
        let ordered = self.case.vms.iter().filter(|_| !self.case.has_containers());
        for vm in ordered {
            scheduler.set_vm(vm, self.stop)?;
        }
        let has_devices = self.case.vms.iter().any(Vm::has_devices);
        let observer = has_devices.then(|| Observer::start(Keep::Sums)).transpose()?;
        let observer = observer.as_ref();
        let mut recorder = self.records.then(Recorder::prepare).transpose()?;
        let record_s = self.records.then(|| window_s(self.scenario.duration_s));
        let _precedence = Precedence::take();
        let early = self.case.vms.iter().zip(&vms).filter(|(vm, _)| vm.start_s.is_none());
        early.for_each(|(_, running)| running.go());
        let began = Instant::now() + Duration::from_secs_f64(self.scenario.warmup_s);
        let prepared = Prepared::take(&mut vms)?;
        if self.scenario.sample_ms.is_some() {
            vms.iter_mut().for_each(RunningVm::sample_from_now);
        }
        pause::until(began, self.stop)?;
        let counters = |scheduler: &RunningScheduler| scheduler.counters(&self.case.vms);
        let first = Edge::First(prepared);
        let before = Reading::take(first, &mut vms, self.bpf, observer, || counters(scheduler))?;
        let mut samples = vec![sample(&vms)?];
        let Scenario { duration_s, sample_ms, .. } = *self.scenario;
        let plan = moments(&self.case.vms, duration_s, sample_ms, record_s);
        let mut ends_on_sample = false;
        for (at_s, action) in plan {
            self.watch_until(before.at + Duration::from_secs_f64(at_s), scheduler)?;
            match action {
                Action::Sample => samples.push(sample(&vms)?),
                Action::BeginRecord => recorder.iter_mut().try_for_each(Recorder::begin)?,
                Action::EndRecord => recorder.iter_mut().try_for_each(Recorder::end)?,
                Action::Kill(index) => vms[index].kill()?,
                Action::Go(index) => vms[index].go(),
                Action::End { is_sample } => ends_on_sample = is_sample,
            }
        }
        if ends_on_sample {
            samples.push(sample(&vms)?);
        }
        let after =
            Reading::take(Edge::Last, &mut vms, self.bpf, observer, || counters(scheduler))?;
        check(&mut vms, scheduler)?;
        if let Some((recorder, (from_s, _))) = recorder.zip(record_s) {
            *schedule = Some(recorder.schedule(self.case, self.pcpus, from_s, &who(&vms))?);
        }
        Ok(Measured { before, after, samples })
    }

    fn start_vms(&self) -> Result<Vec<RunningVm>> {
        let groups = groups(self.case);
        let (pools, vms) = groups.split_at(self.case.pools.pools().len());
        for pool in pools {
            self.kit.groups.add(pool)?;
        }
        let start = |(vm, group): (&Vm, &Group)| {
            let cgroup_procs = Some(self.kit.groups.add(group)?);
            let place = Place { cgroup_procs, cpus: vm.pin.as_ref().map(Pin::cpus) };
            RunningVm::start(&self.kit.tools, vm, &place, self.scenario.warmup_s)
        };
        self.case.vms.iter().zip(vms).map(start).collect()
    }

    fn wait_until_ready(
        &self,
        vms: &mut [RunningVm],
        scheduler: &mut RunningScheduler,
    ) -> Result<(), Failure> {
        let mut late = None;
        pause::look_until(BOOT_PATIENCE, self.stop, || {
            if let Some(fault) = scheduler.fault() {
                return Err(Failure::Fault(fault));
            }
            late = None;
            // All are looked at each time: how long each takes is a figure.
            for (index, vm) in vms.iter_mut().enumerate() {
                if !vm.is_ready()? {
                    late = late.or(Some(index));
                }
            }
            Ok(late.is_none().then_some(()))
        })?;
        let Some(late) = late else { return Ok(()) };
        let patience_s = BOOT_PATIENCE.as_secs();
        let (name, vcpus) = vms[late].who();
        Err(Failure::Fault(format!("VM {name} ({vcpus} vCPUs) was not ready after {patience_s} s")))
    }

    /// Waits until `moment`, with an eye on the scheduler: nobody waits an hour for one that is gone.
    fn watch_until(
        &self,
        moment: Instant,
        scheduler: &mut RunningScheduler,
    ) -> Result<(), Failure> {
        while Instant::now() + WATCH_INTERVAL < moment {
            pause::until(Instant::now() + WATCH_INTERVAL, self.stop)?;
            if let Some(fault) = scheduler.fault() {
                return Err(Failure::Fault(fault));
            }
        }
        Ok(pause::until(moment, self.stop)?)
    }
}

fn sample(vms: &[RunningVm]) -> Result<Vec<Sample>, Failure> {
    vms.iter().map(RunningVm::sample).collect()
}

/// Whose each thread is.
fn who(vms: &[RunningVm]) -> HashMap<u32, Who> {
    (0..).zip(vms).flat_map(|(vm, running)| running.threads(vm)).collect()
}

/// Whether all that was measured ran to the end.
fn check(vms: &mut [RunningVm], scheduler: &mut RunningScheduler) -> Result<(), Failure> {
    let of_vms = vms.iter_mut().find_map(RunningVm::fault);
    match scheduler.fault().or(of_vms) {
        Some(fault) => Err(Failure::Fault(fault)),
        None => Ok(()),
    }
}
