// SPDX-License-Identifier: GPL-2.0-only
//! `drover partition auto`: a partition for VMs that do I/O, sized and filled by their profiles (profile.rs).
//!
//! Idea, after seed 001: where VMs that do I/O wait behind VMs that compute, each event waits for others' slices, and
//! the link is never full. On pCPUs of their own, with short slices and a policy that lets who is about to do I/O go
//! on, they do not. So on a host that is crowded, with VMs of both kinds, the partition `auto-io` gets as many pCPUs
//! as these VMs want, and a tenth; the others keep the rest. Where nobody waits, or all VMs are alike, there is nothing
//! to gain, and it is taken away again.
//!
//! Worked example. Eight pCPUs; six VMs that compute and want 1 each, four that do I/O and want 0.6 each: 8.4 in all.
//! `auto-io` gets 2.4 + 10 %, so 3 pCPUs, 5-7, and these four. At the next look they want 2.3: it keeps its 3, as
//! long as that is not a whole pCPU too many or any too few.
//!
//! Who is idle, mixed or without a profile stays where it is: it is in nobody's way. A VM in `auto-io` that computes
//! is misplaced there, and one that does I/O elsewhere is; both are put right, and keep their pool and shares.
//!
//! Limitations. Only `auto-io` and VMs in it or in `default` are touched; other partitions are somebody's choice. Who
//! has a reservation, is kept together by a mode of its own, or is confined to pCPUs stays in `default`. NUMA nodes
//! are not looked at: the pCPUs are those of the highest numbers.

use crate::partition::{PartitionPolicy, PartitionSpec};
use crate::profile::Profile;
use crate::scenario::CpuList;

/// What the partition is called.
pub const AUTO: &str = "auto-io";
const DEFAULT: &str = crate::asked::DEFAULT;
/// How long a VM in it runs before others are asked again, ns: seed 001's short slice.
const SLICE_NS: u64 = 3_000_000;
/// A host is crowded where VMs want that part of its pCPUs, or more.
const CROWDED: f64 = 0.9;
/// What the partition has beyond what its VMs want.
const ROOM: f64 = 1.1;

/// A VM, as far as that depends on it.
#[derive(Debug, Clone, PartialEq)]
pub struct AutoVm {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub partition: String,
    /// What it mostly does; none: not known yet.
    pub profile: Option<Profile>,
    /// pCPUs it used or waited for lately.
    pub wants_pcpus: f64,
    /// Why it cannot leave `default`; none: it can.
    pub tied: Option<&'static str>,
}

/// One order of those that lead there.
#[derive(Debug, Clone, PartialEq)]
pub enum AutoOrder {
    /// The partition is made, or gets these pCPUs.
    Shape(PartitionSpec),
    /// The VM goes into that partition.
    Move {
        /// Which.
        vm: String,
        /// Where to.
        to: &'static str,
    },
    /// The partition goes; nobody is in it any more.
    Remove,
}

/// What would be done, and why.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Auto {
    /// In this order.
    pub orders: Vec<AutoOrder>,
    /// Each in a line.
    pub why: Vec<String>,
}

/// What is to be done on a host with these pCPUs online, partitions and VMs.
pub fn auto(online: &CpuList, partitions: &[PartitionSpec], vms: &[AutoVm]) -> Auto {
    let now = partitions.iter().find(|it| it.name == AUTO);
    let taken = |cpu: &u32| partitions.iter().any(|it| it.name != AUTO && it.cpus.contains(*cpu));
    // Of `default` and `auto-io` together.
    let pcpus: Vec<u32> = online.cpus().iter().copied().filter(|cpu| !taken(cpu)).collect();
    let ours = |vm: &&AutoVm| vm.partition == DEFAULT || vm.partition == AUTO;
    let vms: Vec<&AutoVm> = vms.iter().filter(ours).collect();
    let mut auto = Auto::default();
    let size = size(&pcpus, now, &vms, &mut auto.why);
    if size == 0 {
        give_up(now, &vms, &mut auto);
        return auto;
    }
    let cpus = cpus(&pcpus, now, size);
    if now.is_none_or(|now| now.cpus != cpus) {
        auto.orders.push(AutoOrder::Shape(PartitionSpec {
            name: AUTO.to_owned(),
            cpus,
            policy: PartitionPolicy::Anticipatory,
            slice_ns: Some(SLICE_NS),
        }));
    }
    vms.iter().for_each(|vm| put_right(vm, &mut auto));
    auto
}

