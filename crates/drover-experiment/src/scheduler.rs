// SPDX-License-Identifier: GPL-2.0-only
//! A scheduler under test: brought up as a user would, watched, taken down.

use crate::failure::Failure;
use crate::kit::Tools;
use crate::pause;
use crate::peers::Contender;
use crate::process::{Place, Process};
use crate::sched_ext::{SchedExt, State};
use anyhow::{Result, bail, ensure};
use drover_core::asked::{Asked, HOST, Limit, MaxPerNode};
use drover_core::counters::VmCounters;
use drover_core::partition::{PartitionChange, Partitions};
use drover_core::sets::SetSpec;
use drover_core::tree::{PoolChange, Tree};
use drover_host::control::{Answer, Request, SOCKET_PATH, ask};
use drover_host::status::VmStatus;
use drover_scenario::Vm;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long a scheduler may take to load: the kernel proves its programs first, which takes seconds
/// on an emulated CPU.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// How long one may take to end by itself.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// How long Drover may take to find a VM whose vCPUs have run.
const FIND_PATIENCE: Duration = Duration::from_secs(5);

/// A scheduler that is in charge of this host.
#[derive(Debug)]
pub(crate) struct RunningScheduler {
    label: String,
    takes_orders: bool,
    sched_ext: SchedExt,
    /// None: the kernel's own.
    process: Option<Process>,
}

impl RunningScheduler {
    /// Brings a scheduler up, `label` to the user.
    ///
    /// # Errors
    /// When it does not come up, with its last line.
    pub fn start(
        label: &str,
        contender: &Contender,
        tools: &Tools,
        stop: &AtomicBool,
    ) -> Result<Self> {
        let (label, sched_ext) = (label.to_owned(), tools.sched_ext.clone());
        wait_until_none(&sched_ext, stop)?;
        let takes_orders = *contender == Contender::Drover;
        let mut command = match contender {
            Contender::Eevdf => return Ok(Self { label, takes_orders, sched_ext, process: None }),
            Contender::Drover => Command::new(&tools.program),
            Contender::Program(path, arguments) => {
                let mut command = Command::new(path);
                command.args(arguments);
                command
            }
        };
        ensure!(
            sched_ext.state() != State::Absent,
            "scheduler {label}: this kernel has no sched_ext; `--on lab` brings a kernel that has"
        );
        if takes_orders {
            // Neither what this host is configured with nor what was ordered on it has a say here.
            let _ = fs::remove_file(tools.dir.join("settings.json"));
            command.args(["serve", "--config", "/dev/null", "--state"]).arg(&tools.dir);
        }
        let log = tools.dir.join("scheduler.log");
        let mut process = Process::spawn(command, &log, &Place::default())?;
        let up = pause::look_until(START_PATIENCE, stop, || {
            ensure!(
                !process.has_ended(),
                "scheduler {label} did not start: {}",
                process.last_words()
            );
            let loaded = sched_ext.state() == State::Enabled;
            let answers =
                || ask(Path::new(SOCKET_PATH), &Request::ListVms { brief: false }).is_ok();
            Ok::<_, anyhow::Error>((loaded && (!takes_orders || answers())).then_some(()))
        })?;
        ensure!(
            up.is_some(),
            "scheduler {label} did not start within {} s: {}",
            START_PATIENCE.as_secs(),
            process.last_words()
        );
        Ok(Self { label, takes_orders, sched_ext, process: Some(process) })
    }

    /// Why it is no longer in charge; none while it is.
    pub fn fault(&mut self) -> Option<String> {
        let process = self.process.as_mut()?;
        if !process.has_ended() && self.sched_ext.state() == State::Enabled {
            return None;
        }
        // Thrown out by the kernel, its program reports that and ends.
        let never = AtomicBool::new(false);
        let ended = || Ok::<_, anyhow::Error>(process.has_ended().then_some(()));
        let _ = pause::look_until(STOP_PATIENCE, &never, ended);
        Some(format!("{} ended during the run: {}", self.label, process.last_words()))
    }

    /// Tells the scheduler of partitions, where it can be told.
    ///
    /// # Errors
    /// A fault when it does not take one.
    pub fn add_partitions(&self, partitions: &Partitions) -> Result<(), Failure> {
        for spec in partitions.specs().iter().filter(|_| self.takes_orders) {
            let change = PartitionChange {
                cpus: Some(spec.cpus.clone()),
                policy: Some(spec.policy),
                slice_ns: spec.slice_ns,
            };
            let request = Request::AddPartition { name: spec.name.clone(), change };
            ask(Path::new(SOCKET_PATH), &request).map_err(|error| {
                let (label, name) = (&self.label, &spec.name);
                Failure::Fault(format!("{label} did not take partition {name}: {error:#}"))
            })?;
        }
        Ok(())
    }

