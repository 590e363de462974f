// SPDX-License-Identifier: GPL-2.0-only
//! What shares entitle VMs to.
//!
//! CPU time is poured over the VMs in proportion to their shares; a VM that can use no more, or
//! whose CPUs are full, is set aside and the rest is poured over the others.
//!
//! Worked example: 2 pCPUs and three VMs of 1000 shares that can use 0.5, 2 and 8 pCPUs. Each
//! would get 2/3; the first takes only 0.5; the other two share what is left and get 0.75 each.

use crate::scenario::{CpuList, Vm, Workload};
use std::collections::BTreeSet;

/// Overlapping sets of pinned CPUs beyond which [`divide`] gives up: it looks at all their unions.
const PIN_SETS_MAX: usize = 12;

/// Amounts of CPU closer than this are the same, in pCPUs.
const TOLERANCE: f64 = 1e-9;

/// One who wants CPU time.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// Relative weight, above 0.
    pub shares: f64,
    /// The most it can use, pCPUs.
    pub demand_pcpus: f64,
    /// The CPUs it may use.
    pub cpus: CpuList,
}

/// Divides CPUs among claims by shares: for each claim its part, in pCPUs.
///
/// None when more than a dozen sets of pinned CPUs overlap: the answer is then not worth its cost.
pub fn divide(claims: &[Claim]) -> Option<Vec<f64>> {
    let mut granted = vec![0.0; claims.len()];
    for group in overlapping(claims) {
        let members: Vec<&Claim> = group.iter().map(|&index| &claims[index]).collect();
        for (index, amount) in group.iter().zip(divide_overlapping(&members)?) {
            granted[*index] = amount;
        }
    }
    Some(granted)
}

