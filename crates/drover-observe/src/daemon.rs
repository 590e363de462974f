// SPDX-License-Identifier: GPL-2.0-only
//! `drover observe`: keeps books of VMs whichever scheduler is in charge, and answers who asks. It takes no orders.
//!
//! Where Drover schedules, what is asked is answered by the daemon that schedules: it knows what each VM is to have. So
//! who may only look has one socket to ask.
//!
//! Root sees all VMs. Another user sees the own: those whose processes the user's were when they were found.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use drover_core::why::{Facts, Who};
use drover_host::control::{Answer, Request};
use drover_host::history::{Kept, Now};
use drover_host::listener::Listener;
use drover_host::manager::Manager;
use drover_host::names::{Identity, Places};
use drover_host::profiles::{Process, Profiles};
use drover_host::readers::{self, is_of_all, is_question, own_of, sees_only};
use drover_host::status::{VmIo, VmStatus};
use nix::sys::stat::{Mode, umask};

use crate::explain::explain;
use crate::forward::Forward;
use crate::io_books::IoBooks;
use crate::observer::{Follower, Keep};
use crate::sample::{KEPT_S, Sample, Samples, VmSample};
use crate::statuses::{Known, seconds, statuses};

/// From one look to the next.
const LOOK: Duration = Duration::from_secs(1);

/// Observes until it is to stop. `readers_see_all`: who may ask sees the VMs of all users.
///
/// # Errors
/// When somebody else does, or the kernel does not let it.
pub fn observe(socket: &Path, readers_see_all: bool, stop: &AtomicBool) -> Result<()> {
    // What is made is for others only where that is said below.
    umask(Mode::S_IRWXG | Mode::S_IRWXO);
    let mut listener = Listener::bind_for(socket, readers::group())?;
    let mut books = Books::begin()?;
    let mut manager = Manager::ready("observing");
    tracing::info!("observing; nothing is replaced. Ctrl-C ends it");
    let mut said = None;
    while !stop.load(Ordering::Relaxed) {
        manager.alive(Instant::now());
        let failed = books.look().err().map(|err| format!("{err:#}"));
        if let Some(why) = failed.as_ref().filter(|_| failed != said) {
            tracing::warn!("{why}");
        }
        said = failed;
        let next_look = Instant::now() + LOOK;
        while !stop.load(Ordering::Relaxed) && Instant::now() < next_look {
            if listener.wait(next_look) {
                listener.serve_users(|request, user| {
                    let answer = match sees_only(user, readers_see_all) {
                        None => books.answer(&request),
                        Some(user) => books.answer_to(&request, user),
                    };
                    answer.unwrap_or_else(refused)
                });
            }
        }
    }
    manager.stopping();
    Ok(())
}

fn refused(err: anyhow::Error) -> Answer {
    Answer::Refused { reason: format!("{err:#}") }
}

/// A VM as it was found.
struct Found {
    identity: Identity,
    user: u32,
    first: VmSample,
}

/// All that is known.
struct Books {
    follower: Follower,
    finds_vms: bool,
    samples: Samples,
    history: Kept,
    io: IoBooks,
    profiles: Profiles,
    /// Who the VMs are, whose, and what they were as they were found.
    vms: HashMap<u32, Found>,
    forward: Forward,
}

impl Books {
    fn begin() -> Result<Self> {
        let follower = Follower::start(Keep::Events)?;
        let finds_vms = follower.finds_vms();
        let profiles = Profiles::start().context("no thread to profile VMs")?;
        let (samples, history) = (Samples::default(), Kept::default());
        let (io, vms, forward) = (IoBooks::default(), HashMap::new(), Forward::default());
        Ok(Self { follower, finds_vms, samples, history, io, profiles, vms, forward })
    }

    /// Looks at all VMs.
    fn look(&mut self) -> Result<()> {
        let reading = self.follower.observer()?.read()?;
        let sample = Sample::take(&reading, &mut self.forward)?;
        // Another observer counts from nothing.
        if self.follower.finds_vms() != self.finds_vms {
            self.finds_vms = self.follower.finds_vms();
            self.samples.clear();
            self.io.begin_anew();
        }
        let processes: BTreeSet<u32> = sample.vms.keys().copied().collect();
        self.io.look(sample.at_ns, &reading.io, &processes, Path::new("/proc"));
        let vms =
            sample.vms.keys().map(|pid| Process { vm: u64::from(*pid), pid: *pid, used_ns: None });
        self.profiles.look(vms, |_| None, Instant::now());
        self.vms.retain(|pid, _| sample.vms.contains_key(pid));
        for (pid, vm) in &sample.vms {
            let places = Places::default();
            let found = || Found {
                identity: places.identity_now(*pid),
                user: places.owner(*pid).unwrap_or(0),
                first: vm.clone(),
            };
            self.vms.entry(*pid).or_insert_with(found);
        }
        self.samples.add(sample);
        self.keep_history(Instant::now());
        Ok(())
    }

