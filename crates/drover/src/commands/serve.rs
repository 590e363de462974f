// SPDX-License-Identifier: GPL-2.0-only
//! `drover serve`

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use drover_core::params::Params;
use drover_host::check::freezes::{CORE_SCHEDULING, PSI_TRIGGERS};
use drover_host::check::{NOBODY_ELSE, Point, State, check_host};
use drover_host::control::SOCKET_PATH;
use drover_host::domains::DomainLevel;
use drover_host::handover::Predecessor;
use drover_host::places::Places;
use drover_host::readers::READERS_PATH;
use drover_host::rehearsal::rehearse;
use drover_host::serve::{Allowed, End, Wishes, serve};
use drover_host::sources::config_file::CONFIG_PATH;
use drover_host::store::STATE_DIR;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use super::given::one_of;
use super::pool::{host_line, overview};
use super::vm::reasons;
use crate::log;

/// The exit status by which a service manager knows not to start it again (packaging/drover.service).
const THROWN_OUT: u8 = 70;

#[derive(clap::Args)]
pub struct Args {
    /// What shares one run queue of VMs: pcpu, llc, node or host.
    #[arg(
        long,
        default_value = "llc",
        value_parser = one_of(&DomainLevel::WORDS),
        hide_possible_values = true
    )]
    domains: DomainLevel,
    /// Pools, and what VMs by name are to have; need not be there.
    #[arg(long, default_value = CONFIG_PATH)]
    config: PathBuf,
    /// Directory where orders are kept.
    #[arg(long, default_value = STATE_DIR)]
    state: PathBuf,
    /// Where to listen for orders.
    #[arg(long, default_value = SOCKET_PATH)]
    socket: PathBuf,
    /// Where to listen for questions of the group drover, where there is one; nothing can be ordered there.
    #[arg(long, default_value = READERS_PATH)]
    readers_socket: PathBuf,
    /// Who may only ask sees the VMs of all users, not the own alone.
    #[arg(long)]
    readers_see_all: bool,
    /// Start although threads have core-scheduling cookies, with which kernels before 7.3.4 freeze.
    #[arg(long)]
    allow_core_scheduling: bool,
    /// Say what would be done with which VMs, and change nothing.
    #[arg(long)]
    dry_run: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let Args { config, state, socket, readers_socket: readers, .. } = args;
    let places = Places { config, state, socket, readers };
    if args.dry_run {
        return dry_run(args.domains, &places);
    }
    let predecessor = Predecessor::take();
    let passes_over = |point: &Point| match point.what {
        NOBODY_ELSE => predecessor.is_some(),
        CORE_SCHEDULING => args.allow_core_scheduling,
        _ => false,
    };
    let points = check_host();
    let text = |point: &Point| format!("{}: {}; {}", point.what, point.found, point.fix);
    if let Some(point) = points.iter().find(|it| it.state == State::Missing && !passes_over(it)) {
        bail!(text(point));
    }
    for point in points.iter().filter(|point| [CORE_SCHEDULING, PSI_TRIGGERS].contains(&point.what))
    {
        tracing::warn!("{}", text(point));
    }
    let wishes = Wishes::default();
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, Arc::clone(&wishes.stop)).context("cannot catch signals")?;
    }
    flag::register(SIGHUP, Arc::clone(&wishes.reload)).context("cannot catch signals")?;
    let allowed = Allowed {
        core_scheduling: args.allow_core_scheduling,
        readers_see_all: args.readers_see_all,
    };
    match serve(args.domains, &Params::default(), &places, &wishes, predecessor, allowed)? {
        End::Asked => Ok(ExitCode::SUCCESS),
        End::ThrownOut(why) => {
            log::fault(&why);
            Ok(ExitCode::from(THROWN_OUT))
        }
    }
}

fn dry_run(level: DomainLevel, places: &Places) -> Result<ExitCode> {
    let would = rehearse(level, &Params::default(), places)?;
    println!("Would schedule {} pCPUs in {} domain(s).", would.pcpus, would.domains);
    match would.vms.is_empty() {
        true => println!("No VM runs here now; each that comes would be found by itself."),
        false => print!("VMs that run here would have:\n{}", reasons(&would.vms)),
    }
    if !would.pools.is_empty() {
        print!("Pools would be:\n{}", overview(&would.pools));
    }
    print!("{}", would.host.partitions.iter().filter_map(host_line).collect::<String>());
    let missing = check_host().into_iter().filter(|point| point.state == State::Missing);
    let whats: Vec<&str> = missing.map(|point| point.what).collect();
    if whats.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!("But it would not start: see {} in `drover check`.", whats.join(", "));
    Ok(ExitCode::FAILURE)
}
