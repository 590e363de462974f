// SPDX-License-Identifier: GPL-2.0-only
//! What the policy is ordered and told, of what is asked.

use crate::{
    allotment, container_order, home_order, measured, params, partition_order, pcpu_order,
    pool_order, vm_order, vm_settings,
};
use drover_core::allot::{Allotment, AllotmentOf, Measured};
use drover_core::params::Params;
use drover_core::partition::PartitionSettings;
use drover_core::settings::{PartitionId, PoolId, PoolSettings, VmSettings};

/// What the policy is told in one piece.
///
/// # Safety
/// Plain old data without padding.
pub unsafe trait Order: Copy {}

// SAFETY: these are integers only, and C lays them out without gaps: their sizes are the sums of their parts.
unsafe impl Order for vm_order {}
// SAFETY: as above.
unsafe impl Order for container_order {}
// SAFETY: as above.
unsafe impl Order for pool_order {}
// SAFETY: as above.
unsafe impl Order for partition_order {}
// SAFETY: as above.
unsafe impl Order for pcpu_order {}
// SAFETY: as above.
unsafe impl Order for home_order {}

const _: () = {
    assert!(size_of::<vm_order>() == 8 + 4 * 4 + size_of::<vm_settings>());
    assert!(size_of::<vm_settings>() == 6 * 4);
    assert!(size_of::<container_order>() == 8 + 2 * 4);
    assert!(size_of::<pool_order>() == 5 * 4);
    assert!(size_of::<partition_order>() == 2 * 4 + 8);
    assert!(size_of::<pcpu_order>() == 6 * 4);
    assert!(size_of::<home_order>() == 8 + 4 * 4);
};

impl vm_order {
    /// That these settings of the VM with that id, in that slot, are in force.
    pub fn of(slot: u32, vm_id: u64, settings: &VmSettings) -> Self {
        Self {
            vm_id,
            slot,
            cosched_mode: settings.cosched as u32,
            partition: settings.partition.0,
            burst_us: settings.burst_us,
            asked: vm_settings {
                shares: settings.shares.word(),
                reservation_mcpu: settings.reservation_mcpu,
                limit_mcpu: settings.limit_mcpu.unwrap_or(0),
                vcpu_limit_mcpu: settings.vcpu_limit.mcpu,
                vcpu_burst_us: settings.vcpu_limit.burst_us,
                pool: settings.pool.0,
            },
        }
    }
}

impl pool_order {
    /// That these settings of the pool are in force; none: it is removed.
    pub fn of(pool: PoolId, settings: Option<&PoolSettings>) -> Self {
        let live = settings.is_some();
        let settings = settings.cloned().unwrap_or_default();
        Self {
            pool: pool.0,
            live: live.into(),
            parent: settings.parent.0,
            limit_mcpu: settings.limit_mcpu.unwrap_or(0),
            burst_us: settings.burst_us,
        }
    }
}

impl partition_order {
    /// That these settings of the partition are in force.
    pub fn of(partition: PartitionId, settings: PartitionSettings) -> Self {
        let PartitionSettings { policy, slice_ns } = settings;
        Self { partition: partition.0, policy: policy as u32, slice_ns }
    }
}

impl From<measured> for Measured {
    fn from(measured { vm_id, used_ns, waited_ns, awake, shares }: measured) -> Self {
        Self { vm_id, used_ns, waited_ns, awake, shares }
    }
}

impl From<&AllotmentOf> for allotment {
    fn from(AllotmentOf { vm_id, allotment }: &AllotmentOf) -> Self {
        let &Allotment { share_inverse, entitled_ucpu, promised_mcpu, shares_part } = allotment;
        let shares_part = shares_part.into();
        Self { vm_id: *vm_id, share_inverse, entitled_ucpu, promised_mcpu, shares_part }
    }
}

/// The parameters, on a host with so many pCPUs and domains.
pub fn params_of(params: &Params, nr_pcpus: u32, nr_domains: u32) -> params {
    params {
        slice_ns: params.slice_ns,
        wake_credit_ns: params.wake_credit_ns,
        claim_bound_ns: params.claim_bound_ns,
        preempt_gain_ns: params.preempt_gain_ns,
        steal_gain_ns: params.steal_gain_ns,
        wait_bound_ns: params.wait_bound_ns,
        skew_max_ns: params.skew_max_ns,
        hold_max_ns: params.hold_max_ns,
        judge_window_ns: params.judge_window_ns,
        shared_core_permille: params.shared_core_permille,
        nr_pcpus,
        nr_domains,
    }
}
