// SPDX-License-Identifier: GPL-2.0-only
//! `drover web`

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use drover_host::control::ask_history;
use drover_web::Page;

use super::ask::Daemon;

#[derive(clap::Args)]
pub struct Args {
    /// The port of this host; 0: any that is free.
    #[arg(long, default_value = "8473")]
    port: u16,
    #[command(flatten)]
    daemon: Daemon,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let socket = args.daemon.socket.clone();
    // Whoever may not ask is told now, and not on the page.
    ask_history(&socket, 1, 1)?;
    let page = Page::at(args.port)?;
    println!("{}", page.address()?);
    tracing::info!("the page is for who has this address; Ctrl-C ends it");
    page.serve(Arc::new(move |seconds, step_s| ask_history(&socket, seconds, step_s)))?;
    Ok(ExitCode::SUCCESS)
}
