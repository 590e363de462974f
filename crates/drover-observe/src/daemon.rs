// SPDX-License-Identifier: GPL-2.0-only
//! `drover observe`: keeps books of VMs whichever scheduler is in charge, and answers who asks. It takes no orders.
//!
//! Where Drover schedules, what is asked is answered by the daemon that schedules: it knows what each VM is to have. So
//! who may only look has one socket to ask.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use drover_host::control::{Answer, Request, SOCKET_PATH, ask};
use drover_host::listener::Listener;
use drover_host::manager::Manager;
use drover_host::names::{Identity, Places};
use drover_host::profiles::Profiles;
use drover_host::status::{VmIo, VmStatus};
use nix::unistd::Group;

use crate::explain::explain;
use crate::io_books::IoBooks;
use crate::observer::{Follower, Keep};
use crate::sample::{KEPT_S, Sample, Samples, VmSample};
use crate::statuses::{Known, seconds, statuses};

/// The group whose members may ask.
pub const READERS: &str = "drover";
/// From one look to the next.
const LOOK: Duration = Duration::from_secs(1);

/// Observes until it is to stop.
///
/// # Errors
/// When somebody else does, or the kernel does not let it.
pub fn observe(socket: &Path, stop: &AtomicBool) -> Result<()> {
    let readers = Group::from_name(READERS).ok().flatten().map(|group| group.gid);
    let mut listener = Listener::bind_for(socket, readers)?;
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
                listener.serve(|request| books.answer(&request).unwrap_or_else(refused));
            }
        }
    }
    manager.stopping();
    Ok(())
}

fn refused(err: anyhow::Error) -> Answer {
    Answer::Refused { reason: format!("{err:#}") }
}

/// All that is known.
struct Books {
    follower: Follower,
    finds_vms: bool,
    samples: Samples,
    io: IoBooks,
    profiles: Profiles,
    /// Who the VMs are, and what they were as they were found.
    vms: HashMap<u32, (Identity, VmSample)>,
}

impl Books {
    fn begin() -> Result<Self> {
        let follower = Follower::start(Keep::Events)?;
        let finds_vms = follower.finds_vms();
        let profiles = Profiles::start().context("no thread to profile VMs")?;
        let (samples, io, vms) = (Samples::default(), IoBooks::default(), HashMap::new());
        Ok(Self { follower, finds_vms, samples, io, profiles, vms })
    }

    /// Looks at all VMs.
    fn look(&mut self) -> Result<()> {
        let reading = self.follower.observer()?.read()?;
        let sample = Sample::take(&reading)?;
        // Another observer counts from nothing.
        if self.follower.finds_vms() != self.finds_vms {
            self.finds_vms = self.follower.finds_vms();
            self.samples.clear();
            self.io.begin_anew();
        }
        let processes: BTreeSet<u32> = sample.vms.keys().copied().collect();
        self.io.look(sample.at_ns, &reading.io, &processes, Path::new("/proc"));
        let vms = sample.vms.keys().map(|pid| (u64::from(*pid), *pid));
        self.profiles.look(vms, |_| None, Instant::now());
        self.vms.retain(|pid, _| sample.vms.contains_key(pid));
        for (pid, vm) in &sample.vms {
            let found = || (Places::default().identity_now(*pid), vm.clone());
            self.vms.entry(*pid).or_insert_with(found);
        }
        self.samples.add(sample);
        Ok(())
    }

    fn answer(&mut self, request: &Request) -> Result<Answer> {
        if let Request::ExplainWaits { vm, seconds } = request {
            return self.explain(vm, *seconds);
        }
        if let Request::ListIo = request {
            return Ok(Answer::Io { vms: self.io_of_vms() });
        }
        if !is_question(request) {
            bail!("`drover observe` takes no orders; give them to `drover serve`, as root");
        }
        if self.samples.last().is_some_and(|sample| sample.scheduler.as_deref() == Some("drover")) {
            return ask(SOCKET_PATH.as_ref(), request);
        }
        match request {
            Request::ListVms => Ok(Answer::Vms { vms: self.statuses() }),
            Request::ListPools => Ok(Answer::Pools { pools: Vec::new() }),
            Request::ListPartitions => Ok(Answer::Partitions { partitions: Vec::new() }),
            Request::ListSets => Ok(Answer::Sets { sets: Vec::new() }),
            Request::ListNodes => Ok(Answer::Nodes { nodes: Vec::new() }),
            _ => bail!("only `drover serve` knows that; here `drover observe` looks only"),
        }
    }

    fn statuses(&self) -> Vec<VmStatus> {
        let Some(last) = self.samples.last() else { return Vec::new() };
        let mut known = HashMap::new();
        for (pid, (identity, first)) in &self.vms {
            let before = self.samples.before(last.at_ns.saturating_sub(1), *pid);
            let before = before.filter(|before| before.at_ns < last.at_ns).and_then(|before| {
                Some((before.vms.get(pid)?, seconds(last.at_ns - before.at_ns)))
            });
            let profile = self.profiles.of(u64::from(*pid));
            known.insert(*pid, Known { identity, first, before, profile });
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
        let of_pool = (!told.is_empty()).then(|| pool_limit_mcpu(&told, pid)).flatten();
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
        let named = self.vms.iter().filter(|(_, (identity, _))| identity.name == vm);
        let mut pids: Vec<u32> = named.map(|(pid, _)| *pid).collect();
        pids.sort_unstable();
        match pids[..] {
            [pid] => Ok(pid),
            [] => bail!("no VM {vm} runs here; `drover vm list` shows those that do"),
            _ => bail!("{} VMs are named {vm}: give the process of one: {pids:?}", pids.len()),
        }
    }
}

/// The limit of the pool of that VM, where Drover schedules.
fn pool_limit_mcpu(vms: &[VmStatus], pid: u32) -> Option<u32> {
    let pool = vms.iter().find(|vm| vm.pid == pid)?.pool.as_ref()?;
    let Ok(Answer::Pools { pools }) = ask(SOCKET_PATH.as_ref(), &Request::ListPools) else {
        return None;
    };
    pools.iter().find(|it| it.name == *pool)?.limit_mcpu
}

/// Whether it changes nothing.
fn is_question(request: &Request) -> bool {
    matches!(
        request,
        Request::ListVms
            | Request::ListOrders
            | Request::ListPools
            | Request::ListPartitions
            | Request::ListSets
            | Request::ListNodes
            | Request::PlanHomes
            | Request::AdviseVm { .. }
            | Request::ExplainWaits { .. }
            | Request::ListIo
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_no_questions() {
        let name = String::new;
        assert!(is_question(&Request::ListVms));
        assert!(is_question(&Request::AdviseVm { name: name() }));
        assert!(!is_question(&Request::ForgetVm { name: name() }));
        assert!(!is_question(&Request::RemovePool { name: name() }));
    }
}
