// SPDX-License-Identifier: GPL-2.0-only
//! `drover partition list`, `add`, `set`, `auto`, `remove`

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Subcommand;
use drover_core::asked::{Asked, Key};
use drover_core::partition::{
    PartitionChange, PartitionPolicy, PartitionSpec, parse_slice, slice_text,
};
use drover_core::partition_auto::{self, AUTO, Auto, AutoOrder, AutoVm};
use drover_core::printable::one_line;
use drover_core::scenario::CpuList;
use drover_host::control::{Answer, Request, ask};
use drover_host::status::{Kind, PartitionStatus, VmStatus};

use super::ask::{DEFAULT, Daemon, answer, percent_of, print_json, table};
use super::vm::vms;

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
    /// Give VMs that do I/O pCPUs of their own where they wait for VMs that compute: partition `auto-io`.
    Auto {
        /// Say what would be done, and why; do nothing.
        #[arg(long)]
        dry_run: bool,
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
pub struct Values {
    /// How it chooses who runs: share, credit, dedicated or anticipatory.
    #[arg(long)]
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
        Partition::Auto { dry_run, daemon } => {
            auto(dry_run, &daemon.socket)?;
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
        Partition::Remove { name, daemon } => (Request::RemovePartition { name }, daemon),
    };
    ask(&daemon.socket, &request)?;
    Ok(ExitCode::SUCCESS)
}

fn list(json: bool, socket: &Path) -> Result<()> {
    let partitions = partitions(socket)?;
    match json {
        true => print_json(&serde_json::to_string_pretty(&partitions)?),
        false => print!("{}", overview(&partitions)),
    }
    Ok(())
}

/// Plans by what VMs do now, and follows that unless it is only to be said.
fn auto(dry_run: bool, socket: &Path) -> Result<()> {
    let partitions = partitions(socket)?;
    let plan = planned(&partitions, &vms(socket)?);
    plan.why.iter().for_each(|line| println!("{}", one_line(line)));
    if plan.orders.is_empty() {
        println!("Nothing is to be done.");
    }
    for order in &plan.orders {
        println!(
            "{}{}",
            if dry_run { "would: " } else { "" },
            one_line(&command(order, &partitions))
        );
        if !dry_run {
            ask(socket, &request(order, &partitions))?;
        }
    }
    Ok(())
}

fn partitions(socket: &Path) -> Result<Vec<PartitionStatus>> {
    answer(socket, &Request::ListPartitions, |answer| match answer {
        Answer::Partitions { partitions } => Some(partitions),
        _ => None,
    })
}

fn planned(partitions: &[PartitionStatus], vms: &[VmStatus]) -> Auto {
    let spec = |it: &PartitionStatus| {
        let cpus = it.cpus.clone()?;
        let policy = it.policy;
        Some(PartitionSpec { name: it.name.clone(), cpus, policy, slice_ns: None })
    };
    let others = partitions.iter().filter(|it| it.name != DEFAULT);
    let specs: Vec<PartitionSpec> = others.filter_map(spec).collect();
    let online = |it: &PartitionStatus| match (&it.cpus, &it.offline) {
        (Some(cpus), Some(offline)) => cpus.without(offline),
        (cpus, _) => cpus.clone(),
    };
    let all: Vec<u32> =
        partitions.iter().filter_map(online).flat_map(|cpus| cpus.cpus().to_vec()).collect();
    let Some(all) = CpuList::of(all) else { return Auto::default() };
    let vm = |vm: &VmStatus| AutoVm {
        name: vm.name.clone(),
        partition: vm.partition.clone(),
        profile: vm.profile.map(|it| it.profile),
        wants_pcpus: vm.profile.map_or(0.0, |it| it.evidence.wanted_pcpus()),
        tied: (vm.promised_mcpu > 0).then_some("has a reservation"),
    };
    let vms: Vec<AutoVm> = vms.iter().filter(|vm| vm.kind == Kind::Vm).map(vm).collect();
    partition_auto::auto(&all, &specs, &vms)
}

/// The command that does the same.
fn command(order: &AutoOrder, partitions: &[PartitionStatus]) -> String {
    let is_there = partitions.iter().any(|it| it.name == AUTO);
    match order {
        AutoOrder::Shape(spec) => format!(
            "drover partition {} {} --cpus {} --policy {} --slice {}",
            if is_there { "set" } else { "add" },
            spec.name,
            spec.cpus,
            spec.policy,
            slice_text(spec.slice_ns())
        ),
        AutoOrder::Move { vm, to } => format!("drover vm set {vm} --partition {to}"),
        AutoOrder::Remove => format!("drover partition remove {AUTO}"),
    }
}

fn request(order: &AutoOrder, partitions: &[PartitionStatus]) -> Request {
    match order {
        AutoOrder::Shape(PartitionSpec { name, cpus, policy, slice_ns }) => {
            let (cpus, policy) = (Some(cpus.clone()), Some(*policy));
            let change = PartitionChange { cpus, policy, slice_ns: *slice_ns };
            let name = name.clone();
            match partitions.iter().any(|it| it.name == name) {
                true => Request::SetPartition { name, change },
                false => Request::AddPartition { name, change },
            }
        }
        AutoOrder::Move { vm, to } => {
            let (name, mut set) = (vm.clone(), Asked::default());
            set.read(Key::Partition, to).expect("its name is plain");
            Request::SetVm { name, set, reset: Vec::new() }
        }
        AutoOrder::Remove => Request::RemovePartition { name: AUTO.to_owned() },
    }
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
    fn what_a_partition_has_is_shown_in_the_words_it_is_set_in() {
        let partition = PartitionStatus {
            name: "io".to_owned(),
            cpus: "0-1".parse().ok(),
            offline: "1".parse().ok(),
            policy: PartitionPolicy::Credit,
            slice_ms: 3.0,
            size_mcpu: None,
            host_mcpu: None,
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
