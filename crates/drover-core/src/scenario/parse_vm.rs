// SPDX-License-Identifier: GPL-2.0-only
//! Reads the VMs of a scenario, and what cases change about them.

use super::error::{ScenarioError, Source};
use super::keys;
use super::parse_pace::read_pace;
use super::parse_program::{check_vcpus, read_program};
use super::reader::Reader;
use super::{CpuList, CpuThen, Host, Pace, Pin, Vm, Vmm, Workload, workload};
use crate::asked::DEFAULT;
use crate::nearest::hint;
use crate::partition::Partitions;
use crate::settings::Cosched;
use crate::shares::Shares;
use crate::tree::{Tree, is_plain_name};

/// Longest time a workload's parameter in µs may have: a minute.
const WORK_US_MAX: u32 = 60_000_000;

/// A VM as the file has it: what is not written is not there. The same for `[[vm]]` and for what
/// a case lays over it.
#[derive(Debug, Clone, Default)]
pub(super) struct Draft {
    pub(super) name: String,
    absent: bool,
    vcpus: Option<u32>,
    shares: Option<Shares>,
    reservation_pct: Option<u32>,
    limit_pct: Option<u32>,
    pool: Option<String>,
    cosched: Option<Cosched>,
    partition: Option<String>,
    vmm: Option<Vmm>,
    memory_mib: Option<u32>,
    disk: bool,
    home: Option<u32>,
    pin: Option<Pin>,
    memory_nodes: Option<Vec<u32>>,
    demand_pct: Option<u32>,
    start_s: Option<f64>,
    stop_s: Option<f64>,
    workload: Option<(Workload, Pace)>,
}

impl Draft {
    /// Reads a `[[vm]]`.
    pub(super) fn of_vm(reader: &Reader, host: &Host, end_s: f64) -> Result<Self, ScenarioError> {
        let name = reader.need("name", reader.text("name")?, "\"vm0\"")?;
        if !is_plain_name(name) {
            let fix = "use 1 to 63 of A-Z a-z 0-9 . _ -";
            return Err(reader.error("name", format!("\"{name}\" is no name for a VM"), fix));
        }
        Ok(Self {
            name: name.to_owned(),
            vmm: reader.word("vmm", &[("micro", Vmm::Micro), ("qemu", Vmm::Qemu)])?,
            memory_mib: reader.whole32("memory_mib", 64..=Host::MEMORY_MIB_MAX)?,
            disk: reader.truth("disk")?.unwrap_or(false),
            home: read_node(reader, "home", host)?,
            ..Self::of_case(reader, name, host, end_s)?
        })
    }

    /// Reads a `[case.vm.NAME]`.
    pub(super) fn of_case(
        reader: &Reader,
        name: &str,
        host: &Host,
        end_s: f64,
    ) -> Result<Self, ScenarioError> {
        Ok(Self {
            name: name.to_owned(),
            absent: reader.truth("absent")?.unwrap_or(false),
            vcpus: reader.whole32("vcpus", 1..=Vm::VCPUS_MAX)?,
            shares: reader.shares("shares")?,
            reservation_pct: reader.whole32("reservation_pct", 0..=100 * Vm::VCPUS_MAX)?,
            limit_pct: reader.whole32("limit_pct", 1..=100 * Vm::VCPUS_MAX)?,
            pool: reader.text("pool")?.map(str::to_owned),
            cosched: reader.cosched("cosched")?,
            partition: reader.text("partition")?.map(str::to_owned),
            pin: read_pin(reader, host)?,
            memory_nodes: read_memory_nodes(reader, host)?,
            demand_pct: reader.whole32("demand_pct", 1..=100 * Vm::VCPUS_MAX)?,
            start_s: reader.number("start_s", 0.0..=end_s)?,
            stop_s: reader.number("stop_s", 0.0..=end_s)?,
            workload: read_workload(reader, host, end_s)?,
            ..Self::default()
        })
    }

