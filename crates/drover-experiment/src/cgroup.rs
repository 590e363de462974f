// SPDX-License-Identifier: GPL-2.0-only
//! A cgroup for each VM, as libvirt makes one: it tells the VM's shares to the kernel's own
//! scheduler, and it holds all processes of the VM, so that none is left behind.

use crate::case_groups::Group;
use anyhow::{Context, Result, ensure};
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where cgroups are on every distribution of the last years.
pub(crate) const CGROUPS: &str = "/sys/fs/cgroup";
/// The cgroup all VMs of an experiment are in.
const GROUP: &str = "drover-lab";
/// The kernel's own period of `cpu.max`.
const PERIOD_US: u64 = 100_000;
/// How long the kernel may take to let go of processes that were killed.
const PATIENCE: Duration = Duration::from_secs(2);

/// The cgroups of an experiment's VMs; they go, with all that is in them, when this is dropped.
#[derive(Debug)]
pub(crate) struct VmGroups {
    base: PathBuf,
    dir: PathBuf,
    /// The host had the cpu controller off, and gets it back so.
    switched_on: bool,
}

impl VmGroups {
    /// Makes the cgroup VMs will be in, below `base`, having cleared what a killed experiment left.
    ///
    /// # Errors
    /// When the host has no cgroups of version 2 there, or no cpu controller in them.
    pub fn open(base: &Path) -> Result<Self> {
        let controllers =
            fs::read_to_string(base.join("cgroup.controllers")).with_context(|| {
                format!("no cgroups of version 2 in {}; mount cgroup2 there", base.display())
            })?;
        ensure!(
            has_word(&controllers, "cpu"),
            "{} has no cpu controller; boot a kernel with CONFIG_CGROUP_SCHED, without cgroup v1",
            base.display()
        );
        let control = base.join("cgroup.subtree_control");
        let switched_on = !has_word(&fs::read_to_string(&control)?, "cpu");
        let groups = Self { base: base.to_owned(), dir: base.join(GROUP), switched_on };
        groups.clear();
        write(&control, "+cpu")?;
        fs::create_dir(&groups.dir).with_context(|| cannot("make", &groups.dir))?;
        write(&groups.dir.join("cgroup.subtree_control"), "+cpu")?;
        Ok(groups)
    }

    /// Makes a cgroup; returns the file a process enters it by.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn add(&self, group: &Group) -> Result<PathBuf> {
        let dir = self.dir.join(&group.path);
        fs::create_dir(&dir).with_context(|| cannot("make", &dir))?;
        write(&dir.join("cpu.weight"), &group.weight.to_string())?;
        if let Some(limit_mcpu) = group.limit_mcpu {
            let quota_us = u64::from(limit_mcpu) * PERIOD_US / 1000;
            write(&dir.join("cpu.max"), &format!("{quota_us} {PERIOD_US}"))?;
        }
        if group.is_pool {
            write(&dir.join("cgroup.subtree_control"), "+cpu")?;
        }
        Ok(dir.join("cgroup.procs"))
    }

    /// Kills whatever is left in the cgroups of VMs and removes those.
    ///
    /// # Errors
    /// When one cannot be removed.
    pub fn remove_all(&self) -> Result<()> {
        for entry in fs::read_dir(&self.dir).with_context(|| cannot("read", &self.dir))? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }

    fn clear(&self) {
        if self.dir.exists() {
            // What cannot be removed is told when the same directory is made again.
            let _ = self.remove_all();
            let _ = fs::remove_dir(&self.dir);
        }
    }
}

impl Drop for VmGroups {
    fn drop(&mut self) {
        self.clear();
        if self.switched_on {
            // Refused where others came to rely on it meanwhile: then it stays on.
            let _ = write(&self.base.join("cgroup.subtree_control"), "-cpu");
        }
    }
}

fn remove(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| cannot("read", dir))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    // What cannot be killed so makes the removal fail, which is told.
    let _ = write(&dir.join("cgroup.kill"), "1");
    let begun = Instant::now();
    loop {
        match fs::remove_dir(dir) {
            // Busy until the last process that was killed is gone.
            Err(error) if error.kind() == ErrorKind::ResourceBusy && begun.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            result => return result.with_context(|| cannot("remove", dir)),
        }
    }
}

fn write(file: &Path, text: &str) -> Result<()> {
    // The kernel makes these files; one that is not there must not be made.
    let written = OpenOptions::new()
        .write(true)
        .open(file)
        .and_then(|mut open| open.write_all(text.as_bytes()));
    written.with_context(|| format!("cannot write {text} to {}", file.display()))
}

fn cannot(what: &str, dir: &Path) -> String {
    format!("cannot {what} cgroup {}", dir.display())
}

fn has_word(text: &str, word: &str) -> bool {
    text.split_whitespace().any(|one| one == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plain files in cgroups' place.
    fn host(controllers: &str, subtree: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cgroup.controllers"), controllers).unwrap();
        fs::write(dir.path().join("cgroup.subtree_control"), subtree).unwrap();
        dir
    }

    #[test]
    fn the_controller_is_left_as_it_was() {
        for (before, after) in [("cpu\n", "+cpu"), ("memory\n", "-cpu")] {
            let host = host("cpu memory\n", before);
            let open = VmGroups::open(host.path());
            // Plain directories have none of the files a kernel makes in cgroups.
            assert!(open.unwrap_err().to_string().contains("drover-lab/cgroup.subtree_control"));
            let control = fs::read_to_string(host.path().join("cgroup.subtree_control")).unwrap();
            assert!(control.starts_with(after), "{control}");
            assert!(!host.path().join("drover-lab").exists());
        }
    }

    #[test]
    fn hosts_without_the_controller_are_refused_in_one_line() {
        let none = tempfile::tempdir().unwrap();
        let message = format!("{}", VmGroups::open(none.path()).unwrap_err());
        assert!(message.contains("version 2") && message.lines().count() == 1, "{message}");
        let other = host("cpuset memory\n", "");
        let message = VmGroups::open(other.path()).unwrap_err().to_string();
        assert!(message.contains("no cpu controller"), "{message}");
    }

    #[test]
    fn empty_cgroups_of_a_killed_experiment_are_cleared() {
        let host = host("cpu\n", "cpu\n");
        fs::create_dir_all(host.path().join("drover-lab/old")).unwrap();
        let _ = VmGroups::open(host.path());
        assert!(!host.path().join("drover-lab/old").exists());
    }

    #[test]
    fn what_is_not_empty_is_told() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(remove(dir.path()).unwrap_err().to_string().contains("cannot remove cgroup"));
        assert!(dir.path().join("file").exists());
    }
}
