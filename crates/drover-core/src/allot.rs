// SPDX-License-Identifier: GPL-2.0-only
//! The allocator: from what everybody asks and wants to the weight everybody is scheduled by.
//!
//! Shares alone say what a VM is owed beside siblings that want all they can get. Reservations, limits, pools, sets of
//! pCPUs, and siblings that want little change that. So while any of these is there, what everyone is owed is worked
//! out ([`crate::tree::weight`]) every [`PERIOD_MS`], or more rarely where that would cost too much, from what the kernel
//! measured. The kernel obeys: each VM's virtual time runs at CPU time received / CPU time owed, in place of shares. The
//! VM that has received the smallest part of what it is owed runs next (seed 000, 2.1: "the ratio of the consumed CPU
//! resources to the entitlement").
//!
//! What a VM wants is guessed from the last period: what it received, and as much again if it waited for as long, or a pCPU
//! for each thread that was never asleep in it, if that is more. Without what it waited for, three light VMs that a wide
//! busy one kept from half of their work would want half as much; the wide one would be owed all it can use, so promised
//! that, and go on.
//!
//! A VM that is owed all that its threads can use, all of them always awake, could never make up for a wait: what it is
//! owed is as good as promised to it, as if it were reserved (policy/share/share.h).
//!
//! Worked example. 4 pCPUs; *a* with 1000 shares and 100 % reserved, seven with 1000, one busy vCPU each. A share is
//! worth 3/7000 pCPUs; *a* is owed 1, as much as 2333 shares bring, the others are weighed as 1000. One of the seven
//! falls asleep: that counts 50 to 100 ms later, a share is worth 3/6000 then.
//!
//! Limitations. It lags by a period or two. A wait counts as a whole in the period in which it ends, so a VM is taken to
//! want twice what it received at most, and one that wants far more is owed that some periods later. Where threads may
//! run the daemon looks every 2 s: until then a VM that was confined anew is weighed by the pCPUs it had.

use crate::cpu_list::CpuList;
use crate::tree::entitlement::{Leaf, entitle_within};
use crate::tree::room::Room;
use crate::tree::weight::weigh_within;
use crate::tree::{Affinity, Tree};
use std::collections::HashMap;

/// So often weights are worked out anew, ms.
pub const PERIOD_MS: u32 = 50;

/// A VM that its limit keeps below its shares is weighed as if the limit were so many times as much. With the weight of
/// the limit itself it would wait behind others whenever it is unthrottled. The token bucket enforces the limit.
const LIMIT_SLACK: f64 = 2.0;
/// What is wanted and owed is known to that part: so little less than all counts as all.
const FULL_PART: f64 = 32.0;
/// Fraction bits of [`Allotment::share_inverse`], SHARE_INVERSE_SHIFT in policy/share/share.h.
pub const INVERSE_SHIFT: u32 = 20;
/// The smallest weight is a share's, divided by that: SHARE_ONE_IN in policy/share/share.h. A thousand VMs in a pool of
/// one share are to have one share together.
const SHARE_ONE_IN: f64 = 128.0;
/// What all of a VM's time at its limit counts as, LIMITED_PARTS in policy/base/types.h.
pub const PARTS: u32 = 1024;
/// What a VM of one vCPU has by default, DROVER_SHARES_PER_VCPU in policy/base/types.h.
pub const SHARES_PER_VCPU: f64 = 1000.0;

/// Who claims CPU time: a VM, a container, or the host's own tasks.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Claim {
    /// The pool it is in; none: the host.
    pub pool: Option<usize>,
    /// Shares among its siblings, as the kernel has them in force.
    pub shares: u32,
    /// What is reserved for it, as it can be kept on the pCPUs there are; thousandths of a pCPU.
    pub reservation_mcpu: u32,
    /// The most it may have; none: no limit.
    pub limit_mcpu: Option<u32>,
    /// Are these the host's own tasks? They have what is reserved for them by weight, and call for no allocator.
    pub host: bool,
}

impl Claim {
    /// That of the host's own tasks, which keep that much for themselves.
    pub const fn of_host(reservation_mcpu: u32) -> Self {
        Self { pool: None, shares: 0, reservation_mcpu, limit_mcpu: None, host: true }
    }

