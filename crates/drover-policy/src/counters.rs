// SPDX-License-Identifier: GPL-2.0-only
//! What the policy counted, in the units in which it is shown.

use crate::{COSCHED_RELAXED, COSCHED_SKEW, COSCHED_STRICT, vcpu, vm};
use drover_core::counters::{Counters, Yields};

/// What was counted of a VM. What it is guaranteed the policy does not know.
pub fn counters(vm: &vm) -> Counters {
    let used_ns = vm.counters.vcpu_run_ns + vm.counters.helper_run_ns;
    Counters {
        progressed_s: Some(seconds(vm.pressure.progressed_ns)),
        hazard_s: Some(seconds(vm.pressure.hazard_ns)),
        costop_s: seconds(vm.skew.costop_ns),
        costops: vm.skew.nr_costops,
        costarts: vm.skew.nr_costarts,
        used_s: Some(seconds(used_ns)),
        charged_s: Some(seconds(used_ns.saturating_sub(vm.counters.smt_discount_ns))),
        limited_s: Some(seconds(vm.counters.limited_ns)),
        yields: Some(Yields {
            asked: vm.counters.yields_asked,
            granted: vm.counters.yields_granted,
            throttled: vm.counters.yields_throttled,
            wasted: vm.counters.yields_wasted,
        }),
        skew_max_ms: skew_max_ms(vm.cosched_mode, vm.skew.max_ns),
        longest_ready_ms: Some(ms(vm.counters.longest_ready_ns)),
        guaranteed_delay_ms: None,
    }
}

/// What was counted of a vCPU of a VM in that mode.
pub fn counters_of_vcpu(vcpu: &vcpu, cosched_mode: u32) -> Counters {
    Counters {
        progressed_s: Some(seconds(vcpu.progress_ns)),
        hazard_s: Some(seconds(vcpu.hazard_ns)),
        costop_s: seconds(vcpu.costop_ns),
        costops: vcpu.nr_costops,
        // Read in the middle of the first co-stop it may not be counted yet.
        costarts: vcpu.nr_costops.saturating_sub(u64::from(vcpu.costop_since_ns != 0)),
        skew_max_ms: skew_max_ms(cosched_mode, vcpu.skew_max_ns),
        ..Counters::default()
    }
}

/// Only where vCPUs are stopped for being ahead it is kept how far they are.
fn skew_max_ms(cosched_mode: u32, max_ns: u64) -> Option<f64> {
    let is_bound = [COSCHED_STRICT, COSCHED_RELAXED, COSCHED_SKEW].contains(&cosched_mode);
    is_bound.then(|| ms(max_ns))
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}
