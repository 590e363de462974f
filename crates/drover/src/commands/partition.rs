// SPDX-License-Identifier: GPL-2.0-only
//! `drover partition list`, `drover partition add`, `drover partition set`, `drover partition remove`

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Subcommand;
use drover_core::arrange::{Arrangement, Step};
use drover_core::cpu_list::CpuList;
use drover_core::partition::{PartitionChange, PartitionPolicy, parse_slice, slice_text};
use drover_core::printable::one_line;
use drover_host::control::{Answer, Request, ask};
use drover_host::status::PartitionStatus;

use super::ask::{Daemon, answer, percent_of, print_json, table};
use super::given::one_of;

#[derive(Subcommand)]
pub enum Partition {
    /// Show all partitions and who is in them.
    List {
        /// As JSON, for programs.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Make a partition.
    Add {
        /// Its name.
        name: String,
        /// Its pCPUs, such as 0-1,4.
        #[arg(long)]
        cpus: CpuList,
        #[command(flatten)]
        values: Values,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Change a partition; VMs in it stay in it.
    Set {
        /// Its name.
        name: String,
        /// Its pCPUs, such as 0-1,4.
        #[arg(long)]
        cpus: Option<CpuList>,
        #[command(flatten)]
        values: Values,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Arrange partitions by what VMs do, or say how they would be arranged.
    Auto {
        #[command(flatten)]
        what: Auto,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Remove a partition nobody is in; its pCPUs are those of `default` again.
    Remove {
        /// Its name.
        name: String,
        #[command(flatten)]
        daemon: Daemon,
    },
}

#[derive(clap::Args)]
#[group(id = "switch", required = true, multiple = false)]
pub struct Auto {
    /// Do so from now on.
    #[arg(long)]
    on: bool,
    /// No longer; partitions and VMs stay as they are.
    #[arg(long)]
    off: bool,
    /// Show what would be done now, why, and what comes of it; nothing is done.
    #[arg(long)]
    dry_run: bool,
}

#[derive(clap::Args)]
pub struct Values {
    /// How it chooses who runs: share, credit, dedicated or anticipatory.
    #[arg(long, value_parser = one_of(&PartitionPolicy::WORDS), hide_possible_values = true)]
    policy: Option<PartitionPolicy>,
    /// How long a thread runs before it is asked again, such as 3ms.
    #[arg(long, value_parser = parse_slice)]
    slice: Option<u64>,
}

impl Values {
    fn change(self, cpus: Option<CpuList>) -> PartitionChange {
        PartitionChange { cpus, policy: self.policy, slice_ns: self.slice }
    }
}

pub fn run(partition: Partition) -> Result<ExitCode> {
    let (request, daemon) = match partition {
        Partition::List { json, daemon } => {
            list(json, &daemon.socket)?;
            return Ok(ExitCode::SUCCESS);
        }
        Partition::Add { name, cpus, values, daemon } => {
            (Request::AddPartition { name, change: values.change(Some(cpus)) }, daemon)
        }
        Partition::Set { name, cpus, values, daemon } => {
            let change = values.change(cpus);
            if change == PartitionChange::default() {
                bail!("nothing to change is given; see `drover partition set --help`");
            }
            (Request::SetPartition { name, change }, daemon)
        }
        Partition::Auto { what: Auto { dry_run: true, .. }, daemon } => {
            let (is_on, arrangement) =
                answer(&daemon.socket, &Request::PlanPartitions, |answer| match answer {
                    Answer::Arrangement { is_on, arrangement } => Some((is_on, arrangement)),
                    _ => None,
                })?;
            print!("{}", plan_text(is_on, &arrangement));
            return Ok(ExitCode::SUCCESS);
        }
        Partition::Auto { what, daemon } => (Request::SetAutoPartitions { on: what.on }, daemon),
        Partition::Remove { name, daemon } => (Request::RemovePartition { name }, daemon),
    };
    ask(&daemon.socket, &request)?;
    Ok(ExitCode::SUCCESS)
}

fn list(json: bool, socket: &Path) -> Result<()> {
    let partitions = answer(socket, &Request::ListPartitions, |answer| match answer {
        Answer::Partitions { partitions } => Some(partitions),
        _ => None,
    })?;
    match json {
        true => print_json(&serde_json::to_string_pretty(&partitions)?),
        false => print!("{}", overview(&partitions)),
    }
    Ok(())
}

/// What would be done, why, and what comes of it.
fn plan_text(is_on: bool, arrangement: &Arrangement) -> String {
    let mut lines = vec![format!("{}.", arrangement.why)];
    let step = |step: &Step| match step {
        Step::Add { partition, change } => {
            let cpus = change.cpus.as_ref().map_or_else(String::new, ToString::to_string);
            let policy = change.policy.unwrap_or_default();
            let slice = change
                .slice_ns
                .map_or_else(String::new, |ns| format!(" --slice {}", slice_text(ns)));
            format!("  drover partition add {partition} --cpus {cpus} --policy {policy}{slice}")
        }
        Step::Resize { partition, cpus } => {
            format!("  drover partition set {partition} --cpus {cpus}")
        }
        Step::Move { vm, to } => format!("  drover vm set {vm} --partition {to}"),
        Step::Remove { partition } => format!("  drover partition remove {partition}"),
    };
    match arrangement.steps.is_empty() {
        true => lines.push("Nothing would be done.".to_owned()),
        false => lines.push("Would do:".to_owned()),
    }
    lines.extend(arrangement.steps.iter().map(step));
    let part = |title: &str, of: &[String]| -> Vec<String> {
        let title = (!of.is_empty()).then(|| title.to_owned());
        title.into_iter().chain(of.iter().map(|line| format!("  {}", one_line(line)))).collect()
    };
    lines.extend(part("Because:", &arrangement.moves_why));
    lines.extend(part("Then:", &arrangement.expects));
    lines.extend(part("Wait for devices, but are not moved:", &arrangement.kept));
    lines.extend(part("In the wrong place:", &arrangement.misplaced));
    if !is_on && !arrangement.steps.is_empty() {
        lines.push("It is off; `drover partition auto --on` does that.".to_owned());
    }
    lines.join("\n") + "\n"
}

fn overview(partitions: &[PartitionStatus]) -> String {
    let titles = ["PARTITION<", "CPUS<", "POLICY<", "SLICE", "VMS", "GOT"];
    let row = |partition: &PartitionStatus| {
        let cpus = partition.cpus.as_ref().map_or("none".to_owned(), ToString::to_string);
        let offline = partition.offline.as_ref();
        vec![
            partition.name.clone(),
            cpus + &offline.map_or(String::new(), |cpus| format!(" ({cpus} offline)")),
            partition.policy.to_string(),
            format!("{} ms", partition.slice_ms),
            partition.vms.len().to_string(),
            percent_of(partition.got_pcpus),
        ]
    };
    table(&titles, &partitions.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_moved_is_shown_with_the_rule() {
        let kept = vec!["disk is io, but wants 98%".to_owned()];
        let text = plan_text(false, &Arrangement { kept, ..Arrangement::default() });
        let end = "Nothing would be done.\nWait for devices, but are not moved:\n  disk is io, but wants 98%\n";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn what_a_partition_has_is_shown_in_the_words_it_is_set_in() {
        let partition = PartitionStatus {
            name: "io".to_owned(),
            cpus: "0-1".parse().ok(),
            offline: "1".parse().ok(),
            policy: PartitionPolicy::Credit,
            slice_ms: 3.0,
            size_mcpu: None,
            host_mcpu: None,
            promised_mcpu: None,
            free_mcpu: None,
            vms: vec!["web".to_owned()],
            unplaced_vcpus: 0,
            got_pcpus: Some(1.5),
        };
        let text = overview(&[partition]);
        assert_eq!(
            text,
            "PARTITION  CPUS             POLICY  SLICE  VMS     GOT\n\
             io         0-1 (1 offline)  credit   3 ms    1  150.0%\n"
        );
    }
}
