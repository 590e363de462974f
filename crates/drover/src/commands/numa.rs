// SPDX-License-Identifier: GPL-2.0-only
//! `drover numa list`, `drover numa plan`, `drover numa advise`

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use drover_core::place::HomeNumber;
use drover_core::printable::printable;
use drover_host::control::{Answer, Request};
use drover_host::status::{Advice, NodeStatus, PlannedMove};
use serde_json::to_string_pretty;

use super::ask::{Daemon, answer, percent_of, print_json, table};

/// Where VMs have no homes.
pub const ONE_NODE: &str = "This host has one NUMA node and one last-level cache only.\n";

#[derive(Subcommand)]
pub enum Numa {
    /// Show the NUMA nodes and which VMs live there.
    List {
        /// As JSON, for programs.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Show which VMs would be moved to another home now, and why. Moves nothing.
    Plan {
        /// As JSON, for programs.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Print the virtual nodes that the guest of a VM wider than a node should have, for libvirt and QEMU.
    Advise {
        /// The VM, as `drover vm list` names it.
        vm: String,
        /// As JSON, for programs.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        daemon: Daemon,
    },
}

pub fn run(numa: Numa) -> Result<ExitCode> {
    let (json, told, text) = match numa {
        Numa::List { json, daemon } => {
            let nodes = nodes(&daemon.socket)?;
            (json, to_string_pretty(&nodes)?, overview(&nodes))
        }
        Numa::Plan { json, daemon } => {
            let moves = moves(&daemon.socket)?;
            (json, to_string_pretty(&moves)?, plan(moves.as_deref()))
        }
        Numa::Advise { vm, json, daemon } => {
            let advice = advice(&daemon.socket, vm.clone())?;
            (json, to_string_pretty(&advice)?, advised(&vm, advice.as_ref()))
        }
    };
    match json {
        true => print_json(&told),
        false => print!("{text}"),
    }
    Ok(ExitCode::SUCCESS)
}

fn nodes(socket: &Path) -> Result<Vec<NodeStatus>> {
    answer(socket, &Request::ListNodes, |answer| match answer {
        Answer::Nodes { nodes } => Some(nodes),
        _ => None,
    })
}

fn moves(socket: &Path) -> Result<Option<Vec<PlannedMove>>> {
    answer(socket, &Request::PlanHomes, |answer| match answer {
        Answer::Moves { moves } => Some(moves),
        _ => None,
    })
}

fn advice(socket: &Path, name: String) -> Result<Option<Advice>> {
    answer(socket, &Request::AdviseVm { name }, |answer| match answer {
        Answer::Advice { advice } => Some(advice),
        _ => None,
    })
}

fn overview(nodes: &[NodeStatus]) -> String {
    if nodes.is_empty() {
        return ONE_NODE.to_owned();
    }
    let divided = nodes.iter().any(|node| node.partition != nodes[0].partition);
    let row = |node: &NodeStatus| {
        let cells = vec![
            node.node.to_string(),
            node.pcpus.to_string(),
            node.cores.to_string(),
            percent_of(Some(node.wanted_pcpus)),
            format!("{:.0}%", 100.0 * node.crowded),
            format!("{} MiB", node.memory_mib),
            format!("{} MiB", node.free_mib),
            if node.vms.is_empty() { "-".to_owned() } else { node.vms.join(", ") },
        ];
        divided.then(|| node.partition.clone()).into_iter().chain(cells).collect()
    };
    let titles = ["NODE", "PCPUS", "CORES", "WANTED", "CROWDED", "MEMORY", "FREE", "VMS<"];
    let titles: Vec<&str> = divided.then_some("PARTITION<").into_iter().chain(titles).collect();
    let table = table(&titles, &nodes.iter().map(row).collect::<Vec<_>>());
    format!("{table}Pressure on caches and memory is known by {}.\n", nodes[0].measured_by)
}

fn plan(moves: Option<&[PlannedMove]>) -> String {
    let Some(moves) = moves else { return ONE_NODE.to_owned() };
    if moves.is_empty() {
        return "Nothing: every VM is where it should be.\n".to_owned();
    }
    let row = |step: &PlannedMove| {
        let part = match step.parts {
            1 => String::new(),
            parts => format!(" ({} of {parts})", step.part),
        };
        let from = step.from.map_or("-".to_owned(), home);
        vec![step.name.clone() + &part, from, home(step.to), step.why.clone()]
    };
    table(&["NAME<", "FROM<", "TO<", "WHY<"], &moves.iter().map(row).collect::<Vec<_>>())
}

fn home(home: HomeNumber) -> String {
    let llc = home.llc.map(|llc| format!(", cache {llc}"));
    format!("node {}{}", home.node, llc.unwrap_or_default())
}

fn advised(vm: &str, advice: Option<&Advice>) -> String {
    let vm = printable(vm);
    let Some(advice) = advice else {
        return format!("VM {vm} needs no virtual nodes: this host has one NUMA node only.\n");
    };
    let Advice { vcpus, memory_mib, node_cores, node_memory_mib, guest } = advice;
    let plural = if *vcpus == 1 { "" } else { "s" };
    let has = format!("{vcpus} vCPU{plural} and {memory_mib} MiB");
    let node = format!("a node here has {node_cores} cores and {node_memory_mib} MiB");
    match guest {
        None => format!("VM {vm} needs no virtual nodes: it has {has}, {node}.\n"),
        Some(guest) => format!(
            "VM {vm} has {has}, {node}: give its guest {} virtual nodes, from its next start on.\n\n\
             For libvirt, instead of what its domain says of these:\n\n{}\nFor QEMU, instead of -smp and -m:\n\n{}",
            guest.nodes.len(),
            guest.libvirt(),
            guest.qemu()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_core::place::{GuestNode, GuestTopology};

    #[test]
    fn nodes_are_shown_with_who_lives_there() {
        let node = |node, wanted_pcpus, crowded, vms: &[&str]| NodeStatus {
            node,
            partition: "default".to_owned(),
            pcpus: 4,
            cores: 2,
            llcs: 1,
            wanted_pcpus,
            crowded,
            measured_by: "resctrl".to_owned(),
            memory_mib: 8192,
            free_mib: 1024,
            vms: vms.iter().map(|&vm| vm.to_owned()).collect(),
        };
        assert_eq!(
            overview(&[node(0, 5.0, 0.2, &["a", "b"]), node(1, 0.5, 0.0, &[])]),
            "NODE  PCPUS  CORES  WANTED  CROWDED    MEMORY      FREE  VMS\n   \
             0      4      2  500.0%      20%  8192 MiB  1024 MiB  a, b\n   \
             1      4      2   50.0%       0%  8192 MiB  1024 MiB  -\n\
             Pressure on caches and memory is known by resctrl.\n"
        );
        let far = NodeStatus { partition: "far".to_owned(), ..node(1, 0.5, 0.0, &["c"]) };
        let divided = overview(&[node(0, 5.0, 0.2, &["a"]), far]);
        assert!(
            divided.starts_with("PARTITION  NODE  PCPUS") && divided.contains("\nfar  "),
            "{divided}"
        );
        assert_eq!(overview(&[]), ONE_NODE);
    }

    #[test]
    fn a_plan_says_who_goes_where_and_why_or_nothing() {
        let to = HomeNumber { node: 1, llc: Some(2) };
        let from = Some(HomeNumber::node(0));
        let why = "its sets".to_owned();
        let step = PlannedMove { name: "a".to_owned(), part: 2, parts: 2, from, to, why };
        assert_eq!(
            plan(Some(&[step])),
            "NAME        FROM    TO               WHY\na (2 of 2)  node 0  node 1, cache 2  its sets\n"
        );
        assert!(plan(Some(&[])).starts_with("Nothing"));
        assert_eq!(plan(None), ONE_NODE);
    }

    #[test]
    fn advice_is_one_line_for_who_fits_and_what_to_write_for_who_does_not() {
        let node = |first_vcpu, last_vcpu| GuestNode {
            host_node: None,
            first_vcpu,
            last_vcpu,
            memory_mib: 512,
        };
        let guest = GuestTopology { sockets: 2, cores: 2, nodes: vec![node(0, 1), node(2, 3)] };
        let mut advice = Advice {
            vcpus: 4,
            memory_mib: 1024,
            node_cores: 2,
            node_memory_mib: 2048,
            guest: Some(guest),
        };
        let text = advised("big", Some(&advice));
        assert!(
            text.starts_with("VM big has 4 vCPUs and 1024 MiB, a node here has 2 cores"),
            "{text}"
        );
        assert!(text.contains("give its guest 2 virtual nodes"), "{text}");
        assert!(text.contains("<cell id='1' cpus='2-3'") && text.contains("-smp 4"), "{text}");
        advice.guest = None;
        for text in [advised("big", Some(&advice)), advised("big", None)] {
            assert!(text.starts_with("VM big needs no virtual nodes: "), "{text}");
            assert_eq!(text.lines().count(), 1);
        }
    }
}