    /// Has the scheduler arrange partitions, where it can.
    ///
    /// # Errors
    /// A fault when it does not.
    pub fn set_auto_partitions(&self, on: bool) -> Result<(), Failure> {
        if on && self.takes_orders {
            let request = Request::SetAutoPartitions { on };
            ask(Path::new(SOCKET_PATH), &request).map_err(|error| {
                Failure::Fault(format!("{} does not arrange partitions: {error:#}", self.label))
            })?;
        }
        Ok(())
    }

    /// Tells the scheduler of sets of VMs, where it can be told.
    ///
    /// # Errors
    /// A fault when it does not take one.
    pub fn add_sets(&self, sets: &[SetSpec]) -> Result<(), Failure> {
        for set in sets.iter().filter(|_| self.takes_orders) {
            ask(Path::new(SOCKET_PATH), &Request::AddSet { set: set.clone() }).map_err(
                |error| {
                    Failure::Fault(format!(
                        "{} did not take set {}: {error:#}",
                        self.label, set.name
                    ))
                },
            )?;
        }
        Ok(())
    }

    /// Tells the scheduler of pools, parents before their children, where it can be told.
    ///
    /// # Errors
    /// A fault when it does not take one.
    pub fn add_pools(&self, pools: &Tree) -> Result<(), Failure> {
        for pool in pools.pools().iter().filter(|_| self.takes_orders) {
            let spec = &pool.spec;
            let change = PoolChange {
                parent: spec.parent.clone(),
                shares: Some(spec.shares),
                reservation_mcpu: Some(spec.reservation_mcpu),
                limit: spec.limit_mcpu.map(Limit::At),
                expandable: Some(spec.expandable),
                cosched: spec.cosched,
            };
            let request = Request::AddPool { name: spec.name.clone(), change };
            ask(Path::new(SOCKET_PATH), &request).map_err(|error| {
                let (label, name) = (&self.label, &spec.name);
                Failure::Fault(format!("{label} did not take pool {name}: {error:#}"))
            })?;
        }
        Ok(())
    }

    /// Tells the scheduler what a VM is to have, where it can be told. A VM is found once its vCPUs have
    /// run.
    ///
    /// # Errors
    /// A fault when it does not find the VM.
    pub fn set_vm(&self, vm: &Vm, stop: &AtomicBool) -> Result<(), Failure> {
        if !self.takes_orders {
            return Ok(());
        }
        // Everything is said: the cgroup of the VM, which is for other schedulers, has no say then.
        let set = Asked {
            shares: Some(vm.shares),
            reservation_mcpu: Some(10 * vm.reservation_pct),
            limit: Some(vm.limit_pct.map_or(Limit::Open, |pct| Limit::At(10 * pct))),
            pool: Some(vm.pool.clone().unwrap_or_else(|| HOST.to_owned())),
            cosched: vm.cosched,
            partition: vm.partition.clone(),
            max_per_node: vm.max_per_node.map(MaxPerNode::At),
            consolidate: Some(vm.consolidate),
            ..Asked::default()
        };
        let request = Request::SetVm { name: vm.name.clone(), set, reset: Vec::new() };
        let mut refusal = String::new();
        let done = pause::look_until(FIND_PATIENCE, stop, || {
            let answer = ask(Path::new(SOCKET_PATH), &request);
            refusal = answer.as_ref().map_or_else(|error| format!("{error:#}"), |_| String::new());
            Ok::<_, Failure>(answer.ok())
        })?;
        match done {
            Some(_) => Ok(()),
            None => Err(Failure::Fault(format!(
                "{} did not take what VM {} is to have: {refusal}",
                self.label, vm.name
            ))),
        }
    }

    /// What it counts of those VMs, in their order, where it counts and knows the VM.
    pub fn counters(&self, vms: &[Vm]) -> Vec<Option<VmCounters>> {
        let answer = || ask(Path::new(SOCKET_PATH), &Request::ListVms { brief: false }).ok();
        let known = match self.takes_orders.then(answer).flatten() {
            Some(Answer::Vms { vms }) => vms,
            _ => Vec::new(),
        };
        let of = |vm: &Vm| known.iter().find(|it| it.name == vm.name).map(VmStatus::counters);
        vms.iter().map(of).collect()
    }

    /// Takes it down and waits until the kernel's own scheduler has all tasks again.
    ///
    /// # Errors
    /// When that does not happen.
    pub fn stop(mut self) -> Result<()> {
        self.end();
        wait_until_none(&self.sched_ext, &AtomicBool::new(false))
    }