    /// This VM with what a case says of it.
    pub(super) fn with(&self, case: &Draft) -> Self {
        let base = self.clone();
        Self {
            absent: case.absent,
            vcpus: case.vcpus.or(base.vcpus),
            shares: case.shares.or(base.shares),
            reservation_pct: case.reservation_pct.or(base.reservation_pct),
            limit_pct: case.limit_pct.or(base.limit_pct),
            pool: case.pool.clone().or(base.pool.clone()),
            cosched: case.cosched.or(base.cosched),
            partition: case.partition.clone().or(base.partition.clone()),
            pin: case.pin.clone().or(base.pin.clone()),
            memory_nodes: case.memory_nodes.clone().or(base.memory_nodes.clone()),
            demand_pct: case.demand_pct.or(base.demand_pct),
            start_s: case.start_s.or(base.start_s),
            stop_s: case.stop_s.or(base.stop_s),
            workload: case.workload.clone().or(base.workload.clone()),
            ..base
        }
    }

    /// The VM, with defaults for what is not written; none when it is absent. `reader` is where
    /// to complain: the table that had the last word.
    pub(super) fn finish(
        self,
        reader: &Reader,
        pools: &Tree,
        partitions: &Partitions,
    ) -> Result<Option<Vm>, ScenarioError> {
        if self.absent {
            return Ok(None);
        }
        self.check_times(reader)?;
        self.check_partition(reader, partitions)?;
        let name = &self.name;
        let missing = |key: &str, example: &str| {
            let fix = format!("add one, such as {key} = {example}");
            reader.error("", format!("VM \"{name}\" has no {key}"), fix)
        };
        let vmm = self.vmm.unwrap_or(Vmm::Micro);
        let vcpus = self.vcpus.ok_or_else(|| missing("vcpus", "4"))?;
        let example = match vmm {
            Vmm::Micro | Vmm::Container => "{ kind = \"cpu\" }",
            Vmm::Qemu => "{ kind = \"command\", run = \"sysbench cpu --time=0 run\" }",
        };
        let (workload, pace) = self.workload.ok_or_else(|| missing("workload", example))?;
        check_vmm(reader, name, vmm, &workload)?;
        check_memory(reader, name, vmm, (self.memory_mib, self.memory_nodes.is_some()))?;
        check_disk(reader, name, vmm, self.disk)?;
        let reservation_pct = self.reservation_pct.unwrap_or(0);
        check_promise(reader, name, vcpus, reservation_pct, self.limit_pct)?;
        check_pin(reader, name, vcpus, self.pin.as_ref())?;
        let pool = find_pool(reader, name, self.pool.as_deref(), pools)?;
        check_vcpus(reader, name, &workload, vcpus)?;
        Ok(Some(Vm {
            name: self.name,
            vcpus,
            shares: self.shares.unwrap_or(Shares::NORMAL).of_vm(vcpus),
            reservation_pct,
            limit_pct: self.limit_pct,
            cosched: self.cosched.or(pools.cosched(pool)),
            pool: self.pool,
            partition: self.partition.filter(|name| name != DEFAULT),
            vmm,
            memory_mib: self.memory_mib.unwrap_or(default_memory_mib(vmm)),
            disk: self.disk,
            home: self.home,
            pin: self.pin,
            memory_nodes: self.memory_nodes.unwrap_or_default(),
            demand_pct: self.demand_pct,
            start_s: self.start_s,
            stop_s: self.stop_s,
            workload,
            pace,
        }))
    }

    /// Whether its partition is there and has what is asked.
    fn check_partition(
        &self,
        reader: &Reader,
        partitions: &Partitions,
    ) -> Result<(), ScenarioError> {
        let Some(partition) = self.partition.as_deref().filter(|name| *name != DEFAULT) else {
            return Ok(());
        };
        let name = &self.name;
        if partitions.find(partition).is_none() {
            let what = format!("VM \"{name}\" is in partition \"{partition}\", which is not there");
            let known = partitions.specs().iter().map(|spec| spec.name.as_str()).chain([DEFAULT]);
            return Err(match partitions.specs().is_empty() {
                true => reader.error("partition", what, "add a [[partition]]"),
                false => reader.error("partition", what, hint(partition, known)),
            });
        }
        let asked = [
            ("pool", self.pool.is_some()),
            ("reservation_pct", self.reservation_pct.is_some_and(|pct| pct > 0)),
            ("cosched", self.cosched.is_some()),
        ];
        match asked.iter().find(|(_, asked)| *asked) {
            None => Ok(()),
            Some((key, _)) => {
                let what = format!("VM \"{name}\" is in partition \"{partition}\" and has a {key}");
                let fix = format!("that is for VMs of \"{DEFAULT}\" only; remove one of the two");
                Err(reader.error(key, what, fix))
            }
        }
    }

