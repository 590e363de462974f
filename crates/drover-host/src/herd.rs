// SPDX-License-Identifier: GPL-2.0-only
//! The VMs on this host: what each is called and what its host says of it.

use crate::names::vm_name;
use crate::scheduler::KernelVm;
use crate::sources::{cgroup, libvirt};
use drover_core::resolve::Layer;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// How often cgroups and metadata of a VM are looked at.
const SOURCE_INTERVAL: Duration = Duration::from_millis(500);

/// A VM the daemon has met.
#[derive(Debug)]
pub struct Vm {
    /// As the kernel saw it last.
    pub kernel: KernelVm,
    /// What it is called.
    pub name: String,
    /// What its cgroups ask.
    cgroup: Vec<Layer>,
    /// What libvirt's metadata ask.
    libvirt: Metadata,
}

/// Metadata of a VM, and when the file it is from was last written.
#[derive(Debug, Default)]
struct Metadata {
    stamp: Option<(PathBuf, SystemTime)>,
    layer: Option<Layer>,
}

impl Vm {
    /// What the host itself says of it: below the configuration file, and above it.
    pub fn layers(&self) -> (&[Layer], Option<&Layer>) {
        (&self.cgroup, self.libvirt.layer.as_ref())
    }

    /// A VM as a test wants it.
    #[cfg(test)]
    pub fn for_test(kernel: KernelVm, name: &str, cgroup: Vec<Layer>) -> Self {
        Self { kernel, name: name.to_owned(), cgroup, libvirt: Metadata::default() }
    }

    fn look_at_sources(&mut self) -> bool {
        let cgroup = cgroup::layers(Path::new(cgroup::CGROUPS), self.kernel.tgid);
        let changed = cgroup != self.cgroup;
        self.cgroup = cgroup;
        self.libvirt.look(&libvirt::DIRS.map(Path::new), &self.name) || changed
    }
}

impl Metadata {
    /// Reads the file if it was written since; whether it asks something else now.
    fn look(&mut self, dirs: &[&Path], name: &str) -> bool {
        let file = libvirt::file(dirs, name);
        let stamp = file.and_then(|file| {
            let written = file.metadata().and_then(|meta| meta.modified()).ok()?;
            Some((file, written))
        });
        if stamp == self.stamp {
            return false;
        }
        self.stamp = stamp;
        let layer = match &self.stamp {
            None => None,
            Some((file, _)) => match libvirt::layer(file) {
                Ok(layer) => layer,
                Err(fault) => {
                    tracing::warn!("{fault}; what it said before still counts");
                    return false;
                }
            },
        };
        let changed = layer != self.layer;
        self.layer = layer;
        changed
    }
}

/// All of them.
#[derive(Debug, Default)]
pub struct Herd {
    vms: Vec<Vm>,
    looked_at_sources: Option<Instant>,
}

impl Herd {
    /// Takes note of who is there now; whether anything changed that settings follow from.
    pub fn look(&mut self, seen: &[KernelVm], now: Instant) -> bool {
        let mut new: HashMap<u64, KernelVm> = seen.iter().map(|one| (one.id, *one)).collect();
        let mut changed = false;
        self.vms.retain_mut(|vm| match new.remove(&vm.kernel.id) {
            Some(one) => {
                // Shares are by size unless somebody says otherwise.
                changed |= vm.kernel.nr_vcpus != one.nr_vcpus;
                vm.kernel = one;
                true
            }
            None => {
                tracing::info!("VM {} is gone", vm.name);
                changed = true;
                false
            }
        });
        for one in seen.iter().filter(|one| new.contains_key(&one.id)) {
            let name = vm_name(one.tgid);
            tracing::info!("VM {name} found (pid {})", one.tgid);
            let (cgroup, libvirt) = (Vec::new(), Metadata::default());
            let mut vm = Vm { kernel: *one, name, cgroup, libvirt };
            vm.look_at_sources();
            self.vms.push(vm);
            changed = true;
        }
        let due = |last: Instant| now.duration_since(last) >= SOURCE_INTERVAL;
        if self.looked_at_sources.is_none_or(due) {
            self.looked_at_sources = Some(now);
            for vm in &mut self.vms {
                changed |= vm.look_at_sources();
            }
        }
        changed
    }

    /// The VMs, in the order they were found.
    pub fn vms(&self) -> &[Vm] {
        &self.vms
    }

    /// The VM of that name.
    ///
    /// # Errors
    /// When there is none, or more than one.
    pub fn find(&self, name: &str) -> Result<Option<&Vm>, String> {
        let mut named = self.vms.iter().filter(|vm| vm.name == name);
        let (first, others) = (named.next(), named.count());
        match others {
            0 => Ok(first),
            _ => {
                Err(format!("{} VMs are named {name:?}; give them names of their own", others + 1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn vm(id: u64, name: &str) -> Vm {
        Vm::for_test(KernelVm::for_test(id), name, Vec::new())
    }

    #[test]
    fn an_order_meets_the_vm_that_was_meant_or_nobody() {
        let vms = vec![vm(1, "web"), vm(2, "db"), vm(3, "db")];
        let herd = Herd { vms, looked_at_sources: None };
        assert_eq!(herd.find("web").unwrap().unwrap().kernel.id, 1);
        assert!(herd.find("nobody").unwrap().is_none());
        assert!(herd.find("db").unwrap_err().contains("names of their own"));
    }

    #[test]
    fn who_comes_and_goes_is_noted() {
        let (mut herd, now) = (Herd::default(), Instant::now());
        assert!(herd.look(&[KernelVm::for_test(1)], now));
        assert!(!herd.look(&[KernelVm::for_test(1)], now));
        let wider = KernelVm { nr_vcpus: 9, ..KernelVm::for_test(1) };
        assert!(herd.look(&[wider], now), "its shares by size follow");
        assert!(herd.look(&[], now) && herd.vms().is_empty());
    }

    #[test]
    fn metadata_are_read_again_when_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("web.xml");
        let text = |shares: &str| {
            format!("<domain><d:cpu xmlns:d='urn:drover:cpu' shares='{shares}'/></domain>")
        };
        let write = |text: &str, at_s: u64| {
            fs::write(&file, text).unwrap();
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(at_s);
            fs::File::options().write(true).open(&file).unwrap().set_modified(at).unwrap();
        };
        let (mut metadata, dirs) = (Metadata::default(), [dir.path()]);
        assert!(!metadata.look(&dirs, "web"));
        write(&text("5"), 1);
        assert!(metadata.look(&dirs, "web") && !metadata.look(&dirs, "web"));
        write("<domain>", 2);
        assert!(!metadata.look(&dirs, "web"), "what it said before still counts");
        assert!(metadata.layer.is_some());
        write(&text("6"), 3);
        assert!(metadata.look(&dirs, "web"));
        fs::remove_file(&file).unwrap();
        assert!(metadata.look(&dirs, "web") && metadata.layer.is_none());
    }
}
