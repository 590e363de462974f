// SPDX-License-Identifier: GPL-2.0-only
//! A whole system in the lab: its own init is the first process, as on a real host.
//!
//! The lab's first process unpacks the system and forks: the parent becomes the system's init, the child goes
//! on as before, as a process of that system.

use std::ffi::CStr;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use nix::mount::{MsFlags, mount};
use nix::unistd::{ForkResult, chdir, chroot, execve, fchdir, fork, setsid};

/// Where the system's archive lies in the lab, if there is to be one.
pub const ARCHIVE: &str = "/lib/drover-lab/system.tar";

const ROOT: &str = "/system";
const INIT: &CStr = c"/sbin/init";

/// The root of a system that is starting.
pub struct System(File);

impl System {
    /// Makes another program the first process: the init of the system in the archive. Returns in a child.
    ///
    /// # Errors
    /// When the archive cannot be unpacked.
    pub fn start() -> Result<Self> {
        unpack()?;
        let root = File::open(ROOT)?;
        // SAFETY: this process has one thread.
        match unsafe { fork() }.context("cannot fork")? {
            ForkResult::Parent { .. } => match become_init() {
                Ok(never) => match never {},
                Err(error) => bail!("{} does not start: {error:#}", INIT.to_string_lossy()),
            },
            ForkResult::Child => {
                setsid()?;
                Ok(Self(root))
            }
        }
    }

    /// From now on this process is one of the system's.
    ///
    /// # Errors
    /// When the kernel does not let it.
    pub fn enter(&self) -> Result<()> {
        fchdir(&self.0)?;
        chroot(".")?;
        Ok(())
    }
}

fn unpack() -> Result<()> {
    fs::create_dir(ROOT)?;
    mount(Some("system"), ROOT, Some("tmpfs"), MsFlags::empty(), Some("size=90%,mode=755"))?;
    let archive = File::open(ARCHIVE).with_context(|| format!("cannot read {ARCHIVE}"))?;
    let status = Command::new("/bin/tar").args(["-x", "-C", ROOT]).stdin(archive).status()?;
    ensure!(status.success(), "tar cannot unpack {ARCHIVE} ({status})");
    // It is memory.
    fs::remove_file(ARCHIVE)?;
    fs::create_dir_all(Path::new(ROOT).join("out"))?;
    Ok(())
}

fn become_init() -> Result<std::convert::Infallible> {
    chdir(ROOT)?;
    mount(Some("."), "/", None::<&str>, MsFlags::MS_MOVE, None::<&str>)?;
    chroot(".")?;
    Ok(execve(INIT, &[INIT], &[c"TERM=dumb"])?)
}