    fn check_times(&self, reader: &Reader) -> Result<(), ScenarioError> {
        match (self.start_s, self.stop_s) {
            (Some(start_s), Some(stop_s)) if stop_s <= start_s => {
                let name = &self.name;
                let what = format!("VM \"{name}\" stops at {stop_s} s and starts at {start_s} s");
                Err(reader.error("stop_s", what, "set stop_s after start_s"))
            }
            _ => Ok(()),
        }
    }
}

/// Whether a VM can use what is reserved for it, and may.
fn check_promise(
    reader: &Reader,
    name: &str,
    vcpus: u32,
    reservation_pct: u32,
    limit_pct: Option<u32>,
) -> Result<(), ScenarioError> {
    if reservation_pct > 100 * vcpus {
        let what = format!("VM \"{name}\" has {vcpus} vCPUs and {reservation_pct} % reserved");
        let fix = format!("it can use {} % at most", 100 * vcpus);
        return Err(reader.error("reservation_pct", what, fix));
    }
    match limit_pct {
        Some(limit_pct) if limit_pct < reservation_pct => {
            let what = format!(
                "VM \"{name}\" is limited to {limit_pct} % and has {reservation_pct} % reserved"
            );
            let fix = "raise the limit or lower the reservation";
            Err(reader.error("limit_pct", what, fix))
        }
        _ => Ok(()),
    }
}

fn find_pool(
    reader: &Reader,
    name: &str,
    pool: Option<&str>,
    pools: &Tree,
) -> Result<Option<usize>, ScenarioError> {
    let Some(pool) = pool else { return Ok(None) };
    if let Some(index) = pools.find(pool) {
        return Ok(Some(index));
    }
    let what = format!("VM \"{name}\" is in pool \"{pool}\", which is not there");
    if pools.pools().is_empty() {
        return Err(reader.error("pool", what, "add a [[pool]]"));
    }
    let known = pools.pools().iter().map(|pool| pool.spec.name.as_str());
    Err(reader.error("pool", what, hint(pool, known)))
}

fn read_pin(reader: &Reader, host: &Host) -> Result<Option<Pin>, ScenarioError> {
    if reader.is_list("pin") {
        let texts = reader.texts("pin")?.unwrap_or_default();
        let each = texts.into_iter().map(|text| read_cpus(reader, text, host));
        return Ok(Some(Pin::Vcpus(each.collect::<Result<_, _>>()?)));
    }
    let text = reader.text("pin")?;
    text.map(|text| read_cpus(reader, text, host).map(Pin::Vm)).transpose()
}

fn read_cpus(reader: &Reader, text: &str, host: &Host) -> Result<CpuList, ScenarioError> {
    let list: CpuList = text.parse().map_err(|error: super::CpuListError| {
        reader.error("pin", error.to_string(), "give numbers and ranges with commas between")
    })?;
    if list.highest() >= host.pcpus() {
        let what = format!("pin = \"{text}\" names CPU {}, the host has none", list.highest());
        let fix = format!("use CPUs 0 to {} or enlarge [host]", host.pcpus() - 1);
        return Err(reader.error("pin", what, fix));
    }
    Ok(list)
}

/// Whether CPUs that are given for each vCPU are given for all.
fn check_pin(
    reader: &Reader,
    name: &str,
    vcpus: u32,
    pin: Option<&Pin>,
) -> Result<(), ScenarioError> {
    match pin {
        Some(Pin::Vcpus(each)) if each.len() != vcpus as usize => {
            let what = format!("VM \"{name}\" has {vcpus} vCPUs and pin is for {}", each.len());
            let fix = "give a list of CPUs for each vCPU, or one text for all";
            Err(reader.error("pin", what, fix))
        }
        _ => Ok(()),
    }
}

