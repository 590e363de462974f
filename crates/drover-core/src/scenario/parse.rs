// SPDX-License-Identifier: GPL-2.0-only
//! Reads a scenario file: the top level, the host, and the cases with their VMs.

use super::error::{ScenarioError, Source};
use super::keys;
use super::parse_container::read_containers;
use super::parse_expect::{read_compares, read_expects};
use super::parse_host::read_host;
use super::parse_partition::read_partitions;
use super::parse_pool::Pools;
use super::parse_vm::Draft;
use super::reader::Reader;
use super::{Case, Clock, CpuList, Host, Scenario, Vm, scheduler_label};
use crate::nearest::hint;
use crate::partition::Partitions;
use crate::tree::admission::{Ledger, Refusal};
use crate::tree::is_plain_name;
use crate::tree::pcpus::Pcpus;

/// Default measured time, s.
const DURATION_S: f64 = 4.0;
/// Default time before it, s.
const WARMUP_S: f64 = 0.5;
/// Schedulers compared by default.
const SCHEDULERS: [&str; 2] = ["eevdf", "drover"];
/// Name of the only case of a scenario that has no `[[case]]`.
const ONLY_CASE: &str = "all";

/// Gives the text of a file that a scenario names, or says why it cannot.
pub type ReadFile<'a> = dyn Fn(&str) -> Result<String, String> + 'a;

impl Scenario {
    /// Reads the text of a scenario file that stands alone; `file` is its name for error messages.
    ///
    /// # Errors
    /// The first fault found, in one line: where, what, and how to fix it.
    pub fn parse(text: &str, file: &str) -> Result<Self, ScenarioError> {
        Self::parse_with(text, file, &|_| Err("nothing was given beside the scenario".to_owned()))
    }

    /// Reads the text of a scenario file. `read` gives the text of a file the scenario names, by
    /// the name it has there, or says why it cannot.
    ///
    /// # Errors
    /// As [`Scenario::parse`], with the name and line of the file the fault is in.
    pub fn parse_with(text: &str, file: &str, read: &ReadFile) -> Result<Self, ScenarioError> {
        let source = Source { file, text, read };
        let table = source.table("docs/scenarios.md")?;
        let top = Reader::new(&source, keys::TOP, 0, table.get_ref())?;
        let name = top.need("name", top.text("name")?, "\"two-busy-vms\"")?;
        if !is_plain_name(name) {
            let fix = "use 1 to 63 of A-Z a-z 0-9 . _ -";
            return Err(top.error("name", format!("\"{name}\" is no name for a scenario"), fix));
        }
        let host = read_host(&top)?;
        let duration_s = top.number("duration_s", 0.01..=86_400.0)?.unwrap_or(DURATION_S);
        let cases = read_cases(&top, &host, duration_s)?;
        let mut scenario = Self {
            name: name.to_owned(),
            description: top.text("description")?.unwrap_or_default().to_owned(),
            duration_s,
            warmup_s: top.number("warmup_s", 0.0..=3_600.0)?.unwrap_or(WARMUP_S),
            repeats: top.whole32("repeats", 1..=1_000)?.unwrap_or(1),
            // TOML's whole numbers end at 63 bits.
            seed: top.whole("seed", 0..=i64::MAX as u64)?.unwrap_or(1),
            clock: read_clock(&top)?,
            schedulers: read_schedulers(&top)?,
            sample_ms: top.whole32("sample_ms", 1..=60_000)?,
            host,
            cases,
            expects: Vec::new(),
            compares: Vec::new(),
        };
        scenario.expects = read_expects(&top, &scenario)?;
        scenario.compares = read_compares(&top, &scenario)?;
        Ok(scenario)
    }
}

fn read_clock(top: &Reader) -> Result<Clock, ScenarioError> {
    let clock = top.word("clock", &[("exact", Clock::Exact), ("real", Clock::Real)])?;
    Ok(clock.unwrap_or(Clock::Exact))
}

fn read_schedulers(top: &Reader) -> Result<Vec<String>, ScenarioError> {
    let given = top.texts("schedulers")?.unwrap_or(SCHEDULERS.to_vec());
    if given.is_empty() {
        return Err(top.error(
            "schedulers",
            "no schedulers to run under",
            "name one, or \"eevdf\"",
        ));
    }
    for (index, scheduler) in given.iter().enumerate() {
        let label = scheduler_label(scheduler);
        if label.is_empty() || scheduler.contains(',') {
            let what = format!("\"{scheduler}\" names no scheduler");
            return Err(top.error("schedulers", what, "give a name or the path of a program"));
        }
        if given[..index].iter().any(|earlier| scheduler_label(earlier) == label) {
            let what = format!("scheduler \"{label}\" is listed twice");
            return Err(top.error("schedulers", what, "remove one; repeats = 2 runs all twice"));
        }
    }
    Ok(given.into_iter().map(str::to_owned).collect())
}

