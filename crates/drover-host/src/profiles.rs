// SPDX-License-Identifier: GPL-2.0-only
//! What each VM's threads, disks and taps did, for [`drover_core::profile`], under any scheduler.
//!
//! | what | from |
//! |---|---|
//! | CPU time, time ready | `/proc/PID/task/TID/schedstat` |
//! | how often it slept | voluntary switches in `status` |
//! | which threads are vCPUs | what QEMU, Cloud Hypervisor and Firecracker call them; else guest time in `stat` |
//! | bytes to and from disks and the network | [`crate::io_bytes`] |
//!
//! A thread of the daemon's reads that, but for the bytes, which who may look into others reads for it (`helper`). A VM is
//! read four times, a second apart, and every 4 s from then on, which is what a class is of; one that has used no CPU time
//! since did nothing, and is not read. Some 500 threads are read a second at most, or what a fiftieth of a pCPU can, and VMs
//! take turns beyond that.
//!
//! Limitations. A vhost worker of an older kernel, which is no
//! thread of the VM's process, is not seen; the bytes of its tap are.

use crate::files::{self, THREADS_MAX, field};
use crate::helper::{Helper, Op};
use crate::io_bytes::ByteCounts;
use crate::kernel::KernelVm;
use crate::pace::{LOOKS_ONE_IN, cpu_time, next_after};
use drover_core::profile::{Counted, INTERVAL, Profile, Profiler};
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// So many threads are read at once, and the rest of the last VM's.
const THREADS_AT_ONCE: usize = 512;
/// A VM that is new is read each time, so often; later every fourth time.
const READINGS_IN_A_ROW: u32 = 4;
const EVERY: u32 = 4;

/// A VM to be read.
#[derive(Debug, Clone, Copy)]
pub struct Process {
    /// The VM's number.
    pub vm: u64,
    /// Its process.
    pub pid: u32,
    /// The CPU time that its threads have used, where the kernel's part counts that.
    pub used_ns: Option<u64>,
}

impl Process {
    /// Of that VM.
    pub fn of(vm: &KernelVm) -> Self {
        Self { vm: vm.id, pid: vm.tgid, used_ns: Some(vm.vcpu_run_ns + vm.helper_run_ns) }
    }
}

/// Reads what VMs did.
#[derive(Debug)]
pub struct Reader {
    proc: PathBuf,
    vms: HashMap<u64, Known>,
    /// Which VM is next.
    turn: usize,
    /// Who looks into others for this process; none: it may itself.
    helper: Option<Arc<Helper>>,
}

/// What is known of one VM.
#[derive(Debug, Default)]
struct Known {
    counted: Counted,
    threads: HashMap<u32, Thread>,
    bytes: ByteCounts,
    readings: u32,
    /// So often it need not be read.
    rests: u32,
    /// What it had used when it was read last, if that is counted.
    used_ns: Option<u64>,
    /// Its VMM calls vCPUs by names that are known.
    names_vcpus: bool,
}

/// A thread when it was last read.
#[derive(Debug, Clone, Copy, Default)]
struct Thread {
    is_vcpu: bool,
    ran_ns: u64,
    ready_ns: u64,
    sleeps: u64,
}

impl Reader {
    /// On a host with these processes: `/proc`, or a test's.
    pub fn new(proc: &Path) -> Self {
        Self { proc: proc.to_owned(), vms: HashMap::new(), turn: 0, helper: None }
    }

    /// Reads these, or as many as may be read at once. What a thread did before it was first seen counts as nothing.
    pub fn read(&mut self, vms: &[Process]) -> Vec<(u64, Counted)> {
        let here: BTreeSet<u64> = vms.iter().map(|process| process.vm).collect();
        self.vms.retain(|id, _| here.contains(id));
        let (mut read, mut threads) = (Vec::new(), 0);
        for _ in 0..vms.len() {
            if threads >= THREADS_AT_ONCE {
                break;
            }
            self.turn = (self.turn + 1) % vms.len();
            let Process { vm, pid, used_ns } = vms[self.turn];
            let known = self.vms.entry(vm).or_default();
            if known.rests > 0 {
                known.rests -= 1;
                continue;
            }
            if used_ns.is_none() || used_ns != known.used_ns {
                known.used_ns = used_ns;
                known.read(&self.proc.join(pid.to_string()), pid, self.helper.as_deref());
                threads += known.threads.len();
            }
            read.push((vm, known.counted));
        }
        read
    }
}

