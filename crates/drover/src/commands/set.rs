// SPDX-License-Identifier: GPL-2.0-only
//! `drover set list`, `drover set add`, `drover set remove`

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use drover_core::place::{Kind, Within};
use drover_core::printable::one_line;
use drover_core::sets::SetSpec;
use drover_host::control::{Answer, Request, ask};
use drover_host::status::SetStatus;

use super::ask::{Daemon, answer, print_json, table};
use super::given::one_of;

#[derive(Subcommand)]
pub enum Set {
    /// Show all sets of VMs that belong together or apart.
    List {
        /// As JSON, for programs.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Make a set. VMs need not be here yet.
    Add {
        /// Its name.
        name: String,
        /// Its VMs, such as web,db.
        #[arg(long, required = true, value_delimiter = ',')]
        vms: Vec<String>,
        /// affine: they share a NUMA node; anti-affine: each is on another.
        #[arg(long, value_parser = one_of(&Kind::WORDS), hide_possible_values = true)]
        kind: Kind,
        /// What they share or do not: node, or llc for the last-level cache.
        #[arg(long, default_value_t, value_parser = one_of(&Within::WORDS), hide_possible_values = true)]
        within: Within,
        /// Never break it: a VM that it leaves no home for has none.
        #[arg(long)]
        hard: bool,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Remove a set; its VMs stay where they are.
    Remove {
        /// Its name.
        name: String,
        #[command(flatten)]
        daemon: Daemon,
    },
}

pub fn run(set: Set) -> Result<ExitCode> {
    match set {
        Set::List { json, daemon } => list(json, &daemon.socket)?,
        Set::Add { name, vms, kind, within, hard, daemon } => {
            let set = SetSpec { name: name.clone(), vms, kind, within, hard };
            ask(&daemon.socket, &Request::AddSet { set })?;
            let made: Vec<SetStatus> =
                sets(&daemon.socket)?.into_iter().filter(|set| set.name == name).collect();
            print!("{}", troubles(&made));
        }
        Set::Remove { name, daemon } => {
            ask(&daemon.socket, &Request::RemoveSet { name })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn sets(socket: &Path) -> Result<Vec<SetStatus>> {
    answer(socket, &Request::ListSets, |answer| match answer {
        Answer::Sets { sets } => Some(sets),
        _ => None,
    })
}

fn list(json: bool, socket: &Path) -> Result<()> {
    let sets = sets(socket)?;
    if json {
        print_json(&serde_json::to_string_pretty(&sets)?);
    } else if sets.is_empty() {
        println!("There are no sets; make one with `drover set add`.");
    } else {
        print!("{}{}", overview(&sets), troubles(&sets));
    }
    Ok(())
}

fn overview(sets: &[SetStatus]) -> String {
    let row = |set: &SetStatus| {
        let vm = |vm: &String| {
            if set.absent.contains(vm) { format!("{vm} (not here)") } else { vm.clone() }
        };
        vec![
            set.name.clone(),
            set.kind.to_string(),
            set.within.to_string(),
            if set.hard { "yes" } else { "no" }.to_owned(),
            set.vms.iter().map(vm).collect::<Vec<_>>().join(", "),
            set.origin.clone(),
        ]
    };
    let titles = ["SET<", "KIND<", "WITHIN<", "HARD<", "VMS<", "FROM<"];
    table(&titles, &sets.iter().map(row).collect::<Vec<_>>())
}

/// What cannot be kept of them, each once.
fn troubles(sets: &[SetStatus]) -> String {
    let mut lines: Vec<&String> = Vec::new();
    for trouble in sets.iter().flat_map(|set| &set.troubles) {
        if !lines.contains(&trouble) {
            lines.push(trouble);
        }
    }
    lines.into_iter().map(|line| one_line(line) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_shown_with_who_is_not_here_and_troubles_once_below() {
        let set = |name: &str, hard| SetStatus {
            name: name.to_owned(),
            vms: vec!["a".to_owned(), "b".to_owned()],
            absent: vec!["b".to_owned()],
            kind: Kind::AntiAffine,
            within: Within::Llc,
            hard,
            origin: "drover set".to_owned(),
            troubles: vec!["set \"x\" loses".to_owned()],
        };
        let sets = [set("x", true), set("y", false)];
        assert_eq!(
            overview(&sets) + &troubles(&sets),
            "SET  KIND         WITHIN  HARD  VMS              FROM\n\
             x    anti-affine  llc     yes   a, b (not here)  drover set\n\
             y    anti-affine  llc     no    a, b (not here)  drover set\n\
             set \"x\" loses\n"
        );
    }
}
