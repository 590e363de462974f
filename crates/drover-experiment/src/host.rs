// SPDX-License-Identifier: GPL-2.0-only
//! The ground `host`: runs a scenario on this machine, which in the lab is the virtual host.

use crate::bpf_cost::BpfStats;
use crate::event::Event;
use crate::kit::Kit;
use crate::one_run::OneRun;
use crate::peers::Contender;
use crate::plan::{Planned, parts, plan};
use crate::scheduler::RunningScheduler;
use crate::wall::Stopwatch;
use anyhow::{Context, Result, bail, ensure};
use drover_core::cpu_list::CpuList;
use drover_core::params::Params;
use drover_scenario::results::{Ground, Origin, Results, Run};
use drover_scenario::schedule::Schedule;
use drover_scenario::{Scenario, Vm, Workload};
use std::fs;
use std::sync::atomic::AtomicBool;

/// How to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostOptions {
    /// Also measure the time spent in the scheduler's BPF programs.
    pub bpf_stats: bool,
    /// Also record who runs where for a short while of each first repeat.
    pub schedule: bool,
    /// Which part of the runs to make, where several virtual hosts share them; none: all.
    pub part: Option<usize>,
    /// How many of these runs were made before, and are left out.
    pub done: usize,
}

/// Whether real VMs can do what the scenario asks.
///
/// # Errors
/// In one line, when only the simulator can.
pub(crate) fn can_be_real(scenario: &Scenario) -> Result<()> {
    ensure!(
        scenario.policy == Params::default(),
        "parameters of the policy ([policy] of scenario {}, --set) are for the simulator; use --on sim",
        scenario.name
    );
    for case in &scenario.cases {
        let program = |vm: &&Vm| matches!(vm.workload, Workload::Program(_));
        if let Some(vm) = case.vms.iter().find(program) {
            bail!("VM \"{}\" runs a program, which only the simulator can; use --on sim", vm.name);
        }
        ensure!(
            !case.ple,
            "case \"{}\" has ple = true: the lab's CPUs have no pause filter, and a host's is set by \
             whoever loads its KVM; remove it or use --on sim",
            case.name
        );
    }
    Ok(())
}

/// Whether the scenario can run on a machine of this shape, by this user; the number of pCPUs.
///
/// # Errors
/// In one line, when it cannot.
pub fn fits(scenario: &Scenario) -> Result<u32> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "--on host needs root, to load schedulers and make cgroups; use sudo, or --on lab"
    );
    can_be_real(scenario)?;
    let pcpus = online_pcpus()?;
    ensure!(
        pcpus == scenario.host.pcpus(),
        "scenario {} is for {} pCPUs and this host has {pcpus}; change its [host], or use --on lab",
        scenario.name,
        scenario.host.pcpus()
    );
    Ok(pcpus)
}

/// Runs a scenario here. `on_event` hears of each run; `stop`, set by a signal handler, ends the
/// experiment at once and in order.
///
/// # Errors
/// When this host or this user cannot do it, when a scheduler does not come up, or on `stop`.
pub fn run(
    scenario: &Scenario,
    options: HostOptions,
    stop: &AtomicBool,
    on_event: &mut dyn FnMut(Event),
) -> Result<Results> {
    let stopwatch = Stopwatch::start();
    let pcpus = fits(scenario)?;
    let contenders: Vec<Contender> =
        scenario.schedulers.iter().map(|name| Contender::find(name)).collect::<Result<_>>()?;
    let kit = Kit::prepare(scenario, &mut |line| on_event(Event::Notice(line.to_owned())))?;
    let bpf = options.bpf_stats.then(BpfStats::enable).transpose()?;
    let of = plan(scenario).len();
    let planned = match options.part {
        None => plan(scenario),
        Some(part) => parts(scenario).swap_remove(part),
    };
    let mut runs: Vec<Run> = Vec::new();
    let mut in_charge: Option<(Planned, RunningScheduler)> = None;
    for next in planned.iter().skip(options.done) {
        let started = next.started(scenario, of);
        on_event(Event::Started(started.clone()));
        let case = &scenario.cases[next.case];
        let contender = &contenders[next.scheduler];
        // The kernel's own scheduler has no BPF programs whose time could be measured.
        let bpf = bpf.as_ref().filter(|_| *contender != Contender::Eevdf);
        let records = options.schedule && next.repeat == 1;
        let one_run = OneRun { kit: &kit, scenario, case, pcpus, bpf, records, stop };
        let mut scheduler = match in_charge.take() {
            Some((before, scheduler)) if before.hands_on_to(next, scenario) => scheduler,
            before => {
                before.map(|(_, scheduler)| scheduler.stop()).transpose()?;
                RunningScheduler::start(&started.scheduler, contender, &kit.tools, stop)?
            }
        };
        let (mut run, schedule) = one_run.make(&mut scheduler)?;
        match run.fault {
            Some(_) => scheduler.stop()?,
            None => in_charge = Some((*next, scheduler)),
        }
        (run.scheduler, run.repeat) = (started.scheduler, next.repeat);
        run.seed = Some(scenario.seed);
        on_event(Event::Finished(Box::new(run.clone())));
        if let Some(schedule) = schedule {
            let schedule = Schedule { scheduler: run.scheduler.clone(), ..schedule };
            on_event(Event::Schedule(Box::new(schedule)));
        }
        runs.push(run);
    }
    in_charge.map(|(_, scheduler)| scheduler.stop()).transpose()?;
    Ok(Results {
        scenario: scenario.name.clone(),
        ground: Ground::Host,
        clock: None,
        origin: Origin::default(),
        seed: scenario.seed,
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|it| it.trim().into()),
        runs,
        repeats: None,
        wall: Some(stopwatch.wall()),
    })
}

fn online_pcpus() -> Result<u32> {
    let path = "/sys/devices/system/cpu/online";
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let list: CpuList = text.trim().parse()?;
    Ok(u32::try_from(list.cpus().len())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_has_a_pcpu() {
        assert!(online_pcpus().unwrap() >= 1);
    }
}
