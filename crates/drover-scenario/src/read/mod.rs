// SPDX-License-Identifier: GPL-2.0-only
//! Makes a scenario of its file: the top level, and the cases with their VMs.

mod containers;
mod expand;
mod expect;
mod format;
mod host;
mod policy;
mod pools;
mod program;
mod vm;
mod workload;

use self::containers::read_containers;
use self::expand::expanded;
use self::expect::{read_compares, read_expects};
use self::format::{CaseTable, CaseVmTable, Top, VmTable};
use self::host::read_host;
use self::policy::{read_policy, read_settings};
use self::pools::{Pools, read_partitions};
use self::vm::{check_vm, read_vm};
use crate::admission::admit;
use crate::clock::Clock;
use crate::host::Host;
use crate::scenario::{Case, Scenario, scheduler_label};
use crate::tuning::Tuning;
use crate::vm::Vm;
use drover_core::names::{each_name, is_meant, is_pattern, is_plain_name};
use drover_core::nearest::hint;
use drover_core::partition::Partitions;
use drover_core::place::Heuristic;
use drover_core::sets::{SetSpec, SetTable, read_sets};
use drover_core::toml_file::{FileError, Read, ReadFile, Source, Table};
use drover_core::tree::Tree;

/// Default measured time, s.
const DURATION_S: f64 = 4.0;
/// Default time before it, s.
const WARMUP_S: f64 = 0.5;
/// Schedulers compared by default.
const SCHEDULERS: [&str; 2] = ["eevdf", "drover"];
/// Name of the only case of a scenario that has no `[[case]]`.
const ONLY_CASE: &str = "all";

impl Scenario {
    /// Reads the text of a scenario file that stands alone; `file` is its name for error messages.
    ///
    /// # Errors
    /// The first fault found, in one line: where, what, and how to fix it.
    pub fn parse(text: &str, file: &str) -> Result<Self, FileError> {
        Self::parse_with(text, file, &|_| Err("nothing was given beside the scenario".to_owned()))
    }

    /// Reads the text of a scenario file. `read` gives the text of a file the scenario names, by
    /// the name it has there, or says why it cannot.
    ///
    /// # Errors
    /// As [`Scenario::parse`], with the name and line of the file the fault is in.
    pub fn parse_with(text: &str, file: &str, read: &ReadFile) -> Result<Self, FileError> {
        Self::parse_set(text, file, read, &[])
    }

    /// The same, with settings such as `host.cores=16` laid over the file.
    ///
    /// # Errors
    /// As [`Scenario::parse_with`]; a fault of a setting is told with the setting.
    pub fn parse_set(
        text: &str,
        file: &str,
        read: &ReadFile,
        set: &[String],
    ) -> Result<Self, FileError> {
        let mut source = Source::new(file, text, "docs/scenarios.md", read);
        source.set(read_settings(set)?)?;
        let top = source.table()?.read::<Top>()?;
        check_name(&top, &top.name, "a scenario")?;
        let host = read_host(&top)?;
        let duration_s = top.duration_s.unwrap_or(DURATION_S);
        let mut scenario = Self {
            name: top.name.clone(),
            description: top.description.clone().unwrap_or_default(),
            duration_s,
            warmup_s: top.warmup_s.unwrap_or(WARMUP_S),
            repeats: top.repeats.unwrap_or(1),
            seed: top.seed.unwrap_or(1),
            clock: top.clock.unwrap_or(Clock::Exact),
            schedulers: read_schedulers(&top)?,
            sample_ms: top.sample_ms,
            policy: read_policy(&top)?,
            cases: read_cases(&top, &host, duration_s)?,
            host,
            expects: Vec::new(),
            compares: Vec::new(),
        };
        scenario.expects = read_expects(&top, &scenario)?;
        scenario.compares = read_compares(&top, &scenario)?;
        Ok(scenario)
    }
}

/// Whether the `name` of a table may be one.
pub(super) fn check_name<T>(table: &Table<T>, name: &str, of: &str) -> Read<()> {
    if is_plain_name(name) {
        return Ok(());
    }
    let fix = "use 1 to 63 of A-Z a-z 0-9 . _ -";
    Err(table.error("name", format!("\"{name}\" is no name for {of}"), fix))
}