fn read_cases(top: &Reader, host: &Host, end_s: f64) -> Result<Vec<Case>, ScenarioError> {
    let readers = top.tables("vm", keys::VM)?;
    let mut drafts: Vec<Draft> = Vec::new();
    for reader in &readers {
        let draft = Draft::of_vm(reader, host, end_s)?;
        if drafts.iter().any(|earlier| earlier.name == draft.name) {
            let what = format!("two VMs are called \"{}\"", draft.name);
            return Err(reader.error("name", what, "give each its own name"));
        }
        drafts.push(draft);
    }
    if drafts.is_empty() {
        return Err(top.error("vm", "the scenario has no VM", "add a [[vm]]"));
    }
    let vms: Vec<(&Reader, &Draft)> = readers.iter().zip(&drafts).collect();
    let ple = top.truth("ple")?.unwrap_or(false);
    let pools = Pools::read(top)?;
    let partitions = read_partitions(top, host)?;
    // Also where cases change them: what is no tree then is complained of where it stands.
    let unchanged = pools.tree(None)?;
    let mut cases: Vec<Case> = Vec::new();
    let names: Vec<&str> = drafts.iter().map(|draft| draft.name.as_str()).collect();
    let containers = read_containers(top, &names)?;
    for reader in top.tables("case", keys::CASE)? {
        let mut case = read_case(&reader, (&pools, &partitions), &vms, host, end_s, ple)?;
        case.vms.extend(containers.iter().cloned());
        if cases.iter().any(|earlier| earlier.name == case.name) {
            let what = format!("two cases are called \"{}\"", case.name);
            return Err(reader.error("name", what, "give each its own name"));
        }
        cases.push(case);
    }
    if cases.is_empty() {
        let pools = unchanged;
        let finish = |(reader, draft): &(&Reader, &Draft)| {
            (*draft).clone().finish(reader, &pools, &partitions)
        };
        let finished = vms.iter().map(finish);
        let vms: Vec<Option<Vm>> = finished.collect::<Result<_, _>>()?;
        let vms = vms.into_iter().flatten().chain(containers).collect();
        let name = ONLY_CASE.to_owned();
        cases.push(admitted(top, Case { name, ple, pools, partitions, vms }, host)?);
    }
    Ok(cases)
}

fn read_case(
    reader: &Reader,
    (pools, partitions): (&Pools, &Partitions),
    vms: &[(&Reader, &Draft)],
    host: &Host,
    end_s: f64,
    ple: bool,
) -> Result<Case, ScenarioError> {
    let name = reader.need("name", reader.text("name")?, "\"1:7\"")?;
    if name.chars().count() > 63 {
        return Err(reader.error("name", "the case's name is too long", "use at most 63 letters"));
    }
    let pools = pools.tree(Some(reader))?;
    let changes = reader.named_tables("vm", keys::CASE_VM)?;
    for (vm, change) in &changes {
        let known = vms.iter().map(|(_, draft)| draft.name.as_str());
        if !known.clone().any(|name| name == *vm) {
            let what = format!("case \"{name}\" speaks of an unknown VM \"{vm}\"");
            return Err(change.error("", what, hint(vm, known)));
        }
    }
    let mut present = Vec::new();
    for (vm_reader, draft) in vms {
        let finished = match changes.iter().find(|(vm, _)| *vm == draft.name) {
            None => (*draft).clone().finish(vm_reader, &pools, partitions)?,
            Some((vm, change)) => {
                let draft = draft.with(&Draft::of_case(change, vm, host, end_s)?);
                draft.finish(change, &pools, partitions)?
            }
        };
        present.extend(finished);
    }
    if present.is_empty() {
        let what = format!("every VM is absent from case \"{name}\"");
        return Err(reader.error("", what, "leave one in"));
    }
    let ple = reader.truth("ple")?.unwrap_or(ple);
    let (name, partitions) = (name.to_owned(), partitions.clone());
    admitted(reader, Case { name, ple, pools, partitions, vms: present }, host)
}

/// The case, if all that is reserved in it fits. Of VMs that are not all there at the same time it
/// still must: whether one leaves before another comes is for the run to show.
fn admitted(reader: &Reader, case: Case, host: &Host) -> Result<Case, ScenarioError> {
    // Reservations are made in the default partition.
    let siblings = host.siblings();
    let host = CpuList::all(host.pcpus());
    let default = case.partitions.cpus_of(None, &host).expect("it has a pCPU");
    let pcpus = Pcpus::of(default.clone(), &host, &siblings);
    let mut ledger = Ledger::new(&case.pools, pcpus, default == host);
    let refused = |who: String, refusal: Refusal| {
        let what = format!("case \"{}\", {who}: {}", case.name, refusal.what());
        reader.error("", what, refusal.fix)
    };
    for (index, pool) in case.pools.pools().iter().enumerate() {
        let name = &pool.spec.name;
        let promise = ledger.promise_pool(index);
        promise.map_err(|refusal| refused(format!("pool \"{name}\""), refusal))?;
    }
    for vm in &case.vms {
        let pool = vm.pool.as_deref().and_then(|pool| case.pools.find(pool));
        let affinity = case.partitions.affinity(None, &vm.affinity(), &host).on(&default);
        let promise = ledger.promise(pool, &affinity, 10 * u64::from(vm.reservation_pct));
        promise.map_err(|refusal| refused(format!("VM \"{}\"", vm.name), refusal))?;
    }
    Ok(case)
}
