// SPDX-License-Identifier: GPL-2.0-only
//! `drover vm list`, `drover vm set`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Subcommand;
use drover_host::control::{Answer, Request, SOCKET_PATH, VmStatus, ask};

#[derive(Subcommand)]
pub enum Vm {
    /// Show all VMs and what they get.
    List {
        /// As JSON, for programs.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Change what a VM is owed, at once.
    Set {
        /// The VM, as `drover vm list` names it.
        name: String,
        /// 1 to 1000000, or "default": 1000 per vCPU.
        #[arg(long)]
        shares: Shares,
        #[command(flatten)]
        daemon: Daemon,
    },
}

#[derive(clap::Args)]
pub struct Daemon {
    /// Where the daemon listens.
    #[arg(long, default_value = SOCKET_PATH)]
    socket: PathBuf,
}

/// A number of shares, or the default for the VM's size.
#[derive(Clone, Copy)]
pub struct Shares(Option<u32>);

impl std::str::FromStr for Shares {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "default" {
            return Ok(Self(None));
        }
        match text.parse() {
            Ok(shares) if (1..=drover_host::serve::SHARES_MAX).contains(&shares) => {
                Ok(Self(Some(shares)))
            }
            _ => Err(format!("use 1 to {} or \"default\"", drover_host::serve::SHARES_MAX)),
        }
    }
}

pub fn run(vm: Vm) -> Result<ExitCode> {
    match vm {
        Vm::List { json, daemon } => list(json, &daemon.socket)?,
        Vm::Set { name, shares, daemon } => {
            ask(&daemon.socket, &Request::SetVm { name, shares: shares.0 })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(json: bool, socket: &Path) -> Result<()> {
    let Answer::Vms { vms } = ask(socket, &Request::ListVms)? else {
        bail!("the daemon answered something else; is it of this version?");
    };
    if json {
        println!("{}", serde_json::to_string_pretty(&vms)?);
    } else if vms.is_empty() {
        println!("No VM runs here.");
    } else {
        print!("{}", table(&vms));
    }
    Ok(())
}

fn table(vms: &[VmStatus]) -> String {
    let width = vms.iter().map(|vm| vm.name.len()).max().unwrap_or(0).max(4);
    let mut text = format!(
        "{:<width$} {:>7} {:>5} {:>8} {:>12} {:>12} {:>10} {:>13}\n",
        "NAME", "PID", "VCPUS", "SHARES", "VCPU TIME", "HELPER TIME", "READY", "LONGEST READY"
    );
    for vm in vms {
        let mark = if vm.shares_by_default { " " } else { "*" };
        text += &format!(
            "{:<width$} {:>7} {:>5} {:>7}{mark} {:>10.2} s {:>10.2} s {:>8.2} s {:>10.2} ms\n",
            vm.name,
            vm.pid,
            vm.vcpus,
            vm.shares,
            vm.vcpu_cpu_s,
            vm.helper_cpu_s,
            vm.ready_s,
            vm.longest_ready_ms
        );
    }
    if vms.iter().any(|vm| !vm.shares_by_default) {
        text += "* set by `drover vm set`; the others have 1000 per vCPU\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(name: &str, by_default: bool) -> VmStatus {
        VmStatus {
            name: name.into(),
            pid: 7,
            vcpus: 2,
            shares: 2000,
            shares_by_default: by_default,
            vcpu_cpu_s: 1.0,
            helper_cpu_s: 0.25,
            ready_s: 0.5,
            longest_ready_ms: 8.125,
        }
    }

    #[test]
    fn columns_line_up() {
        let text = table(&[vm("a", true), vm("a-long-name", true)]);
        let lengths: Vec<usize> = text.lines().map(str::len).collect();
        assert_eq!(lengths[1], lengths[2], "{text}");
        assert_eq!(lengths[0], lengths[1], "{text}");
    }

    #[test]
    fn what_was_set_is_marked() {
        assert!(table(&[vm("a", false)]).contains("2000*"));
        assert!(!table(&[vm("a", true)]).contains('*'));
    }

    #[test]
    fn shares_are_a_number_or_the_default() {
        assert_eq!("default".parse::<Shares>().unwrap().0, None);
        assert_eq!("1".parse::<Shares>().unwrap().0, Some(1));
        for bad in ["0", "-5", "1000001", "many", ""] {
            assert!(bad.parse::<Shares>().is_err(), "{bad}");
        }
    }
}