fn read_schedulers(top: &Table<Top>) -> Read<Vec<String>> {
    let Some(given) = &top.schedulers else { return Ok(SCHEDULERS.map(str::to_owned).into()) };
    let fault = |what: String, fix: &str| Err(top.error("schedulers", what, fix));
    if given.is_empty() {
        return fault("no schedulers to run under".to_owned(), "name one, or \"eevdf\"");
    }
    for (index, scheduler) in given.iter().enumerate() {
        let label = scheduler_label(scheduler);
        if label.is_empty() || scheduler.contains(',') {
            let what = format!("\"{scheduler}\" names no scheduler");
            return fault(what, "give a name or the path of a program");
        }
        if given[..index].iter().any(|earlier| scheduler_label(earlier) == label) {
            let what = format!("scheduler \"{label}\" is listed twice");
            return fault(what, "remove one; repeats = 2 runs all twice");
        }
    }
    Ok(given.clone())
}

/// What cases lay their changes over.
struct Base<'a> {
    host: &'a Host,
    end_s: f64,
    ple: bool,
    placement: Heuristic,
    tuning: Tuning,
    sets: Vec<SetSpec>,
    pools: Pools<'a>,
    partitions: Partitions,
    auto_partitions: bool,
    vms: Vec<Table<'a, VmTable>>,
    containers: Vec<Vm>,
}

fn read_cases(top: &Table<Top>, host: &Host, end_s: f64) -> Read<Vec<Case>> {
    let vms = expanded::<VmTable>(top, "vm", &[])?;
    let vms: Vec<_> = vms.into_iter().map(each_of).collect::<Read<Vec<_>>>()?;
    let vms: Vec<_> = vms.into_iter().flatten().collect();
    let mut names: Vec<&str> = Vec::new();
    for vm in &vms {
        check_vm(vm, host, end_s)?;
        if names.contains(&vm.name.as_str()) {
            let what = format!("two VMs are called \"{}\"", vm.name);
            return Err(vm.error("name", what, "give each its own name"));
        }
        let has_address = |it: &&Table<VmTable>| it.network == vm.network && it.name != vm.name;
        if let (Some(address), Some(other)) = (vm.network, vms.iter().find(has_address)) {
            let what =
                format!("VMs \"{}\" and \"{}\" have the address {address}", vm.name, other.name);
            return Err(vm.error("network", what, "give each its own"));
        }
        names.push(&vm.name);
    }
    if vms.is_empty() {
        return Err(top.error("vm", "the scenario has no VM", "add a [[vm]]"));
    }
    let containers = read_containers(top, &names)?;
    let (pools, partitions) = (Pools::read(top)?, read_partitions(top, host)?);
    let ple = top.ple.unwrap_or(false);
    let placement = top.placement.unwrap_or_default();
    let tuning = top.tuning.unwrap_or_default();
    let sets = top.tables::<SetTable>("set")?;
    check_names(&sets, &names)?;
    let meant = |given: &[String]| vms_meant(given, &names);
    let sets = read_sets(&sets, meant)?.into_iter().map(|(set, _)| set).collect();
    // Also where cases change them: what is no tree then is complained of where it stands.
    let unchanged = pools.tree(None)?;
    let auto_partitions = top.auto_partitions.unwrap_or(false);
    let base = Base {
        auto_partitions,
        host,
        end_s,
        ple,
        placement,
        tuning,
        sets,
        pools,
        partitions,
        vms,
        containers,
    };
    let mut cases: Vec<Case> = Vec::new();
    for table in expanded::<CaseTable>(top, "case", &[])? {
        let case = base.read_case(&table)?;
        if cases.iter().any(|earlier| earlier.name == case.name) {
            let what = format!("two cases are called \"{}\"", case.name);
            return Err(table.error("name", what, "give each its own name"));
        }
        cases.push(case);
    }
    if cases.is_empty() {
        let vms = base.vms.iter().map(|vm| read_vm(vm, host, end_s, &unchanged, &base.partitions));
        let mut vms = vms.collect::<Read<Vec<Vm>>>()?;
        tuning.apply(host, &mut vms);
        let how = (ple, placement);
        cases.push(base.admitted(top, ONLY_CASE.to_owned(), how, unchanged, vms)?);
    }
    Ok(cases)
}

