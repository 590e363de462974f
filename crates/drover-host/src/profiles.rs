// SPDX-License-Identifier: GPL-2.0-only
//! What VMs mostly do: reads the evidence (drover-core profile.rs) from what the kernel tells of processes.
//!
//! CPU time and waits are the scheduler's own counts. How often threads sleep stands in their `status`, what disks
//! moved in the `io.stat` of a VM's own cgroup, and what the network moved at its tap, which the VMM's command line
//! names. To read that takes 10 µs or so for a thread, so every 5 s so many VMs are read as have 256 threads together,
//! in turn: 0.1 % of a pCPU, on hosts of any size.
//!
//! Limitations. A VM that shares its cgroup with another, or a cgroup without the `io` controller, has no bytes of
//! disks; one whose tap was handed over as a file descriptor, none of the network.

use crate::files::{self, THREADS_MAX};
use crate::registry::Vm;
use crate::scheduler::KernelVm;
use crate::status::ProfileStatus;
use drover_core::profile::{Evidence, Profiled};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often some VMs are read.
const LOOKS: Duration = Duration::from_secs(5);
/// So many threads in one look; of a VM with more, all.
const THREADS_A_LOOK: u32 = 256;
/// So much is read of a command line.
const COMMAND_MAX: usize = 64 << 10;

/// What all VMs mostly do.
#[derive(Debug)]
pub struct Profiles {
    /// Where /proc and /sys are.
    root: PathBuf,
    looked: Option<Instant>,
    /// The slot to go on with.
    next: u32,
    known: HashMap<u64, Known>,
}

/// A VM, as it was read last.
#[derive(Debug)]
struct Known {
    at: Instant,
    kernel: KernelVm,
    sleeps: u64,
    moved_bytes: Option<u64>,
    shown: Option<(Profiled, Evidence)>,
}

impl Profiles {
    /// Of the host whose files are there.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), looked: None, next: 0, known: HashMap::new() }
    }

    /// Reads some of the VMs, which are in the order of slots, if it is time.
    pub fn look(&mut self, vms: &[Vm], memory_mib_s: impl Fn(u64) -> Option<f64>, now: Instant) {
        if self.looked.is_some_and(|looked| now.duration_since(looked) < LOOKS) {
            return;
        }
        self.looked = Some(now);
        self.known.retain(|id, _| vms.iter().any(|vm| vm.kernel.id == *id));
        let begin = vms.partition_point(|vm| vm.kernel.slot < self.next);
        let mut threads = 0;
        self.next = 0;
        // Those up to the end; from the first on at the next look.
        for vm in vms[begin..].iter().filter(|vm| !vm.is_container()) {
            if threads > 0 && threads + vm.kernel.nr_threads > THREADS_A_LOOK {
                self.next = vm.kernel.slot;
                return;
            }
            threads += vm.kernel.nr_threads;
            let alone = is_alone(&self.root, vm, vms);
            self.read(vm, alone, memory_mib_s(vm.kernel.id), now);
        }
    }

    fn read(&mut self, vm: &Vm, alone: bool, memory_mib_s: Option<f64>, now: Instant) {
        let kernel = vm.kernel;
        let sleeps = sleeps(&self.root, kernel.tgid);
        let disks = if alone { disk_bytes(&self.root, kernel.tgid) } else { None };
        let network = network_bytes(&self.root, kernel.tgid);
        let moved_bytes = disks.or(network).map(|_| disks.unwrap_or(0) + network.unwrap_or(0));
        let before = self.known.remove(&kernel.id);
        let shown = before.and_then(|before| {
            let evidence = Evidence {
                memory_mib_s,
                ..evidence(&before, &kernel, (sleeps, moved_bytes), now)?
            };
            let seen = evidence.profile();
            let mut shown = before.shown.map_or_else(|| Profiled::new(seen), |(shown, _)| shown);
            shown.look(seen);
            Some((shown, evidence))
        });
        self.known.insert(kernel.id, Known { at: now, kernel, sleeps, moved_bytes, shown });
    }

    /// What that VM mostly does; none: it was not read twice yet.
    pub fn of(&self, id: u64) -> Option<ProfileStatus> {
        let (shown, evidence) = self.known.get(&id)?.shown.as_ref()?;
        Some(ProfileStatus { profile: shown.profile, evidence: *evidence })
    }
}

