// SPDX-License-Identifier: GPL-2.0-only
//! Keeps pCPU 0 in its right mind under QEMU's CPU emulation on the real clock.
//!
//! In a word of flags QEMU keeps for each pCPU whether it takes interrupts, whether it runs a guest and whose
//! page tables then hold. Another bit in that word served DOS: the signal IGNNE# of the first pCPU. Whenever
//! any pCPU restores floating-point registers, which is at every other context switch, its thread clears that
//! bit in the word of pCPU 0 (`cpu_clear_ignne`), with no lock and not atomically. What the thread of pCPU 0
//! itself changes there at the same moment is lost. Seen, with VMs on two pCPUs, after half a minute to six
//! minutes, whatever the scheduler: pCPU 0 in a guest with the global interrupt flag clear, or with the host's
//! interrupts subject to the guest's flag. It heard no interrupt again; the kernel told of a stall; or the
//! virtual host was gone.
//!
//! No Linux host ever sets that bit. So the function is made to return at once, in the memory of the QEMU that
//! the lab has started, and only there. On the exact clock one thread runs all pCPUs, and nothing can be lost.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result};
use object::{Object, ObjectSegment, ObjectSymbol};

/// What clears the bit.
const FUNCTION: &str = "cpu_clear_ignne";
/// x86's RET.
const RETURN: u8 = 0xc3;

/// Has the function return at once in a process that runs `program`.
///
/// # Errors
/// When the program has no such function, or the process' memory cannot be written.
pub fn keep_sane(program: &Path, process: u32) -> Result<()> {
    let data = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let offset = offset_of(FUNCTION, &data)
        .with_context(|| format!("{} has no function {FUNCTION}", program.display()))?;
    let maps = fs::read_to_string(format!("/proc/{process}/maps"))?;
    let program = fs::canonicalize(program)?;
    let address = address_of(offset, &program, &maps)
        .with_context(|| format!("process {process} does not run {}", program.display()))?;
    let memory = fs::OpenOptions::new().write(true).open(format!("/proc/{process}/mem"));
    memory
        .and_then(|memory| memory.write_all_at(&[RETURN], address))
        .with_context(|| format!("cannot write the memory of process {process}"))
}

/// Where in the program's file the function begins.
fn offset_of(function: &str, data: &[u8]) -> Option<u64> {
    let program = object::File::parse(data).ok()?;
    let address = program
        .dynamic_symbols()
        .chain(program.symbols())
        .find(|symbol| symbol.name() == Ok(function) && symbol.is_definition())?
        .address();
    let segment = program.segments().find(|segment| {
        (segment.address()..segment.address() + segment.size()).contains(&address)
    })?;
    Some(segment.file_range().0 + (address - segment.address()))
}

/// Where a process with such memory maps has what is at that offset of the program's file.
fn address_of(offset: u64, program: &Path, maps: &str) -> Option<u64> {
    maps.lines().find_map(|line| {
        // 7f00-7f80 r-xp 00001000 08:01 1234    /usr/bin/program
        let mut words = line.split_whitespace();
        let (first, end) = words.next()?.split_once('-')?;
        let (first, end) =
            (u64::from_str_radix(first, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        let from = u64::from_str_radix(words.nth(1)?, 16).ok()?;
        let path = words.nth(2)?;
        let inside = (from..from + (end - first)).contains(&offset) && Path::new(path) == program;
        inside.then(|| first + (offset - from))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qemu::Qemu;
    use std::process::{Command, Stdio};

    #[test]
    fn a_place_in_the_file_is_found_in_memory() {
        let maps = "1000-2000 r--p 00000000 08:01 7    /bin/other\n\
                    4000-5000 r--p 00000000 08:01 8    /bin/qemu\n\
                    5000-9000 r-xp 00001000 08:01 8    /bin/qemu\n\
                    9000-a000 rw-p 00000000 00:00 0\n";
        let program = Path::new("/bin/qemu");
        assert_eq!(address_of(0x2345, program, maps), Some(0x6345));
        assert_eq!(address_of(0x345, program, maps), Some(0x4345));
        assert_eq!(address_of(0x5000, program, maps), None);
    }

    #[test]
    fn the_function_returns_at_once_in_that_process_and_the_file_is_as_it_was() {
        let qemu = Qemu::find().unwrap().program;
        let data = fs::read(&qemu).unwrap();
        let offset = offset_of(FUNCTION, &data).unwrap();
        let mut child = Command::new(&qemu)
            .args(["-machine", "none", "-display", "none", "-nodefaults", "-S"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let kept = keep_sane(&qemu, child.id());
        let maps = fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
        let memory = fs::File::open(format!("/proc/{}/mem", child.id())).unwrap();
        let mut there = [0];
        let address = address_of(offset, &fs::canonicalize(&qemu).unwrap(), &maps).unwrap();
        let read = memory.read_exact_at(&mut there, address);
        child.kill().unwrap();
        child.wait().unwrap();
        kept.unwrap();
        read.unwrap();
        assert_eq!(there, [RETURN]);
        assert_eq!(fs::read(&qemu).unwrap(), data);
    }

    #[test]
    fn a_program_without_the_function_is_left_alone() {
        let error = keep_sane(Path::new("/bin/sh"), std::process::id()).unwrap_err();
        assert!(error.to_string().contains("has no function"), "{error:#}");
    }
}