/// The VMs of a table: itself, or NAME-1, NAME-2 and so on.
fn each_of(vm: Table<VmTable>) -> Read<Vec<Table<VmTable>>> {
    let Some(count) = vm.count else { return Ok(vec![vm]) };
    check_name(&vm, &vm.name, "a VM")?;
    (1..=count).map(|number| vm.with_text("name", &format!("{}-{number}", vm.name))).collect()
}

/// Whether all that a scenario's sets name are VMs of it.
fn check_names(tables: &[Table<SetTable>], vms: &[&str]) -> Read<()> {
    for table in tables {
        if let Some(vm) = table.vms.iter().find(|vm| !vms.iter().any(|name| is_meant(vm, name))) {
            let what = format!("set \"{}\" names an unknown VM \"{vm}\"", table.name);
            return Err(table.error("vms", what, hint(vm, vms.iter().copied())));
        }
    }
    Ok(())
}

/// All VMs that such names and patterns mean, each once.
fn vms_meant(given: &[String], names: &[&str]) -> Vec<String> {
    let is_meant = |name: &&&str| given.iter().any(|pattern| is_meant(pattern, name));
    names.iter().filter(is_meant).map(|&name| name.to_owned()).collect()
}

/// What a case changes, by the name or pattern of VMs. What is said of one VM comes after what is said of
/// several: it counts.
fn by_vm<'b, 'a>(
    changes: &'b [(String, Table<'a, CaseVmTable>)],
) -> Vec<(&'b str, &'b Table<'a, CaseVmTable>)> {
    let mut changes: Vec<_> = changes.iter().collect();
    changes.sort_by_key(|(names, _)| !is_pattern(names) && !names.contains(','));
    let each =
        changes.into_iter().map(|(names, change)| each_name(names).map(move |it| (it, change)));
    each.flatten().collect()
}