/// What happened since it was read before; none: a counter ran backwards, as those of a thread that ended do.
fn evidence(
    before: &Known,
    kernel: &KernelVm,
    (sleeps, moved_bytes): (u64, Option<u64>),
    now: Instant,
) -> Option<Evidence> {
    let since = |figure: fn(&KernelVm) -> u64| figure(kernel).checked_sub(figure(&before.kernel));
    let seconds = |ns: u64| Duration::from_nanos(ns).as_secs_f64();
    let (vcpus, helpers) = (since(|vm| vm.vcpu_run_ns)?, since(|vm| vm.helper_run_ns)?);
    let moved = |bytes: u64| moved_bytes?.checked_sub(bytes);
    Some(Evidence {
        window_s: now.duration_since(before.at).as_secs_f64(),
        cpu_s: seconds(vcpus + helpers),
        helper_cpu_s: seconds(helpers),
        ready_s: seconds(since(|vm| vm.ready_ns)?),
        sleeps: sleeps.checked_sub(before.sleeps)?,
        moved_bytes: before.moved_bytes.and_then(moved),
        memory_mib_s: None,
    })
}

fn process(root: &Path, tgid: u32) -> PathBuf {
    root.join(format!("proc/{tgid}"))
}

/// How often its threads went to sleep by themselves in their lives.
fn sleeps(root: &Path, tgid: u32) -> u64 {
    let of_thread = |dir: std::fs::DirEntry| -> Option<u64> {
        let status = files::kernel(&dir.path().join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse().ok()
    };
    files::entries(&process(root, tgid).join("task"), THREADS_MAX).filter_map(of_thread).sum()
}

/// The directory of its cgroup, with all threads of it: of a unit of systemd if it is in one.
fn cgroup(root: &Path, tgid: u32) -> Option<PathBuf> {
    let text = files::kernel(&process(root, tgid).join("cgroup")).ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let unit = path.split_inclusive('/').scan(String::new(), |to, part| {
        to.push_str(part);
        Some(to.trim_end_matches('/').to_owned())
    });
    let units: Vec<String> = unit.collect();
    let own = units.iter().rev().find(|path| path.ends_with(".scope")).or(units.last())?;
    (!own.is_empty()).then(|| root.join("sys/fs/cgroup").join(own))
}

/// Is no other VM in its cgroup?
fn is_alone(root: &Path, vm: &Vm, vms: &[Vm]) -> bool {
    let own = cgroup(root, vm.kernel.tgid);
    let others = vms.iter().filter(|it| !it.is_container() && it.kernel.id != vm.kernel.id);
    own.is_some() && others.map(|it| cgroup(root, it.kernel.tgid)).all(|other| other != own)
}

/// What it read from disks and wrote there.
fn disk_bytes(root: &Path, tgid: u32) -> Option<u64> {
    let text = files::kernel(&cgroup(root, tgid)?.join("io.stat")).ok()?;
    let fields = text.split_ascii_whitespace();
    let bytes = fields.filter_map(|field| {
        let value = field.strip_prefix("rbytes=").or_else(|| field.strip_prefix("wbytes="))?;
        value.parse::<u64>().ok()
    });
    Some(bytes.sum())
}

/// What went through its taps.
fn network_bytes(root: &Path, tgid: u32) -> Option<u64> {
    let (line, _) = files::head(&process(root, tgid).join("cmdline"), COMMAND_MAX).ok()?;
    let line = String::from_utf8_lossy(&line).into_owned();
    let names = line.split(['\0', ',']).filter_map(|part| part.strip_prefix("ifname="));
    let count = |tap: &str, way: &str| -> Option<u64> {
        // What a user writes into a command line is no path.
        let plain = tap.len() < 16 && !tap.contains(['/', '.']);
        let file = root.join(format!("sys/class/net/{tap}/statistics/{way}_bytes"));
        plain.then(|| files::kernel(&file).ok()?.trim().parse().ok())?
    };
    let taps = names.filter_map(|tap| Some(count(tap, "rx")? + count(tap, "tx")?));
    taps.reduce(|a, b| a + b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_host::host;
    use drover_core::profile::Profile;
    use std::fs;

    fn vm(id: u64, tgid: u32, kernel: KernelVm) -> Vm {
        let kernel = KernelVm { tgid, id, slot: u32::try_from(id).unwrap(), ..kernel };
        Vm::for_test(kernel, &format!("vm{id}"), Vec::new())
    }

    fn status(sleeps: u32) -> String {
        format!("Name:\tqemu\nvoluntary_ctxt_switches:\t{sleeps}\nnonvoluntary_ctxt_switches:\t9\n")
    }

    #[test]
    fn what_is_read_of_a_vm_says_what_it_does() {
        let scope = "machine.slice/machine-web.scope";
        let dir = host(&[
            ("proc/7/cgroup", &format!("0::/{scope}/libvirt/emulator\n")),
            ("proc/7/cmdline", "qemu\0-netdev\0tap,id=n0,ifname=tap0,vhost=on\0"),
            ("proc/7/task/7/status", &status(100)),
            ("proc/7/task/8/status", &status(50)),
            (&format!("sys/fs/cgroup/{scope}/io.stat"), "8:0 rbytes=1000 wbytes=24 rios=3\n"),
            ("sys/class/net/tap0/statistics/rx_bytes", "500\n"),
            ("sys/class/net/tap0/statistics/tx_bytes", "500\n"),
        ]);
        let (mut profiles, begun) = (Profiles::new(dir.path()), Instant::now());
        let quiet = vm(1, 7, KernelVm::for_test(1));
        profiles.look(&[quiet], |_| None, begun);
        assert_eq!(profiles.of(1), None, "it was read once");
        let path = |name: &str| dir.path().join(name);
        fs::write(path("proc/7/task/8/status"), status(9050)).unwrap();
        fs::write(path("sys/class/net/tap0/statistics/rx_bytes"), "188743680\n").unwrap();
        fs::write(path(&format!("sys/fs/cgroup/{scope}/io.stat")), "8:0 rbytes=4000 wbytes=24\n")
            .unwrap();
        let ran = KernelVm {
            vcpu_run_ns: 1_100_000_000,
            helper_run_ns: 400_000_000,
            ready_ns: 250_000_000,
            ..KernelVm::for_test(1)
        };
        profiles.look(&[vm(1, 7, ran)], |_| Some(900.0), begun + LOOKS);
        let found = profiles.of(1).unwrap();
        assert_eq!(found.profile, Profile::Io);
        assert_eq!(found.evidence.sleeps, 9000);
        assert_eq!(found.evidence.moved_bytes, Some(188_743_680 - 500 + 3000));
        assert!((found.evidence.cpu_s - 1.5).abs() < 1e-9 && found.evidence.ready_s > 0.2);
    }

    #[test]
    fn bytes_of_a_cgroup_that_two_share_are_nobodys() {
        let dir = host(&[
            ("proc/7/cgroup", "0::/vms\n"),
            ("proc/8/cgroup", "0::/vms\n"),
            ("proc/9/cgroup", "0::/\n"),
            ("sys/fs/cgroup/vms/io.stat", "8:0 rbytes=4000 wbytes=24\n"),
        ]);
        let vms: Vec<Vm> = (1..4)
            .map(|id| vm(id, 6 + u32::try_from(id).unwrap(), KernelVm::for_test(id)))
            .collect();
        assert!(vms.iter().all(|one| !is_alone(dir.path(), one, &vms)));
        assert!(is_alone(dir.path(), &vms[0], &vms[..1]));
        assert_eq!(disk_bytes(dir.path(), 7), Some(4024));
    }

    #[test]
    fn a_tap_is_a_name_and_no_path() {
        let dir = host(&[("proc/7/cmdline", "x\0-netdev\0tap,ifname=../../../../etc/passwd\0")]);
        assert_eq!(network_bytes(dir.path(), 7), None);
    }

    #[test]
    fn vms_take_turns_where_they_have_many_threads() {
        let dir = host(&[]);
        let (mut profiles, mut now) = (Profiles::new(dir.path()), Instant::now());
        let wide = KernelVm { nr_threads: 100, ..KernelVm::for_test(1) };
        let vms: Vec<Vm> = (1..=5).map(|id| vm(id, 7, wide)).collect();
        for seen in [2, 4, 5, 5] {
            profiles.look(&vms, |_| None, now);
            assert_eq!(profiles.known.len(), seen);
            profiles.look(&vms, |_| None, now + LOOKS / 2);
            assert_eq!(profiles.known.len(), seen, "too early");
            now += LOOKS;
        }
        profiles.look(&vms[..1], |_| None, now);
        assert_eq!(profiles.known.len(), 1, "who left is forgotten");
    }

    #[test]
    fn counters_that_run_backwards_are_no_evidence() {
        let dir = host(&[("proc/7/task/7/status", &status(100))]);
        let (mut profiles, begun) = (Profiles::new(dir.path()), Instant::now());
        profiles.look(&[vm(1, 7, KernelVm::for_test(1))], |_| None, begun);
        fs::write(dir.path().join("proc/7/task/7/status"), status(7)).unwrap();
        profiles.look(&[vm(1, 7, KernelVm::for_test(1))], |_| None, begun + LOOKS);
        assert_eq!(profiles.of(1), None);
    }
}
