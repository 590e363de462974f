// SPDX-License-Identifier: GPL-2.0-only
//! Generates the Rust side of the policy's structs and constants.

use std::path::Path;

/// Its state, what it is ordered and told, and constants that Rust knows, too.
const NAMES: &str = "drover|drover_wakes|task_struct|thread|runqueue|s32|(vm|container|pool|partition|pcpu|home)_order|measured|allotment|\
    DROVER_(MAX|DOMAIN|SHARES|HOST)_.*|OWNER_(CGROUP|HOST_TASKS)|SHARES_PER_VCPU|(SHARE_INVERSE|HOME_LLC)_SHIFT|\
    vcpu_state|cosched_mode|partition_policy";

fn main() {
    let policy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policy");
    println!("cargo:rerun-if-changed={}", policy.display());
    drover_build::c_bindings(&policy.join("drover.h"), &[&policy], NAMES, "policy.rs", None);
}
