// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the code that runs inside micro VMs (guest/) to a flat binary, `guest.bin`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest clang known to build the guest and, elsewhere in the project, the BPF code.
const CLANG_MIN: u32 = 16;

const COMPILE_FLAGS: &[&str] = &[
    "--target=x86_64-unknown-none-elf",
    "-c",
    "-std=gnu11",
    "-O2",
    "-g0",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffreestanding",
    "-fno-pic",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    // Interrupts arrive on the running stack; vector registers are never switched on.
    "-mno-red-zone",
    "-mgeneral-regs-only",
];

fn main() {
    if let Err(message) = build() {
        eprintln!("error: {message}");
        std::process::exit(1);
    }
}

fn build() -> Result<(), String> {
    let guest_dir = Path::new("guest");
    println!("cargo::rerun-if-changed={}", guest_dir.display());
    println!("cargo::rerun-if-env-changed=CLANG");
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo did not set OUT_DIR")?);
    let clang = find_clang()?;
    println!("cargo::rustc-env=DROVER_CLANG={clang}");

    let mut objects = Vec::new();
    for source in sources(guest_dir)? {
        let name = source.file_name().ok_or("a source without a name")?.to_string_lossy();
        let object = out_dir.join(format!("{name}.o"));
        run(Command::new(&clang).args(COMPILE_FLAGS).arg(&source).arg("-o").arg(&object))?;
        objects.push(object);
    }
    run(Command::new("ld")
        .args(["-m", "elf_x86_64", "--oformat", "binary", "-T"])
        .arg(guest_dir.join("guest.ld"))
        .arg("-o")
        .arg(out_dir.join("guest.bin"))
        .args(&objects))
}

fn sources(guest_dir: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(guest_dir).map_err(|error| format!("guest/: {error}"))?;
    let mut sources: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|end| end == "c" || end == "S"))
        .collect();
    sources.sort();
    Ok(sources)
}

/// The clang asked for with `CLANG`, else the newest found that is new enough.
fn find_clang() -> Result<String, String> {
    let named = env::var("CLANG").ok();
    let versioned = (CLANG_MIN..=30).rev().map(|version| format!("clang-{version}"));
    let candidates = match named {
        Some(named) => vec![named],
        None => versioned.chain(["clang".to_owned()]).collect(),
    };
    candidates
        .into_iter()
        .find(|clang| clang_version(clang).is_some_and(|version| version >= CLANG_MIN))
        .ok_or(format!("no clang {CLANG_MIN} or newer found: install clang-19, or set CLANG"))
}

fn clang_version(clang: &str) -> Option<u32> {
    let output = Command::new(clang).arg("-dumpversion").output().ok()?;
    String::from_utf8_lossy(&output.stdout).trim().split('.').next()?.parse().ok()
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program} failed on the guest code ({status}): {command:?}")),
        Err(error) => Err(format!("cannot run {program}: {error}; install clang and binutils")),
    }
}
