// SPDX-License-Identifier: GPL-2.0-only
//! Reads a VM of a scenario, or what a case makes of it, and refuses one that contradicts itself.

use super::check_name;
use super::format::VmTable;
use super::program::check_vcpus;
use super::workload::read_workload;
use crate::host::Host;
use crate::vm::{Pin, Vm, Vmm};
use crate::workload::Workload;
use drover_core::asked::DEFAULT;
use drover_core::nearest::hint;
use drover_core::partition::{PartitionPolicy, Partitions};
use drover_core::shares::Shares;
use drover_core::toml_file::{FileError, Read, Table, number};
use drover_core::tree::Tree;

/// Whether what is given can be on that host.
pub(super) fn check_vm(vm: &Table<VmTable>, host: &Host, end_s: f64) -> Read<()> {
    check_name(vm, &vm.name, "a VM")?;
    if let Some(home) = vm.home.filter(|home| *home >= host.nodes) {
        let what = format!("home = {home} names a NUMA node, the host has {}", host.nodes);
        return Err(vm.error("home", what, "count them from 0, or enlarge [host]"));
    }
    check_pin(vm, host)?;
    check_memory_nodes(vm, host)?;
    vm.within("start_s", &number(0.0, end_s))?;
    vm.within("stop_s", &number(0.0, end_s))?;
    read_workload(vm, host, end_s).map(|_| ())
}

fn check_pin(vm: &Table<VmTable>, host: &Host) -> Read<()> {
    let lists = match &vm.pin {
        None => return Ok(()),
        Some(Pin::Vm(cpus)) => std::slice::from_ref(cpus),
        Some(Pin::Vcpus(each)) => each,
    };
    match lists.iter().find(|cpus| cpus.highest() >= host.pcpus()) {
        None => Ok(()),
        Some(cpus) => {
            let what = format!("pin = \"{cpus}\" names CPU {}, the host has none", cpus.highest());
            let fix = format!("use CPUs 0 to {} or enlarge [host]", host.pcpus() - 1);
            Err(vm.error("pin", what, fix))
        }
    }
}

fn check_memory_nodes(vm: &Table<VmTable>, host: &Host) -> Read<()> {
    let fault = |what: String, fix: &str| Err(vm.error("memory_node", what, fix));
    let nodes = vm.memory_nodes();
    if vm.memory_node.is_none() {
        return Ok(());
    }
    if nodes.is_empty() {
        return fault("memory_node names no node".to_owned(), "give one, such as 0");
    }
    for (at, node) in nodes.iter().enumerate() {
        if *node >= host.nodes {
            let what = format!("memory_node names node {node}, the host has none");
            return fault(what, &format!("use nodes 0 to {} or enlarge [host]", host.nodes - 1));
        }
        if nodes[..at].contains(node) {
            let what = format!("memory_node names node {node} twice");
            return fault(what, "memory lies on its nodes in equal parts");
        }
    }
    Ok(())
}

/// The VM, with defaults for what is not given. [`check_vm`] has seen it.
pub(super) fn read_vm(
    vm: &Table<VmTable>,
    host: &Host,
    end_s: f64,
    pools: &Tree,
    partitions: &Partitions,
) -> Read<Vm> {
    let name = &vm.name;
    let missing = |key: &str, example: &str| {
        fault(vm, "", &format!("has no {key}"), format!("add one, such as {key} = {example}"))
    };
    let vmm = vm.vmm.unwrap_or(Vmm::Micro);
    let vcpus = vm.vcpus.ok_or_else(|| missing("vcpus", "4"))?;
    let example = match vmm {
        Vmm::Micro | Vmm::Container => "{ kind = \"cpu\" }",
        Vmm::Qemu => "{ kind = \"command\", run = \"sysbench cpu --time=0 run\" }",
    };
    let workload = read_workload(vm, host, end_s)?;
    let (workload, pace) = workload.ok_or_else(|| missing("workload", example))?;
    check_itself(vm, vmm, vcpus, &workload)?;
    check_partition(vm, partitions)?;
    check_vcpus(vm, name, &workload, vcpus)?;
    let pool = find_pool(vm, pools)?;
    let memory_mib = vm.memory_mib.unwrap_or(if vmm == Vmm::Qemu { Vm::MEMORY_MIB } else { 0 });
    Ok(Vm {
        name: name.clone(),
        vcpus,
        shares: vm.shares.map_or(Shares::NORMAL, |given| given.0),
        reservation_pct: vm.reservation_pct.unwrap_or(0),
        limit_pct: vm.limit_pct,
        cosched: vm.cosched.or(pools.cosched(pool)),
        pool: vm.pool.clone(),
        partition: vm.partition.clone().filter(|name| name != DEFAULT),
        vmm,
        memory_mib,
        disk: vm.disk.unwrap_or(false),
        network: vm.network,
        home: vm.home,
        max_per_node: vm.max_per_node,
        consolidate: vm.consolidate.unwrap_or_default(),
        pin: vm.pin.clone(),
        memory_nodes: vm.memory_nodes().to_vec(),
        demand_pct: vm.demand_pct,
        start_s: vm.start_s,
        stop_s: vm.stop_s,
        workload,
        pace,
    })
}