impl Known {
    fn read(&mut self, process: &Path, pid: u32, helper: Option<&Helper>) {
        let mut threads = HashMap::new();
        for entry in files::entries(&process.join("task"), THREADS_MAX) {
            let Some(tid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let before = self.threads.get(&tid).copied();
            let Some(mut now) = Thread::read(&entry.path()) else { continue };
            self.names_vcpus |= now.is_vcpu;
            // Where a VMM names its vCPUs nobody else is one.
            now.is_vcpu |= before.is_some_and(|thread| thread.is_vcpu)
                || (!self.names_vcpus && has_guest_time(&entry.path()));
            self.add(before.unwrap_or(now), now);
            threads.insert(tid, now);
        }
        self.threads = threads;
        self.readings += 1;
        self.rests = if self.readings < READINGS_IN_A_ROW { 0 } else { EVERY - 1 };
        let bytes = match helper {
            None => self.bytes.read(process),
            Some(helper) => {
                let text = |op| {
                    let bytes = helper.names.ask(op, pid, (Vec::new(), Vec::new())).ok()?;
                    Some(String::from_utf8_lossy(&bytes).into_owned())
                };
                let taps = || Some(text(Op::Taps)?.lines().map(str::to_owned).collect());
                self.bytes.read_with(process, || text(Op::Io), taps)
            }
        };
        (self.counted.block_bytes, self.counted.network_bytes) =
            (bytes.block_bytes, bytes.network_bytes);
    }

    /// What the thread did since it was last read.
    fn add(&mut self, before: Thread, now: Thread) {
        let counted = &mut self.counted;
        let (ran_ns, sleeps) = match now.is_vcpu {
            true => (&mut counted.vcpu_ns, &mut counted.vcpu_sleeps),
            false => (&mut counted.helper_ns, &mut counted.helper_sleeps),
        };
        *ran_ns += now.ran_ns.saturating_sub(before.ran_ns);
        *sleeps += now.sleeps.saturating_sub(before.sleeps);
        counted.ready_ns += now.ready_ns.saturating_sub(before.ready_ns);
    }
}

impl Thread {
    /// A vCPU if its name says so; none: it has gone.
    fn read(thread: &Path) -> Option<Self> {
        let status = files::kernel(&thread.join("status")).ok()?;
        let times = files::kernel(&thread.join("schedstat")).ok()?;
        let mut times = times.split_whitespace().map(str::parse);
        let (ran_ns, ready_ns) = (times.next()?.ok()?, times.next()?.ok()?);
        let sleeps = field(&status, "voluntary_ctxt_switches:")?.parse().ok()?;
        let is_vcpu = field(&status, "Name:").is_some_and(is_name_of_vcpu);
        Some(Self { is_vcpu, ran_ns, ready_ns, sleeps })
    }
}

fn is_name_of_vcpu(name: &str) -> bool {
    let number = |text: Option<&str>| text.is_some_and(|text| text.parse::<u32>().is_ok());
    let of_qemu = name.strip_prefix("CPU ").and_then(|rest| rest.strip_suffix("/KVM"));
    let of_others = name.strip_prefix("fc_vcpu ").or_else(|| name.strip_prefix("vcpu"));
    number(of_qemu) || number(of_others)
}

/// Has the thread been seen in a guest? The kernel counts that at ticks.
fn has_guest_time(thread: &Path) -> bool {
    let stat = files::kernel(&thread.join("stat")).unwrap_or_default();
    // The name, which may be anything, ends with the last bracket; field 43 is the 41st behind it.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    rest.split_whitespace().nth(40).is_some_and(|ticks| ticks != "0")
}

/// What was read, when, and the CPU time that took.
type Reading = (Instant, Vec<(u64, Counted)>, Duration);

/// Keeps the profiles of all VMs, by a thread that reads.
#[derive(Debug)]
pub struct Profiles {
    ask: Sender<Vec<Process>>,
    told: Receiver<Reading>,
    begun: Instant,
    asked: Option<Instant>,
    took: Duration,
    profiler: Profiler,
}

impl Profiles {
    /// Starts the thread, in a process that may look into others.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start() -> std::io::Result<Self> {
        Self::start_with(None)
    }