/// What each VM is owed over a run of `duration_s` on `pcpus` CPUs, in % of the CPU time that all
/// are owed together, as results.json has it. Follows VMs that start, stop or change their duty.
///
/// None when the demand of one of them is not known beforehand, or none wants anything.
pub fn share_owed_pct(vms: &[Vm], pcpus: u32, duration_s: f64) -> Option<Vec<f64>> {
    let mut owed_s = vec![0.0; vms.len()];
    for step in moments(vms, duration_s).windows(2) {
        let (from_s, to_s) = (step[0], step[1]);
        let claim = |vm: &Vm| {
            Some(Claim {
                shares: vm.shares.into(),
                demand_pcpus: vm.demand_pcpus((from_s + to_s) / 2.0)?,
                cpus: vm.pin.clone().unwrap_or_else(|| CpuList::all(pcpus)),
            })
        };
        let claims: Vec<Claim> = vms.iter().map(claim).collect::<Option<_>>()?;
        for (owed_s, granted) in owed_s.iter_mut().zip(divide(&claims)?) {
            *owed_s += granted * (to_s - from_s);
        }
    }
    let total_s: f64 = owed_s.iter().sum();
    (total_s > 0.0).then(|| owed_s.iter().map(|owed_s| 100.0 * owed_s / total_s).collect())
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

/// Claims, by index, in groups of those whose CPUs overlap, directly or through others.
fn overlapping(claims: &[Claim]) -> Vec<Vec<usize>> {
    let mut groups: Vec<(BTreeSet<u32>, Vec<usize>)> = Vec::new();
    for (index, claim) in claims.iter().enumerate() {
        let mut cpus: BTreeSet<u32> = claim.cpus.cpus().iter().copied().collect();
        let mut members = vec![index];
        groups.retain(|(other_cpus, others)| {
            let apart = other_cpus.is_disjoint(&cpus);
            if !apart {
                cpus.extend(other_cpus);
                members.extend(others);
            }
            apart
        });
        groups.push((cpus, members));
    }
    groups.into_iter().map(|(_, members)| members).collect()
}

/// A bound on some claims together: those confined to these CPUs cannot use more of them than
/// there are.
struct Bound {
    members: Vec<bool>,
    pcpus: f64,
}

/// [`divide`] for claims whose CPUs overlap.
fn divide_overlapping(claims: &[&Claim]) -> Option<Vec<f64>> {
    let bounds = bounds(claims)?;
    let mut granted = vec![0.0; claims.len()];
    let mut open: Vec<bool> = claims.iter().map(|claim| claim.demand_pcpus > 0.0).collect();
    // Each round closes at least one claim, so there are at most as many rounds as claims.
    while open.contains(&true) {
        let level = level(claims, &bounds, &granted, &open);
        for index in (0..claims.len()).filter(|&index| open[index]) {
            granted[index] = (claims[index].shares * level).min(claims[index].demand_pcpus);
        }
        for (index, claim) in claims.iter().enumerate() {
            open[index] &= granted[index] + TOLERANCE < claim.demand_pcpus;
        }
        for bound in bounds.iter().filter(|bound| used(bound, &granted) + TOLERANCE > bound.pcpus) {
            open.iter_mut().zip(&bound.members).for_each(|(open, member)| *open &= !member);
        }
    }
    Some(granted)
}

/// How far the open claims can rise together, in pCPUs per share, until the first of them has all
/// it can use or a bound is met.
fn level(claims: &[&Claim], bounds: &[Bound], granted: &[f64], open: &[bool]) -> f64 {
    let demands = claims.iter().zip(open).filter(|(_, open)| **open);
    let by_demand = demands.map(|(claim, _)| claim.demand_pcpus / claim.shares);
    let by_bound = bounds.iter().filter_map(|bound| {
        let (mut closed_pcpus, mut open_shares) = (0.0, 0.0);
        for index in (0..claims.len()).filter(|&index| bound.members[index]) {
            if open[index] {
                open_shares += claims[index].shares;
            } else {
                closed_pcpus += granted[index];
            }
        }
        (open_shares > 0.0).then(|| (bound.pcpus - closed_pcpus).max(0.0) / open_shares)
    });
    by_demand.chain(by_bound).fold(f64::INFINITY, f64::min)
}

/// What the claims under a bound use, pCPUs.
fn used(bound: &Bound, granted: &[f64]) -> f64 {
    granted.iter().zip(&bound.members).filter(|(_, member)| **member).map(|(used, _)| used).sum()
}

/// The bounds on overlapping claims, one for each union of their sets of CPUs (by Hall's theorem
/// nothing else binds); none when there are too many sets.
fn bounds(claims: &[&Claim]) -> Option<Vec<Bound>> {
    let sets: BTreeSet<&CpuList> = claims.iter().map(|claim| &claim.cpus).collect();
    if sets.len() > PIN_SETS_MAX {
        return None;
    }
    let mut unions: BTreeSet<BTreeSet<u32>> = BTreeSet::new();
    for set in sets {
        let set: BTreeSet<u32> = set.cpus().iter().copied().collect();
        let with_set: Vec<_> = unions.iter().map(|union| union | &set).collect();
        unions.extend(with_set);
        unions.insert(set);
    }
    let within = |claim: &&Claim, union: &BTreeSet<u32>| {
        claim.cpus.cpus().iter().all(|cpu| union.contains(cpu))
    };
    let bound = |union: BTreeSet<u32>| Bound {
        members: claims.iter().map(|claim| within(claim, &union)).collect(),
        pcpus: union.len() as f64,
    };
    Some(unions.into_iter().map(bound).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{CpuThen, Vmm};
    use proptest::prelude::*;

    fn claim(shares: f64, demand_pcpus: f64, cpus: &str) -> Claim {
        Claim { shares, demand_pcpus, cpus: cpus.parse().unwrap() }
    }

    fn assert_near(got: &[f64], expected: &[f64]) {
        assert_eq!(got.len(), expected.len());
        let near = got.iter().zip(expected).all(|(got, expected)| (got - expected).abs() < 1e-6);
        assert!(near, "{got:?} is not {expected:?}");
    }

    #[test]
    fn the_worked_example_of_the_header_holds() {
        let claims = [0.5, 2.0, 8.0].map(|demand| claim(1000.0, demand, "0-1"));
        assert_near(&divide(&claims).unwrap(), &[0.5, 0.75, 0.75]);
    }

    #[test]
    fn a_vm_of_one_vcpu_gets_its_third_of_two_pcpus() {
        let claims = [1.0, 2.0, 8.0].map(|demand| claim(1000.0, demand, "0-1"));
        assert_near(&divide(&claims).unwrap(), &[2.0 / 3.0; 3]);
    }

    #[test]
    fn pinned_vms_share_the_cpus_they_are_pinned_to() {
        // The two on CPU 0 get half of it each, however heavy; the third has the rest.
        let heavy = claim(9000.0, 4.0, "0");
        let claims = [heavy.clone(), heavy, claim(1000.0, 4.0, "0-3")];
        assert_near(&divide(&claims).unwrap(), &[0.5, 0.5, 3.0]);
        let apart = [claim(1000.0, 4.0, "0"), claim(9000.0, 4.0, "1-2")];
        assert_near(&divide(&apart).unwrap(), &[1.0, 2.0]);
    }

    #[test]
    fn too_many_overlapping_sets_are_declined_and_separate_ones_are_not() {
        let pinned = |cpu: u32| claim(1.0, 1.0, &cpu.to_string());
        let separate: Vec<Claim> = (0..64).map(pinned).collect();
        assert_near(&divide(&separate).unwrap(), &[1.0; 64]);
        let mut joined = separate;
        joined.push(claim(1.0, 64.0, "0-63"));
        assert_eq!(divide(&joined), None);
    }

    fn vm(shares: u32, workload: Workload) -> Vm {
        let (name, vmm, memory_mib) = (shares.to_string(), Vmm::Micro, Vm::MEMORY_MIB);
        let (pin, demand_pct, start_s, stop_s) = (None, None, None, None);
        Vm { name, vcpus: 4, shares, vmm, memory_mib, pin, demand_pct, start_s, stop_s, workload }
    }

    fn busy() -> Workload {
        Workload::Cpu { duty_pct: 100, period_us: 10_000, then: None }
    }

    #[test]
    fn seven_to_one_is_owed_as_seven_to_one() {
        let vms = [vm(7000, busy()), vm(1000, busy())];
        assert_near(&share_owed_pct(&vms, 4, 4.0).unwrap(), &[87.5, 12.5]);
    }

    #[test]
    fn a_change_of_demand_in_the_middle_counts_from_then_on() {
        let then = Some(CpuThen { after_s: 2.0, duty_pct: 50 });
        let halving = Workload::Cpu { duty_pct: 100, period_us: 10_000, then };
        let vms = [vm(3000, halving), vm(1000, busy())];
        assert_near(&share_owed_pct(&vms, 4, 4.0).unwrap(), &[62.5, 37.5]);
    }

    #[test]
    fn a_vm_that_starts_late_is_owed_nothing_before() {
        let mut late = vm(1000, busy());
        late.start_s = Some(3.0);
        let owed = share_owed_pct(&[vm(1000, busy()), late], 4, 4.0).unwrap();
        assert_near(&owed, &[87.5, 12.5]);
    }

    #[test]
    fn what_is_owed_is_unknown_beside_unknown_demand() {
        let sleeper = vm(1000, Workload::Sleep { period_us: 2_000, work_us: 0 });
        assert_eq!(share_owed_pct(&[sleeper, vm(1000, busy())], 4, 4.0), None);
        assert_eq!(share_owed_pct(&[], 4, 4.0), None);
    }

    fn unpinned() -> impl Strategy<Value = (u32, Vec<Claim>)> {
        let claims = prop::collection::vec((1u32..100_000, 0.0..8.0f64), 1..20);
        (1u32..16, claims).prop_map(|(pcpus, claims)| {
            let cpus = CpuList::all(pcpus);
            let claim = |(shares, demand_pcpus): (u32, f64)| Claim {
                shares: shares.into(),
                demand_pcpus,
                cpus: cpus.clone(),
            };
            (pcpus, claims.into_iter().map(claim).collect())
        })
    }

    proptest! {
        #[test]
        fn all_that_is_wanted_and_there_is_given((pcpus, claims) in unpinned()) {
            let wanted: f64 = claims.iter().map(|claim| claim.demand_pcpus).sum();
            let given: f64 = divide(&claims).unwrap().iter().sum();
            prop_assert!((given - wanted.min(pcpus.into())).abs() < 1e-6);
        }

        #[test]
        fn nobody_gets_more_than_it_can_use((_, claims) in unpinned()) {
            for (claim, granted) in claims.iter().zip(divide(&claims).unwrap()) {
                prop_assert!(granted <= claim.demand_pcpus + 1e-9);
            }
        }

        #[test]
        fn those_left_wanting_get_by_their_shares((_, claims) in unpinned()) {
            let granted = divide(&claims).unwrap();
            let rate = |index: usize| granted[index] / claims[index].shares;
            let wanting = (0..claims.len())
                .filter(|&index| granted[index] + 1e-6 < claims[index].demand_pcpus);
            let highest = (0..claims.len()).map(rate).fold(0.0, f64::max);
            for index in wanting {
                prop_assert!((rate(index) - highest).abs() <= 1e-6 * highest.max(1e-9));
            }
        }

        #[test]
        fn pinned_claims_fit_the_cpus_they_may_use(
            sets in prop::collection::vec(prop::collection::btree_set(0u32..6, 1..4), 1..8),
        ) {
            let list = |set: &BTreeSet<u32>| {
                let cpus: Vec<String> = set.iter().map(u32::to_string).collect();
                cpus.join(",")
            };
            let claims: Vec<Claim> = sets.iter().map(|set| claim(1.0, 2.0, &list(set))).collect();
            let granted = divide(&claims).unwrap();
            for chosen in 0u32..1 << 6 {
                let inside = |set: &BTreeSet<u32>| set.iter().all(|cpu| chosen >> cpu & 1 == 1);
                let of_chosen = granted.iter().zip(&sets).filter(|(_, set)| inside(set));
                let used: f64 = of_chosen.map(|(granted, _)| granted).sum();
                prop_assert!(used <= f64::from(chosen.count_ones()) + 1e-6);
            }
        }
    }
}
