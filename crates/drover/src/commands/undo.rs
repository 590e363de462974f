// SPDX-License-Identifier: GPL-2.0-only
//! `drover undo`

use std::process::ExitCode;

use anyhow::Result;
use drover_core::printable::one_line;
use drover_host::control::{Answer, Request};

use super::ask::{Daemon, answer, changed};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    daemon: Daemon,
}

/// Fails where there is nothing to take back.
pub fn run(args: &Args) -> Result<ExitCode> {
    let (whose, changes) = answer(&args.daemon.socket, &Request::Undo, |answer| match answer {
        Answer::Undone { whose, changes } => Some((whose, changes)),
        _ => None,
    })?;
    println!("Taken back: the last order for {}.", one_line(&whose));
    match changes.is_empty() {
        true => println!("It made no difference any more."),
        false => print!("{}", changed(&changes)),
    }
    Ok(ExitCode::SUCCESS)
}
