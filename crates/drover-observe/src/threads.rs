// SPDX-License-Identifier: GPL-2.0-only
//! Who a thread is: of a VM, of a container, of the host.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use drover_core::printable::printable;
use drover_core::recording::Class;
use drover_core::why::{ENDED, Who};
use drover_host::files;

use crate::sample::Sample;

/// Where services of the host itself are.
const OF_HOST: [&str; 3] = ["/system.slice", "/user.slice", "/init.scope"];

/// Whose the threads are that a sample knows, and where to look for others.
#[derive(Debug)]
pub struct Threads {
    proc: PathBuf,
    /// Threads of VMs: the VM's process, and whether it is a vCPU.
    of_vms: HashMap<u32, (u32, bool)>,
}

/// Who a thread is, and of which VM.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Thread {
    /// What it is.
    pub who: Who,
    /// What it is called; of a thread of a VM nothing: its process says.
    pub name: String,
    /// The process of the VM it is of.
    pub vm: Option<u32>,
}

impl Threads {
    /// As that sample has them.
    pub fn of(sample: &Sample) -> Self {
        let mut of_vms = HashMap::new();
        for (pid, vm) in &sample.vms {
            of_vms.extend(vm.helpers.iter().map(|thread| (*thread, (*pid, false))));
            of_vms.extend(vm.vcpus.iter().map(|vcpu| (vcpu.thread, (*pid, true))));
        }
        Self { proc: "/proc".into(), of_vms }
    }

    /// Whether it is a vCPU of any VM.
    pub fn is_vcpu(&self, thread: u32) -> bool {
        self.of_vms.get(&thread).is_some_and(|(_, is_vcpu)| *is_vcpu)
    }

    /// Who that is.
    pub fn find(&self, thread: u32, class: Class) -> Thread {
        if thread == 0 {
            return Thread { who: Who::Idle, name: String::new(), vm: None };
        }
        if let Some((vm, is_vcpu)) = self.of_vms.get(&thread) {
            let who = if *is_vcpu { Who::Vm } else { Who::VmHelper };
            return Thread { who, name: String::new(), vm: Some(*vm) };
        }
        let dir = self.proc.join(thread.to_string());
        let name = name_of(&dir);
        let known = name.clone().unwrap_or_else(|| ENDED.to_owned());
        match class {
            Class::RealTime => Thread { who: Who::RealTime, name: known, vm: None },
            Class::Kernel => match name.as_deref().and_then(vhost_of) {
                Some(vm) => Thread { who: Who::VmHelper, name: String::new(), vm: Some(vm) },
                None => Thread { who: Who::Kernel, name: known, vm: None },
            },
            Class::Normal => match container(&dir) {
                Some(path) => Thread { who: Who::Container, name: path, vm: None },
                None => Thread { who: Who::Task, name: known, vm: None },
            },
        }
    }
}

/// What the kernel calls it; anybody may choose that.
fn name_of(dir: &Path) -> Option<String> {
    let name = files::kernel(&dir.join("comm")).ok()?;
    Some(printable(name.trim_end_matches('\n')))
}

/// vhost's workers were threads of the kernel until 6.4: `vhost-1234` works for that process.
fn vhost_of(name: &str) -> Option<u32> {
    name.strip_prefix("vhost-")?.parse().ok()
}

/// The path of its cgroup, where that is none of the host's own.
fn container(dir: &Path) -> Option<String> {
    let text = files::kernel(&dir.join("cgroup")).ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    let is_in = |slice: &str| path == slice || path.starts_with(&format!("{slice}/"));
    let is_runtime = ["docker-", "libpod-", "crio-", "cri-containerd-", "lxc"]
        .iter()
        .any(|runtime| path.rsplit('/').any(|unit| unit.starts_with(runtime)));
    let is_container = path != "/" && (is_runtime || !OF_HOST.into_iter().any(is_in));
    is_container.then(|| printable(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn threads_are_of_vms_containers_or_the_host() {
        let proc = tempfile::tempdir().unwrap();
        for (thread, comm, cgroup) in [
            (20, "make\u{1b}[2J", "/user.slice/user-0.slice"),
            (21, "nginx", "/system.slice/docker-8a.scope"),
            (22, "postgres", "/batch"),
            (23, "vhost-7", "/"),
            (24, "kworker/1:2", "/"),
        ] {
            let dir = proc.path().join(thread.to_string());
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("comm"), format!("{comm}\n")).unwrap();
            fs::write(dir.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
        }
        let of_vms = HashMap::from([(8, (7, true)), (9, (7, false))]);
        let threads = Threads { proc: proc.path().to_owned(), of_vms };
        let find = |thread, class| {
            let Thread { who, name, vm } = threads.find(thread, class);
            (who, name, vm)
        };
        let none = String::new;
        assert_eq!(find(0, Class::Kernel), (Who::Idle, none(), None));
        assert_eq!(find(8, Class::RealTime), (Who::Vm, none(), Some(7)));
        assert_eq!(find(9, Class::Normal), (Who::VmHelper, none(), Some(7)));
        assert_eq!(find(20, Class::Normal), (Who::Task, "make\u{fffd}[2J".to_owned(), None));
        assert_eq!(find(20, Class::RealTime).0, Who::RealTime);
        let docker = "/system.slice/docker-8a.scope".to_owned();
        assert_eq!(find(21, Class::Normal), (Who::Container, docker, None));
        assert_eq!(find(22, Class::Normal), (Who::Container, "/batch".to_owned(), None));
        assert_eq!(find(23, Class::Kernel), (Who::VmHelper, none(), Some(7)));
        assert_eq!(find(24, Class::Kernel), (Who::Kernel, "kworker/1:2".to_owned(), None));
        assert_eq!(find(99, Class::Normal), (Who::Task, ENDED.to_owned(), None));
        assert!(threads.is_vcpu(8) && !threads.is_vcpu(9) && !threads.is_vcpu(0));
    }
}