    /// Is it bound by more than shares?
    fn is_bound(&self) -> bool {
        !self.host
            && (self.pool.is_some() || self.reservation_mcpu > 0 || self.limit_mcpu.is_some())
    }
}

/// What the kernel measured of one in the last period.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Demand {
    /// CPU time it received or waited for, pCPUs.
    wanted_pcpus: f64,
    /// Threads that were awake throughout.
    awake: u32,
}

impl Demand {
    /// pCPUs it could use.
    fn pcpus(&self) -> f64 {
        self.wanted_pcpus.max(self.awake.into())
    }
}

/// What the kernel measured of the VM in a slot: `struct measured` in policy/allot/allot.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Measured {
    /// The VM's id; 0: the slot is free, or its VM is in a partition of another policy than `share`.
    pub vm_id: u64,
    /// CPU time of all its threads since its birth.
    pub used_ns: u64,
    /// For how long they waited for other VMs, not for a limit, the same.
    pub waited_ns: u64,
    /// Threads that were awake ever since it was measured last.
    pub awake: u32,
    /// Its shares in force.
    pub shares: u32,
}

/// What one is scheduled by from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allotment {
    /// Its virtual time for each ns of CPU time, in fractions of 2^20: 1000 shares count as 1.
    pub share_inverse: u64,
    /// What it is owed now, should it want all, in millionths of a pCPU; above 0.
    pub entitled_ucpu: u32,
    /// What is promised to it whenever it wants it, thousandths of a pCPU.
    pub promised_mcpu: u32,
    /// Of the time for which a limit holds it, the part for which shares would hold it as well, in [`PARTS`].
    pub shares_part: u32,
}

/// The allotment of the VM in a slot: `struct allotment` in policy/allot/allot.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AllotmentOf {
    /// The VM's id; another VM that has the slot by then is left alone.
    pub vm_id: u64,
    /// What it is scheduled by.
    pub allotment: Allotment,
}

/// Do plain shares not say what everybody is owed?
fn is_needed<'a>(mut claims: impl Iterator<Item = (&'a Claim, &'a Affinity)>) -> bool {
    claims.any(|(claim, affinity)| claim.is_bound() || !affinity.is_anywhere())
}

/// What weights follow from beside demand.
#[derive(Debug, Clone, PartialEq)]
pub struct Basis {
    /// The pools.
    pub tree: Tree,
    /// The pCPUs there are in partitions of policy `share`.
    pub online: CpuList,
    /// Everybody's claim, and where it may run.
    pub claims: Vec<(Claim, Affinity)>,
}

/// Works out weights time after time. What changes rarely is kept from one time to the next.
#[derive(Debug, Default)]
pub struct Allocator {
    meter: Meter,
    known: Option<Known>,
}

/// A basis, and whose.
#[derive(Debug)]
struct Known {
    ids: Vec<u64>,
    tree: Tree,
    claims: Vec<Claim>,
    room: Room,
    is_needed: bool,
}

impl Known {
    fn of(ids: Vec<u64>, basis: Basis) -> Self {
        let Basis { tree, online, claims } = basis;
        assert_eq!(ids.len(), claims.len(), "one claim for each");
        let is_needed = is_needed(claims.iter().map(|(claim, affinity)| (claim, affinity)));
        let room = Room::new(&online, claims.iter().map(|(_, affinity)| (affinity, 1.0)));
        let claims = claims.into_iter().map(|(claim, _)| claim).collect();
        Self { ids, tree, claims, room, is_needed }
    }
}

impl Allocator {
    /// Settings, VMs or where they may run have changed.
    pub fn look_anew(&mut self) {
        self.known = None;
    }

    /// Plain shares are enough, and nothing has changed since that was found: there is no need to measure.
    pub fn is_at_rest(&self) -> bool {
        self.known.as_ref().is_some_and(|known| !known.is_needed)
    }

