// SPDX-License-Identifier: GPL-2.0-only
//! `drover partition auto`: which partitions VMs should have, by what kind of work they do.
//!
//! Idea. VMs that wait for devices wait behind VMs that compute wherever both share pCPUs under a policy with long
//! slices; apart, each kind has the policy that suits it. So there are three partitions (seed 001's three pools):
//!
//! | partition | policy | who |
//! |---|---|---|
//! | `auto-io` | `credit`, slices of 3 ms | class io, as long as each vCPU wants less than half of a pCPU |
//! | `auto-cpu` | `share` | classes cpu and memory |
//! | `default` | `share` | mixed, who was never placed, and io that wants more: back ends of others |
//!
//! `auto-io` and `default` have the pCPUs that their VMs want, half of all together at most, and one each at least;
//! `auto-cpu` has the others, as far as it wants them. Where those of `default` want next to nothing, less than a
//! quarter of a pCPU, a pCPU of theirs would be wasted: who computes stays in `default`, and there is no `auto-cpu`. Who is idle stays where it is. It is done only where more is
//! wanted than there are pCPUs, both kinds are there, and there are three pCPUs; it is undone when one kind has gone.
//!
//! What people have arranged is left alone: VMs for which somebody says a partition, that have what only `default` has,
//! or that are confined; and the pCPUs of other partitions. Who is in the wrong place for that reason is named.
//!
//! Hysteresis. Classes change slowly ([`crate::profile`]). A partition keeps its size while it is not a tenth of a pCPU
//! too small nor one and a half too large. Something must have been to do for 10 s, and the same of these: to have the
//! partitions, or to have none. Then what is planned at that moment is done, so VMs that come and go and demand that
//! swings delay nothing. Nothing is done within 30 s after something was, but for a partition without online pCPUs,
//! which is mended at once.
//!
//! Worked example. 8 pCPUs, 18 VMs that compute and want 18 pCPUs, 18 that send and want 0.3, a back end that wants
//! 1.0. `default` has one pCPU, for the back end, `auto-io` one, `auto-cpu` six.
//!
//! Limitations. Caches and nodes are not looked at: pCPUs are taken by number, the highest first.

use crate::asked::DEFAULT;
use crate::cpu_list::CpuList;
use crate::partition::{PartitionChange, PartitionPolicy, Partitions};
use crate::profile::Class;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The partition of VMs that wait for devices.
pub const IO: &str = "auto-io";
/// The partition of VMs that compute.
pub const CPU: &str = "auto-cpu";

/// The same must be planned for so long.
const HOLD: Duration = Duration::from_secs(10);
/// Nothing is done for so long after something was.
const REST: Duration = Duration::from_secs(30);
/// A vCPU with I/O that wants more is a back end; one that is in `auto-io` may want so much more.
const BACK_END_PCPUS: f64 = 0.5;
const BACK_END_MARGIN: f64 = 0.1;
/// A partition may lack so much, or have so much more than it needs.
const LACKS_PCPUS: f64 = 0.1;
const SPARE_PCPUS: f64 = 1.5;
/// `default` is for those who compute, too, while its own want less; once they are apart, for as long as they want more.
const OWN_PCPUS: f64 = 0.25;
const OWN_STILL_PCPUS: f64 = 0.1;
const IO_SLICE_NS: u64 = 3_000_000;

/// A VM as it is placed.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// Its name.
    pub name: String,
    /// What kind of work it does; none: not known yet.
    pub class: Option<Class>,
    /// What it wants, pCPUs.
    pub wanted_pcpus: f64,
    /// Its vCPUs.
    pub vcpus: u32,
    /// The partition it is in.
    pub partition: String,
    /// Why it may not be moved; none: it may.
    pub stays: Option<String>,
    /// The evidence for its class, for people.
    pub evidence: String,
}

