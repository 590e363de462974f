// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the program that keeps injected interrupts single (src/injection.rs).

use std::path::Path;

fn main() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/injection.bpf.c");
    drover_build::bpf_skeleton(&source, &[], "injection.skel.rs");
}