    /// Allots weights to the measured VMs, by slot; none: plain shares are enough. `look` returns the claims of the VMs
    /// with these ids, in their order.
    pub fn allot(
        &mut self,
        measured: &[Measured],
        now_ns: u64,
        look: impl FnOnce(&[u64]) -> Basis,
    ) -> Option<Vec<AllotmentOf>> {
        let there: Vec<Measured> = measured.iter().copied().filter(|one| one.vm_id != 0).collect();
        let ids: Vec<u64> = there.iter().map(|one| one.vm_id).collect();
        if self.known.as_ref().is_none_or(|known| known.ids != ids) {
            let basis = look(&ids);
            self.known = Some(Known::of(ids, basis));
        }
        let known = self.known.as_mut()?;
        if !known.is_needed {
            return None;
        }
        for (claim, one) in known.claims.iter_mut().zip(&there) {
            claim.shares = one.shares;
        }
        let demands = self.meter.demands(&there, now_ns);
        let claims: Vec<_> = known.claims.iter().copied().zip(demands).collect();
        let mut allotted = allot(&known.tree, &claims, &known.room).into_iter();
        let of = |one: &Measured| {
            let allotment = if one.vm_id == 0 { None } else { allotted.next() };
            AllotmentOf { vm_id: one.vm_id, allotment: allotment.unwrap_or_default() }
        };
        Some(measured.iter().map(of).collect())
    }
}

/// What everybody had used and waited for when it was measured last.
#[derive(Debug, Clone, Default)]
struct Meter {
    at_ns: u64,
    totals_ns: HashMap<u64, (u64, u64)>,
}

impl Meter {
    /// What those that were measured now wanted since the last time, in the same order.
    fn demands(&mut self, measured: &[Measured], now_ns: u64) -> Vec<Demand> {
        let before = std::mem::take(&mut self.totals_ns);
        let passed_ns = now_ns.saturating_sub(std::mem::replace(&mut self.at_ns, now_ns));
        let totals = |one: &Measured| (one.vm_id, (one.used_ns, one.waited_ns));
        self.totals_ns = measured.iter().map(totals).collect();
        let demand = |one: &Measured| {
            let (used, waited) =
                before.get(&one.vm_id).copied().unwrap_or((one.used_ns, one.waited_ns));
            // A thread that is just being charged counts twice for a moment.
            let used_ns = one.used_ns.saturating_sub(used);
            let wanted_ns = used_ns + one.waited_ns.saturating_sub(waited).min(used_ns);
            let wanted_pcpus =
                if passed_ns == 0 { 0.0 } else { wanted_ns as f64 / passed_ns as f64 };
            Demand { wanted_pcpus, awake: one.awake }
        };
        measured.iter().map(demand).collect()
    }
}

/// The weight of each who claims CPU time in that tree; `room` says which pCPUs each may use.
fn allot(tree: &Tree, claims: &[(Claim, Demand)], room: &Room) -> Vec<Allotment> {
    let leaf = |(claim, demand): &(Claim, Demand)| Leaf {
        pool: claim.pool,
        shares: claim.shares.max(1).into(),
        reservation_pcpus: pcpus(claim.reservation_mcpu),
        demand_pcpus: demand.pcpus().min(room.pcpus()).min(limit_pcpus(claim)),
    };
    let leaves: Vec<Leaf> = claims.iter().map(leaf).collect();
    let weights = weigh_within(tree, &leaves, room);
    let each = claims.iter().zip(&weights.leaves);
    let mut allotted: Vec<Allotment> =
        each.map(|(claim, weight)| of_one(claim, *weight, weights.per_share, room)).collect();
    if tree.is_limited() || claims.iter().any(|(claim, _)| claim.limit_mcpu.is_some()) {
        let parts = shares_parts(tree, claims, &leaves, &weights.owed.leaves, room);
        allotted.iter_mut().zip(parts).for_each(|(one, part)| one.shares_part = part);
    }
    allotted
}

