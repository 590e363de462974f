// SPDX-License-Identifier: GPL-2.0-only
//! What the VMs of a scenario are owed: what shares, reservations, limits and pools entitle them to.
//!
//! [`drover_core::tree::entitlement`] divides; this file says what a scenario's VMs want of it, from one moment
//! at which that changes to the next.
//!
//! A VM's partition confines it to the pCPUs of that, as its pinning does. That is what it is owed where the
//! partition's policy is `share`; the others come near it.
//!
//! Worked example: 2 pCPUs and three VMs of 1000 shares that can use 0.5, 2 and 8 pCPUs. Each
//! would get 2/3; the first takes only 0.5; the other two share what is left and get 0.75 each.

use crate::scenario::Case;
use crate::vm::Vm;
use crate::workload::Workload;
use drover_core::cpu_list::CpuList;
use drover_core::tree::Affinity;
use drover_core::tree::entitlement::{Leaf, entitle_within};
use drover_core::tree::room::Room;

/// CPU time each VM of a case is owed over a run of `duration_s` on `pcpus` CPUs, s. Follows VMs that
/// start, stop or change their duty.
///
/// None when the demand of one of them is not known beforehand, or none wants anything.
pub fn owed_s(case: &Case, pcpus: u32, duration_s: f64) -> Option<Vec<f64>> {
    let mut owed_s = vec![0.0; case.vms.len()];
    for step in moments(&case.vms, duration_s).windows(2) {
        let (from_s, to_s) = (step[0], step[1]);
        for (owed_s, pcpus) in owed_s.iter_mut().zip(owed_pcpus(case, pcpus, from_s, to_s)?) {
            *owed_s += pcpus * (to_s - from_s);
        }
    }
    (owed_s.iter().sum::<f64>() > 0.0).then_some(owed_s)
}

/// What each is owed while demand stays as it is.
fn owed_pcpus(case: &Case, pcpus: u32, from_s: f64, to_s: f64) -> Option<Vec<f64>> {
    let demand_pcpus = |vm: &Vm| vm.demand_pcpus((from_s + to_s) / 2.0);
    let leaf = |vm: &Vm| {
        let limit_pcpus = vm.limit_pct.map_or(f64::INFINITY, |pct| f64::from(pct) / 100.0);
        Some(Leaf {
            pool: vm.pool.as_deref().and_then(|pool| case.pools.find(pool)),
            shares: vm.shares_of_all().into(),
            reservation_pcpus: f64::from(vm.reservation_pct) / 100.0,
            demand_pcpus: demand_pcpus(vm)?.min(limit_pcpus),
        })
    };
    let leaves = case.vms.iter().map(leaf).collect::<Option<Vec<_>>>()?;
    let host = CpuList::all(pcpus);
    let affinity = |vm: &Vm| {
        let partition = vm.partition.as_deref().and_then(|name| case.partitions.find(name));
        case.partitions.affinity(partition, &vm.affinity(), &host)
    };
    let affinities: Vec<Affinity> = case.vms.iter().map(affinity).collect();
    let of_vcpu = |vm: &Vm| demand_pcpus(vm).map_or(0.0, |pcpus| pcpus / f64::from(vm.vcpus));
    let seats = affinities.iter().zip(case.vms.iter().map(of_vcpu));
    let room = Room::new(&host, seats);
    Some(entitle_within(&case.pools, &leaves, &room).leaves)
}