    /// Keeps what VMs got, were owed and waited for since the last look.
    fn keep_history(&mut self, now: Instant) {
        let Some(last) = self.samples.last().filter(|_| self.history.is_due(now)) else { return };
        let one = |(pid, vm): (&u32, &VmSample)| {
            let Found { identity, user, .. } = self.vms.get(pid)?;
            let (before, passed_s) = self.just_before(last, *pid)?;
            let ready_ns = |vm: &VmSample| vm.sum(|times| times.ready_ns);
            let pcpus = |of: &dyn Fn(&VmSample) -> u64| {
                seconds(of(vm).saturating_sub(of(before))) / passed_s
            };
            let told = last.told.get(pid);
            // Drover knows what of that is co-stops.
            let ready_pct = told.and_then(|told| told.ready_pct);
            Some(Now {
                name: identity.name.clone(),
                pid: *pid,
                user: *user,
                ready_pcpus: ready_pct.map_or_else(|| pcpus(&ready_ns), |pct| pct / 100.0),
                owed_pcpus: told.and_then(|told| told.owed_pcpus),
                got_pcpus: pcpus(&|vm| vm.cpu_ns),
            })
        };
        let vms: Vec<Now> = last.vms.iter().filter_map(one).collect();
        self.history.add(vms, now);
    }

    /// A VM as it was before the last sample, and how long before, s.
    fn just_before(&self, last: &Sample, pid: u32) -> Option<(&VmSample, f64)> {
        let before = self.samples.before(last.at_ns.saturating_sub(1), pid)?;
        let passed_s = seconds(last.at_ns.checked_sub(before.at_ns).filter(|ns| *ns > 0)?);
        Some((before.vms.get(&pid)?, passed_s))
    }

    fn answer(&mut self, request: &Request) -> Result<Answer> {
        if let Request::ExplainWaits { vm, seconds } = request {
            return self.explain(vm, *seconds);
        }
        if let Request::ListIo = request {
            return Ok(Answer::Io { vms: self.io_of_vms() });
        }
        if let Request::ListHistory { seconds, step_s } = request {
            let history = Box::new(self.history.tell(*seconds, *step_s, Instant::now()));
            return Ok(Answer::History { history });
        }
        if !is_question(request) {
            bail!("`drover observe` takes no orders; give them to `drover serve`, as root");
        }
        if self.samples.last().is_some_and(|sample| sample.scheduler.as_deref() == Some("drover")) {
            return self.forward.ask(request);
        }
        match request {
            Request::ListVms { .. } => Ok(Answer::Vms { vms: self.statuses() }),
            Request::ListPools => Ok(Answer::Pools { pools: Vec::new() }),
            Request::ListPartitions => Ok(Answer::Partitions { partitions: Vec::new() }),
            Request::ListSets => Ok(Answer::Sets { sets: Vec::new() }),
            Request::ListNodes => Ok(Answer::Nodes { nodes: Vec::new() }),
            _ => bail!("only `drover serve` knows that; here `drover observe` looks only"),
        }
    }

    /// The same for a user who sees the own VMs only.
    fn answer_to(&mut self, request: &Request, user: u32) -> Result<Answer> {
        match request {
            Request::ListVms { .. } => match self.answer(request)? {
                Answer::Vms { vms } => Ok(Answer::Vms { vms: own_of(vms, user) }),
                answer => Ok(answer),
            },
            Request::ListIo => {
                let is_own = |vm: &VmIo| self.vms.get(&vm.pid).is_some_and(|it| it.user == user);
                Ok(Answer::Io { vms: self.io_of_vms().into_iter().filter(is_own).collect() })
            }
            Request::ListHistory { .. } => match self.answer(request)? {
                Answer::History { mut history } => {
                    history.vms.retain(|vm| vm.user == user);
                    Ok(Answer::History { history })
                }
                answer => Ok(answer),
            },
            Request::ExplainWaits { vm, seconds } => {
                let own = |pid: u32| self.vms.get(&pid).is_some_and(|found| found.user == user);
                let Some(pid) = self.find(vm).ok().filter(|pid| own(*pid)) else {
                    bail!("no VM {vm} of yours runs here; `drover vm list` shows those that do")
                };
                let own = self.vms.values().filter(|found| found.user == user);
                let own: BTreeSet<String> = own.map(|it| it.identity.name.clone()).collect();
                match self.explain(&pid.to_string(), *seconds)? {
                    Answer::Waits { mut facts } => {
                        hide_others(&mut facts, &own);
                        Ok(Answer::Waits { facts })
                    }
                    answer => Ok(answer),
                }
            }
            request if is_question(request) => bail!(is_of_all("drover observe")),
            request => self.answer(request),
        }
    }