/// Something to do. In the order given, each is possible when those before it are done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    /// A new partition.
    Add {
        /// Its name.
        partition: String,
        /// What it has.
        change: PartitionChange,
    },
    /// Other pCPUs for a partition.
    Resize {
        /// Its name.
        partition: String,
        /// Its pCPUs.
        cpus: CpuList,
    },
    /// A VM goes to another partition.
    Move {
        /// Its name.
        vm: String,
        /// Where it goes.
        to: String,
    },
    /// A partition that nobody needs.
    Remove {
        /// Its name.
        partition: String,
    },
}

/// What would be done, and why.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Arrangement {
    /// What is to be done; empty: all is as it should be.
    pub steps: Vec<Step>,
    /// Why, or why not, in a line.
    pub why: String,
    /// For each VM that moves: its class and the evidence.
    pub moves_why: Vec<String>,
    /// What comes of it, a line each.
    pub expects: Vec<String>,
    /// VMs in the wrong place that are left there, and why.
    pub misplaced: Vec<String>,
    /// VMs that wait for devices and do not go to `auto-io`, and by which rule.
    #[serde(default)]
    pub kept: Vec<String>,
    /// A partition has no pCPU: it is not to wait.
    #[serde(default)]
    pub urgent: bool,
}

/// Where a VM should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Default,
    Io,
    Cpu,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Self::Default => DEFAULT,
            Self::Io => IO,
            Self::Cpu => CPU,
        }
    }
}

impl Seen {
    /// Where it should be; none: anywhere.
    fn place(&self) -> Option<Place> {
        match self.class? {
            Class::Idle => None,
            Class::Io if self.each_pcpus() < self.back_end_pcpus() => Some(Place::Io),
            Class::Io | Class::Mixed => Some(Place::Default),
            Class::Cpu | Class::Memory => Some(Place::Cpu),
        }
    }

    /// What each of its vCPUs wants, pCPUs.
    fn each_pcpus(&self) -> f64 {
        self.wanted_pcpus / f64::from(self.vcpus.max(1))
    }

    /// From so much on for each vCPU it is taken for a back end.
    fn back_end_pcpus(&self) -> f64 {
        BACK_END_PCPUS + if self.partition == IO { BACK_END_MARGIN } else { -BACK_END_MARGIN }
    }

    /// Why it does not go to `auto-io` though it waits for devices.
    fn kept(&self) -> Option<String> {
        let name = self.class.filter(|class| *class == Class::Io).map(|_| &self.name)?;
        let rule = match (&self.stays, self.place()) {
            (Some(why), _) => format!("stays in \"{}\" because {why}", self.partition),
            (None, Some(Place::Default)) => format!(
                "wants {:.0}% of a pCPU for each vCPU: from {:.0}% on it is taken for a back end of other VMs, whose \
                 place is \"{DEFAULT}\"",
                100.0 * self.each_pcpus(),
                100.0 * self.back_end_pcpus(),
            ),
            _ => return None,
        };
        Some(format!("{name} is io, but {rule}"))
    }

    /// Where it will be if it is put where it should be; `three`: who computes has a partition of its own.
    fn goes_to(&self, three: bool) -> &str {
        match self.place() {
            Some(Place::Cpu) if !three && self.stays.is_none() => DEFAULT,
            Some(place) if self.stays.is_none() => place.name(),
            _ => &self.partition,
        }
    }
}

