// SPDX-License-Identifier: GPL-2.0-only
//! In calm trials time divides by shares, reservations and pools; among VMs that are confined, to sets that
//! overlap or not, as [`drover_core::tree::entitlement`] says.
//!
//! A VM that runs its vCPUs together or not at all leaves pCPUs idle where it does not fit: the host
//! has less to give than its pCPUs, all have less than they would be owed, and narrow VMs have what is
//! left over besides. What should hold nonetheless, where stopped time is paid back: the least served VM A
//! waits only while the others, with no more than it for each of their shares, are in its way. If A
//! needs w pCPUs at once they hold more than P - w of the P; at least Q, the smallest such number that
//! gangs and single vCPUs add up to. Let V be what A has for each share. Then
//!
//! ```text
//! (part of the time A waits) * Q <= sum over the others of min(vCPUs, shares * V)
//! ```
//!
//! and the least V for which this is true gives what A has at least. A VM whose vCPUs run one by one
//! waits with any of them only while all P are held, some by itself: Q is P, and what A has is added
//! on the right. Nobody has more than is left by what all others have at least.
//!
//! One thing is not known: how VMs stand to each other of which one is owed more than its vCPUs can
//! use, and the other needs some of the pCPUs that one runs on. The first falls behind for ever, the
//! policy bounds its claim, and what it has then follows from that bound (policy/share/share.h).
//!
//! Worked example. Two VMs of one weight on two pCPUs, A a gang of two, B of one vCPU. For A, Q is 1:
//! 1 - V / 2 <= V, so V is 2/3, and so much both really have. B, owed all that its vCPU can use, is one
//! of those of which it is not known.

use super::script::{Divided, Script, ScriptVm};
use crate::machine::TaskId;
use crate::scx::{Scx, tree_of};
use crate::sim::Sim;
use drover_core::cpu_list::CpuList;
use drover_core::partition::PartitionPolicy;
use drover_core::settings::Cosched;
use drover_core::tree::Affinity;
use drover_core::tree::entitlement::{Leaf, entitle_within};
use drover_core::tree::room::Room;

/// Beyond this the wait bound bends shares (policy/guarantee/wait_bound.h), and so no exact ones are asked.
const SHARES_RATIO_MAX: f64 = 20.0;
/// What VMs want is known so long after they were found (`drover_core::allot`).
const SETTLED_NS: u64 = 100_000_000;
/// Of what is worked out for VMs that may be held. In one such trial of a hundred somebody has less than all of
/// it, by up to two fifths; whether the working out or the policy is wrong there is not known
/// (docs/simulator.md, "Open").
const KEPT_PART: f64 = 0.5;

/// When shares are looked at: a while after all threads are known to be their VMs'. Until then they
/// are tasks of the host, and wait their turn as those do.
#[derive(Debug, Default)]
pub(super) struct Calm {
    all_found_ns: Option<u64>,
    /// From then on, and what each VM had had.
    begin: Option<(u64, Vec<u64>)>,
}

impl Calm {
    pub(super) fn look(&mut self, sim: &Sim<Scx>) {
        let attached = |task| sim.class.policy.thread(task).slot != 0;
        if self.all_found_ns.is_none() && (0..sim.m.tasks.len() as TaskId).all(attached) {
            self.all_found_ns = Some(sim.m.now_ns);
        }
        let settled = self.all_found_ns.is_some_and(|at_ns| sim.m.now_ns - at_ns >= SETTLED_NS);
        if settled && self.begin.is_none() {
            let had_ns = (0..sim.vms.len()).map(|vm| had_ns(sim, vm)).collect();
            self.begin = Some((sim.m.now_ns, had_ns));
        }
    }