    fn end(&mut self) {
        let Some(process) = self.process.take() else { return };
        process.stop(STOP_PATIENCE);
        if let Some(dir) = Path::new(SOCKET_PATH).parent().filter(|_| self.takes_orders) {
            // Drover made it, with a lock in it, and is confined: it may not remove it.
            let _ = fs::remove_dir_all(dir);
        }
    }
}

impl Drop for RunningScheduler {
    /// Where an experiment ends early a scheduler may tidy up, too.
    fn drop(&mut self) {
        self.end();
    }
}

fn wait_until_none(sched_ext: &SchedExt, stop: &AtomicBool) -> Result<()> {
    let none = || {
        let none = matches!(sched_ext.state(), State::Disabled | State::Absent);
        Ok::<_, anyhow::Error>(none.then_some(()))
    };
    if pause::look_until(STOP_PATIENCE, stop, none)?.is_none() {
        let name = sched_ext.loaded().unwrap_or_else(|| "some".to_owned());
        bail!("sched_ext scheduler {name} is in charge of this host; stop it first");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_scenario::Scenario;

    /// A host that has sched_ext, and on it a program in a scheduler's place.
    fn host(script: &str) -> (tempfile::TempDir, Tools, Contender) {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        fs::write(&state, "disabled\n").unwrap();
        let script = script.replace("STATE", &state.to_string_lossy());
        let tools = Tools::for_test(dir.path(), &script);
        let contender = Contender::Program(tools.program.clone(), Vec::new());
        (dir, tools, contender)
    }

    const GOOD: &str = "trap 'echo disabled > STATE; exit' TERM\n\
                        echo enabled > STATE; while :; do sleep 0.01; done";

    fn start(tools: &Tools, contender: &Contender) -> Result<RunningScheduler> {
        RunningScheduler::start("scx_other", contender, tools, &AtomicBool::new(false))
    }

    #[test]
    fn a_scheduler_comes_up_and_goes() {
        let (_dir, tools, contender) = host(GOOD);
        let mut scheduler = start(&tools, &contender).unwrap();
        assert_eq!(tools.sched_ext.state(), State::Enabled);
        assert_eq!(scheduler.fault(), None);
        let text = "name = \"s\"\n[host]\n[[vm]]\nname = \"a\"\nvcpus = 1\n\
                    workload = { kind = \"cpu\" }\n";
        let vm = Scenario::parse(text, "s.toml").unwrap().cases.remove(0).vms.remove(0);
        let told = scheduler.set_vm(&vm, &AtomicBool::new(false));
        assert!(told.is_ok(), "one that takes no orders is told by cgroup only");
        assert_eq!(scheduler.counters(&[vm]), [None], "and counts nothing that could be asked for");
        scheduler.stop().unwrap();
        assert_eq!(tools.sched_ext.state(), State::Disabled);
    }

    #[test]
    fn one_that_does_not_come_up_is_told_with_its_last_line() {
        let (_dir, tools, contender) = host("echo starting; echo no BTF >&2; exit 1");
        let message = start(&tools, &contender).unwrap_err().to_string();
        assert_eq!(message, "scheduler scx_other did not start: no BTF");
    }

    #[test]
    fn one_that_is_thrown_out_is_seen_with_the_reason() {
        let script = "echo enabled > STATE; sleep 0.3\n\
                      echo disabled > STATE; echo 'EXIT: runnable task stall'";
        let (_dir, tools, contender) = host(script);
        let mut scheduler = start(&tools, &contender).unwrap();
        let fault = loop {
            if let Some(fault) = scheduler.fault() {
                break fault;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(fault, "scx_other ended during the run: EXIT: runnable task stall");
        scheduler.stop().unwrap();
    }

    #[test]
    fn the_kernels_own_scheduler_needs_no_sched_ext_and_others_do() {
        let (dir, tools, contender) = host(GOOD);
        fs::remove_file(dir.path().join("state")).unwrap();
        let mut scheduler = start(&tools, &Contender::Eevdf).unwrap();
        assert_eq!(scheduler.fault(), None);
        scheduler.stop().unwrap();
        let message = start(&tools, &contender).unwrap_err().to_string();
        assert!(message.contains("no sched_ext") && message.contains("--on lab"), "{message}");
    }

    #[test]
    fn a_wait_for_another_scheduler_to_go_can_be_interrupted() {
        let (dir, tools, contender) = host(GOOD);
        fs::write(dir.path().join("state"), "enabled\n").unwrap();
        let stop = AtomicBool::new(true);
        let started = RunningScheduler::start("scx_other", &contender, &tools, &stop);
        assert!(started.unwrap_err().to_string().contains("interrupted"));
    }
}
