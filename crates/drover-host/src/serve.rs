// SPDX-License-Identifier: GPL-2.0-only
//! The daemon: keeps the scheduler alive and lets the steward look and answer.
//!
//! Nothing here is on a hot path: if the daemon is stopped, the scheduler in
//! the kernel goes on; if it dies, the next daemon (`handover`) or the kernel's
//! own scheduler takes over.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::containers::Containers;
use crate::control::Listener;
use crate::delays::Delays;
use crate::domains::{DomainLevel, Domains};
use crate::farewell::Farewell;
use crate::handover::{self, Predecessor};
use crate::kvm;
use crate::manager::Manager;
use crate::numa::Numa;
use crate::privileges;
use crate::scheduler::Scheduler;
use crate::sources::cgroup::CGROUPS;
use crate::steward::Steward;
use crate::topology::{Topology, online_cpus};
use crate::watch::Watch;
use drover_core::params::{DAEMON_LOOK_MS, Params};
use drover_core::scenario::CpuList;

/// Where a daemon reads, keeps and listens.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a> {
    /// The configuration file; need not be there.
    pub config: &'a Path,
    /// Directory of saved settings.
    pub state: &'a Path,
    /// The control socket.
    pub socket: &'a Path,
}

/// What signals ask of the daemon.
#[derive(Debug, Default)]
pub struct Wishes {
    /// To end.
    pub stop: Arc<AtomicBool>,
    /// To read the configuration now.
    pub reload: Arc<AtomicBool>,
}

/// How the daemon ended, once it had begun.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// Somebody stopped it, or took its scheduler away.
    Asked,
    /// The kernel threw its scheduler out, for this reason. It may do so again at once.
    ThrownOut(String),
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
) -> Result<End> {
    let listener = Listener::bind(places.socket)?;
    let topology = Topology::read()?;
    let domains = Domains::new(&topology, level);
    let delays = Delays::new(params, domains.of())?;
    let mut online = online_list()?;
    let before = (delays, domains.clone());
    let mut steward = Steward::open(places.config, places.state, online.clone(), before)?;
    kvm::make_known();
    let scheduler = Scheduler::start(&topology, &domains, params, predecessor)?;
    handover::keep(scheduler.link());
    privileges::drop_others()?;
    steward.follow(Containers::below(Path::new(CGROUPS)));
    steward.keep_homes(Numa::start(&topology));
    privileges::confine(places);
    let mut watch = Watch::default();
    let (pcpus, used) = (topology.count(|pcpu| pcpu.online), domains.used());
    tracing::info!(
        "scheduling {pcpus} pCPUs in {used} domain(s); Ctrl-C gives them back to the kernel"
    );
    let mut manager = Manager::ready(&format!("scheduling {pcpus} pCPUs"));
    while !wishes.stop.load(Ordering::Relaxed) {
        if let Some(farewell) = scheduler.farewell() {
            return Ok(ended(&farewell, places.state));
        }
        manager.alive(Instant::now());
        if wishes.reload.swap(false, Ordering::Relaxed) {
            steward.reload();
            manager.reloaded();
        }
        if let Some(topology) = watch.look(&scheduler) {
            steward.see(&scheduler, &topology);
        }
        online = online_list().unwrap_or(online);
        steward.look(&scheduler, &online, Instant::now());
        let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        // A signal ends the wait; so does a client. To ask for clients that are not there would
        // have the kernel make and free a socket each time.
        if poll(&mut fds, PollTimeout::from(DAEMON_LOOK_MS)).is_ok_and(|ready| ready > 0) {
            listener.answer_all(|request| steward.answer(&scheduler, request, Instant::now()));
        }
    }
    manager.stopping();
    tracing::info!(
        "stopping; all tasks go back to the kernel's own scheduler, or to the daemon that follows"
    );
    Ok(End::Asked)
}

/// The kernel ended the scheduler: says why, and keeps what it saw if that was against our will.
fn ended(farewell: &Farewell, state: &Path) -> End {
    let text = format!("{farewell}; all tasks are the kernel's own scheduler's again");
    if !farewell.is_error() {
        tracing::warn!("{text}");
        return End::Asked;
    }
    match farewell.keep_in(state) {
        Ok(file) => End::ThrownOut(format!("{text}; what it saw is in {}", file.display())),
        Err(err) => End::ThrownOut(format!("{text}; what it saw could not be kept ({err})")),
    }
}

/// The pCPUs that are online now.
pub(crate) fn online_list() -> Result<CpuList> {
    let cpus = online_cpus()?.into_iter().map(u32::try_from);
    CpuList::of(cpus.collect::<Result<Vec<_>, _>>()?).context("no pCPU is online")
}
