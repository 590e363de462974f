// SPDX-License-Identifier: GPL-2.0-only
//! The policy's structs and constants, generated from its C code, and what the daemon and the simulator alike make of
//! them: the daemon reads and orders the kernel's policy, the simulator one of its own.

mod counters;
mod orders;

pub use counters::{counters, counters_of_vcpu};
pub use generated::*;
pub use orders::{Order, params_of};

#[allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    missing_docs,
    non_camel_case_types,
    reason = "generated"
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/policy.rs"));
}

use drover_core::allot::{self, INVERSE_SHIFT};
use drover_core::partition::PartitionPolicy;
use drover_core::place::HomeNumber;
use drover_core::settings::{Cosched, PartitionId, PoolId};
use drover_core::shares::{PER_VCPU, SHARES_MAX};

/// What drover-core, which builds without the policy, says of it as well.
const _: () = {
    assert!(Cosched::Auto as u32 == COSCHED_AUTO);
    assert!(Cosched::Off as u32 == COSCHED_OFF);
    assert!(Cosched::Strict as u32 == COSCHED_STRICT);
    assert!(Cosched::Relaxed as u32 == COSCHED_RELAXED);
    assert!(Cosched::Skew as u32 == COSCHED_SKEW);
    assert!(Cosched::Gang as u32 == COSCHED_GANG);
    assert!(PartitionPolicy::Share as u32 == POLICY_SHARE);
    assert!(PartitionPolicy::Credit as u32 == POLICY_CREDIT);
    assert!(PartitionPolicy::Dedicated as u32 == POLICY_DEDICATED);
    assert!(PartitionPolicy::Anticipatory as u32 == POLICY_ANTICIPATORY);
    assert!(SHARES_MAX == DROVER_SHARES_MAX);
    assert!(PER_VCPU == SHARES_PER_VCPU);
    assert!(allot::SHARES_PER_VCPU as u32 == DROVER_SHARES_PER_VCPU);
    assert!(INVERSE_SHIFT == SHARE_INVERSE_SHIFT);
    assert!(PoolId::COUNT_MAX == DROVER_MAX_POOLS);
    assert!(PartitionId::COUNT_MAX == DROVER_MAX_PARTITIONS);
    assert!(HomeNumber::LLC_SHIFT == HOME_LLC_SHIFT);
};

impl vm {
    /// Is the slot a VM's?
    pub fn is_live(&self) -> bool {
        self.id != 0
    }

    /// Its process; 0: none.
    pub fn process(&self) -> u32 {
        self.owner_id as u32
    }
}