fn does_io(vm: &AutoVm) -> bool {
    vm.profile == Some(Profile::Io)
}

fn computes(vm: &AutoVm) -> bool {
    matches!(vm.profile, Some(Profile::Cpu | Profile::Memory))
}

/// How many pCPUs the partition should have; 0: it brings nothing.
fn size(
    pcpus: &[u32],
    now: Option<&PartitionSpec>,
    vms: &[&AutoVm],
    why: &mut Vec<String>,
) -> usize {
    let wants = |which: &dyn Fn(&AutoVm) -> bool| -> f64 {
        vms.iter().filter(|vm| which(vm)).fold(0.0, |sum, vm| sum + vm.wants_pcpus)
    };
    let (all, io) = (wants(&|_| true), wants(&|vm| does_io(vm) && vm.tied.is_none()));
    let (has, nr_io) = (pcpus.len(), vms.iter().filter(|vm| does_io(vm)).count());
    let nr_cpu = vms.iter().filter(|vm| computes(vm)).count();
    #[allow(clippy::cast_precision_loss, reason = "pCPUs of a host")]
    let crowded = all >= CROWDED * has as f64;
    if !crowded || nr_io == 0 || nr_cpu == 0 || io <= 0.0 || has < 2 {
        let wanted = format!("VMs want {all:.1} of {has} pCPUs");
        let kinds = format!("{nr_io} VMs do I/O, {nr_cpu} compute");
        why.push(format!("no partition is worth it: {wanted}; {kinds}"));
        return 0;
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few pCPUs")]
    let needed = (io * ROOM).ceil().max(1.0) as usize;
    // Nobody who computes is left without a pCPU.
    let needed = needed.min(has - 1);
    let kept =
        now.map_or(0, |now| now.cpus.cpus().iter().filter(|cpu| pcpus.contains(cpu)).count());
    let keeps = kept >= needed && kept <= needed + 1 && kept < has;
    let size = if keeps { kept } else { needed };
    why.push(format!(
        "{nr_io} VMs do I/O and want {io:.1} pCPUs: {size} of {has}; VMs want {all:.1} in all, and {nr_cpu} compute"
    ));
    size
}

/// Those that it has as far as they go, and then the ones with the highest numbers.
fn cpus(pcpus: &[u32], now: Option<&PartitionSpec>, size: usize) -> CpuList {
    let has = |cpu: &u32| now.is_some_and(|now| now.cpus.contains(*cpu));
    let (mut first, rest): (Vec<u32>, Vec<u32>) = pcpus.iter().rev().copied().partition(has);
    first.extend(rest);
    CpuList::of(first.into_iter().take(size)).expect("it has one at least")
}

fn put_right(vm: &AutoVm, auto: &mut Auto) {
    let is_inside = vm.partition == AUTO;
    let name = &vm.name;
    match (does_io(vm), vm.tied) {
        (true, Some(tied)) if !is_inside => {
            auto.why.push(format!("VM {name} does I/O and stays in {DEFAULT}: it {tied}"));
        }
        (true, _) if !is_inside => {
            auto.why.push(format!("VM {name} does I/O among VMs that compute"));
            auto.orders.push(AutoOrder::Move { vm: name.clone(), to: AUTO });
        }
        (false, _) if is_inside && computes(vm) => {
            auto.why.push(format!("VM {name} computes among VMs that do I/O"));
            auto.orders.push(AutoOrder::Move { vm: name.clone(), to: DEFAULT });
        }
        _ => {}
    }
}

/// Who is in the partition goes back, and it goes.
fn give_up(now: Option<&PartitionSpec>, vms: &[&AutoVm], auto: &mut Auto) {
    if now.is_none() {
        return;
    }
    for vm in vms.iter().filter(|vm| vm.partition == AUTO) {
        auto.orders.push(AutoOrder::Move { vm: vm.name.clone(), to: DEFAULT });
    }
    auto.orders.push(AutoOrder::Remove);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(name: &str, profile: Profile, wants_pcpus: f64) -> AutoVm {
        AutoVm {
            name: name.to_owned(),
            partition: DEFAULT.to_owned(),
            profile: Some(profile),
            wants_pcpus,
            tied: None,
        }
    }

    /// The essay's worked example.
    fn crowd() -> Vec<AutoVm> {
        let cpu = (0..6).map(|i| vm(&format!("cpu{i}"), Profile::Cpu, 1.0));
        cpu.chain((0..4).map(|i| vm(&format!("io{i}"), Profile::Io, 0.6))).collect()
    }

    fn spec(cpus: &str) -> PartitionSpec {
        PartitionSpec {
            name: AUTO.to_owned(),
            cpus: cpus.parse().unwrap(),
            policy: PartitionPolicy::Anticipatory,
            slice_ns: Some(SLICE_NS),
        }
    }

    fn done(auto: &Auto, partitions: &mut Vec<PartitionSpec>, vms: &mut [AutoVm]) {
        for order in &auto.orders {
            match order {
                AutoOrder::Shape(shape) => {
                    partitions.retain(|it| it.name != AUTO);
                    partitions.push(shape.clone());
                }
                AutoOrder::Move { vm, to } => {
                    let moved = vms.iter_mut().find(|it| it.name == *vm).unwrap();
                    moved.partition = (*to).to_owned();
                }
                AutoOrder::Remove => {
                    assert!(vms.iter().all(|vm| vm.partition != AUTO), "somebody is in it");
                    partitions.retain(|it| it.name != AUTO);
                }
            }
        }
    }

    #[test]
    fn vms_that_do_io_get_pcpus_of_their_own_and_then_nothing_changes() {
        let (online, mut partitions, mut vms) = (CpuList::all(8), Vec::new(), crowd());
        let first = auto(&online, &partitions, &vms);
        assert_eq!(first.orders[0], AutoOrder::Shape(spec("5-7")));
        assert_eq!(first.orders.len(), 5, "{first:?}");
        done(&first, &mut partitions, &mut vms);
        for wants in [0.6, 0.5, 0.65, 0.6] {
            vms[6..].iter_mut().for_each(|vm| vm.wants_pcpus = wants);
            assert_eq!(auto(&online, &partitions, &vms).orders, [], "{wants}");
        }
        vms[6..].iter_mut().for_each(|vm| vm.wants_pcpus = 1.0);
        assert_eq!(auto(&online, &partitions, &vms).orders, [AutoOrder::Shape(spec("3-7"))]);
    }

    #[test]
    fn who_is_misplaced_is_put_right_and_others_stay() {
        let mut vms = crowd();
        vms[0].partition = AUTO.to_owned();
        vms[6..].iter_mut().for_each(|vm| vm.partition = AUTO.to_owned());
        vms.push(AutoVm { partition: AUTO.to_owned(), ..vm("build", Profile::Mixed, 0.1) });
        vms.push(AutoVm { tied: Some("has a reservation"), ..vm("db", Profile::Io, 0.1) });
        let plan = auto(&CpuList::all(8), &[spec("5-7")], &vms);
        assert_eq!(plan.orders, [AutoOrder::Move { vm: "cpu0".to_owned(), to: DEFAULT }]);
        assert!(plan.why.iter().any(|line| line.contains("db does I/O and stays")), "{plan:?}");
    }

    #[test]
    fn without_a_crowd_of_both_kinds_there_is_no_partition() {
        let online = CpuList::all(8);
        let few: Vec<AutoVm> = crowd().into_iter().skip(4).collect();
        assert_eq!(auto(&online, &[], &few).orders, []);
        let alike: Vec<AutoVm> = (0..9).map(|i| vm(&format!("io{i}"), Profile::Io, 1.0)).collect();
        assert_eq!(auto(&online, &[], &alike).orders, []);
        // What is there goes, with nobody in it.
        let mut vms = few;
        vms[2..].iter_mut().for_each(|vm| vm.partition = AUTO.to_owned());
        let mut partitions = vec![spec("5-7")];
        let plan = auto(&online, &partitions, &vms);
        done(&plan, &mut partitions, &mut vms);
        assert_eq!((plan.orders.len(), partitions.len()), (5, 0));
    }

    #[test]
    fn others_partitions_are_left_alone() {
        let mut other = spec("6-7");
        other.name = "db".to_owned();
        let mut vms = crowd();
        vms.push(AutoVm { partition: "db".to_owned(), ..vm("io9", Profile::Io, 1.0) });
        let plan = auto(&CpuList::all(8), &[other], &vms);
        assert_eq!(plan.orders[0], AutoOrder::Shape(spec("3-5")));
        assert_eq!(plan.orders.len(), 5);
        // All its pCPUs gone offline, it gets others.
        let plan = auto(&"0-4".parse().unwrap(), &[spec("5-7")], &crowd());
        assert_eq!(plan.orders[0], AutoOrder::Shape(spec("2-4")));
    }
}
