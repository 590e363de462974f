// SPDX-License-Identifier: GPL-2.0-only
//! Reads the VMs of a scenario, and what cases change about them.

use super::error::{ScenarioError, Source};
use super::keys;
use super::parse_program::{check_vcpus, read_program};
use super::reader::Reader;
use super::{CpuList, CpuThen, Host, Pin, Vm, Vmm, Workload, workload};
use crate::nearest::hint;
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
    vmm: Option<Vmm>,
    memory_mib: Option<u32>,
    disk_mib: Option<u32>,
    pin: Option<Pin>,
    demand_pct: Option<u32>,
    start_s: Option<f64>,
    stop_s: Option<f64>,
    workload: Option<Workload>,
}

impl Draft {
    /// Reads a `[[vm]]`.
    pub(super) fn of_vm(reader: &Reader, host: &Host, end_s: f64) -> Result<Self, ScenarioError> {
        let name = reader.need("name", reader.text("name")?, "\"vm0\"")?;
        if !is_plain_name(name) {
            let mend = "use 1 to 63 of A-Z a-z 0-9 . _ -";
            return Err(reader.error("name", format!("\"{name}\" is no name for a VM"), mend));
        }
        Ok(Self {
            name: name.to_owned(),
            vmm: reader.word("vmm", &[("micro", Vmm::Micro), ("qemu", Vmm::Qemu)])?,
            memory_mib: reader.whole32("memory_mib", 64..=Host::MEMORY_MIB_MAX)?,
            disk_mib: reader.whole32("disk_mib", 1..=Vm::DISK_MIB_MAX)?,
            pin: read_pin(reader, host)?,
            ..Self::of_case(reader, name, end_s)?
        })
    }

    /// Reads a `[case.vm.NAME]`.
    pub(super) fn of_case(reader: &Reader, name: &str, end_s: f64) -> Result<Self, ScenarioError> {
        Ok(Self {
            name: name.to_owned(),
            absent: reader.truth("absent")?.unwrap_or(false),
            vcpus: reader.whole32("vcpus", 1..=Vm::VCPUS_MAX)?,
            shares: reader.shares("shares")?,
            reservation_pct: reader.whole32("reservation_pct", 0..=100 * Vm::VCPUS_MAX)?,
            limit_pct: reader.whole32("limit_pct", 1..=100 * Vm::VCPUS_MAX)?,
            pool: reader.text("pool")?.map(str::to_owned),
            cosched: reader.cosched("cosched")?,
            demand_pct: reader.whole32("demand_pct", 1..=100 * Vm::VCPUS_MAX)?,
            start_s: reader.number("start_s", 0.0..=end_s)?,
            stop_s: reader.number("stop_s", 0.0..=end_s)?,
            workload: read_workload(reader, end_s)?,
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
            demand_pct: case.demand_pct.or(base.demand_pct),
            start_s: case.start_s.or(base.start_s),
            stop_s: case.stop_s.or(base.stop_s),
            workload: case.workload.clone().or(base.workload.clone()),
            ..base
        }
    }

    /// The VM, with defaults for what is not written; none when it is absent. `reader` is where
    /// to complain: the table that had the last word.
    pub(super) fn finish(self, reader: &Reader, pools: &Tree) -> Result<Option<Vm>, ScenarioError> {
        if self.absent {
            return Ok(None);
        }
        self.check_times(reader)?;
        let name = &self.name;
        let missing = |key: &str, example: &str| {
            let mend = format!("add one, such as {key} = {example}");
            reader.error("", format!("VM \"{name}\" has no {key}"), mend)
        };
        let vmm = self.vmm.unwrap_or(Vmm::Micro);
        let vcpus = self.vcpus.ok_or_else(|| missing("vcpus", "4"))?;
        let example = match vmm {
            Vmm::Micro => "{ kind = \"cpu\" }",
            Vmm::Qemu => "{ kind = \"command\", run = \"sysbench cpu --time=0 run\" }",
        };
        let workload = self.workload.clone().ok_or_else(|| missing("workload", example))?;
        self.check_vmm(reader, vmm, &workload)?;
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
            vmm,
            memory_mib: self.memory_mib.unwrap_or(Vm::MEMORY_MIB),
            disk_mib: self.disk_mib,
            pin: self.pin,
            demand_pct: self.demand_pct,
            start_s: self.start_s,
            stop_s: self.stop_s,
            workload,
        }))
    }

    /// Micro VMs run Drover's own programs, QEMU guests run commands; neither can do the other.
    fn check_vmm(
        &self,
        reader: &Reader,
        vmm: Vmm,
        workload: &Workload,
    ) -> Result<(), ScenarioError> {
        let (name, kind) = (&self.name, workload.kind());
        let qemu_only =
            [("memory_mib", "memory", self.memory_mib), ("disk_mib", "disk", self.disk_mib)];
        let set = qemu_only.into_iter().find(|(_, _, value)| value.is_some());
        match (vmm, workload, set) {
            (Vmm::Micro, Workload::Command { .. }, _) => {
                let what = format!("VM \"{name}\" is a micro VM and cannot run a command");
                Err(reader.error("workload", what, "add vmm = \"qemu\" to the VM"))
            }
            (Vmm::Qemu, Workload::Command { .. }, _) | (Vmm::Micro, _, None) => Ok(()),
            (Vmm::Qemu, _, _) => {
                let what = format!("VM \"{name}\" is a QEMU guest and has no workload {kind}");
                let mend = "give it { kind = \"command\", run = \"...\" } or remove vmm = \"qemu\"";
                Err(reader.error("workload", what, mend))
            }
            (Vmm::Micro, _, Some((key, thing, _))) => {
                let what = format!("VM \"{name}\" is a micro VM, whose {thing} cannot be set");
                Err(reader.error(key, what, format!("remove {key}")))
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
        let mend = format!("it can use {} % at most", 100 * vcpus);
        return Err(reader.error("reservation_pct", what, mend));
    }
    match limit_pct {
        Some(limit_pct) if limit_pct < reservation_pct => {
            let what = format!(
                "VM \"{name}\" is limited to {limit_pct} % and has {reservation_pct} % reserved"
            );
            let mend = "raise the limit or lower the reservation";
            Err(reader.error("limit_pct", what, mend))
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
        let mend = format!("use CPUs 0 to {} or enlarge [host]", host.pcpus() - 1);
        return Err(reader.error("pin", what, mend));
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
            let mend = "give a list of CPUs for each vCPU, or one text for all";
            Err(reader.error("pin", what, mend))
        }
        _ => Ok(()),
    }
}

fn read_workload(reader: &Reader, end_s: f64) -> Result<Option<Workload>, ScenarioError> {
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
        return read_workload_file(reader, &kinds, end_s).map(Some);
    }
    match reader.table_by_word("workload", "kind", &kinds)? {
        None => Ok(None),
        Some(table) => workload_of(&table, end_s).map(Some),
    }
}

/// A workload that stands in a file of its own, with the same keys.
fn read_workload_file(
    reader: &Reader,
    kinds: &[(&str, &'static str)],
    end_s: f64,
) -> Result<Workload, ScenarioError> {
    let name = reader.need("workload", reader.text("workload")?, "\"workloads/dbench.toml\"")?;
    let (file, text) = reader.other_file("workload", name)?;
    let source = Source { file: &file, text: &text, ..*reader.source };
    let table = source.table("docs/scenarios.md")?;
    workload_of(&Reader::of_file_by_word(&source, "kind", kinds, table.get_ref())?, end_s)
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
