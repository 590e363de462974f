// SPDX-License-Identifier: GPL-2.0-only
//! `drover observe`

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use drover_host::check::{State, check_host};
use drover_host::control::OBSERVER_PATH;
use drover_observe::daemon;

use super::run::stop_on_signals;

/// What observing needs of a host, by the names `drover check` has for it.
const NEEDED: [&str; 2] = ["root", "BTF"];

#[derive(clap::Args)]
pub struct Args {
    /// Where to listen for questions: for root and the group drover, where there is one.
    #[arg(long, default_value = OBSERVER_PATH)]
    socket: PathBuf,
    /// Who may ask sees the VMs of all users, not the own alone.
    #[arg(long)]
    readers_see_all: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    host_must_do()?;
    let stop = stop_on_signals()?;
    daemon::observe(&args.socket, args.readers_see_all, &stop)?;
    Ok(ExitCode::SUCCESS)
}

/// What observing needs must be there.
///
/// # Errors
/// With what is missing and how to mend it.
pub fn host_must_do() -> Result<()> {
    let missing = |point: &drover_host::check::Point| {
        point.state == State::Missing && NEEDED.contains(&point.what)
    };
    match check_host().into_iter().find(missing) {
        Some(point) => bail!("{}: {}; {}", point.what, point.found, point.fix),
        None => Ok(()),
    }
}
