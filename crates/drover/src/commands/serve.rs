// SPDX-License-Identifier: GPL-2.0-only
//! `drover serve`

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use drover_core::params::Params;
use drover_host::check::{State, check_host};
use drover_host::control::SOCKET_PATH;
use drover_host::domains::DomainLevel;
use drover_host::serve::{Places, serve};
use drover_host::sources::config_file::CONFIG_PATH;
use drover_host::store::STATE_DIR;

#[derive(clap::Args)]
pub struct Args {
    /// What shares one run queue of VMs: pcpu, llc, node or host.
    #[arg(long, default_value = "llc")]
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
}

pub fn run(args: &Args) -> Result<ExitCode> {
    if let Some(point) = check_host().into_iter().find(|point| point.state == State::Missing) {
        bail!("{}: {}; {}", point.what, point.found, point.mend);
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot catch signals")?;
    }
    let places = Places { config: &args.config, state: &args.state, socket: &args.socket };
    serve(args.domains, &Params::default(), &places, &stop)?;
    Ok(ExitCode::SUCCESS)
}
