// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the scheduler (bpf/ and policy/) for the kernel and generates its Rust skeleton.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

/// The oldest clang whose BPF back end keeps 64-bit enum values whole.
const CLANG_MIN: u32 = 16;

fn main() {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap()).join("../..");
    let out = PathBuf::from(env::var("OUT_DIR").unwrap()).join("drover.skel.rs");
    for room in ["bpf", "policy"] {
        println!("cargo:rerun-if-changed={}", root.join(room).display());
    }
    SkeletonBuilder::new()
        .source(root.join("bpf/drover.bpf.c"))
        .clang(find_clang())
        .clang_args(["-mcpu=v3", "-Wall", "-Werror", "-Wno-missing-declarations"])
        .build_and_generate(Path::new(&out))
        .unwrap_or_else(|err| panic!("bpf/drover.bpf.c does not compile: {err:#}"));
}

/// The newest clang on the path: Debian installs them as clang-NN.
fn find_clang() -> PathBuf {
    let named = (CLANG_MIN..40).rev().map(|major| format!("clang-{major}"));
    std::iter::once("clang".to_owned())
        .chain(named)
        .find(|name| clang_major(name).is_some_and(|major| major >= CLANG_MIN))
        .map(PathBuf::from)
        .unwrap_or_else(|| panic!("no clang {CLANG_MIN} or newer found; run script/setup"))
}

fn clang_major(name: &str) -> Option<u32> {
    let output = Command::new(name).arg("-dumpversion").output().ok()?;
    String::from_utf8(output.stdout).ok()?.split('.').next()?.trim().parse().ok()
}
