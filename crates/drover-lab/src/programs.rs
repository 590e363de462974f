// SPDX-License-Identifier: GPL-2.0-only
//! Programs of this machine that go into the lab: where they are, and the libraries they need.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cache::Cache;

/// Where programs are looked for after `$PATH`; users' paths often lack the last ones.
const MORE_DIRS: [&str; 4] = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];

/// Finds a program by name on this machine.
#[must_use]
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(MORE_DIRS.map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|candidate| is_program(candidate))
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// The shared libraries a program loads and the loader itself; empty for scripts and static programs.
///
/// # Errors
/// When a library the program needs is not on this machine, or `ldd` is not.
pub fn shared_libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let result = Command::new("ldd").arg(program).env("LC_ALL", "C").output();
    let result = result.context("cannot run ldd (package libc-bin)")?;
    parse_ldd(&String::from_utf8_lossy(&result.stdout))
        .with_context(|| format!("{} cannot run in the lab", program.display()))
}

fn parse_ldd(text: &str) -> Result<Vec<PathBuf>> {
    let mut libraries = Vec::new();
    for line in text.lines() {
        let (name, place) = line.trim().split_once(" => ").unwrap_or(("", line.trim()));
        ensure!(place != "not found", "its library {name} is not on this machine");
        // A place is `/path (0xaddress)`; linux-vdso and messages have no path.
        if let Some((path, _)) = place.split_once(" (0x") {
            if path.starts_with('/') {
                libraries.push(PathBuf::from(path));
            }
        }
    }
    Ok(libraries)
}

/// The same program without debug information, which can be most of it; kept in the cache until the
/// program changes. Where `strip` is not installed or does not know the file, the program as it is.
///
/// # Errors
/// When the program or the cache cannot be read.
pub fn stripped(cache: &Cache, program: &Path) -> Result<PathBuf> {
    let data =
        fs::metadata(program).with_context(|| format!("cannot read {}", program.display()))?;
    let dir = cache.dir("stripped")?;
    let name = program.file_name().unwrap_or(OsStr::new("program")).to_string_lossy();
    let mine = format!("{name}-{}-{}-", data.dev(), path_number(program));
    let place = dir.join(format!("{mine}{}-{}{:09}", data.len(), data.mtime(), data.mtime_nsec()));
    if place.exists() {
        return Ok(place);
    }
    let fresh = tempfile::NamedTempFile::new_in(&dir)?.into_temp_path();
    let result =
        Command::new("strip").arg("--strip-debug").arg("-o").arg(&fresh).arg(program).output();
    if !result.is_ok_and(|result| result.status.success()) {
        return Ok(program.to_owned());
    }
    for entry in fs::read_dir(&dir)?.flatten() {
        // What another process has just put in place is in use there.
        if entry.path() != place && entry.file_name().to_string_lossy().starts_with(&mine) {
            // Another process may have been faster; either way it is gone.
            let _ = fs::remove_file(entry.path());
        }
    }
    fresh.persist(&place)?;
    Ok(place)
}

/// A number for a path, the same in every run (FNV-1a).
fn path_number(path: &Path) -> u64 {
    path.as_os_str().as_encoded_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ldd_output_gives_libraries_and_loader() {
        let text = "\tlinux-vdso.so.1 (0x00007ffe)\n\
            \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f10)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f12)\n";
        assert_eq!(
            parse_ldd(text).unwrap(),
            [
                Path::new("/lib/x86_64-linux-gnu/libc.so.6"),
                Path::new("/lib64/ld-linux-x86-64.so.2")
            ]
        );
        assert!(parse_ldd("\tnot a dynamic executable\n").unwrap().is_empty());
        assert!(parse_ldd("\tstatically linked\n").unwrap().is_empty());
    }

    #[test]
    fn a_missing_library_is_named() {
        let message = parse_ldd("\tlibx.so.1 => not found\n").unwrap_err().to_string();
        assert_eq!(message, "its library libx.so.1 is not on this machine");
    }

    #[test]
    fn programs_are_found_by_name() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program-anywhere").is_none());
    }

    #[test]
    fn a_changed_program_is_stripped_again_and_the_old_one_dropped() {
        let home = tempfile::tempdir().unwrap();
        let cache = Cache::at(&home.path().join("cache")).unwrap();
        let program = home.path().join("program");
        fs::copy("/bin/ls", &program).unwrap();
        let first = stripped(&cache, &program).unwrap();
        assert_eq!(stripped(&cache, &program).unwrap(), first);
        fs::copy("/bin/cat", &program).unwrap();
        let second = stripped(&cache, &program).unwrap();
        assert!(first != second && (first == program || !first.exists()));
    }

    #[test]
    fn those_who_strip_a_program_at_once_all_find_it() {
        let home = tempfile::tempdir().unwrap();
        let cache = Cache::at(&home.path().join("cache")).unwrap();
        for round in 0..20 {
            let program = home.path().join(format!("program{round}"));
            fs::copy("/bin/ls", &program).unwrap();
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| fs::read(stripped(&cache, &program).unwrap()).unwrap());
                }
            });
        }
    }

    #[test]
    fn what_cannot_be_stripped_stays_as_it_is() {
        let home = tempfile::tempdir().unwrap();
        let cache = Cache::at(home.path()).unwrap();
        let script = home.path().join("script");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        assert_eq!(stripped(&cache, &script).unwrap(), script);
    }
}