/// What should be done now, on a host with these pCPUs online.
pub fn arrange(partitions: &Partitions, online: &CpuList, vms: &[Seen]) -> Arrangement {
    let cpus = Cpus::of(partitions, online);
    let exists = |name: &str| partitions.find(name).is_some();
    let stands = exists(IO) || exists(CPU);
    let kept = vms.iter().filter_map(Seen::kept).collect();
    let mut arrangement =
        Arrangement { misplaced: misplaced(vms, stands), kept, ..Arrangement::default() };
    arrangement.urgent = (exists(IO) && cpus.io.is_empty()) || (exists(CPU) && cpus.cpu.is_empty());
    let movable = |place| vms.iter().any(|vm| vm.stays.is_none() && vm.place() == Some(place));
    let wanted: f64 = vms.iter().map(|vm| vm.wanted_pcpus).sum();
    let all = cpus.all.len();
    let why_not = if all < 3 {
        Some(format!("{all} pCPUs are too few for three partitions"))
    } else if !movable(Place::Io) {
        Some(match arrangement.kept.is_empty() {
            true => "no VM waits for devices".to_owned(),
            false => "no VM that waits for devices is to be moved".to_owned(),
        })
    } else if !movable(Place::Cpu) {
        Some("no VM that may be moved computes".to_owned())
    } else if !stands && wanted < all as f64 {
        Some(format!("{wanted:.1} pCPUs are wanted and {all} are there: nobody needs to wait"))
    } else {
        None
    };
    match why_not {
        Some(why) => {
            arrangement.why = why;
            undo(&mut arrangement, partitions, vms);
        }
        None => apart(&mut arrangement, (partitions, &cpus), vms),
    }
    arrangement
}

/// The pCPUs that may be arranged, and who has them now.
struct Cpus {
    all: Vec<u32>,
    io: Vec<u32>,
    cpu: Vec<u32>,
}

impl Cpus {
    fn of(partitions: &Partitions, online: &CpuList) -> Self {
        let of = |name: &str| {
            let index = partitions.find(name);
            let cpus = index.and_then(|index| partitions.cpus_of(Some(index), online));
            cpus.map_or_else(Vec::new, |cpus| cpus.cpus().to_vec())
        };
        let (io, cpu) = (of(IO), of(CPU));
        let of_default = partitions.cpus_of(None, online);
        let mut all = of_default.map_or_else(Vec::new, |cpus| cpus.cpus().to_vec());
        all.extend(io.iter().chain(&cpu));
        all.sort_unstable();
        Self { all, io, cpu }
    }
}

/// How many pCPUs a partition needs that has so many now.
fn size(wanted_pcpus: f64, now: usize) -> usize {
    let fits = wanted_pcpus - LACKS_PCPUS <= now as f64 && now as f64 - wanted_pcpus < SPARE_PCPUS;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is at least 1")]
    let needs = (wanted_pcpus - LACKS_PCPUS).ceil().max(1.0) as usize;
    if now > 0 && fits { now } else { needs }
}

/// Each kind gets a partition of its own.
fn apart(arrangement: &mut Arrangement, (partitions, cpus): (&Partitions, &Cpus), vms: &[Seen]) {
    let own = vms.iter().filter(|vm| vm.goes_to(true) == DEFAULT);
    let own: f64 = own.map(|vm| vm.wanted_pcpus).sum();
    let is_apart = partitions.find(CPU).is_some();
    let three = own >= if is_apart { OWN_STILL_PCPUS } else { OWN_PCPUS };
    let wanted = |name: &str| -> f64 {
        vms.iter().filter(|vm| vm.goes_to(three) == name).map(|vm| vm.wanted_pcpus).sum()
    };
    let (all, stands) = (cpus.all.len(), partitions.find(IO).is_some());
    let now = |size: usize| if stands { size } else { 0 };
    let default_now = all - cpus.io.len() - cpus.cpu.len();
    let half = (all / 2).max(2);
    let io_size = size(wanted(IO), now(cpus.io.len())).min(half - 1);
    let default_size = size(wanted(DEFAULT), now(default_now)).min(half - io_size);
    // What it does not want is of use to `default`, where mixed VMs and the host's tasks are.
    let cpu_size = match three {
        true => size(wanted(CPU), now(cpus.cpu.len())).min(all - io_size - default_size),
        false => 0,
    };
    let (io, cpu) = share_out(cpus, io_size, cpu_size);
    arrangement.steps = steps((partitions, cpus), [(IO, &io), (CPU, &cpu)], three, vms);
    arrangement.why = format!(
        "{:.1} pCPUs are wanted and {all} are there, {:.1} of them by VMs that wait for devices",
        wanted(IO) + wanted(CPU) + wanted(DEFAULT),
        wanted(IO),
    );
    arrangement.moves_why =
        vms.iter().filter(|vm| vm.goes_to(three) != vm.partition).map(why).collect();
    let rest = all - io.len() - cpu.len();
    let line = |name: &str, size: usize| {
        let of_what = (size as f64 / wanted(name).max(1e-3)).min(1.0) * 100.0;
        let count = vms.iter().filter(|vm| vm.goes_to(three) == name).count();
        let wanted = wanted(name);
        match count {
            1 => format!(
                "{name}: 1 VM that wants {wanted:.1} pCPUs has {size} ({of_what:.0}% of what it wants)"
            ),
            _ => format!(
                "{name}: {count} VMs that want {wanted:.1} pCPUs have {size} ({of_what:.0}% of what they want)"
            ),
        }
    };
    let of_cpu = three.then(|| line(CPU, cpu.len()));
    let lines = [Some(line(IO, io.len())), of_cpu, Some(line(DEFAULT, rest))];
    arrangement.expects = lines.into_iter().flatten().collect();
}

