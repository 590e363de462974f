// SPDX-License-Identifier: GPL-2.0-only
//! For build scripts: compiles a BPF program and generates its Rust skeleton; generates the Rust side of native C code.

use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

mod stack;

/// The oldest clang whose BPF back end keeps 64-bit enum values whole.
const CLANG_MIN: u32 = 16;

const FLAGS: [&str; 4] = ["-mcpu=v3", "-Wall", "-Werror", "-Wno-missing-declarations"];

/// Compiles the BPF program `source`, with headers from the folders `includes`, and writes its skeleton to the
/// file `skeleton` of cargo's output directory, where `include!` finds it.
///
/// # Panics
/// When no clang is new enough, the program does not compile, or it takes more stack than all kernels give: a
/// build script has nobody to tell but cargo.
pub fn bpf_skeleton(source: &Path, includes: &[&Path], skeleton: &str) {
    println!("cargo:rerun-if-changed={}", source.display());
    let out = PathBuf::from(std::env::var("OUT_DIR").expect("cargo names it")).join(skeleton);
    let object = out.with_extension("o");
    let folders = includes.iter().map(|folder| format!("-I{}", folder.display()));
    // The object names its sources, for messages of the kernel; where they lay is of no matter.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize();
    let root = root.expect("the project has a directory");
    let names = std::iter::once(format!("-ffile-prefix-map={}=.", root.display()));
    SkeletonBuilder::new()
        .source(source)
        .obj(&object)
        .clang(find_clang())
        .clang_args(folders.chain(names).chain(FLAGS.map(str::to_owned)))
        .build_and_generate(&out)
        .unwrap_or_else(|err| panic!("{} does not compile: {err:#}", source.display()));
    let data = std::fs::read(&object).expect("it was just written");
    for way in stack::deepest(&data).expect("clang wrote it") {
        assert!(
            way.bytes <= stack::BYTES_MAX && way.functions.len() <= stack::FRAMES_MAX,
            "{}: {} bytes of stack in {} functions, more than {} or {}, which some kernels refuse: {}",
            source.display(),
            way.bytes,
            way.functions.len(),
            stack::BYTES_MAX,
            stack::FRAMES_MAX,
            way.functions.join(" > ")
        );
    }
}

/// Writes to the file `bindings` of cargo's output directory what Rust has to know of the C code `source`, with
/// headers from the folders `includes`: whatever of functions, structs and constants matches the regular expression
/// `names`, and all that these lead to. `known`: a folder with headers, and the crate that has what is in them.
///
/// # Panics
/// When there is no libclang, or it finds a fault in the code.
pub fn c_bindings(
    source: &Path,
    includes: &[&Path],
    names: &str,
    bindings: &str,
    known: Option<(&Path, &str)>,
) {
    let out = PathBuf::from(std::env::var("OUT_DIR").expect("cargo names it")).join(bindings);
    let mut builder = bindgen::builder();
    if let Some((folder, of)) = known {
        let folder = folder.display().to_string().replace('.', "\\.");
        builder = builder.blocklist_file(format!("{folder}/.*")).raw_line(format!("use {of}::*;"));
    }
    builder
        .header(source.display().to_string())
        .clang_args(includes.iter().map(|folder| format!("-I{}", folder.display())))
        .allowlist_item(names)
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .generate()
        .unwrap_or_else(|err| panic!("{} has no bindings: {err}", source.display()))
        .write_to_file(&out)
        .unwrap_or_else(|err| panic!("cannot write {}: {err}", out.display()));
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