    fn statuses(&self) -> Vec<VmStatus> {
        let Some(last) = self.samples.last() else { return Vec::new() };
        let mut known = HashMap::new();
        for (pid, Found { identity, user, first }) in &self.vms {
            let user = *user;
            let before = self.just_before(last, *pid);
            let profile = self.profiles.of(u64::from(*pid));
            known.insert(*pid, Known { identity, user, first, before, profile });
        }
        statuses(last, &known)
    }

    fn io_of_vms(&self) -> Vec<VmIo> {
        let all = self.vms.keys().filter_map(|pid| Some(VmIo { pid: *pid, io: self.io.of(*pid)? }));
        let mut all: Vec<VmIo> = all.collect();
        all.sort_unstable_by_key(|vm| vm.pid);
        all
    }

    fn explain(&mut self, vm: &str, window_s: u32) -> Result<Answer> {
        if !(1..=KEPT_S).contains(&window_s) {
            bail!("what happened is kept for {KEPT_S} s: ask for 1 to {KEPT_S}");
        }
        let pid = self.find(vm)?;
        // As it is now, and not up to a second ago.
        self.look()?;
        let own = self.statuses();
        let told = self.samples.last().map(|sample| sample.told.values().cloned().collect());
        let told: Vec<VmStatus> = told.unwrap_or_default();
        let of_pool = pool_limit_mcpu(&mut self.forward, &told, pid);
        let rings = self.follower.observer()?.rings().context("nothing is kept")?;
        let all = if told.is_empty() { &own } else { &told };
        let mut facts = explain((&self.samples, rings), pid, window_s, all)?;
        facts.pool_limit_mcpu = facts.pool_limit_mcpu.or(of_pool);
        Ok(Answer::Waits { facts: Box::new(facts) })
    }

    /// The process of the VM of that name, or of that number.
    fn find(&self, vm: &str) -> Result<u32> {
        if let Some(pid) = vm.parse().ok().filter(|pid| self.vms.contains_key(pid)) {
            return Ok(pid);
        }
        let named = self.vms.iter().filter(|(_, found)| found.identity.name == vm);
        let mut pids: Vec<u32> = named.map(|(pid, _)| *pid).collect();
        pids.sort_unstable();
        match pids[..] {
            [pid] => Ok(pid),
            [] => bail!("no VM {vm} runs here; `drover vm list` shows those that do"),
            _ => bail!("{} VMs are named {vm}: give the process of one: {pids:?}", pids.len()),
        }
    }
}

/// Leaves out what others' VMs, containers and programs are called.
fn hide_others(facts: &mut Facts, own: &BTreeSet<String>) {
    for one in &mut facts.meanwhile {
        let is_others = match one.who {
            Who::Vm | Who::VmHelper => !own.contains(&one.name),
            Who::Container | Who::Task => true,
            _ => false,
        };
        if is_others {
            "of another".clone_into(&mut one.name);
        }
    }
}

/// The limit of the pool of that VM, where Drover schedules.
fn pool_limit_mcpu(forward: &mut Forward, vms: &[VmStatus], pid: u32) -> Option<u32> {
    let pool = vms.iter().find(|vm| vm.pid == pid)?.pool.as_ref()?;
    let Ok(Answer::Pools { pools }) = forward.ask(&Request::ListPools) else {
        return None;
    };
    pools.iter().find(|it| it.name == *pool)?.limit_mcpu
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_core::why::Meanwhile;

    #[test]
    fn names_of_others_are_hidden() {
        let ran = |who, name: &str| Meanwhile {
            who,
            name: name.to_owned(),
            shares: None,
            shares_by_default: false,
            seconds: 1.0,
            pcpus: vec![0],
        };
        let names = [(Who::Sibling, ""), (Who::Vm, "alice@db"), (Who::Vm, "bank")];
        let more = [(Who::Container, "/bank"), (Who::Kernel, "ksmd")];
        let all = names.into_iter().chain(more).map(|(who, name)| ran(who, name));
        let mut facts = Facts { meanwhile: all.collect(), ..Facts::default() };
        hide_others(&mut facts, &BTreeSet::from(["alice@db".to_owned()]));
        let told: Vec<&str> = facts.meanwhile.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(told, ["", "alice@db", "of another", "of another", "ksmd"]);
    }
}
