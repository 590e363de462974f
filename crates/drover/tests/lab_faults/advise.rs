// SPDX-License-Identifier: GPL-2.0-only
//! `drover advise` finds faults that were planted first or second, and invents none on sound hosts.
//!
//! Of the host's four pCPUs this job keeps to the first. Two NUMA nodes have two each.

use std::thread;
use std::time::Duration;

use nix::unistd::Pid;
use serde_json::Value;

use crate::host::{self, Daemon, drover, say};
use crate::observe::into_cgroup;
use crate::tasks::confine;
use crate::vms::{CPU, MicroVm, SLEEP};

const ALL: [usize; 4] = [0, 1, 2, 3];
/// A vCPU that asks a device without a pause, whose thread takes as long as it does.
const IO: &str = r#"{"kind":"io","work_us":200,"back_end_us":100,"device_us":0}"#;
/// So long a plant grows before it is looked at.
const GROWS: Duration = Duration::from_millis(1500);
const SECONDS: &str = "3";
const FILE: &str = "/tmp/advise.rec";

/// What a sound host is, and its VMs.
type Sound = fn() -> (&'static str, Vec<MicroVm>);

/// What is planted. What takes a host of VMs that are all busy comes last.
const PLANTS: [fn(); 8] = [pins, limit, quota, emulator, memory_node, several, wide, weights];
const SOUND: [Sound; 5] = [asleep, apart, capped, room, full];

#[test]
#[ignore = "runs inside the lab"]
fn inside() {
    advise(SOUND.len(), PLANTS.len());
}

/// For a second kernel.
#[test]
#[ignore = "runs inside the lab"]
fn briefly() {
    advise(host::times(SOUND.len(), 2), host::times(PLANTS.len(), 5));
}

fn advise(sound: usize, plants: usize) {
    host::must_be_lab();
    confine(Pid::from_raw(0), &[0]);
    let refused = host::refusal(&drover(&["advise", "/tmp/none.rec"]));
    assert!(refused.contains("none.rec"), "{refused}");
    for host in SOUND.iter().take(sound) {
        let (what, vms) = host();
        say(what);
        assert_eq!(found(vms), [""; 0], "{what}");
    }
    this_host();
    PLANTS.iter().take(plants).for_each(|plant| plant());
    let daemon = Daemon::start();
    promise();
    drop(daemon);
    host::wait_for_fallback();
}

/// The rules that find something beside these VMs, the worst first.
fn found(vms: Vec<MicroVm>) -> Vec<String> {
    thread::sleep(GROWS);
    assert!(drover(&["record", FILE, "--seconds", SECONDS]).status.success());
    // What is in the recording is enough, and without them it is sooner done.
    drop(vms);
    let page = drover(&["advise", FILE]);
    println!("{}", String::from_utf8_lossy(&page.stdout));
    let output = drover(&["advise", FILE, "--json"]);
    assert!(output.status.success(), "{output:?}");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rule = |it: &Value| it["rule"].as_str().unwrap().to_owned();
    told["findings"].as_array().unwrap().iter().map(rule).collect()
}

fn is_found(rule: &str, vms: Vec<MicroVm>) {
    let found = found(vms);
    assert!(found.iter().take(2).any(|it| it == rule), "{rule}: {found:?}");
}

fn vm(name: &str, vcpus: u32, workload: &str, pcpus: &[usize]) -> MicroVm {
    let vm = MicroVm::start(name, vcpus, workload);
    vm.confine(pcpus);
    vm
}

fn asleep() -> (&'static str, Vec<MicroVm>) {
    ("sound: it sleeps mostly", vec![vm("web", 2, SLEEP, &ALL)])
}

fn apart() -> (&'static str, Vec<MicroVm>) {
    ("sound: pinned apart", vec![vm("web", 1, CPU, &[1]), vm("db", 1, CPU, &[2])])
}

fn capped() -> (&'static str, Vec<MicroVm>) {
    let vms = vec![vm("web", 1, SLEEP, &ALL), vm("db", 2, CPU, &ALL)];
    into_cgroup(&vms[0], "web.scope", &[("cpu.max", "50000 100000"), ("cpu.weight", "200")]);
    into_cgroup(&vms[1], "db.scope", &[("cpu.weight", "400")]);
    ("sound: within its limit", vms)
}

fn room() -> (&'static str, Vec<MicroVm>) {
    ("sound: there is room", vec![vm("web", 1, CPU, &ALL), vm("db", 1, CPU, &ALL)])
}

fn full() -> (&'static str, Vec<MicroVm>) {
    ("sound: all wait alike", vec![vm("web", 4, CPU, &ALL), vm("db", 4, CPU, &ALL)])
}

/// Without a recording it makes one.
fn this_host() {
    let web = vm("web", 1, CPU, &ALL);
    thread::sleep(GROWS);
    let page = drover(&["advise", "--seconds", SECONDS]);
    let text = String::from_utf8_lossy(&page.stdout);
    assert!(page.status.success() && text.contains("Nothing is to be tuned here"), "{page:?}");
    drop(web);
}

/// The page of docs/operating.md.
fn several() {
    say("several faults");
    let web = vm("web", 2, CPU, &[1]);
    let shop = vm("shop", 2, CPU, &ALL);
    into_cgroup(&shop, "shop.scope", &[("cpu.max", "60000 100000")]);
    let memory = ["--memory-mib", "128", "--memory-node", "0"];
    let db = MicroVm::start_with("db", 1, CPU, &memory);
    db.confine(&[2, 3]);
    let found = found(vec![web, shop, db]);
    for rule in ["pins", "limit", "memory-node"] {
        assert!(found.iter().any(|it| it == rule), "{rule}: {found:?}");
    }
}

fn pins() {
    say("pinned together");
    is_found("pins", vec![vm("web", 2, CPU, &[1]), vm("db", 1, SLEEP, &ALL)]);
}

fn limit() {
    say("a limit");
    let web = vm("web", 2, CPU, &ALL);
    into_cgroup(&web, "limited.scope", &[("cpu.max", "60000 100000")]);
    is_found("limit", vec![web]);
}

fn quota() {
    say("a limit without room for other threads");
    let web = vm("web", 1, IO, &ALL);
    into_cgroup(&web, "quota.scope", &[("cpu.max", "100000 100000")]);
    is_found("quota", vec![web]);
}

/// The threads of its device may run on the vCPU's pCPU only.
fn emulator() {
    say("emulator's threads on the vCPU's pCPU");
    is_found("emulator", vec![vm("web", 1, IO, &[1])]);
}

fn wide() {
    say("too wide");
    is_found("wide", vec![vm("web", 8, CPU, &ALL)]);
}

fn memory_node() {
    say("memory on the wrong node");
    let web = MicroVm::start_with("web", 1, CPU, &["--memory-mib", "128", "--memory-node", "0"]);
    web.confine(&[2, 3]);
    is_found("memory-node", vec![web]);
}

fn weights() {
    say("weights that say nothing");
    let vms = vec![vm("web", 2, CPU, &ALL), vm("db", 2, CPU, &ALL)];
    for (vm, path) in vms.iter().zip(["even-web.scope", "even-db.scope"]) {
        into_cgroup(vm, path, &[("cpu.weight", "300")]);
    }
    is_found("weights", vms);
}

/// What was ordered before it came is more than it can use.
fn promise() {
    say("a reservation that it cannot use");
    let order = drover(&["vm", "set", "web", "--reservation", "300%"]);
    assert!(order.status.success(), "{order:?}");
    let web = vm("web", 1, CPU, &ALL);
    host::wait_until("it is found", Duration::from_secs(5), || host::list().len() == 1);
    is_found("promise", vec![web]);
}
