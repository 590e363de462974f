// SPDX-License-Identifier: GPL-2.0-only
//! The daemon: keeps the scheduler alive and lets the reconciler look and answer.
//!
//! Nothing here is on a hot path: if the daemon is stopped, the scheduler in
//! the kernel goes on; if it dies, the next daemon (`handover`) or the kernel's
//! own scheduler takes over.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::stat::{Mode, umask};

use crate::clients::Clients;
use crate::containers::Containers;
use crate::cookies::{self, Tagged};
use crate::delays::Delays;
use crate::domains::{DomainLevel, Domains};
use crate::exit_info::ExitInfo;
use crate::handover::{self, Predecessor};
use crate::helper::Helper;
use crate::kvm;
use crate::manager::Manager;
use crate::numa::Numa;
use crate::pace::{cpu_time, next_look};
use crate::places::Places;
use crate::privileges::{self, Writer};
use crate::profiles::Profiles;
use crate::reconciler::Reconciler;
use crate::scheduler::Scheduler;
use crate::sources::cgroup::CGROUPS;
use crate::topology::{Topology, online_list};
use crate::watch::Watch;
use drover_core::cpu_list::CpuList;
use drover_core::params::{DAEMON_LOOK_MS, Params};

/// How often the daemon looks after the host; more rarely where that would cost too much.
const LOOK: Duration = Duration::from_millis(DAEMON_LOOK_MS as u64);

/// What signals ask of the daemon.
#[derive(Debug, Default)]
pub struct Wishes {
    /// To end.
    pub stop: Arc<AtomicBool>,
    /// To read the configuration now.
    pub reload: Arc<AtomicBool>,
}

impl Wishes {
    /// Did a signal ask for something?
    fn are_there(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.reload.load(Ordering::Relaxed)
    }
}

/// How the daemon ended, once it had begun.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// Somebody stopped it, or took its scheduler away.
    Asked,
    /// The kernel threw its scheduler out, or it gave the host back, for this reason. It may do so again at once.
    ThrownOut(String),
}

/// Why nobody is to look after the host any more.
enum Over {
    /// A signal asked for it.
    Stopped,
    /// The kernel has ended the scheduler.
    Ended(ExitInfo),
    /// Somebody has a core-scheduling cookie, with which this host freezes.
    Cookie(Tagged),
}

/// What whoever starts the daemon allows.
#[derive(Debug, Clone, Copy, Default)]
pub struct Allowed {
    /// Core-scheduling cookies, with which some kernels freeze.
    pub core_scheduling: bool,
    /// Who may only look sees the VMs of all users.
    pub readers_see_all: bool,
}

/// Run the daemon until it is to stop or the kernel ends the scheduler.
///
/// # Errors
/// When the scheduler cannot be started; the text says why.
pub fn serve(
    level: DomainLevel,
    params: &Params,
    places: &Places,
    wishes: &Wishes,
    predecessor: Option<Predecessor>,
    Allowed { core_scheduling, readers_see_all }: Allowed,
) -> Result<End> {
    // Files made from here on are for their owner only, whatever umask this was started with.
    umask(Mode::S_IRWXG | Mode::S_IRWXO);
    // Then they come first: they are to have nothing of what this process has later.
    let helper = Helper::start(!core_scheduling && cookies::are_a_danger())?;
    let mut clients = Clients::listen(places.socket, places.readers, readers_see_all)?;
    tracing::info!("starting: reading the host, {} and saved orders", places.config.display());
    let topology = Topology::read()?;
    let domains = Domains::new(&topology, level);
    let delays = Delays::new(params, domains.of())?;
    let online = online_list()?;
    let before = (delays, domains.clone());
    let mut reconciler = Reconciler::open(places.config, places.state, online.clone(), before)?;
    kvm::make_known();
    tracing::info!("loading the scheduler: the kernel checks it first, for some seconds");
    let scheduler = hurried(|| Scheduler::start(&topology, &domains, params, predecessor))?;
    tracing::info!("the scheduler is in charge; bringing settings into force");
    reconciler.begin();
    handover::keep(scheduler.link());
    privileges::drop_all()?;
    helper.listen().context("no thread to take what is read of processes")?;
    reconciler.follow(Containers::below(Path::new(CGROUPS)));
    reconciler.ask_names_of(Arc::clone(&helper));
    reconciler.keep_homes(Numa::start(&topology, &helper));
    let run = places.socket.parent().unwrap_or(places.socket);
    let writer = Arc::new(Writer::start(&[places.state, run]).context("no thread to write")?);
    reconciler.save_by(Arc::clone(&writer));
    privileges::confine(places);
    let profiles = Profiles::start_by(Arc::clone(&helper));
    reconciler.profile_by(profiles.context("no thread to profile VMs")?);
    let (pcpus, used) = (topology.count(|pcpu| pcpu.online), domains.used());
    tracing::info!(
        "scheduling {pcpus} pCPUs in {used} domain(s); Ctrl-C gives them back to the kernel"
    );
    let mut manager = Manager::ready(&format!("scheduling {pcpus} pCPUs"));
    let watch = Watch::new(helper);
    let host = (&scheduler, &mut reconciler);
    let over = look_after(host, online, watch, (&mut clients, &writer), &mut manager, wishes);
    if let Over::Cookie(_) = over {
        // First of all, as the host may freeze at any moment.
        handover::end(scheduler.link());
    }
    clients.close(&writer);
    match over {
        Over::Ended(exit_info) => return Ok(ended(exit_info, places.state, &writer)),
        Over::Cookie(tagged) => return Ok(End::ThrownOut(given_back(&tagged))),
        Over::Stopped => {}
    }
    manager.stopping();
    tracing::info!(
        "stopping; all tasks go back to the kernel's own scheduler, or to the daemon that follows"
    );
    Ok(End::Asked)
}