/// One node, or a list of some that the memory is interleaved over.
fn read_memory_nodes(reader: &Reader, host: &Host) -> Result<Option<Vec<u32>>, ScenarioError> {
    let key = "memory_node";
    let nodes = match reader.is_list(key) {
        true => reader.wholes(key, 0..=Host::PCPUS_MAX)?,
        false => reader.whole32(key, 0..=Host::PCPUS_MAX)?.map(|node| vec![node]),
    };
    let Some(nodes) = nodes else { return Ok(None) };
    if nodes.is_empty() {
        return Err(reader.error(key, "memory_node names no node", "give one, such as 0"));
    }
    for (at, node) in nodes.iter().enumerate() {
        if *node >= host.nodes {
            let what = format!("memory_node names node {node}, the host has none");
            let fix = format!("use nodes 0 to {} or enlarge [host]", host.nodes - 1);
            return Err(reader.error(key, what, fix));
        }
        if nodes[..at].contains(node) {
            let what = format!("memory_node names node {node} twice");
            return Err(reader.error(key, what, "memory lies on its nodes in equal parts"));
        }
    }
    Ok(Some(nodes))
}

fn read_workload(
    reader: &Reader,
    host: &Host,
    end_s: f64,
) -> Result<Option<(Workload, Pace)>, ScenarioError> {
    let kinds = [
        ("cpu", keys::CPU),
        ("lock", keys::LOCK),
        ("barrier", keys::BARRIER),
        ("sleep", keys::SLEEP),
        ("yield", keys::YIELD),
        ("mix", keys::MIX),
        ("program", keys::PROGRAM),
        ("command", keys::COMMAND),
    ];
    if reader.is_file("workload") {
        return read_workload_file(reader, &kinds, host, end_s).map(Some);
    }
    match reader.table_by_word("workload", "kind", &kinds)? {
        None => Ok(None),
        Some(table) => {
            let workload = workload_of(&table, end_s)?;
            Ok(Some((workload, read_pace(&table, host)?)))
        }
    }
}