fn why(vm: &Seen) -> String {
    let class = vm.class.map_or_else(String::new, |class| class.to_string());
    format!("{} is {class}: {}", vm.name, vm.evidence)
}

/// Both keep what they have as far as they may, and take the highest of what is free.
fn share_out(cpus: &Cpus, io_size: usize, cpu_size: usize) -> (Vec<u32>, Vec<u32>) {
    let keep = |has: &[u32], size: usize| has[has.len() - has.len().min(size)..].to_vec();
    let (mut io, mut cpu) = (keep(&cpus.io, io_size), keep(&cpus.cpu, cpu_size));
    let mut free: Vec<u32> =
        cpus.all.iter().copied().filter(|it| !io.contains(it) && !cpu.contains(it)).collect();
    for (has, size) in [(&mut cpu, cpu_size), (&mut io, io_size)] {
        while has.len() < size {
            has.extend(free.pop());
        }
        has.sort_unstable();
    }
    (io, cpu)
}

/// From what is to what should be: those that shrink, those that grow or are new, then VMs.
fn steps(
    (partitions, cpus): (&Partitions, &Cpus),
    to_be: [(&str, &Vec<u32>); 2],
    three: bool,
    vms: &[Seen],
) -> Vec<Step> {
    let (mut first, mut then, mut last) = (Vec::new(), Vec::new(), Vec::new());
    for (name, list) in to_be {
        let partition = name.to_owned();
        let index = partitions.find(name);
        let Some(list) = CpuList::of(list.iter().copied()) else {
            if index.is_some() && !vms.iter().any(|vm| vm.partition == name && vm.stays.is_some()) {
                last.push(Step::Remove { partition });
            }
            continue;
        };
        let Some(index) = index else {
            let (policy, slice_ns) = match name {
                IO => (PartitionPolicy::Credit, Some(IO_SLICE_NS)),
                _ => (PartitionPolicy::Share, None),
            };
            let change = PartitionChange { cpus: Some(list), policy: Some(policy), slice_ns };
            then.push(Step::Add { partition, change });
            continue;
        };
        let now = if name == IO { &cpus.io } else { &cpus.cpu };
        let has_offline = partitions.specs()[index].cpus.cpus().len() > now.len();
        let grows = list.cpus().iter().any(|cpu| !now.contains(cpu));
        if list.cpus() == now.as_slice() && !has_offline {
            continue;
        }
        if grows { &mut then } else { &mut first }.push(Step::Resize { partition, cpus: list });
    }
    first.append(&mut then);
    first.extend(moves(vms, |vm| vm.goes_to(three)));
    first.append(&mut last);
    first
}

fn moves(vms: &[Seen], to: impl Fn(&Seen) -> &str) -> Vec<Step> {
    let moved = vms.iter().filter(|vm| vm.stays.is_none() && to(vm) != vm.partition);
    moved.map(|vm| Step::Move { vm: vm.name.clone(), to: to(vm).to_owned() }).collect()
}