    /// The same, in one that may not.
    pub(crate) fn start_by(helper: Arc<Helper>) -> std::io::Result<Self> {
        Self::start_with(Some(helper))
    }

    fn start_with(helper: Option<Arc<Helper>>) -> std::io::Result<Self> {
        let (ask, asked) = channel::<Vec<Process>>();
        let (tell, told) = channel();
        let work = move || {
            let mut reader = Reader { helper, ..Reader::new(Path::new("/proc")) };
            for vms in asked {
                let before = cpu_time();
                let read = reader.read(&vms);
                if tell.send((Instant::now(), read, cpu_time() - before)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("drover-profile".to_owned()).spawn(work)?;
        let begun = Instant::now();
        Ok(Self {
            ask,
            told,
            begun,
            asked: None,
            took: Duration::ZERO,
            profiler: Profiler::default(),
        })
    }

    /// Takes what was read, and has these read again if it is time to. `memory_mib_s` is what the VM moves to and from
    /// memory, where the host counts that.
    pub fn look(
        &mut self,
        vms: impl Iterator<Item = Process>,
        memory_mib_s: impl Fn(u64) -> Option<f64>,
        now: Instant,
    ) {
        for (at, read, took) in self.told.try_iter() {
            self.took = took;
            for (id, counted) in read {
                let counted = Counted { memory_mib_s: memory_mib_s(id), ..counted };
                self.profiler.look(id, counted, at.duration_since(self.begun));
            }
        }
        let interval = next_after(self.took, INTERVAL, LOOKS_ONE_IN);
        if self.asked.is_some_and(|asked| now.duration_since(asked) < interval) {
            return;
        }
        self.asked = Some(now);
        let vms: Vec<Process> = vms.collect();
        let here: BTreeSet<u64> = vms.iter().map(|process| process.vm).collect();
        self.profiler.retain(|id| here.contains(&id));
        // The thread ends with this one.
        let _ = self.ask.send(vms);
    }

    /// Without a thread that reads: what is seen is for the test to say.
    #[cfg(test)]
    pub(crate) fn for_test() -> Self {
        let (ask, told, begun) = (channel().0, channel().1, Instant::now());
        Self { ask, told, begun, asked: None, took: Duration::ZERO, profiler: Profiler::default() }
    }

    /// What a test has seen of a VM.
    #[cfg(test)]
    pub(crate) fn note(&mut self, id: u64, counted: Counted, at: Duration) {
        self.profiler.look(id, counted, at);
    }

    /// A VM's class; none: too little is known yet.
    pub fn of(&self, id: u64) -> Option<Profile> {
        self.profiler.profile(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_host::host;
    use std::fs;

    const STAT: &str = "8 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39";

    const ONE: Process = Process { vm: 1, pid: 7, used_ns: None };

    fn status(name: &str, sleeps: u64) -> String {
        format!(
            "Name:\t{name}\nvoluntary_ctxt_switches:\t{sleeps}\nnonvoluntary_ctxt_switches:\t9\n"
        )
    }

    #[test]
    fn what_threads_disks_and_taps_did_is_added_up() {
        let stat = |ticks: &str| format!("{STAT} {ticks} 0 0\n");
        let dir = host(&[
            ("7/task/8/status", &status("CPU 0/KVM", 10)),
            ("7/task/8/schedstat", "5000 300 20\n"),
            ("7/task/9/status", &status("qemu", 100)),
            ("7/task/9/schedstat", "100 10 100\n"),
            ("7/task/9/stat", &stat("0")),
            ("7/io", "rchar: 9\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 1\n"),
            ("7/fdinfo/3", "pos:\t0\niff:\tvnet0\n"),
            (
                "7/net/dev",
                "Inter-|\n face |\n vnet0: 1000 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0\n lo: 7 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n",
            ),
        ]);
        let mut reader = Reader::new(dir.path());
        let (_, first) = reader.read(&[ONE])[0];
        assert_eq!((first.vcpu_ns, first.helper_sleeps), (0, 0), "it begins now");
        assert_eq!((first.block_bytes, first.network_bytes), (Some(0), Some(0)));
        for (path, text) in [
            ("7/task/8/schedstat", "7000 400 21\n".to_owned()),
            ("7/task/8/status", status("CPU 0/KVM", 13)),
            ("7/task/9/status", status("qemu", 150)),
            ("7/io", "read_bytes: 5000\nwrite_bytes: 8192\n".to_owned()),
        ] {
            fs::write(dir.path().join(path), text).unwrap();
        }
        let (_, then) = reader.read(&[ONE])[0];
        assert_eq!((then.vcpu_ns, then.vcpu_sleeps, then.helper_sleeps), (2000, 3, 50));
        assert_eq!(then.ready_ns, 100);
        fs::remove_dir_all(dir.path().join("7")).unwrap();
        let (_, gone) = reader.read(&[ONE])[0];
        assert_eq!(
            (gone.vcpu_ns, gone.block_bytes, gone.network_bytes),
            (2000, Some(904), Some(0))
        );
    }

    #[test]
    fn vcpus_without_a_name_are_known_by_their_time_in_the_guest() {
        let stat = |ticks: &str| format!("{STAT} {ticks} 0 0\n");
        let dir = host(&[
            ("7/task/8/status", &status("vmm", 4)),
            ("7/task/8/schedstat", "50 0 5\n"),
            ("7/task/8/stat", &stat("3")),
            ("7/task/9/status", &status("vmm", 4)),
            ("7/task/9/schedstat", "50 0 5\n"),
            ("7/task/9/stat", &stat("0")),
        ]);
        let mut reader = Reader::new(dir.path());
        reader.read(&[ONE]);
        for (path, text) in [("7/task/8/schedstat", "60 1 6\n"), ("7/task/9/schedstat", "57 1 6\n")]
        {
            fs::write(dir.path().join(path), text).unwrap();
        }
        let (_, then) = reader.read(&[ONE])[0];
        assert_eq!((then.vcpu_ns, then.helper_ns), (10, 7));
    }

    #[test]
    fn who_is_known_is_read_every_fourth_time() {
        let mut reader = Reader::new(Path::new("/nonexistent"));
        let read: Vec<usize> = (0..12).map(|_| reader.read(&[ONE]).len()).collect();
        assert_eq!(read, [1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1]);
    }

    #[test]
    fn who_used_nothing_is_not_read() {
        let dir = host(&[
            ("7/task/8/status", &status("CPU 0/KVM", 10)),
            ("7/task/8/schedstat", "5000 300 20\n"),
        ]);
        let mut reader = Reader::new(dir.path());
        let mut vcpu_ns =
            |used_ns| reader.read(&[Process { used_ns: Some(used_ns), ..ONE }])[0].1.vcpu_ns;
        assert_eq!(vcpu_ns(5000), 0);
        fs::write(dir.path().join("7/task/8/schedstat"), "7000 300 20\n").unwrap();
        assert_eq!(vcpu_ns(5000), 0, "what is there now was not looked at");
        assert_eq!(vcpu_ns(7000), 2000);
    }

    #[test]
    fn vms_take_turns_where_there_are_many_threads() {
        let mut reader = Reader::new(Path::new("/nonexistent"));
        let vms = [ONE, Process { vm: 2, ..ONE }, Process { vm: 3, ..ONE }];
        assert_eq!(reader.read(&vms).len(), 3);
        assert_eq!((reader.read(&[]).len(), reader.vms.len()), (0, 0));
    }

    #[test]
    fn vcpus_are_known_by_what_vmms_call_them() {
        for name in ["CPU 0/KVM", "CPU 255/KVM", "vcpu3", "fc_vcpu 1"] {
            assert!(is_name_of_vcpu(name), "{name}");
        }
        for name in ["qemu-kvm", "CPU /KVM", "vcpu", "vhost-77", "IO iothread0"] {
            assert!(!is_name_of_vcpu(name), "{name}");
        }
    }
}
