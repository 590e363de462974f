// SPDX-License-Identifier: GPL-2.0-only
//! `drover observe` keeps books and answers under the kernel's own scheduler and beside Drover, and `drover why` names
//! causes that were planted.
//!
//! Of the host's four pCPUs this job keeps to the first. Two NUMA nodes have two each.

use std::fs;
use std::num::NonZeroUsize;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use drover_core::recording_file;
use drover_host::control::{Answer, OBSERVER_PATH, Request, ask};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous};
use nix::unistd::Pid;
use serde_json::Value;

use crate::host::{self, Daemon, drover, refusal, say};
use crate::tasks::{RealTimeHog, confine};
use crate::top::{END, programs};
use crate::vms::{CPU, MicroVm};

const NOBODY: u32 = 65_534;
const READERS: u32 = 4711;
const CGROUPS: &str = "/sys/fs/cgroup";
/// How far a figure may be from the truth, in % of a pCPU.
const TOLERANCE_PCT: f64 = 1.0;
/// So long a plant grows before it is looked at, and so much of that is looked at.
const GROWS: Duration = Duration::from_millis(4500);
const SECONDS: &str = "3";

/// What keeps a VM waiting. What a kernel has to tell comes first.
const PLANTS: [fn(); 9] = [
    nothing_wrong,
    own_limit,
    real_time,
    pools_limit,
    more_shares,
    own_siblings,
    pinned_together,
    full_node,
    kernel_threads,
];

#[test]
#[ignore = "runs inside the lab"]
fn inside() {
    observe(PLANTS.len());
}

/// For a second kernel.
#[test]
#[ignore = "runs inside the lab"]
fn briefly() {
    observe(host::times(PLANTS.len(), 3));
}

fn observe(plants: usize) {
    host::must_be_lab();
    confine(Pid::from_raw(0), &[0]);
    who_may_not_is_told();
    let has_sched_ext = Path::new("/sys/kernel/sched_ext").exists();
    // Newer kernels do not let go of it.
    let late = (!has_sched_ext).then(unload_kvm);
    let observer = Observer::start();
    if let Some(modules) = late {
        load_again(&modules);
    }
    it_answers_as_a_daemon();
    what_has_happened_is_recorded();
    PLANTS.iter().take(plants).for_each(|plant| plant());
    if has_sched_ext {
        let mut daemon = Daemon::start();
        say("drover");
        under_drover();
        daemon.must_serve();
        drop(daemon);
        host::wait_for_fallback();
    }
    observer.end();
}