/// Of the time for which each waits at a limit, what it would wait without any: of what it wants and is not owed, what
/// it would not be owed without limits either.
fn shares_parts(
    tree: &Tree,
    claims: &[(Claim, Demand)],
    leaves: &[Leaf],
    owed: &[f64],
    room: &Room,
) -> Vec<u32> {
    let wanted = |(_, demand): &(Claim, Demand)| demand.pcpus().min(room.pcpus());
    let wanted: Vec<f64> = claims.iter().map(wanted).collect();
    let free = |(leaf, wanted): (&Leaf, &f64)| Leaf { demand_pcpus: *wanted, ..*leaf };
    let free: Vec<Leaf> = leaves.iter().zip(&wanted).map(free).collect();
    let without = entitle_within(&tree.without_limits(), &free, room).leaves;
    let part = |((wanted, owed), without): ((&f64, &f64), f64)| {
        let lacks = wanted - owed;
        if lacks <= 0.0 { 0.0 } else { ((wanted - without) / lacks).clamp(0.0, 1.0) }
    };
    let parts = wanted.iter().zip(owed).zip(without).map(part);
    parts.map(|part| whole(part * f64::from(PARTS))).collect()
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to its range")]
fn of_one(
    (claim, demand): &(Claim, Demand),
    weight: f64,
    per_share: f64,
    room: &Room,
) -> Allotment {
    let limit = limit_pcpus(claim);
    let kept = pcpus(claim.reservation_mcpu);
    let weight = weight.max(kept).min(LIMIT_SLACK * limit);
    let entitled = weight.min(limit);
    let one = f64::from(1u32 << INVERSE_SHIFT);
    let inverse = SHARES_PER_VCPU * per_share / weight * one;
    let usable = f64::from(demand.awake).min(room.pcpus());
    let nearly = usable - usable / FULL_PART;
    let is_full = usable > 0.0 && entitled >= nearly && demand.pcpus() >= nearly;
    let as_promised = if is_full && !claim.host { entitled.min(usable) } else { 0.0 };
    // The host's own tasks have theirs by weight.
    let kept = if claim.host { 0.0 } else { kept };
    let promised = whole(kept.max(as_promised) * 1e3);
    Allotment {
        share_inverse: inverse.clamp(1.0, SHARES_PER_VCPU * SHARE_ONE_IN * one) as u64,
        entitled_ucpu: whole(entitled * 1e6).max(1),
        promised_mcpu: promised.max(u32::from(kept > 0.0)),
        shares_part: 0,
    }
}

fn limit_pcpus(claim: &Claim) -> f64 {
    claim.limit_mcpu.map_or(f64::INFINITY, pcpus)
}

fn pcpus(mcpu: u32) -> f64 {
    f64::from(mcpu) / 1e3
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to its range")]
fn whole(number: f64) -> u32 {
    number.clamp(0.0, f64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::PoolSpec;

    const BUSY: Demand = Demand { wanted_pcpus: 0.5, awake: 1 };

    fn claim(shares: u32) -> Claim {
        Claim { shares, ..Claim::default() }
    }

    fn on_4(tree: &Tree, claims: &[(Claim, Demand)]) -> Vec<Allotment> {
        let anywhere = Affinity::ANYWHERE;
        let room = Room::new(&CpuList::all(4), claims.iter().map(|_| (&anywhere, 1.0)));
        allot(tree, claims, &room)
    }

    /// As so many shares.
    fn counts_as(allotment: &Allotment) -> f64 {
        1000.0 * f64::from(1 << 20) / allotment.share_inverse as f64
    }

    #[test]
    fn the_worked_example_of_the_header_holds() {
        let mut claims = vec![(claim(1000), BUSY); 8];
        claims[0].0.reservation_mcpu = 1000;
        let allotted = on_4(&Tree::default(), &claims);
        assert!((counts_as(&allotted[0]) - 7000.0 / 3.0).abs() < 0.1);
        assert!((counts_as(&allotted[1]) - 1000.0).abs() < 0.1);
        assert_eq!(allotted[0].promised_mcpu, 1000);
        assert_eq!(allotted[1].promised_mcpu, 0);
        assert_eq!((allotted[0].entitled_ucpu, allotted[1].entitled_ucpu), (1_000_000, 428_571));
    }

    #[test]
    fn a_limit_holds_only_what_shares_would_not() {
        let parts = |limit_mcpu: u32| -> Vec<u32> {
            let spec = PoolSpec { limit_mcpu: Some(limit_mcpu), ..PoolSpec::named("p") };
            let tree = Tree::of(&[spec]).unwrap();
            let busy = Demand { wanted_pcpus: 1.0, awake: 4 };
            let claims = [(Claim { pool: Some(0), ..claim(1000) }, busy); 3];
            on_4(&tree, &claims).iter().map(|one| one.shares_part).collect()
        };
        // Each wants 4 and has 2/3; without the limit 4/3: of 10/3 that it lacks shares hold 8/3.
        assert_eq!(parts(2000), [819; 3]);
        assert_eq!(parts(4000), [1024; 3]);
        let alone = Claim { limit_mcpu: Some(500), ..claim(1000) };
        let busy = Demand { wanted_pcpus: 0.5, awake: 4 };
        assert_eq!(on_4(&Tree::default(), &[(alone, busy)])[0].shares_part, 0);
    }

    #[test]
    fn who_is_owed_all_it_can_use_is_promised_that() {
        let wide = Demand { wanted_pcpus: 2.0, awake: 4 };
        let claims = [(claim(2000), BUSY), (claim(3000), wide)];
        let promised = |claims: &[(Claim, Demand)]| -> Vec<u32> {
            let allotted = on_4(&Tree::default(), claims);
            allotted.iter().map(|allotment| allotment.promised_mcpu).collect()
        };
        assert_eq!(promised(&claims), [1000, 0]);
        let host = Claim { host: true, ..claim(2000) };
        assert_eq!(promised(&[(host, BUSY), claims[1]]), [0, 0]);
        let twice = Demand { wanted_pcpus: 1.0, awake: 2 };
        assert_eq!(promised(&[(claim(2000), twice), claims[1]]), [0, 0], "1.6 of 2");
        // 98 parts of a hundred of 4 pCPUs: as good as all.
        assert_eq!(promised(&[(claim(4900), wide), (claim(100), wide)]), [3920, 0]);
        let asleep = Demand { wanted_pcpus: 1.0, awake: 0 };
        assert_eq!(promised(&[(claim(2000), asleep), claims[1]]), [0, 0]);
    }

    #[test]
    fn the_host_is_owed_its_reservation_beside_vms_that_want_all() {
        let wide = Demand { wanted_pcpus: 2.0, awake: 4 };
        let big = Claim { reservation_mcpu: 3600, ..claim(4000) };
        let owed = |host_mcpu| {
            let host = Claim { shares: 4000, ..Claim::of_host(host_mcpu) };
            let mut claims = vec![(host, wide), (big, wide)];
            claims.extend([(claim(4000), wide); 9]);
            on_4(&Tree::default(), &claims)[0].entitled_ucpu
        };
        assert!(owed(0) < 50_000, "a tenth of what one VM leaves");
        assert_eq!(owed(400), 400_000);
        let anywhere = Affinity::ANYWHERE;
        assert!(!is_needed([(&Claim::of_host(400), &anywhere)].into_iter()));
    }

    #[test]
    fn a_limit_bounds_what_is_owed_and_twice_that_the_weight() {
        let limited = Claim { limit_mcpu: Some(500), ..claim(1000) };
        let wide = Demand { wanted_pcpus: 2.0, awake: 4 };
        let allotted = on_4(&Tree::default(), &[(limited, wide), (claim(1000), wide)]);
        assert_eq!(allotted[0].entitled_ucpu, 500_000);
        assert!((counts_as(&allotted[0]) / counts_as(&allotted[1]) - 1.0 / 3.5).abs() < 1e-3);
    }

    #[test]
    fn what_a_pools_limit_leaves_is_dealt_to_who_wants_it() {
        let pool = PoolSpec { limit_mcpu: Some(1000), ..PoolSpec::named("p") };
        let tree = Tree::of(&[pool]).unwrap();
        let inside = Claim { pool: Some(0), ..claim(1000) };
        let wide = Demand { wanted_pcpus: 0.5, awake: 4 };
        let entitled = |claims: &[(Claim, Demand)]| -> Vec<u32> {
            on_4(&tree, claims).iter().map(|allotment| allotment.entitled_ucpu).collect()
        };
        assert_eq!(entitled(&[(inside, wide), (inside, wide)]), [500_000; 2]);
        assert_eq!(entitled(&[(inside, wide), (inside, Demand::default())]), [1_000_000; 2]);
    }

    #[test]
    fn numbers_stay_in_range_whatever_is_asked() {
        let all = Claim { reservation_mcpu: 4000, ..claim(1_000_000) };
        let claims = [(all, BUSY), (claim(1), BUSY), (claim(0), Demand::default())];
        for allotment in on_4(&Tree::default(), &claims) {
            assert!((1..=128_000 << 20).contains(&allotment.share_inverse));
            assert!(allotment.entitled_ucpu > 0);
        }
        assert_eq!(on_4(&Tree::default(), &[]), []);
    }

    #[test]
    fn a_host_with_shares_only_needs_none_of_it() {
        let (plain, anywhere) = (claim(1000), Affinity::ANYWHERE);
        assert!(!is_needed([(&plain, &anywhere)].into_iter()));
        let confined = Affinity::within(CpuList::all(1));
        assert!(is_needed([(&plain, &confined)].into_iter()));
        let reserved = Claim { reservation_mcpu: 1, ..plain };
        assert!(is_needed([(&plain, &anywhere), (&reserved, &anywhere)].into_iter()));
    }

    #[test]
    fn what_was_used_and_waited_for_counts_from_the_second_time_on() {
        let mut meter = Meter::default();
        let one = |vm_id, used_ns, waited_ns| Measured {
            vm_id,
            used_ns,
            waited_ns,
            awake: 1,
            shares: 1000,
        };
        let wanted = |demands: Vec<Demand>| -> Vec<f64> {
            demands.iter().map(|demand| demand.wanted_pcpus).collect()
        };
        assert_eq!(wanted(meter.demands(&[one(1, 900, 70)], 1000)), [0.0]);
        let both = [one(1, 950, 90), one(2, 500, 0)];
        assert_eq!(wanted(meter.demands(&both, 1100)), [0.7, 0.0]);
        let long = [one(1, 960, 490), one(2, 500, 0)];
        assert_eq!(wanted(meter.demands(&long, 1200)), [0.2, 0.0], "a wait that began long before");
        assert_eq!(wanted(meter.demands(&[one(2, 490, 0)], 1200)), [0.0], "no time, no pace");
    }

    /// 6 pCPUs, a reservation, a wide busy VM, and three light ones that want 0.4 each, have half of that and wait for
    /// the rest.
    #[test]
    fn light_vms_that_wait_are_not_taken_to_want_less() {
        let light = (claim(2000), Demand { wanted_pcpus: 0.4, awake: 0 });
        let reserved = Claim { reservation_mcpu: 1000, ..claim(2000) };
        let claims = [
            light,
            light,
            light,
            (reserved, Demand { wanted_pcpus: 1.4, awake: 0 }),
            (claim(4000), Demand { wanted_pcpus: 4.0, awake: 4 }),
        ];
        let anywhere = Affinity::ANYWHERE;
        let room = Room::new(&CpuList::all(6), claims.iter().map(|_| (&anywhere, 1.0)));
        let allotted = allot(&Tree::default(), &claims, &room);
        assert_eq!(allotted[4].promised_mcpu, 0, "the wide one is owed less than all it can use");
        assert!(allotted[0].entitled_ucpu >= 400_000);
    }

    #[test]
    fn slots_that_nobody_has_are_passed_over() {
        let mut allocator = Allocator::default();
        let one = |vm_id, shares| Measured { vm_id, used_ns: 0, waited_ns: 0, awake: 4, shares };
        let measured = [one(7, 3000), one(0, 9), one(8, 1000)];
        let basis = |reservation_mcpu| {
            move |ids: &[u64]| {
                assert_eq!(ids, [7, 8]);
                let claims = [reservation_mcpu, 0].map(|reservation_mcpu| {
                    (Claim { reservation_mcpu, ..claim(0) }, Affinity::ANYWHERE)
                });
                Basis { tree: Tree::default(), online: CpuList::all(4), claims: claims.into() }
            }
        };
        let allotted = allocator.allot(&measured, 1, basis(100)).unwrap();
        let ids: Vec<u64> = allotted.iter().map(|of| of.vm_id).collect();
        assert_eq!(ids, [7, 0, 8]);
        let entitled = |at: usize| allotted[at].allotment.entitled_ucpu;
        assert_eq!((entitled(0), entitled(1), entitled(2)), (3_000_000, 0, 1_000_000));
        let same = |_: &[u64]| -> Basis { panic!("nothing has changed") };
        assert!(allocator.allot(&measured, 2, same).is_some());
        assert!(!allocator.is_at_rest());
        allocator.look_anew();
        assert!(!allocator.is_at_rest());
        assert!(allocator.allot(&measured, 3, basis(0)).is_none());
        assert!(allocator.is_at_rest());
    }
}
