// SPDX-License-Identifier: GPL-2.0-only
//! `drover serve`

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use drover_host::check::{State, check_host};
use drover_host::control::SOCKET_PATH;
use drover_host::params::Params;
use drover_host::serve::serve;
use drover_host::topology::CellLevel;

#[derive(clap::Args)]
pub struct Args {
    /// What shares one run queue of VMs: pcpu, llc, node or host.
    #[arg(long, default_value = "llc")]
    cells: CellLevel,
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
    serve(args.cells, &Params::default(), &args.socket, &stop)?;
    Ok(ExitCode::SUCCESS)
}