/// What was made is taken away again, unless somebody has to stay in it.
fn undo(arrangement: &mut Arrangement, partitions: &Partitions, vms: &[Seen]) {
    fn back(vm: &Seen) -> &str {
        if is_ours(&vm.partition) { DEFAULT } else { &vm.partition }
    }
    arrangement.steps = moves(vms, back);
    for name in [IO, CPU].into_iter().filter(|name| partitions.find(name).is_some()) {
        if !vms.iter().any(|vm| vm.partition == name && vm.stays.is_some()) {
            arrangement.steps.push(Step::Remove { partition: name.to_owned() });
        }
    }
}

/// Is it one of the partitions that are made here?
pub fn is_ours(partition: &str) -> bool {
    [IO, CPU].contains(&partition)
}

/// VMs that are in the wrong place and are left there. Until the partitions stand, all kinds are in `default`.
fn misplaced(vms: &[Seen], stands: bool) -> Vec<String> {
    let is_wrong = |vm: &&Seen| {
        let Some(place @ (Place::Io | Place::Cpu)) = vm.place() else { return false };
        if vm.stays.is_none() || (vm.partition == DEFAULT && !stands) {
            return false;
        }
        let others = vms.iter().filter(|it| it.partition == vm.partition && it.name != vm.name);
        let places: Vec<Place> = others.filter_map(Seen::place).collect();
        let alike = places.iter().filter(|it| **it == place).count();
        // Two thirds of the others are of another kind.
        !places.is_empty() && 3 * alike <= places.len()
    };
    let line = |vm: &Seen| {
        let class = vm.class.map_or_else(String::new, |class| class.to_string());
        format!(
            "{} is {class} and in partition \"{}\", where others are not; it stays there because {}",
            vm.name,
            vm.partition,
            vm.stays.as_deref().unwrap_or_default()
        )
    };
    vms.iter().filter(is_wrong).map(line).collect()
}

/// Does what is planned once there has been something to do for long enough.
#[derive(Debug, Default)]
pub struct Arranger {
    /// Are partitions taken away? And since when there was something to do.
    planned: Option<(bool, Duration)>,
    done: Option<Duration>,
}