/// A workload that stands in a file of its own, with the same keys.
fn read_workload_file(
    reader: &Reader,
    kinds: &[(&str, &'static str)],
    host: &Host,
    end_s: f64,
) -> Result<(Workload, Pace), ScenarioError> {
    let name = reader.need("workload", reader.text("workload")?, "\"workloads/dbench.toml\"")?;
    let (file, text) = reader.other_file("workload", name)?;
    let source = Source { file: &file, text: &text, ..*reader.source };
    let table = source.table("docs/scenarios.md")?;
    let reader = Reader::of_file_by_word(&source, "kind", kinds, table.get_ref())?;
    Ok((workload_of(&reader, end_s)?, read_pace(&reader, host)?))
}

fn workload_of(table: &Reader, end_s: f64) -> Result<Workload, ScenarioError> {
    let us = |key: &str, default: u32| {
        table.whole32(key, 0..=WORK_US_MAX).map(|given| given.unwrap_or(default))
    };
    let workload = match table.title {
        keys::CPU => read_cpu(table, end_s)?,
        keys::LOCK => Workload::Lock {
            hold_us: us("hold_us", workload::LOCK_HOLD_US)?,
            think_us: us("think_us", workload::LOCK_THINK_US)?,
        },
        keys::BARRIER => Workload::Barrier { work_us: us("work_us", workload::BARRIER_WORK_US)? },
        keys::SLEEP => {
            let period_us = table.whole32("period_us", 10..=WORK_US_MAX)?;
            let period_us = period_us.unwrap_or(workload::SLEEP_PERIOD_US);
            Workload::Sleep { period_us, work_us: us("work_us", 0)? }
        }
        keys::YIELD => Workload::Yield { work_us: us("work_us", workload::YIELD_WORK_US)? },
        keys::MIX => Workload::Mix {},
        keys::PROGRAM => read_program(table)?,
        _ => {
            let run = table.need("run", table.text("run")?, "\"sysbench cpu --time=0 run\"")?;
            let ready = table.text("ready")?.map(str::to_owned);
            Workload::Command { run: run.to_owned(), ready }
        }
    };
    Ok(workload)
}

fn read_cpu(table: &Reader, end_s: f64) -> Result<Workload, ScenarioError> {
    let then = match table.table("then", keys::CPU_THEN)? {
        None => None,
        Some(then) => Some(CpuThen {
            after_s: then.need("after_s", then.number("after_s", 0.0..=end_s)?, "2.0")?,
            duty_pct: then.need("duty_pct", then.whole32("duty_pct", 0..=100)?, "50")?,
        }),
    };
    let period_us = table.whole32("period_us", 100..=WORK_US_MAX)?;
    Ok(Workload::Cpu {
        duty_pct: table.whole32("duty_pct", 0..=100)?.unwrap_or(100),
        period_us: period_us.unwrap_or(workload::CPU_PERIOD_US),
        then,
    })
}

/// Micro VMs run Drover's own programs, QEMU guests run commands; neither can do the other.
fn check_vmm(
    reader: &Reader,
    name: &str,
    vmm: Vmm,
    workload: &Workload,
) -> Result<(), ScenarioError> {
    let kind = workload.kind();
    match (vmm, workload) {
        (Vmm::Micro, Workload::Command { .. }) => {
            let what = format!("VM \"{name}\" is a micro VM and cannot run a command");
            Err(reader.error("workload", what, "add vmm = \"qemu\" to the VM"))
        }
        (Vmm::Qemu, Workload::Command { .. }) | (Vmm::Container, _) => Ok(()),
        (Vmm::Qemu, _) => {
            let what = format!("VM \"{name}\" is a QEMU guest and has no workload {kind}");
            let fix = "give it { kind = \"command\", run = \"...\" } or remove vmm = \"qemu\"";
            Err(reader.error("workload", what, fix))
        }
        (Vmm::Micro, _) => Ok(()),
    }
}

fn default_memory_mib(vmm: Vmm) -> u32 {
    match vmm {
        Vmm::Micro | Vmm::Container => 0,
        Vmm::Qemu => Vm::MEMORY_MIB,
    }
}

/// A micro VM's memory ends below what it shares with the host; where it lies is of a micro VM only.
fn check_memory(
    reader: &Reader,
    name: &str,
    vmm: Vmm,
    (memory_mib, lies_somewhere): (Option<u32>, bool),
) -> Result<(), ScenarioError> {
    let fault = |key: &str, what: &str, fix: &str| {
        Err(reader.error(key, format!("VM \"{name}\" {what}"), fix))
    };
    match (vmm, memory_mib) {
        (Vmm::Micro, Some(mib)) if mib > Vm::MICRO_MEMORY_MIB_MAX => {
            let fix = format!("use {} at most", Vm::MICRO_MEMORY_MIB_MAX);
            fault("memory_mib", &format!("is a micro VM with {mib} MiB"), &fix)
        }
        (Vmm::Qemu, _) if lies_somewhere => {
            let fix = "remove memory_node, or vmm = \"qemu\"";
            fault("memory_node", "is a QEMU guest, whose memory lies where it is touched", fix)
        }
        _ => Ok(()),
    }
}

/// Devices are QEMU's.
fn check_disk(reader: &Reader, name: &str, vmm: Vmm, disk: bool) -> Result<(), ScenarioError> {
    if disk && vmm != Vmm::Qemu {
        let what = format!("VM \"{name}\" is a micro VM, which has no disk");
        return Err(reader.error("disk", what, "remove it, or add vmm = \"qemu\" and a command"));
    }
    Ok(())
}

fn read_node(reader: &Reader, key: &str, host: &Host) -> Result<Option<u32>, ScenarioError> {
    let node = reader.whole32(key, 0..=1023)?;
    match node {
        Some(node) if node >= host.nodes => {
            let what = format!("{key} = {node} names a NUMA node, the host has {}", host.nodes);
            Err(reader.error(key, what, "count them from 0, or enlarge [host]"))
        }
        _ => Ok(node),
    }
}
