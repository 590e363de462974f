// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the observer (bpf/observe.bpf.c) for the kernel and generates its Rust skeleton.

use std::path::Path;

fn main() {
    let bpf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf");
    println!("cargo:rerun-if-changed={}", bpf.display());
    drover_build::bpf_skeleton(&bpf.join("observe.bpf.c"), &[], "observe.skel.rs");
}