/// Has this thread do something before all others of its kind: beside busy VMs the kernel would take a minute and more to
/// check the scheduler.
fn hurried<T>(what: impl FnOnce() -> T) -> T {
    let set_nice = |nice: i32| {
        // SAFETY: takes numbers only. Where it fails, that is slow as before.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) }
    };
    // SAFETY: takes numbers only.
    let before = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    set_nice(-20);
    let result = what();
    set_nice(before);
    result
}

/// Looks after the host and serves clients, until that is over: why.
fn look_after(
    (scheduler, reconciler): (&Scheduler, &mut Reconciler),
    mut online: CpuList,
    mut watch: Watch,
    (clients, writer): (&mut Clients, &Writer),
    manager: &mut Manager,
    wishes: &Wishes,
) -> Over {
    while !wishes.stop.load(Ordering::Relaxed) {
        if let Some(exit_info) = scheduler.exit_info() {
            return Over::Ended(exit_info);
        }
        if let Some(tagged) = watch.cookie() {
            return Over::Cookie(tagged);
        }
        manager.alive(Instant::now());
        let before = cpu_time();
        if wishes.reload.swap(false, Ordering::Relaxed) {
            reconciler.reload();
            manager.reloaded();
        }
        if let Some(topology) = watch.look(scheduler) {
            reconciler.see(scheduler, &topology);
        }
        online = online_list().unwrap_or(online);
        reconciler.look(scheduler, &online, Instant::now());
        clients.find_us(writer);
        let next_look = Instant::now() + next_look(cpu_time() - before, LOOK);
        loop {
            let next_allotted = reconciler.allot(scheduler, Instant::now());
            if clients.wait(next_allotted.map_or(next_look, |at| at.min(next_look))) {
                clients.serve(|request| reconciler.answer(scheduler, request, Instant::now()));
            } else if Instant::now() >= next_look || wishes.are_there() {
                break;
            }
        }
    }
    Over::Stopped
}

/// The kernel ended the scheduler: says why, and keeps what it saw if that was against our will.
fn ended(exit_info: ExitInfo, state: &Path, writer: &Writer) -> End {
    let text = format!("{exit_info}; all tasks are the kernel's own scheduler's again");
    if !exit_info.is_error() {
        tracing::warn!("{text}");
        return End::Asked;
    }
    let state = state.to_owned();
    match writer.run(move || Ok(exit_info.keep_in(&state)?)) {
        Ok(file) => End::ThrownOut(format!("{text}; what it saw is in {}", file.display())),
        Err(err) => End::ThrownOut(format!("{text}; what it saw could not be kept ({err:#})")),
    }
}

/// The host was given back because of a cookie.
fn given_back(tagged: &Tagged) -> String {
    format!(
        "{tagged}, with which this kernel freezes under any sched_ext scheduler: all tasks are the kernel's own \
         scheduler's again; `drover check` says what to do"
    )
}