    /// Each VM had what it is owed, within what one slice too many makes.
    pub(super) fn shares_hold(&self, sim: &Sim<Scx>, script: &Script) -> Result<(), String> {
        let (Some((begin_ns, before_ns)), Some(owed)) = (&self.begin, owed(script)) else {
            return Ok(());
        };
        let held = script.vms.iter().any(ScriptVm::may_be_held);
        let divided = script.partitions();
        let run_s = (sim.m.now_ns - begin_ns) as f64 / 1e9;
        for (vm, (owed_pcpus, asked)) in owed.iter().zip(&script.vms).enumerate() {
            // Other policies promise something else.
            if divided.policies[divided.of_vm[vm] as usize] != PartitionPolicy::Share {
                continue;
            }
            let got_s = (had_ns(sim, vm) - before_ns[vm]) as f64 / 1e9;
            let least_s = run_s
                * if held { KEPT_PART * least_pcpus(script, vm, *owed_pcpus) } else { *owed_pcpus };
            // Six slices, which end at a tick, for each of its threads, and 3 % for long runs. What is owed
            // as much as it can use never makes up for that.
            let tick_ns = sim.m.costs.tick_interval_ns;
            let slice_ns = sim.class.delay_host(&sim.m, vm as u32).slice_ns;
            let slice_ns = slice_ns.next_multiple_of(tick_ns);
            let threads = f64::from(asked.threads.min(script.host.pcpus()));
            let slack_s = 6.0 * slice_ns as f64 / 1e9 * threads + 0.03 * least_s + 0.030;
            if got_s < least_s - slack_s || !held && got_s > least_s + slack_s {
                let what = if held { "owed at least" } else { "owed" };
                let confined = if asked.pin.is_some() { ", confined" } else { "" };
                return Err(format!(
                    "VM {vm} of {} shares, {}{confined} got {got_s:.3} s of CPU, is {what} {least_s:.3} s +- {slack_s:.3}",
                    asked.shares, asked.bounds.cosched,
                ));
            }
        }
        Ok(())
    }
}

/// What every VM is owed, pCPUs, when all are busy; none where the wait bound bends shares.
fn owed(script: &Script) -> Option<Vec<f64>> {
    // Beside a thread of a core that nobody may use time costs more: what is used follows from who ran there.
    if script.host.threads == 2 && script.vms.iter().any(|vm| vm.pin.is_some()) {
        return None;
    }
    let (tree, places) = tree_of(&script.pools);
    // All are busy: where cores have two threads each pays with 5/8 of what it uses.
    let paid = if script.host.threads == 2 { 0.625 } else { 1.0 };
    let divided = script.partitions();
    // Who may run nowhere in its partition takes something of others'.
    if divided.of_vm.iter().any(|of| !divided.of_cpu.contains(of)) {
        return None;
    }
    // Pools are of `default` only, reservations of policy `share`.
    let promises = |partition: u32| divided.policies[partition as usize] == PartitionPolicy::Share;
    let leaf = |(vm, &partition): (&ScriptVm, &u32)| Leaf {
        pool: places[vm.bounds.pool as usize].filter(|_| partition == 0),
        shares: f64::from(vm.shares),
        reservation_pcpus: match promises(partition) {
            true => f64::from(vm.bounds.reservation_mcpu) / 1000.0 / paid,
            false => 0.0,
        }
        .min(f64::from(vm.threads)),
        demand_pcpus: f64::from(vm.threads),
    };
    let leaves: Vec<Leaf> = script.vms.iter().zip(&divided.of_vm).map(leaf).collect();
    // What a partition cannot hold shrinks. Reservations are admitted by pCPUs; busy threads of a core cannot pay them
    // all (docs/specification.md, 5.7).
    let is_full = |partition: u32| {
        let of_vms = leaves.iter().zip(&divided.of_vm).filter(|(_, of)| **of == partition);
        let promised: f64 = of_vms.map(|(leaf, _)| leaf.reservation_pcpus).sum();
        promised > divided.of_cpu.iter().filter(|&&of| of == partition).count() as f64
    };
    if (0..divided.policies.len() as u32).any(is_full) {
        return None;
    }
    let owed = entitle_within(&tree, &leaves, &room(script, &divided)).leaves;
    let per_thread = |weight: fn(&ScriptVm, f64) -> f64| {
        let each = script.vms.iter().zip(&owed);
        let each = each.map(move |(vm, &owed)| weight(vm, owed) / f64::from(vm.threads));
        each.clone().fold(0.0, f64::max) / each.fold(f64::MAX, f64::min)
    };
    let bent = per_thread(|vm, _| f64::from(vm.shares)) > SHARES_RATIO_MAX
        || per_thread(|_, owed| owed) > SHARES_RATIO_MAX;
    (!bent).then_some(owed)
}

