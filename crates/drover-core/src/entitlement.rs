// SPDX-License-Identifier: GPL-2.0-only
//! What the VMs of a scenario are owed: what shares, reservations, limits and pools entitle them to.
//!
//! CPU time is poured over the VMs in proportion to their shares, from what is reserved for each
//! upwards; a VM that can or may use no more, or whose CPUs are full, is set aside and the rest is
//! poured over the others. Where there are pools, [`crate::tree::entitlement`] does it, level by level.
//!
//! Worked example: 2 pCPUs and three VMs of 1000 shares that can use 0.5, 2 and 8 pCPUs. Each
//! would get 2/3; the first takes only 0.5; the other two share what is left and get 0.75 each.

use crate::scenario::{Case, CpuList, Vm, Workload};
use crate::tree::entitlement::{Leaf, Part, entitle, level};
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
    /// It gets at least this, as far as it wants it, pCPUs.
    pub reservation_pcpus: f64,
    /// The most it can and may use, pCPUs.
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

/// CPU time each VM of a case is owed over a run of `duration_s` on `pcpus` CPUs, s. Follows VMs that
/// start, stop or change their duty.
///
/// None when the demand of one of them is not known beforehand, none wants anything, or VMs are both
/// pinned and in pools.
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
    let demand_pcpus = |vm: &Vm| {
        let limit_pcpus = vm.limit_pct.map_or(f64::INFINITY, |pct| f64::from(pct) / 100.0);
        Some(vm.demand_pcpus((from_s + to_s) / 2.0)?.min(limit_pcpus))
    };
    let reservation_pcpus = |vm: &Vm| f64::from(vm.reservation_pct) / 100.0;
    if case.pools.pools().is_empty() {
        let claim = |vm: &Vm| {
            Some(Claim {
                shares: vm.shares.into(),
                reservation_pcpus: reservation_pcpus(vm),
                demand_pcpus: demand_pcpus(vm)?,
                cpus: vm.pin.clone().unwrap_or_else(|| CpuList::all(pcpus)),
            })
        };
        return divide(&case.vms.iter().map(claim).collect::<Option<Vec<_>>>()?);
    }
    if case.vms.iter().any(|vm| vm.pin.is_some()) {
        return None;
    }
    let leaf = |vm: &Vm| {
        Some(Leaf {
            pool: vm.pool.as_deref().and_then(|pool| case.pools.find(pool)),
            shares: vm.shares.into(),
            reservation_pcpus: reservation_pcpus(vm),
            demand_pcpus: demand_pcpus(vm)?,
        })
    };
    let leaves = case.vms.iter().map(leaf).collect::<Option<Vec<_>>>()?;
    Some(entitle(&case.pools, &leaves, pcpus.into()).leaves)
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
    let parts = parts(claims, &bounds);
    let mut granted = vec![0.0; claims.len()];
    let mut open: Vec<bool> = claims.iter().map(|claim| claim.demand_pcpus > 0.0).collect();
    // Each round closes at least one claim, so there are at most as many rounds as claims.
    while open.contains(&true) {
        let level = common_level(&parts, &bounds, &granted, &open);
        for index in (0..claims.len()).filter(|&index| open[index]) {
            granted[index] = parts[index].at(level);
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

/// The claims with what is reserved for them, as far as the CPUs they may use have it.
fn parts(claims: &[&Claim], bounds: &[Bound]) -> Vec<Part> {
    let floor = |claim: &Claim| claim.reservation_pcpus.min(claim.demand_pcpus);
    let part = |(index, claim): (usize, &&Claim)| {
        let of_it = bounds.iter().filter(|bound| bound.members[index]);
        let kept = of_it.map(|bound| {
            let members = claims.iter().zip(&bound.members).filter(|(_, member)| **member);
            let reserved: f64 = members.map(|(claim, _)| floor(claim)).sum();
            if reserved > bound.pcpus { bound.pcpus / reserved } else { 1.0 }
        });
        let floor = floor(claim) * kept.fold(1.0, f64::min);
        Part { shares: claim.shares, floor, want: claim.demand_pcpus }
    };
    claims.iter().enumerate().map(part).collect()
}

/// How far the open claims can rise together, in pCPUs per share, until the first of them has all
/// it can use or a bound is met.
fn common_level(parts: &[Part], bounds: &[Bound], granted: &[f64], open: &[bool]) -> f64 {
    let demands = parts.iter().zip(open).filter(|(_, open)| **open);
    let by_demand = demands.map(|(part, _)| part.want / part.shares);
    let by_bound = bounds.iter().map(|bound| {
        let members = || (0..parts.len()).filter(|&index| bound.members[index]);
        let closed_pcpus: f64 = members().filter(|&it| !open[it]).map(|it| granted[it]).sum();
        let open: Vec<Part> = members().filter(|&it| open[it]).map(|it| parts[it]).collect();
        level(&open, (bound.pcpus - closed_pcpus).max(0.0))
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
    use crate::shares::Shares;
    use crate::tree::{PoolSpec, Tree};
    use proptest::prelude::*;

    fn claim(shares: f64, demand_pcpus: f64, cpus: &str) -> Claim {
        Claim { shares, reservation_pcpus: 0.0, demand_pcpus, cpus: cpus.parse().unwrap() }
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
        let (reservation_pct, limit_pct, pool, cosched) = (0, None, None, None);
        Vm {
            name,
            vcpus: 4,
            shares,
            reservation_pct,
            limit_pct,
            pool,
            cosched,
            vmm,
            memory_mib,
            pin,
            demand_pct,
            start_s,
            stop_s,
            workload,
        }
    }

    fn owed_pct(vms: &[Vm], pools: Tree) -> Option<Vec<f64>> {
        let case = Case { name: "all".to_owned(), ple: false, pools, vms: vms.to_vec() };
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
    fn reservations_hold_among_pinned_vms_as_far_as_their_cpus_go() {
        let reserved = Claim { reservation_pcpus: 0.8, ..claim(1000.0, 1.0, "0") };
        let claims = [reserved.clone(), claim(1000.0, 4.0, "0-1")];
        assert_near(&divide(&claims).unwrap(), &[1.0, 1.0]);
        let claims = [reserved.clone(), claim(9000.0, 1.0, "0")];
        assert_near(&divide(&claims).unwrap(), &[0.8, 0.2]);
        assert_near(&divide(&[reserved.clone(), reserved]).unwrap(), &[0.5, 0.5]);
    }

    #[test]
    fn pools_divide_before_the_vms_in_them() {
        let spec = |name: &str, shares| PoolSpec { shares, ..PoolSpec::named(name) };
        let specs = [spec("a", Shares::Exact(3000)), spec("b", Shares::Exact(1000))];
        let within = |pool: &str, shares| Vm { pool: Some(pool.to_owned()), ..vm(shares, busy()) };
        let vms = [within("a", 1), within("a", 2), within("b", 9)];
        let owed = owed_pct(&vms, Tree::of(&specs).unwrap()).unwrap();
        assert_near(&owed, &[25.0, 50.0, 25.0]);
        let pinned = Vm { pin: Some(CpuList::all(1)), ..within("a", 1) };
        assert_eq!(owed_pct(&[pinned], Tree::of(&specs).unwrap()), None);
    }

    fn unpinned() -> impl Strategy<Value = (u32, Vec<Claim>)> {
        let claims = prop::collection::vec((1u32..100_000, 0.0..8.0f64), 1..20);
        (1u32..16, claims).prop_map(|(pcpus, claims)| {
            let cpus = CpuList::all(pcpus);
            let claim = |(shares, demand_pcpus): (u32, f64)| Claim {
                shares: shares.into(),
                reservation_pcpus: 0.0,
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
        fn without_pins_it_is_what_a_tree_without_pools_gives(
            (pcpus, claims) in unpinned(), reserved in 0.0..0.2f64,
        ) {
            let reserve = |claim: &Claim| Claim { reservation_pcpus: reserved, ..claim.clone() };
            let claims: Vec<Claim> = claims.iter().map(reserve).collect();
            let leaf = |claim: &Claim| Leaf {
                pool: None,
                shares: claim.shares,
                reservation_pcpus: claim.reservation_pcpus,
                demand_pcpus: claim.demand_pcpus,
            };
            let leaves: Vec<Leaf> = claims.iter().map(leaf).collect();
            let owed = entitle(&Tree::default(), &leaves, pcpus.into()).leaves;
            for (divided, owed) in divide(&claims).unwrap().iter().zip(owed) {
                prop_assert!((divided - owed).abs() < 1e-6, "{divided} {owed}");
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