/// Unloads KVM; the files it can be loaded from.
fn unload_kvm() -> Vec<PathBuf> {
    say("KVM is not loaded");
    let is_gone = |module: &str| {
        let _ = Command::new("rmmod").arg(module).stderr(Stdio::null()).status();
        !Path::new("/sys/module").join(module).exists()
    };
    let vendor = ["kvm_amd", "kvm_intel"];
    for module in vendor.into_iter().chain(["kvm"]) {
        host::wait_until("KVM is unloaded", Duration::from_secs(10), || is_gone(module));
    }
    let mut files: Vec<PathBuf> =
        fs::read_dir("/lib/drover-lab/modules").unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

fn load_again(modules: &[PathBuf]) {
    let list = drover(&["vm", "list"]);
    assert!(String::from_utf8_lossy(&list.stdout).contains("No VM runs here"), "{list:?}");
    say("KVM is loaded");
    for module in modules {
        // Those that are there still, and that of the other vendor, are refused.
        let _ = Command::new("insmod").arg(module).stderr(Stdio::null()).status();
    }
    assert!(Path::new("/dev/kvm").exists());
}

fn who_may_not_is_told() {
    say("who may not");
    let nobody = Command::new("drover").arg("observe").uid(NOBODY).gid(NOBODY).output().unwrap();
    assert!(refusal(&nobody).contains("sudo"));
    assert!(refusal(&drover(&["why", "web"])).contains("drover observe"));
    let last = drover(&["record", "/tmp/none.rec", "--last", "5s"]);
    assert!(refusal(&last).contains("drover observe") && !Path::new("/tmp/none.rec").exists());
}

/// `drover observe`, killed when dropped.
struct Observer(Child);

impl Observer {
    fn start() -> Self {
        fs::create_dir_all("/etc").unwrap();
        let mut groups = fs::read_to_string("/etc/group").unwrap_or_default();
        groups += &format!("drover:x:{READERS}:\n");
        fs::write("/etc/group", groups).unwrap();
        let it = Self(Command::new("drover").arg("observe").spawn().unwrap());
        let answers = || ask(OBSERVER_PATH.as_ref(), &Request::ListVms { brief: false }).is_ok();
        host::wait_until("it observes", Duration::from_secs(30), answers);
        let second = refusal(&drover(&["observe"]));
        assert!(second.contains("already runs here"), "{second}");
        it
    }

    fn end(mut self) {
        say("it is killed");
        assert!(programs() > 0);
        self.0.kill().unwrap();
        self.0.wait().unwrap();
        host::wait_until("its programs are gone", END, || programs() == 0);
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A recording that is begun after what is in it.
fn what_has_happened_is_recorded() {
    say("what has happened is recorded");
    let file = "/tmp/last.rec";
    let vm = MicroVm::start("before", 1, CPU);
    thread::sleep(Duration::from_secs(4));
    let output = drover(&["record", file, "--last", "2s"]);
    assert!(output.status.success(), "{output:?}");
    let recording = recording_file::read(&fs::read(file).unwrap()).unwrap();
    let vcpu = recording.threads.iter().find(|it| it.name == "before" && it.vcpu == Some(0));
    let vcpu = vcpu.expect("its vCPU is told of").thread;
    let last_ns = recording.events.last().unwrap().at_ns;
    assert!(last_ns - recording.head.from_ns >= 1_000_000_000, "of what came before");
    let ran = recording.events.iter().filter(|event| event.thread == vcpu);
    assert!(ran.count() > 0 && !recording.is_cut);
    let hour = drover(&["record", file, "--last", "1h"]);
    assert!(String::from_utf8_lossy(&hour.stdout).contains("It reaches back"), "{hour:?}");
    drop(vm);
    let refused = refusal(&drover(&["record", file, "--last", "2"]));
    assert!(refused.contains("30s"), "{refused}");
}

/// Two busy VMs on one pCPU; one of them is called what nobody should be.
fn it_answers_as_a_daemon() {
    say("it answers");
    let odd = "x\u{1b}[2J\u{9b}\u{202e}\nr";
    let vms = [MicroVm::start("web", 1, CPU), MicroVm::start(odd, 1, CPU)];
    vms.iter().for_each(|vm| vm.confine(&[1]));
    let list = || -> Value {
        let output = drover(&["vm", "list", "--json"]);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    host::wait_until("both are found", Duration::from_secs(5), || {
        list().as_array().is_some_and(|vms| vms.len() == 2)
    });
    let ready_s = |list: &Value| {
        let vms = list.as_array().unwrap();
        vms.iter().find(|vm| vm["name"] == "web").unwrap()["ready_s"].as_f64().unwrap()
    };
    let (before, began) = (ready_s(&list()), std::time::Instant::now());
    thread::sleep(Duration::from_secs(10));
    // Either reading is up to a second old.
    let pct = 100.0 * (ready_s(&list()) - before) / began.elapsed().as_secs_f64();
    println!("ready {pct} %");
    assert!((40.0..=60.0).contains(&pct), "{pct}");
    let why = why("web");
    let facts = &why["facts"];
    let ready_pct =
        100.0 * facts["ready_s"].as_f64().unwrap() / facts["window_s"].as_f64().unwrap();
    println!("ready {ready_pct} % of the window");
    assert!((ready_pct - 50.0).abs() <= TOLERANCE_PCT, "{why}");
    let told_s = facts["meanwhile"][0]["seconds"].as_f64().unwrap();
    assert!((told_s - facts["ready_s"].as_f64().unwrap()).abs() < 0.02 * told_s, "{why}");
    the_past_is_told();
    let commands = [
        "vm list",
        "vm list --why",
        "vm list --json",
        "metrics",
        "why web --seconds 3",
        "top --since 30s",
        "top --since 30s --batch",
        "top --since 30s --json",
    ];
    for words in commands {
        let words: Vec<&str> = words.split(' ').collect();
        let output = drover(&words);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains("web"), "{words:?}: {text}");
        assert!(!text.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{words:?}: {text:?}");
    }
    readers_may_ask_and_not_order();
}

/// Two VMs have had one pCPU for some seconds.
fn the_past_is_told() {
    let output = drover(&["top", "--since", "8s", "--json"]);
    let past: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let vms = past["vms"].as_array().unwrap();
    let web = vms.iter().find(|vm| vm["name"] == "web").unwrap();
    for figure in ["ready_mcpu", "got_mcpu"] {
        let seconds: Vec<f64> =
            web[figure].as_array().unwrap().iter().filter_map(Value::as_f64).collect();
        let mean = seconds.iter().sum::<f64>() / seconds.len() as f64;
        println!("{figure} in the past: {mean}");
        assert!(seconds.len() >= 6 && (400.0..=600.0).contains(&mean), "{web}");
    }
}

fn readers_may_ask_and_not_order() {
    let by = |gid: u32, words: &[&str]| {
        Command::new("drover").args(words).uid(NOBODY).gid(gid).output().unwrap()
    };
    let list = by(READERS, &["vm", "list"]);
    assert!(list.status.success() && !String::from_utf8_lossy(&list.stdout).contains("web"));
    let past = by(READERS, &["top", "--since", "30s"]);
    let told = String::from_utf8_lossy(&past.stdout);
    assert!(past.status.success() && told.starts_with("No VM ran here"), "{past:?}");
    assert!(refusal(&by(READERS, &["why", "web"])).contains("no VM web of yours"));
    let pools = ["pool", "list", "--socket", OBSERVER_PATH];
    assert!(refusal(&by(READERS, &pools)).contains("for root"));
    assert!(refusal(&by(NOBODY, &["why", "web"])).contains("group drover"));
    let order = ["vm", "set", "web", "--shares", "high"];
    assert!(refusal(&drover(&order)).contains("only `drover observe` runs here"));
    let order = ["vm", "set", "web", "--shares", "high", "--socket", OBSERVER_PATH];
    assert!(refusal(&by(READERS, &order)).contains("takes no orders"));
    let forget = Request::ForgetVm { name: "web".to_owned() };
    assert!(!matches!(ask(OBSERVER_PATH.as_ref(), &forget), Ok(Answer::Done)));
}

/// What `drover why` says of a VM now.
fn why(vm: &str) -> Value {
    let output = drover(&["why", vm, "--seconds", SECONDS, "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// After a while that cause stands first.
fn is_due_to(cause: &str) {
    thread::sleep(GROWS);
    let why = why("web");
    let page = drover(&["why", "web", "--seconds", SECONDS]);
    println!("{}", String::from_utf8_lossy(&page.stdout));
    let causes = why["causes"].as_array().unwrap();
    match causes.first() {
        Some(first) => assert_eq!(first["cause"], cause, "{why}"),
        None => assert_eq!(cause, "nothing", "{why}"),
    }
}

fn vm(name: &str, vcpus: u32, pcpus: &[usize]) -> MicroVm {
    let vm = MicroVm::start(name, vcpus, CPU);
    vm.confine(pcpus);
    vm
}

/// A VM with a vCPU on each of these pCPUs, pinned there: which of them meets whom is for no balancer to say.
fn vm_one_to_one(name: &str, pcpus: &[usize]) -> MicroVm {
    let vm = vm(name, u32::try_from(pcpus.len()).unwrap(), pcpus);
    let vcpus = vm.vcpu_threads();
    assert_eq!(vcpus.len(), pcpus.len());
    vcpus.into_iter().zip(pcpus).for_each(|(vcpu, &pcpu)| confine(vcpu, &[pcpu]));
    vm
}

/// Makes a cgroup with these settings, and puts the VM there.
pub fn into_cgroup(vm: &MicroVm, path: &str, settings: &[(&str, &str)]) {
    let mut dir = CGROUPS.to_owned();
    for part in path.split('/') {
        fs::write(format!("{dir}/cgroup.subtree_control"), "+cpu").unwrap();
        dir = format!("{dir}/{part}");
        let _ = fs::create_dir(&dir);
    }
    for (file, value) in settings {
        fs::write(format!("{dir}/{file}"), value).unwrap();
    }
    fs::write(format!("{dir}/cgroup.procs"), vm.pid().to_string()).unwrap();
}

fn nothing_wrong() {
    say("nothing wrong");
    let _web = vm("web", 1, &[1]);
    is_due_to("nothing");
}

fn own_limit() {
    say("its own limit");
    let web = vm("web", 1, &[1]);
    into_cgroup(&web, "alone.scope", &[("cpu.max", "40000 100000")]);
    is_due_to("own_limit");
}

fn pools_limit() {
    say("its pool's limit");
    let vms = [vm("web", 1, &[1]), vm("db", 1, &[2])];
    into_cgroup(&vms[0], "prod.slice/web.scope", &[("cpu.weight", "100")]);
    into_cgroup(&vms[1], "prod.slice/db.scope", &[("cpu.weight", "100")]);
    fs::write(format!("{CGROUPS}/prod.slice/cpu.max"), "60000 100000").unwrap();
    is_due_to("pool_limit");
}

fn more_shares() {
    say("a neighbour with more shares");
    let vms = ["web", "db"].map(|name| vm_one_to_one(name, &[0, 1, 2, 3]));
    into_cgroup(&vms[0], "shared.slice/web.scope", &[("cpu.weight", "100")]);
    into_cgroup(&vms[1], "shared.slice/db.scope", &[("cpu.weight", "400")]);
    is_due_to("more_shares");
}

fn own_siblings() {
    say("its own siblings");
    let _web = vm("web", 2, &[1]);
    is_due_to("own_threads");
}

fn pinned_together() {
    say("pinned together");
    let _vms = [vm("web", 1, &[1]), vm("db", 1, &[1])];
    is_due_to("pinned");
}

fn full_node() {
    say("a full node");
    let _vms = ["web", "db"].map(|name| vm_one_to_one(name, &[2, 3]));
    is_due_to("node_full");
}

fn real_time() {
    say("a real-time task");
    let _web = vm("web", 1, &[1]);
    let _hog = RealTimeHog::periodic(1, Duration::from_micros(500));
    is_due_to("real_time");
}

/// ksmd compares pages without end.
fn kernel_threads() {
    const BYTES: NonZeroUsize = NonZeroUsize::new(32 << 20).unwrap();
    const KSM: &str = "/sys/kernel/mm/ksm";
    say("kernel threads");
    if !fs::exists(KSM).unwrap() {
        println!("not tried: this kernel has no KSM");
        return;
    }
    let (protection, flags) = (ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE);
    // SAFETY: new memory, which stays until this job ends; the kernel may merge what is in it.
    unsafe {
        let memory = mmap_anonymous(None, BYTES, protection, flags).unwrap();
        for (number, page) in (0..BYTES.get()).step_by(4096).enumerate() {
            memory.byte_add(page).cast::<usize>().write(number);
        }
        madvise(memory, BYTES.get(), MmapAdvise::MADV_MERGEABLE).unwrap();
    }
    let web = vm("web", 1, &[1]);
    let set = |file: &str, value: &str| fs::write(format!("{KSM}/{file}"), value).unwrap();
    set("sleep_millisecs", "0");
    set("pages_to_scan", "1000000");
    set("run", "1");
    let ksmd = fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        (name.trim() == "ksmd").then(|| entry.file_name().to_str()?.parse().ok())?
    });
    confine(Pid::from_raw(ksmd.expect("it runs")), &[1]);
    is_due_to("kernel_threads");
    set("run", "2");
    drop(web);
}

fn under_drover() {
    say("its own limit, as ordered");
    let all = [0, 1, 2, 3];
    let web = vm("web", 4, &all);
    let listed = |count: usize| {
        host::wait_until("they are found", Duration::from_secs(5), || host::list().len() == count);
    };
    listed(1);
    assert!(drover(&["vm", "set", "web", "--limit", "80%"]).status.success());
    is_due_to("own_limit");
    say("a neighbour with more shares, as ordered");
    assert!(drover(&["vm", "set", "web", "--limit", "default"]).status.success());
    let db = vm("db", 4, &all);
    listed(2);
    assert!(drover(&["vm", "set", "db", "--shares", "16000"]).status.success());
    is_due_to("more_shares");
    drop(db);
    say("co-stops");
    let busy = vm("busy", 3, &all);
    assert!(drover(&["vm", "set", "web", "--cosched", "strict"]).status.success());
    is_due_to("co_stop");
    drop((busy, web));
}