/// The host's pCPUs, and which of them each VM may use.
fn room(script: &Script, divided: &Divided) -> Room {
    let pcpus = script.host.pcpus();
    let affinity = |(vm, &partition): (&ScriptVm, &u32)| {
        let own = |cpu: &u32| divided.of_cpu[*cpu as usize] == partition;
        let cpus: Vec<String> =
            vm.may_use(pcpus).iter().filter(own).map(|cpu| cpu.to_string()).collect();
        Affinity::within(cpus.join(",").parse().expect("a list of numbers"))
    };
    let all = CpuList::all(pcpus);
    let each = script.vms.iter().zip(&divided.of_vm);
    let affinities: Vec<Affinity> = each.map(|each| affinity(each).on(&all)).collect();
    Room::new(&all, affinities.iter().map(|affinity| (affinity, 1.0)))
}

/// What that VM has at least where some may be held for their siblings, pCPUs.
fn least_pcpus(script: &Script, vm: usize, owed: f64) -> f64 {
    let asked = &script.vms[vm];
    let pcpus = f64::from(script.host.pcpus());
    let in_the_way = match asked.may_be_held() {
        true => least_in_the_way(script, vm),
        false => Some(script.host.pcpus()),
    };
    if owed >= f64::from(asked.threads) && is_needed_by_a_wide_one(script, vm) {
        return 0.0;
    }
    // Nobody is ever in its way.
    let Some(in_the_way) = in_the_way.map(f64::from) else { return owed };
    let most = |vm: &ScriptVm, level: f64| f64::from(vm.threads).min(f64::from(vm.shares) * level);
    let too_low = |level: f64| {
        let has = most(asked, level).min(pcpus);
        let others = script.vms.iter().enumerate().filter(|(other, _)| *other != vm);
        let others_have: f64 = others.map(|(_, other)| most(other, level)).sum();
        match asked.may_be_held() {
            true => (1.0 - has / pcpus.min(asked.threads.into())) * in_the_way > others_have,
            false => (1.0 - has / f64::from(asked.threads)) * in_the_way > has + others_have,
        }
    };
    // At this level a VM of one share has the whole host.
    let (mut low, mut high) = (0.0, pcpus);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if too_low(middle) { low = middle } else { high = middle }
    }
    most(asked, high).min(owed)
}

/// Does another that starts its vCPUs together not fit beside that VM?
fn is_needed_by_a_wide_one(script: &Script, vm: usize) -> bool {
    let pcpus = script.host.pcpus();
    let fits = |other: &ScriptVm| other.threads + script.vms[vm].threads <= pcpus;
    let mut others = script.vms.iter().enumerate().filter(|(other, _)| *other != vm);
    others.any(|(_, other)| other.may_be_held() && !fits(other))
}

/// How many pCPUs others hold at least while that VM does not fit beside them; none: it always does.
fn least_in_the_way(script: &Script, vm: usize) -> Option<u32> {
    let pcpus = script.host.pcpus();
    let held = |vm: &ScriptVm| vm.threads.min(pcpus);
    // How many pCPUs some of the others may hold together.
    let mut sums = vec![false; pcpus as usize + 1];
    sums[0] = true;
    for (_, other) in script.vms.iter().enumerate().filter(|(other, _)| *other != vm) {
        // Only a gang runs all together or not at all; those of other modes, each by itself.
        let (step, steps) = match other.bounds.cosched {
            Cosched::Gang => (held(other), 1),
            _ => (1, held(other)),
        };
        for _ in 0..steps {
            for sum in (step as usize..sums.len()).rev() {
                sums[sum] |= sums[sum - step as usize];
            }
        }
    }
    let room = pcpus - held(&script.vms[vm]);
    (room + 1..=pcpus).find(|&sum| sums[sum as usize])
}

