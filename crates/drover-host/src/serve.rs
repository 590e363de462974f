// SPDX-License-Identifier: GPL-2.0-only
//! The daemon: keeps the scheduler alive and lets the steward look and answer.
//!
//! Nothing here is on a hot path: if the daemon is stopped, the scheduler in
//! the kernel goes on; if it dies, the kernel's own scheduler takes over.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::containers::Containers;
use crate::control::Listener;
use crate::delays::Delays;
use crate::domains::{DomainLevel, Domains};
use crate::kvm;
use crate::numa::Numa;
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

/// Run the daemon until `stop` is set or the kernel ends the scheduler.
///
/// # Errors
/// When the scheduler cannot be started, or the kernel threw it out; the text
/// says why.
pub fn serve(
    level: DomainLevel,
    params: &Params,
    places: &Places,
    stop: &Arc<AtomicBool>,
) -> Result<()> {
    let listener = Listener::bind(places.socket)?;
    let topology = Topology::read()?;
    let domains = Domains::new(&topology, level);
    let delays = Delays::new(params, domains.of())?;
    let mut online = online_list()?;
    let before = (delays, domains.clone());
    let mut steward = Steward::open(places.config, places.state, online.clone(), before)?;
    kvm::make_known();
    let scheduler = Scheduler::start(&topology, &domains, params)?;
    steward.follow(Containers::below(Path::new(CGROUPS)));
    steward.keep_homes(Numa::start(&topology));
    let mut watch = Watch::default();
    tracing::info!(
        "scheduling {} pCPUs in {} domain(s); Ctrl-C gives them back to the kernel",
        topology.count(|pcpu| pcpu.online),
        domains.used()
    );
    while !stop.load(Ordering::Relaxed) {
        if let Some(farewell) = scheduler.farewell() {
            let text = format!("{farewell}; all tasks are the kernel's own scheduler's again");
            if farewell.is_error() {
                bail!(text);
            }
            tracing::warn!("{text}");
            return Ok(());
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
    tracing::info!("stopping; all tasks go back to the kernel's own scheduler");
    Ok(())
}

/// The pCPUs that are online now.
fn online_list() -> Result<CpuList> {
    let cpus = online_cpus()?.into_iter().map(u32::try_from);
    CpuList::of(cpus.collect::<Result<Vec<_>, _>>()?).context("no pCPU is online")
}
