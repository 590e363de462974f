// SPDX-License-Identifier: GPL-2.0-only
//! What all runs of an experiment use.

use crate::cgroup::{CGROUPS, VmGroups};
use crate::sched_ext::SchedExt;
use anyhow::{Context, Result};
use drover_lab::disk::Disk;
use drover_lab::guest_image::GuestImage;
use drover_lab::network::Network;
use drover_scenario::{Scenario, Vm, Vmm};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Where an experiment keeps its files: in memory, and the same each time, so that exact runs are alike.
const DIR: &str = "/run/drover-lab";

/// What schedulers and VMs are made with.
#[derive(Debug)]
pub(crate) struct Tools {
    /// This program, which is also `drover serve` and `drover guest`.
    pub program: PathBuf,
    /// Directory of the experiment's files.
    pub dir: PathBuf,
    /// Where the kernel says which scheduler is loaded.
    pub sched_ext: SchedExt,
    /// Speed of the guests' work loop, the same for all that are compared.
    pub loops_per_ms: u64,
    /// What Linux guests boot from, where the scenario has any.
    pub image: Option<GuestImage>,
    /// The disk of Linux guests, where the scenario has one.
    pub disk: Option<Disk>,
    /// The network of Linux guests, where the scenario has one.
    pub network: Option<Network>,
}

/// What all runs of an experiment use; it goes when dropped.
#[derive(Debug)]
pub(crate) struct Kit {
    /// What schedulers and VMs are made with.
    pub tools: Tools,
    /// Cgroups of the VMs.
    pub groups: VmGroups,
    _dir: OwnDir,
}

/// A directory that no other experiment has; it goes when dropped.
#[derive(Debug)]
struct OwnDir {
    path: PathBuf,
    _lock: Flock<File>,
}

impl Kit {
    /// Prepares what the runs of `scenario` need; `tell` hears what takes time.
    ///
    /// # Errors
    /// When another experiment runs here, or something cannot be had.
    pub fn prepare(scenario: &Scenario, tell: &mut dyn FnMut(&str)) -> Result<Self> {
        lift_file_limit();
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let own_dir = OwnDir::take(Path::new(DIR))?;
        let dir = own_dir.path.clone();
        let groups = VmGroups::open(Path::new(CGROUPS))?;
        let any = |of: fn(&Vm) -> bool| scenario.cases.iter().flat_map(|case| &case.vms).any(of);
        let image = any(|vm| vm.vmm == Vmm::Qemu).then(|| linux_image(&dir, tell)).transpose()?;
        let disk = any(|vm| vm.disk).then(Disk::make);
        let network = any(|vm| vm.network.is_some()).then(|| Network::make(&dir)).transpose()?;
        let (sched_ext, loops_per_ms) = (SchedExt::of_this_host(), drover_guest::loops_per_ms());
        let tools = Tools { program, dir, sched_ext, loops_per_ms, image, disk, network };
        Ok(Self { tools, groups, _dir: own_dir })
    }
}

impl OwnDir {
    /// Makes it, or clears what is in it.
    fn take(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let lock = File::open(dir)?;
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|_| {
            anyhow::anyhow!("another experiment runs on this host (it holds {})", dir.display())
        })?;
        let own = Self { path: dir.to_owned(), _lock: lock };
        for entry in fs::read_dir(dir)? {
            fs::remove_file(entry?.path())?;
        }
        Ok(own)
    }
}

impl Drop for OwnDir {
    fn drop(&mut self) {
        // Nothing of value is in it; a next experiment clears it too.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The threads of all VMs are kept open while they are measured. Where that is not allowed, the largest
/// scenarios say so.
fn lift_file_limit() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// In the lab the image was put there; elsewhere it is made.
fn linux_image(dir: &Path, tell: &mut dyn FnMut(&str)) -> Result<GuestImage> {
    let in_lab = GuestImage::in_lab();
    match in_lab.kernel.exists() {
        true => Ok(in_lab),
        false => GuestImage::on_this_machine(dir, tell),
    }
}

#[cfg(test)]
impl Tools {
    /// Tools whose program is this shell script, below `dir`.
    pub fn for_test(dir: &Path, script: &str) -> Self {
        let program = dir.join("program");
        // Written by a child: what this process has open for writing, a child that another test
        // starts at this moment has too, until it is a program of its own, and so long the kernel
        // starts nobody from it ("text file busy").
        let write = "printf '#!/bin/sh\\n%s\\n' \"$2\" > \"$1\" && chmod 755 \"$1\"";
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", write, "sh"]).arg(&program).arg(script);
        assert!(shell.status().unwrap().success(), "cannot write {}", program.display());
        let (dir, sched_ext) = (dir.to_owned(), SchedExt::at(dir));
        let image = Some(GuestImage::in_lab());
        Self { program, dir, sched_ext, loops_per_ms: 500_000, image, disk: None, network: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_experiment_at_a_time_in_an_empty_directory() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("experiment");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("vm0.stats"), "old").unwrap();
        let first = OwnDir::take(&dir).unwrap();
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        let message = OwnDir::take(&dir).unwrap_err().to_string();
        assert!(message.contains("another experiment"), "{message}");
        drop(first);
        assert!(!dir.exists(), "it goes with the experiment, also with one that could not begin");
        assert!(OwnDir::take(&dir).is_ok());
    }
}