/// The fault of a VM at that key.
fn fault(vm: &Table<VmTable>, key: &str, what: &str, fix: impl AsRef<str>) -> FileError {
    vm.error(key, format!("VM \"{}\" {what}", vm.name), fix)
}

/// Whether its values do not contradict each other.
fn check_itself(vm: &Table<VmTable>, vmm: Vmm, vcpus: u32, workload: &Workload) -> Read<()> {
    let fault = |key: &str, what: &str, fix: &str| Err(fault(vm, key, what, fix));
    let is_command = matches!(workload, Workload::Command { .. });
    match (vmm, vm.memory_mib) {
        (Vmm::Qemu, _) if !is_command => {
            let what = format!("is a QEMU guest and has no workload {}", workload.kind());
            let fix = "give it { kind = \"command\", run = \"...\" } or remove vmm = \"qemu\"";
            return fault("workload", &what, fix);
        }
        (Vmm::Qemu, _) if vm.memory_node.is_some() => {
            let what = "is a QEMU guest, whose memory lies where it is touched";
            return fault("memory_node", what, "remove memory_node, or vmm = \"qemu\"");
        }
        (Vmm::Qemu, _) => {}
        _ if is_command => {
            let what = "is a micro VM and cannot run a command";
            return fault("workload", what, "add vmm = \"qemu\" to the VM");
        }
        _ if vm.disk == Some(true) => {
            let fix = "remove it, or add vmm = \"qemu\" and a command";
            return fault("disk", "is a micro VM, which has no disk", fix);
        }
        _ if vm.network.is_some() => {
            let fix = "remove it, or add vmm = \"qemu\" and a command";
            return fault("network", "is a micro VM, which has no network", fix);
        }
        (_, Some(mib)) if mib > Vm::MICRO_MEMORY_MIB_MAX => {
            let fix = format!("use {} at most", Vm::MICRO_MEMORY_MIB_MAX);
            return fault("memory_mib", &format!("is a micro VM with {mib} MiB"), &fix);
        }
        _ => {}
    }
    match (vm.start_s, vm.stop_s) {
        (Some(start_s), Some(stop_s)) if stop_s <= start_s => {
            let what = format!("stops at {stop_s} s and starts at {start_s} s");
            return fault("stop_s", &what, "set stop_s after start_s");
        }
        _ => {}
    }
    let reserved = vm.reservation_pct.unwrap_or(0);
    if reserved > 100 * vcpus {
        let what = format!("has {vcpus} vCPUs and {reserved} % reserved");
        return fault("reservation_pct", &what, &format!("it can use {} % at most", 100 * vcpus));
    }
    if let Some(limit) = vm.limit_pct.filter(|limit| *limit < reserved) {
        let what = format!("is limited to {limit} % and has {reserved} % reserved");
        return fault("limit_pct", &what, "raise the limit or lower the reservation");
    }
    match &vm.pin {
        Some(Pin::Vcpus(each)) if each.len() != vcpus as usize => {
            let what = format!("has {vcpus} vCPUs and pin is for {}", each.len());
            fault("pin", &what, "give a list of CPUs for each vCPU, or one text for all")
        }
        _ => Ok(()),
    }
}

/// Whether its partition is there and has what is asked.
fn check_partition(vm: &Table<VmTable>, partitions: &Partitions) -> Read<()> {
    let Some(partition) = vm.partition.as_deref().filter(|name| *name != DEFAULT) else {
        return Ok(());
    };
    let known = partitions.specs().iter().map(|spec| spec.name.as_str()).chain([DEFAULT]);
    let found = partitions.find(partition);
    let Some(policy) = found.map(|found| partitions.policy(Some(found))) else {
        return Err(not_there(vm, "partition", partition, known));
    };
    let others = policy != PartitionPolicy::Share;
    let asked = [
        ("pool", vm.pool.is_some(), "VMs of \"default\", whose time pools divide"),
        (
            "reservation_pct",
            others && vm.reservation_pct.is_some_and(|pct| pct > 0),
            "partitions of policy share",
        ),
        ("cosched", others && vm.cosched.is_some(), "partitions of policy share"),
    ];
    match asked.iter().find(|(_, asked, _)| *asked) {
        None => Ok(()),
        Some((key, _, whose)) => {
            let what = format!("is in partition \"{partition}\" ({policy}) and has a {key}");
            Err(fault(vm, key, &what, format!("that is for {whose}; remove one of the two")))
        }
    }
}

/// The index of its pool.
fn find_pool(vm: &Table<VmTable>, pools: &Tree) -> Read<Option<usize>> {
    let Some(pool) = &vm.pool else { return Ok(None) };
    let known = pools.pools().iter().map(|pool| pool.spec.name.as_str());
    pools.find(pool).map(Some).ok_or_else(|| not_there(vm, "pool", pool, known))
}

/// The fault that a VM is in a pool or partition that is not there.
fn not_there<'a>(
    vm: &Table<VmTable>,
    key: &str,
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> FileError {
    let fix = match known.clone().all(|known| known == DEFAULT) {
        true => format!("add a [[{key}]]"),
        false => hint(name, known),
    };
    fault(vm, key, &format!("is in {key} \"{name}\", which is not there"), fix)
}