impl Arranger {
    /// What is to be done now, if this is planned now. `now` is on any clock that does not go backwards.
    pub fn look(&mut self, arrangement: &Arrangement, now: Duration) -> Vec<Step> {
        let steps = &arrangement.steps;
        if steps.is_empty() {
            self.planned = None;
            return Vec::new();
        }
        let removes =
            steps.iter().any(|step| matches!(step, Step::Remove { partition } if partition == IO));
        let same = self.planned.filter(|(planned, _)| *planned == removes);
        let (_, since) = *self.planned.insert(same.unwrap_or((removes, now)));
        let rests = self.done.is_some_and(|done| now.saturating_sub(done) < REST);
        if !arrangement.urgent && (rests || now.saturating_sub(since) < HOLD) {
            return Vec::new();
        }
        (self.planned, self.done) = (None, Some(now));
        steps.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::PartitionSpec;

    fn vm(name: &str, class: Class, wanted_pcpus: f64) -> Seen {
        Seen {
            name: name.to_owned(),
            class: Some(class),
            wanted_pcpus,
            vcpus: 1,
            partition: DEFAULT.to_owned(),
            stays: None,
            evidence: "runs of 0.12 ms".to_owned(),
        }
    }

    /// Seed 001's mix.
    fn mix() -> Vec<Seen> {
        let io = (1..=18).map(|n| vm(&format!("io{n}"), Class::Io, 0.0167));
        let cpu = (1..=18).map(|n| vm(&format!("cpu{n}"), Class::Cpu, 1.0));
        std::iter::once(vm("dom0", Class::Io, 1.0)).chain(io).chain(cpu).collect()
    }

    fn none() -> Partitions {
        Partitions::default()
    }

    /// What the steps make of partitions and VMs; each must be possible when it is done.
    fn carry_out(partitions: &mut Partitions, vms: &mut [Seen], steps: &[Step], online: &CpuList) {
        for step in steps {
            let mut specs = partitions.specs().to_vec();
            match step {
                Step::Add { partition, change } => {
                    let empty = PartitionSpec {
                        name: partition.clone(),
                        cpus: "0".parse().unwrap(),
                        policy: PartitionPolicy::Share,
                        slice_ns: None,
                    };
                    specs.push(change.of(&empty));
                }
                Step::Resize { partition, cpus } => {
                    let spec = specs.iter_mut().find(|spec| spec.name == *partition).unwrap();
                    spec.cpus = cpus.clone();
                }
                Step::Move { vm, to } => {
                    assert!(to == DEFAULT || partitions.find(to).is_some());
                    vms.iter_mut().find(|it| it.name == *vm).unwrap().partition = to.clone();
                }
                Step::Remove { partition } => {
                    assert!(vms.iter().all(|vm| vm.partition != *partition), "it is not empty");
                    specs.retain(|spec| spec.name != *partition);
                }
            }
            *partitions = Partitions::of(specs).unwrap();
            for index in 0..partitions.specs().len() {
                let is_asked = matches!(step, Step::Add { partition, .. } | Step::Resize { partition, .. }
                    if *partition == partitions.specs()[index].name);
                assert!(!is_asked || partitions.check(index, online).is_ok(), "{step:?}");
            }
        }
    }

    fn cpus(partitions: &Partitions, name: &str) -> String {
        partitions.specs()[partitions.find(name).unwrap()].cpus.to_string()
    }

    #[test]
    fn who_waits_for_devices_and_is_not_moved_is_named_with_the_rule_that_keeps_it() {
        let reason = "somebody says its partition";
        let stays = Seen { stays: Some(reason.to_owned()), ..vm("web", Class::Io, 0.1) };
        let wide = Seen { vcpus: 4, ..vm("wide", Class::Io, 1.2) };
        let kept = |vms: &[Seen]| arrange(&none(), &CpuList::all(4), vms).kept;
        let vms = [vm("disk", Class::Io, 0.98), stays, vm("job", Class::Cpu, 1.0)];
        let told = arrange(&none(), &CpuList::all(4), &vms);
        assert_eq!(told.kept.len(), 2, "{told:?}");
        assert!(
            told.kept[0].starts_with("disk is io, but wants 98% of a pCPU for each vCPU"),
            "{told:?}"
        );
        assert!(
            told.kept[0].contains("from 40% on") && told.kept[0].contains("back end"),
            "{told:?}"
        );
        assert!(
            told.kept[1].contains("web is io, but stays in \"default\"")
                && told.kept[1].ends_with(reason)
        );
        assert_eq!(told.why, "no VM that waits for devices is to be moved", "disk does wait");
        let inside = |pcpus| Seen { partition: IO.to_owned(), ..vm("disk", Class::Io, pcpus) };
        assert_eq!((kept(&[wide]), kept(&[inside(0.5)])), (vec![], vec![]));
        assert!(
            kept(&[inside(0.65)])[0].contains("from 60% on"),
            "who is in auto-io may want more"
        );
    }

    #[test]
    fn the_worked_example_of_the_header_holds_and_stays() {
        let (mut partitions, mut vms, host) = (none(), mix(), CpuList::all(8));
        let first = arrange(&partitions, &host, &vms);
        carry_out(&mut partitions, &mut vms, &first.steps, &host);
        assert_eq!((cpus(&partitions, IO), cpus(&partitions, CPU)), ("1".into(), "2-7".into()));
        assert_eq!(vms[0].partition, DEFAULT);
        assert!(vms[1..19].iter().all(|vm| vm.partition == IO));
        assert!(vms[19..].iter().all(|vm| vm.partition == CPU));
        assert_eq!(
            first.expects[1],
            "auto-cpu: 18 VMs that want 18.0 pCPUs have 6 (33% of what they want)"
        );
        assert!(first.moves_why[0].starts_with("io1 is io: runs of"), "{first:?}");
        assert_eq!(arrange(&partitions, &host, &vms).steps, [], "it stays");
        // Less is wanted for a while, and more.
        for wanted in [0.01, 0.06] {
            vms[1..19].iter_mut().for_each(|vm| vm.wanted_pcpus = wanted);
            assert_eq!(arrange(&partitions, &host, &vms).steps, []);
        }
    }

    #[test]
    fn without_anybody_else_in_default_those_who_compute_stay_there() {
        let (mut partitions, mut vms, host) = (none(), mix()[1..].to_vec(), CpuList::all(8));
        let steps = arrange(&partitions, &host, &vms).steps;
        carry_out(&mut partitions, &mut vms, &steps, &host);
        assert_eq!((cpus(&partitions, IO), partitions.find(CPU)), ("7".into(), None));
        assert!(vms[18..].iter().all(|vm| vm.partition == DEFAULT));
        assert_eq!(arrange(&partitions, &host, &vms).steps, []);
        // A back end comes, and goes.
        vms.push(vm("dom0", Class::Io, 1.0));
        let steps = arrange(&partitions, &host, &vms).steps;
        carry_out(&mut partitions, &mut vms, &steps, &host);
        assert!(partitions.find(CPU).is_some());
        assert_eq!(arrange(&partitions, &host, &vms).steps, []);
        vms.pop();
        let steps = arrange(&partitions, &host, &vms).steps;
        carry_out(&mut partitions, &mut vms, &steps, &host);
        assert_eq!(partitions.find(CPU), None);
    }

    #[test]
    fn a_vm_that_changes_goes_where_it_belongs() {
        let (mut partitions, mut vms, host) = (none(), mix(), CpuList::all(8));
        let steps = arrange(&partitions, &host, &vms).steps;
        carry_out(&mut partitions, &mut vms, &steps, &host);
        vms[1].class = Some(Class::Cpu);
        let to_cpu = Step::Move { vm: "io1".to_owned(), to: CPU.to_owned() };
        assert_eq!(arrange(&partitions, &host, &vms).steps, [to_cpu]);
        vms[1].class = Some(Class::Idle);
        assert_eq!(arrange(&partitions, &host, &vms).steps, [], "who is idle may be anywhere");
    }

    #[test]
    fn nothing_is_done_without_a_reason() {
        let said = |vms: &[Seen], pcpus| {
            let arrangement = arrange(&none(), &CpuList::all(pcpus), vms);
            assert_eq!(arrangement.steps, []);
            arrangement.why
        };
        assert!(said(&mix(), 2).contains("too few"));
        assert!(said(&mix(), 64).contains("nobody needs to wait"));
        assert!(said(&mix()[..19], 8).contains("no VM that may be moved computes"));
        assert!(said(&mix()[19..], 8).contains("waits for devices"));
    }

    #[test]
    fn when_one_kind_has_gone_all_is_as_before() {
        let (mut partitions, mut vms, host) = (none(), mix(), CpuList::all(8));
        let steps = arrange(&partitions, &host, &vms).steps;
        carry_out(&mut partitions, &mut vms, &steps, &host);
        vms[19..].iter_mut().for_each(|vm| vm.class = Some(Class::Mixed));
        let steps = arrange(&partitions, &host, &vms).steps;
        carry_out(&mut partitions, &mut vms, &steps, &host);
        assert_eq!(partitions, none());
        assert!(vms.iter().all(|vm| vm.partition == DEFAULT));
    }

    #[test]
    fn a_partition_that_loses_its_last_pcpu_is_mended_at_once() {
        let (mut partitions, mut vms, host) = (none(), mix(), CpuList::all(8));
        let mut arranger = Arranger::default();
        let steps = arrange(&partitions, &host, &vms).steps;
        carry_out(&mut partitions, &mut vms, &steps, &host);
        let online: CpuList = "0,2-7".parse().unwrap();
        let arrangement = arrange(&partitions, &online, &vms);
        assert!(arrangement.urgent);
        let steps = arranger.look(&arrangement, Duration::ZERO);
        carry_out(&mut partitions, &mut vms, &steps, &online);
        assert_eq!((cpus(&partitions, IO), cpus(&partitions, CPU)), ("2".into(), "3-7".into()));
        // All but two go.
        let online: CpuList = "0,7".parse().unwrap();
        let arrangement = arrange(&partitions, &online, &vms);
        assert!(arrangement.urgent && arrangement.why.contains("too few"));
        carry_out(&mut partitions, &mut vms, &arrangement.steps, &online);
        assert_eq!(partitions, none());
    }

    #[test]
    fn what_people_arranged_is_left_and_said() {
        let spec = PartitionSpec {
            name: "mine".to_owned(),
            cpus: "0-1".parse().unwrap(),
            policy: PartitionPolicy::Credit,
            slice_ns: None,
        };
        let (partitions, host) = (Partitions::of(vec![spec]).unwrap(), CpuList::all(8));
        let mut vms = mix();
        for at in [1, 2, 3, 20] {
            vms[at].partition = "mine".to_owned();
            vms[at].stays = Some("`drover vm set` says so".to_owned());
        }
        let arrangement = arrange(&partitions, &host, &vms);
        let moved = |name: &str| {
            arrangement.steps.iter().any(|step| matches!(step, Step::Move { vm, .. } if vm == name))
        };
        assert!(moved("io4") && !moved("io1") && !moved("cpu2"));
        assert_eq!(
            arrangement.misplaced,
            [
                "cpu2 is cpu and in partition \"mine\", where others are not; it stays there because \
              `drover vm set` says so"
            ]
        );
        let (mut partitions, mut vms) = (partitions, vms);
        vms[5].stays = Some("it has a reservation".to_owned());
        let steps = arrange(&partitions, &host, &vms).steps;
        carry_out(&mut partitions, &mut vms, &steps, &host);
        assert_eq!(cpus(&partitions, "mine"), "0-1");
        let arranged = arrange(&partitions, &host, &vms);
        assert_eq!(arranged.steps, []);
        assert!(arranged.misplaced[0].starts_with("io5 is io and in partition \"default\", where"));
        assert!(arranged.misplaced[1].starts_with("cpu2 is"), "{arranged:?}");
    }

    #[test]
    fn what_is_planned_waits_and_rests() {
        let (mut arranger, s) = (Arranger::default(), Duration::from_secs);
        let arrangement = arrange(&none(), &CpuList::all(8), &mix());
        assert_eq!(arranger.look(&arrangement, s(0)), []);
        assert_eq!(arranger.look(&Arrangement::default(), s(5)), [], "it was a mistake");
        assert_eq!(arranger.look(&arrangement, s(6)), []);
        assert_eq!(arranger.look(&arrangement, s(15)), []);
        assert_eq!(arranger.look(&arrangement, s(16)), arrangement.steps);
        assert_eq!(arranger.look(&arrangement, s(17)), []);
        assert_eq!(arranger.look(&arrangement, s(45)), []);
        assert_eq!(arranger.look(&arrangement, s(46)), arrangement.steps);
    }

    #[test]
    fn demand_that_swings_and_vms_that_come_delay_nothing() {
        let (mut arranger, mut vms, host) = (Arranger::default(), mix(), CpuList::all(8));
        for second in 0..10 {
            // One pCPU for `default`, then two; and a VM more each second.
            vms[0].wanted_pcpus = if second % 2 == 0 { 1.05 } else { 1.15 };
            vms.push(vm(&format!("new{second}"), Class::Cpu, 1.0));
            let arrangement = arrange(&none(), &host, &vms);
            assert_eq!(arranger.look(&arrangement, Duration::from_secs(second)), []);
        }
        let arrangement = arrange(&none(), &host, &vms);
        assert_eq!(arranger.look(&arrangement, Duration::from_secs(10)), arrangement.steps);
    }
}