impl Base<'_> {
    fn read_case(&self, table: &Table<CaseTable>) -> Read<Case> {
        let name = table.name.clone();
        if name.chars().count() > 63 {
            let what = "the case's name is too long";
            return Err(table.error("name", what, "use at most 63 letters"));
        }
        let pools = self.pools.tree(Some(table))?;
        let changes = table.named::<CaseVmTable>("vm")?;
        let changes = by_vm(&changes);
        let known = self.vms.iter().map(|vm| vm.name.as_str());
        let is_known = |vm: &str| known.clone().any(|name| is_meant(vm, name));
        if let Some((vm, change)) = changes.iter().find(|(vm, _)| !is_known(vm)) {
            let what = format!("case \"{name}\" speaks of an unknown VM \"{vm}\"");
            return Err(change.error("", what, hint(vm, known)));
        }
        let mut present = Vec::new();
        for vm in &self.vms {
            let (mut changed, mut absent) = (None, false);
            for (_, change) in changes.iter().filter(|(pattern, _)| is_meant(pattern, &vm.name)) {
                changed = Some(change.without("absent").over(changed.as_ref().unwrap_or(vm))?);
                absent = change.absent.unwrap_or(absent);
            }
            let vm = changed.as_ref().unwrap_or(vm);
            check_vm(vm, self.host, self.end_s)?;
            if !absent {
                present.push(read_vm(vm, self.host, self.end_s, &pools, &self.partitions)?);
            }
        }
        if present.is_empty() {
            let what = format!("every VM is absent from case \"{name}\"");
            return Err(table.error("", what, "leave one in"));
        }
        table.tuning.unwrap_or(self.tuning).apply(self.host, &mut present);
        let placement = table.placement.unwrap_or(self.placement);
        self.admitted(table, name, (table.ple.unwrap_or(self.ple), placement), pools, present)
    }

    /// The case, if all that is reserved in it fits. Of VMs that are not all there at the same time it
    /// still must: whether one leaves before another comes is for the run to show.
    fn admitted<T>(
        &self,
        table: &Table<T>,
        name: String,
        (ple, placement): (bool, Heuristic),
        pools: Tree,
        mut vms: Vec<Vm>,
    ) -> Read<Case> {
        let partitions = match vms.iter().any(|vm| vm.partition.is_some()) {
            true => self.partitions.clone(),
            false => Partitions::default(),
        };
        admit(self.host, &pools, &partitions, &vms).map_err(|(who, refusal)| {
            table.error("", format!("case \"{name}\", {who}: {}", refusal.what()), refusal.fix)
        })?;
        vms.extend(self.containers.iter().cloned());
        let sets = self.sets.clone();
        let auto_partitions = self.auto_partitions;
        Ok(Case { auto_partitions, name, pools, partitions, ple, placement, sets, vms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expect::VmChoice;

    const MANY: &str = r#"name = "x"
host = { cores = 4, nodes = 2, sockets = 2 }
[[vm]]
name = "web"
count = 3
vcpus = 2
workload = { kind = "cpu" }
[[vm]]
name = "db"
vcpus = 2
workload = { kind = "cpu" }
[[set]]
name = "shop"
vms = ["web-*", "db"]
kind = "affine"
[[case]]
name = "a"
[case.vm.web-2]
shares = 7
[case.vm."web-*"]
shares = 5
[case.vm."d*"]
absent = true
[[expect]]
metric = "cpu_s"
vm = "web-*"
max = 1.0
"#;

    #[test]
    fn what_is_said_of_one_vm_counts_before_what_is_said_of_several() {
        let several = MANY.replace("[case.vm.\"web-*\"]", "[case.vm.\"web-[1-2], web-3\"]");
        assert_ne!(several, MANY);
        assert_eq!(Scenario::parse(&several, "x.toml"), Scenario::parse(MANY, "x.toml"));
    }

    #[test]
    fn a_case_without_vms_in_partitions_has_none() {
        let text = "name = \"x\"\nhost = { cores = 4 }\n[[partition]]\nname = \"io\"\ncpus = \"2-3\"\n\
             [[vm]]\nname = \"a\"\nvcpus = 1\nworkload = { kind = \"io\" }\n[[case]]\nname = \"one\"\n\
             [[case]]\nname = \"two\"\nvm.a.partition = \"io\"\n";
        let scenario = Scenario::parse(text, "x.toml").unwrap();
        let partitions = scenario.cases.iter().map(|case| case.partitions.specs().len());
        assert_eq!(partitions.collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn two_guests_with_one_address_are_refused() {
        let guest = |name: &str| {
            format!(
                "[[vm]]\nname = \"{name}\"\nvcpus = 1\nvmm = \"qemu\"\nnetwork = \"10.0.0.1\"\n\
                 workload = {{ kind = \"command\", run = \"true\" }}\n"
            )
        };
        let text = format!("name = \"x\"\nhost = {{ cores = 4 }}\n{}{}", guest("a"), guest("b"));
        let error = Scenario::parse(&text, "x.toml").unwrap_err().to_string();
        assert!(error.contains("VMs \"a\" and \"b\" have the address 10.0.0.1"), "{error}");
    }

    #[test]
    fn vms_that_are_alike_are_written_once() {
        let scenario = Scenario::parse(MANY, "x.toml").unwrap();
        let case = &scenario.cases[0];
        let vms: Vec<_> =
            case.vms.iter().map(|vm| (vm.name.as_str(), vm.shares_of_all())).collect();
        assert_eq!(vms, [("web-1", 5), ("web-2", 7), ("web-3", 5)]);
        assert_eq!(case.sets[0].vms, ["web-1", "web-2", "web-3", "db"]);
        assert_eq!(scenario.expects[0].vm, VmChoice::Like("web-*".to_owned()));
        let fault = |old: &str, new: &str| {
            Scenario::parse(&MANY.replacen(old, new, 1), "x.toml").unwrap_err().to_string()
        };
        assert!(fault("count = 3", "count = 0").contains("from 1 to 1000"));
        assert!(fault("\"db\"", "\"web-3\"").contains("two VMs are called \"web-3\""));
        assert!(fault("vm = \"web-*\"", "vm = \"wbe-*\"").contains("no VM \"wbe-*\" takes part"));
        assert!(fault("\"web-*\", \"db\"", "\"x*\", \"db\"").contains("unknown VM \"x*\""));
    }
}