/// All that threads of the VM had.
fn had_ns(sim: &Sim<Scx>, vm: usize) -> u64 {
    sim.tasks_of(vm as u32).map(|task| sim.m.cpu_time_now_ns(task)).sum()
}

#[cfg(test)]
mod tests {
    use super::super::Shape;
    use super::*;
    use crate::class::VmBounds;

    fn script(cores: u32, vms: &[(u32, Cosched)]) -> Script {
        let mut script = Script::of_seed(0);
        script.host = Shape { dies: 1, cores, threads: 1, cores_of: Vec::new() };
        (script.pools, script.faults) = (Vec::new(), Vec::new());
        script.vms.truncate(1);
        let model = script.vms.pop().expect("there is one");
        let vm = |&(threads, cosched): &(u32, Cosched)| ScriptVm {
            threads,
            shares: 1000,
            pin: None,
            bounds: VmBounds { cosched, ..VmBounds::default() },
            ..model.clone()
        };
        script.vms = vms.iter().map(vm).collect();
        script
    }

    fn least(script: &Script) -> Vec<f64> {
        let owed = owed(script).expect("shares are alike");
        (0..script.vms.len()).map(|vm| least_pcpus(script, vm, owed[vm])).collect()
    }

    fn alike(have: &[f64], want: &[f64]) {
        assert_eq!(have.len(), want.len());
        for (have, want) in have.iter().zip(want) {
            assert!((have - want).abs() < 1e-6, "{have} is not {want}");
        }
    }

    #[test]
    fn a_gang_beside_one_thread_has_two_thirds() {
        alike(&least(&script(2, &[(2, Cosched::Gang), (1, Cosched::Off)])), &[2.0 / 3.0, 0.0]);
    }

    #[test]
    fn vms_confined_to_sets_that_overlap_are_owed_by_shares_over_these() {
        let mut script = script(4, &[(4, Cosched::Auto); 4]);
        for (vm, pin) in script.vms.iter_mut().zip([vec![0, 1], vec![1, 2], vec![2, 3], Vec::new()])
        {
            vm.pin = Some(pin);
        }
        alike(&owed(&script).expect("shares are alike"), &[1.0; 4]);
        script.vms[3].shares = 3000;
        alike(&owed(&script).expect("shares are alike"), &[2.0 / 3.0, 2.0 / 3.0, 2.0 / 3.0, 2.0]);
    }

    #[test]
    fn nothing_is_known_where_busy_threads_cannot_pay_what_is_reserved() {
        let mut script = script(2, &[(4, Cosched::Auto); 2]);
        script.host.threads = 2;
        script.vms[0].bounds.reservation_mcpu = 1500;
        assert!(owed(&script).is_some());
        script.vms[1].bounds.reservation_mcpu = 1100;
        assert!(owed(&script).is_none());
    }

    #[test]
    fn who_fits_beside_all_others_has_all_it_wants() {
        alike(&least(&script(4, &[(2, Cosched::Gang), (2, Cosched::Strict)])), &[2.0, 2.0]);
    }

    #[test]
    fn two_as_wide_as_the_host_have_half_of_it() {
        alike(&least(&script(4, &[(4, Cosched::Gang), (4, Cosched::Gang)])), &[2.0, 2.0]);
        // Strict ones begin one by one: each waits while the other has one pCPU.
        alike(&least(&script(4, &[(4, Cosched::Strict), (4, Cosched::Strict)])), &[0.8, 0.8]);
    }
}
