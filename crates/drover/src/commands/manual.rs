// SPDX-License-Identifier: GPL-2.0-only
//! `drover manual`: what packages need that follows from the command line.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap_complete::Shell;

#[derive(clap::Args)]
pub struct Args {
    /// Where man pages and completions are written; is made.
    dir: PathBuf,
}

/// Writes a man page for each command, and completions of that command line for three shells.
pub fn run(args: &Args, mut cli: clap::Command) -> Result<ExitCode> {
    let failed = || format!("cannot write into {}", args.dir.display());
    fs::create_dir_all(&args.dir).with_context(failed)?;
    // Before the completions, which give the command line its help commands.
    clap_mangen::generate_to(without_help(cli.clone()), &args.dir).with_context(failed)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut cli, "drover", &args.dir).with_context(failed)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `drover vm help list` needs no page beside that of `drover vm list`.
fn without_help(command: clap::Command) -> clap::Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}
