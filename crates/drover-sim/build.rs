// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the scheduling policy (policy/) natively, with the glue that stands for bpf/, and generates the Rust
//! side of it.

use std::env;
use std::path::PathBuf;

/// What src/scx/ calls, and constants it knows.
const NAMES: &str = "(sim|SIM|WAKES)_.*";

fn main() {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap());
    for room in ["native", "../../policy"] {
        println!("cargo:rerun-if-changed={}", here.join(room).display());
    }
    let (source, policy) = (here.join("native/policy.c"), here.join("../../policy"));
    let known = Some((&*policy, "drover_policy"));
    drover_build::c_bindings(&source, &[&policy], NAMES, "policy.rs", known);
    let mut build = cc::Build::new();
    build
        .file(source)
        .file(here.join("native/run_queue_stress.c"))
        .include(policy)
        .std("gnu11")
        .warnings(true)
        .extra_warnings(true);
    // As in the kernel: signed arithmetic wraps, types are not aliased by guesswork.
    build.flag("-fno-strict-aliasing").flag("-Wshadow").flag("-Wvla");
    if env::var("PROFILE").unwrap() == "debug" {
        // Undefined behaviour that BPF does not have (x/0, oversize shifts ...) stops a test at once.
        build.flag("-fsanitize=undefined").flag_if_supported("-fsanitize-undefined-trap-on-error");
    } else {
        build.opt_level(3);
    }
    build.compile("drover_policy");
}
