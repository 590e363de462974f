// SPDX-License-Identifier: GPL-2.0-only
//! `drover manual`: what packages need that follows from the command line.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

/// Of commands that root runs.
const SECTION: &str = "8";
/// What bash and fish offer beside the command line: VMs that are here, to those who may ask.
const BASH_VMS: &str = include_str!("complete_vms.bash");
const FISH_VMS: &str = include_str!("complete_vms.fish");

#[derive(clap::Args)]
pub struct Args {
    /// Where man pages and completions are written; is made.
    dir: PathBuf,
}

/// Writes a man page for each command, and completions of that command line for three shells.
pub fn run(args: &Args, cli: Command) -> Result<ExitCode> {
    write(&args.dir, visible(cli))
        .with_context(|| format!("cannot write into {}", args.dir.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn write(dir: &Path, mut cli: Command) -> Result<()> {
    fs::create_dir_all(dir)?;
    // Before the completions, which give the command line its help commands.
    let mut with_names = without_help(cli.clone());
    with_names.build();
    write_pages(dir, &with_names)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let file = clap_complete::generate_to(shell, &mut cli, "drover", dir)?;
        let more = match shell {
            Shell::Bash => BASH_VMS,
            Shell::Fish => FISH_VMS,
            _ => "",
        };
        fs::OpenOptions::new().append(true).open(file)?.write_all(more.as_bytes())?;
    }
    Ok(())
}

fn write_pages(dir: &Path, command: &Command) -> Result<()> {
    for below in command.get_subcommands() {
        write_pages(dir, below)?;
    }
    Man::new(command.clone()).section(SECTION).generate_to(dir)?;
    Ok(())
}

/// The command line without what is for tests and the lab.
fn visible(cli: Command) -> Command {
    let shown = cli.get_subcommands().filter(|below| !below.is_hide_set()).cloned();
    let shown: Vec<Command> = shown.collect();
    let about = cli.get_about().cloned().unwrap_or_default();
    Command::new("drover").about(about).version(env!("CARGO_PKG_VERSION")).subcommands(shown)
}

/// `drover vm help list` needs no page beside that of `drover vm list`.
fn without_help(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn pages_and_completions_are_of_what_people_use() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), visible(crate::Cli::command())).unwrap();
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(read("drover-vm-set.8").contains("reservation"));
        let bash = read("drover.bash");
        for hidden in ["lab-init", "soak", "policy-cost"] {
            assert!(!bash.contains(hidden), "{hidden}");
        }
        assert!(bash.contains("relaxed") && bash.contains("_drover_vms"));
    }
}
