// SPDX-License-Identifier: GPL-2.0-only
//! What everyone got and wanted lately, and what they were owed for it.

use crate::kernel::KernelVm;
use crate::plan::Plan;
use drover_core::cpu_list::CpuList;
use drover_core::tree::entitlement::{Leaf, Owed, entitle_within};
use drover_core::tree::room::Room;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Rates are taken over at least this long.
const INTERVAL: Duration = Duration::from_secs(1);

/// What a VM got and wanted, pCPUs.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rate {
    /// CPU time it used.
    pub got_pcpus: f64,
    /// CPU time it used or waited for.
    pub wanted_pcpus: f64,
    /// %RDY: time its threads were ready and neither ran nor were co-stopped, summed over them.
    pub ready_pct: f64,
    /// What shares for each vCPU count, at the end.
    pub size: u32,
}

/// Two readings of all VMs, some time apart.
#[derive(Debug, Default)]
pub struct Meter {
    from: Option<(Instant, Vec<KernelVm>)>,
    rates: HashMap<u64, Rate>,
}

impl Meter {
    /// Takes a reading of these, in the order of slots, when the last one is old enough.
    pub fn look(&mut self, vms: &[KernelVm], now: Instant) {
        let passed = self.from.as_ref().map(|(at, _)| now.duration_since(*at));
        if passed.is_some_and(|passed| passed < INTERVAL) {
            return;
        }
        if let (Some((_, before)), Some(passed)) = (&self.from, passed) {
            let rate = |vm: &KernelVm| Some((vm.id, rate(vm.found_in(before)?, vm, passed)));
            self.rates.clear();
            self.rates.extend(vms.iter().filter_map(rate));
        }
        self.from = Some((now, vms.to_vec()));
    }

    /// When the last reading was taken.
    pub fn taken_at(&self) -> Option<Instant> {
        self.from.as_ref().map(|(at, _)| *at)
    }

    /// What a VM got and wanted; none until that is known.
    pub fn rate(&self, id: u64) -> Option<Rate> {
        self.rates.get(&id).copied()
    }

    /// What all in the plan are owed for what they wanted, on these pCPUs.
    pub fn owed(&self, plan: &Plan, pcpus: &CpuList) -> Owed {
        let leaf = |vm: &crate::plan::PlannedVm| {
            let limit = vm.resolved.limit_mcpu.map_or(f64::INFINITY, |mcpu| f64::from(mcpu) / 1e3);
            let rate = self.rate(vm.id).unwrap_or_default();
            Leaf {
                pool: vm.resolved.pool,
                shares: vm.resolved.shares.of_vm(rate.size).into(),
                reservation_pcpus: f64::from(vm.reservation_mcpu) / 1e3,
                demand_pcpus: rate.wanted_pcpus.min(limit),
            }
        };
        let leaves: Vec<Leaf> = plan.vms.iter().map(leaf).collect();
        let room = Room::new(pcpus, plan.vms.iter().map(|vm| (&vm.affinity, 1.0)));
        entitle_within(&plan.tree, &leaves, &room)
    }
}

fn rate(before: &KernelVm, after: &KernelVm, passed: Duration) -> Rate {
    let since = |figure: fn(&KernelVm) -> u64| figure(after).saturating_sub(figure(before));
    let used_ns = since(|vm| vm.vcpu_run_ns) + since(|vm| vm.helper_run_ns);
    let waited_ns = since(|vm| vm.ready_ns);
    #[allow(clippy::cast_precision_loss, reason = "rates need no more than 52 bits")]
    let pcpus = |ns: u64| ns as f64 / passed.as_nanos() as f64;
    let wanted_pcpus = pcpus(used_ns + waited_ns);
    // A co-stop is booked when it ends.
    let ready_pct = 100.0 * pcpus(waited_ns.saturating_sub(since(|vm| vm.costop_ns)));
    Rate { got_pcpus: pcpus(used_ns), wanted_pcpus, ready_pct, size: after.size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_last_second_or_so() {
        let (mut meter, begun) = (Meter::default(), Instant::now());
        let vm = |vcpu_run_ns, ready_ns| {
            vec![KernelVm { vcpu_run_ns, ready_ns, ..KernelVm::for_test(1) }]
        };
        meter.look(&vm(0, 0), begun);
        assert_eq!(meter.rate(1), None);
        meter.look(&vm(500_000_000, 0), begun + Duration::from_millis(500));
        assert_eq!(meter.rate(1), None, "too early");
        meter.look(&vm(1_500_000_000, 500_000_000), begun + Duration::from_secs(1));
        let rate = Rate { got_pcpus: 1.5, wanted_pcpus: 2.0, ready_pct: 50.0, size: 2 };
        assert_eq!(meter.rate(1), Some(rate));
        meter.look(&vm(0, 0), begun + Duration::from_secs(2));
        assert_eq!(
            meter.rate(1),
            Some(Rate { size: 2, ..Rate::default() }),
            "counters never run backwards"
        );
    }

    #[test]
    fn what_is_ready_and_co_stopped_is_not_ready_a_second_time() {
        let before = KernelVm::for_test(1);
        let after = KernelVm { ready_ns: 900_000_000, costop_ns: 400_000_000, ..before };
        assert_eq!(rate(&before, &after, Duration::from_secs(2)).ready_pct, 25.0);
        let late = KernelVm { ready_ns: 1, costop_ns: 400_000_000, ..before };
        assert_eq!(rate(&before, &late, Duration::from_secs(1)).ready_pct, 0.0);
    }
}
