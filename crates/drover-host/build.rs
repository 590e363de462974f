// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the scheduler (bpf/ and policy/) for the kernel and generates its Rust skeleton.

use std::path::Path;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for room in ["bpf", "policy"] {
        println!("cargo:rerun-if-changed={}", root.join(room).display());
    }
    let policy = root.join("policy");
    drover_build::bpf_skeleton(&root.join("bpf/drover.bpf.c"), &[&policy], "drover.skel.rs");
}
