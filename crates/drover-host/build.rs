// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the scheduler (bpf/ and policy/) for the kernel and generates its Rust skeleton.

use std::path::Path;

/// The skeleton has the policy's structs, but no macros.
const CONSTANTS: &str = "DROVER_MAX_(VMS|DOMAINS)|DROVER_DOMAIN_PCPUS|OWNER_(CGROUP|HOST_TASKS)|SHARES_PER_VCPU|vcpu_state";

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for room in ["bpf", "policy"] {
        println!("cargo:rerun-if-changed={}", root.join(room).display());
    }
    let policy = root.join("policy");
    drover_build::c_bindings(&policy.join("base/types.h"), &[], CONSTANTS, "constants.rs");
    drover_build::bpf_skeleton(&root.join("bpf/drover.bpf.c"), &[&policy], "drover.skel.rs");
}