/// The moments in s, ascending, between which the demand of all VMs stays as it is.
fn moments(vms: &[Vm], duration_s: f64) -> Vec<f64> {
    let mut moments = vec![0.0, duration_s];
    for vm in vms {
        moments.extend(vm.start_s);
        moments.extend(vm.stop_s);
        if let Workload::Cpu { then: Some(then), .. } = &vm.workload {
            moments.push(then.after_s);
        }
    }
    moments.retain(|at_s| (0.0..=duration_s).contains(at_s));
    moments.sort_by(f64::total_cmp);
    moments.dedup();
    moments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::Pin;
    use crate::workload::CpuThen;
    use drover_core::partition::{PartitionPolicy, PartitionSpec, Partitions};
    use drover_core::shares::Shares;
    use drover_core::tree::{PoolSpec, Tree};

    fn assert_near(got: &[f64], expected: &[f64]) {
        assert_eq!(got.len(), expected.len());
        let near = got.iter().zip(expected).all(|(got, expected)| (got - expected).abs() < 1e-6);
        assert!(near, "{got:?} is not {expected:?}");
    }

    #[test]
    fn the_worked_example_of_the_header_holds() {
        let demand = |pct| Vm { demand_pct: Some(pct), vcpus: 8, ..vm(1000, busy()) };
        let vms = [50, 200, 800].map(demand).to_vec();
        let case = Case { vms, ..Case::default() };
        assert_near(&owed_s(&case, 2, 1.0).unwrap(), &[0.5, 0.75, 0.75]);
    }

    fn vm(shares: u32, workload: Workload) -> Vm {
        Vm { shares: Shares::Exact(shares), ..Vm::new(&shares.to_string(), 4, workload) }
    }

    fn owed_pct(vms: &[Vm], pools: Tree) -> Option<Vec<f64>> {
        let case = Case { pools, vms: vms.to_vec(), ..Case::default() };
        let owed_s = owed_s(&case, 4, 4.0)?;
        let total_s: f64 = owed_s.iter().sum();
        Some(owed_s.iter().map(|owed_s| 100.0 * owed_s / total_s).collect())
    }

    fn busy() -> Workload {
        Workload::Cpu { duty_pct: 100, period_us: 10_000, then: None }
    }

    #[test]
    fn seven_to_one_is_owed_as_seven_to_one() {
        let vms = [vm(7000, busy()), vm(1000, busy())];
        assert_near(&owed_pct(&vms, Tree::default()).unwrap(), &[87.5, 12.5]);
    }

    #[test]
    fn a_change_of_demand_in_the_middle_counts_from_then_on() {
        let then = Some(CpuThen { after_s: 2.0, duty_pct: 50 });
        let halving = Workload::Cpu { duty_pct: 100, period_us: 10_000, then };
        let vms = [vm(3000, halving), vm(1000, busy())];
        assert_near(&owed_pct(&vms, Tree::default()).unwrap(), &[62.5, 37.5]);
    }

    #[test]
    fn a_vm_that_starts_late_is_owed_nothing_before() {
        let mut late = vm(1000, busy());
        late.start_s = Some(3.0);
        let owed = owed_pct(&[vm(1000, busy()), late], Tree::default()).unwrap();
        assert_near(&owed, &[87.5, 12.5]);
    }

    #[test]
    fn what_is_owed_is_unknown_beside_unknown_demand() {
        let sleeper = vm(1000, Workload::Sleep { period_us: 2_000, work_us: 0 });
        assert_eq!(owed_pct(&[sleeper, vm(1000, busy())], Tree::default()), None);
        assert_eq!(owed_pct(&[], Tree::default()), None);
    }

    #[test]
    fn a_reservation_lifts_and_a_limit_caps() {
        // Seed 000, figure 4: 1 of 4 pCPUs for the reserved one, 7 others share 3.
        let mut reserved = Vm { vcpus: 1, reservation_pct: 100, ..vm(1000, busy()) };
        let mut vms = vec![Vm { vcpus: 1, ..vm(1000, busy()) }; 8];
        vms[0] = reserved.clone();
        let mut expected = [100.0 * 3.0 / 28.0; 8];
        expected[0] = 25.0;
        assert_near(&owed_pct(&vms, Tree::default()).unwrap(), &expected);
        // Figure 5: 50 of 400 %.
        reserved = Vm { limit_pct: Some(50), ..vm(1000, busy()) };
        let owed = owed_pct(&[reserved, vm(1000, busy())], Tree::default()).unwrap();
        assert_near(&owed, &[12.5, 87.5]);
    }

    #[test]
    fn vms_and_vcpus_have_what_they_are_pinned_to() {
        let list = |text: &str| text.parse::<CpuList>().unwrap();
        let pinned = |pin| Vm { pin: Some(pin), vcpus: 2, ..vm(1000, busy()) };
        let node = |cpus: &str| pinned(Pin::Vm(list(cpus)));
        let owed = owed_pct(&[node("0-1"), node("0-1"), node("2-3")], Tree::default()).unwrap();
        assert_near(&owed, &[25.0, 25.0, 50.0]);
        // One vCPU beside three others on pCPU 0, the other one alone; half busy, it uses half of that.
        let one_to_one = pinned(Pin::Vcpus(vec![list("0"), list("1")]));
        let mut vms = vec![one_to_one, node("0"), node("0"), node("0")];
        vms[0].shares = Shares::Exact(1_000_000);
        let owed =
            |vms: &[Vm]| owed_s(&Case { vms: vms.to_vec(), ..Case::default() }, 4, 1.0).unwrap();
        assert!(owed(&vms)[0] > 1.99, "its shares go over all others'");
        vms[0].workload = Workload::Cpu { duty_pct: 50, period_us: 10_000, then: None };
        assert_near(&owed(&vms), &[1.0, 0.5 / 3.0, 0.5 / 3.0, 0.5 / 3.0]);
    }

    #[test]
    fn vms_have_what_is_in_their_partition() {
        let spec = PartitionSpec {
            name: "io".to_owned(),
            cpus: "3".parse().unwrap(),
            policy: PartitionPolicy::Share,
            slice_ns: None,
        };
        let partitions = Partitions::of(vec![spec]).unwrap();
        let io = |shares| Vm { partition: Some("io".to_owned()), ..vm(shares, busy()) };
        let pinned = Vm { pin: Some(Pin::Vm("3".parse().unwrap())), ..vm(9, busy()) };
        let vms = vec![vm(3000, busy()), vm(1000, busy()), io(9), io(9), pinned];
        let case = Case { partitions, vms, ..Case::default() };
        assert_near(
            &owed_s(&case, 4, 1.0).unwrap(),
            &[2.25, 0.75, 1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0],
        );
    }

    #[test]
    fn pools_divide_before_the_vms_in_them() {
        let spec = |name: &str, shares| PoolSpec { shares, ..PoolSpec::named(name) };
        let specs = [spec("a", Shares::Exact(3000)), spec("b", Shares::Exact(1000))];
        let within = |pool: &str, shares| Vm { pool: Some(pool.to_owned()), ..vm(shares, busy()) };
        let vms = [within("a", 1), within("a", 2), within("b", 9)];
        let owed = owed_pct(&vms, Tree::of(&specs).unwrap()).unwrap();
        assert_near(&owed, &[25.0, 50.0, 25.0]);
        let pin = Some(Pin::Vm(CpuList::all(1)));
        let vms = [Vm { pin, ..within("a", 2) }, within("b", 9)];
        let owed = owed_pct(&vms, Tree::of(&specs).unwrap()).unwrap();
        assert_near(&owed, &[25.0, 75.0]);
    }
}
