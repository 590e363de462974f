// SPDX-License-Identifier: GPL-2.0-only
//! Whole experiments in the lab: shares are kept, exact runs are alike, nothing is left behind.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const SHARES: &str = r#"
name = "short-shares"
duration_s = 1.0
warmup_s = 0.2
schedulers = ["eevdf", "drover"]
sample_ms = 250
[host]
cores = 2
[[vm]]
name = "small"
vcpus = 2
shares = 1000
workload = { kind = "cpu" }
[[vm]]
name = "large"
vcpus = 2
shares = 3000
workload = { kind = "cpu" }
[[expect]]
metric = "share_error_points"
vm = "*"
max = 3.0
[[expect]]
metric = "idle_pct"
max = 1.0
"#;

/// Its kernel hangs while it boots when an interrupt arrives twice (see drover-lab's injection.rs).
const LINUX_GUESTS: &str = r#"
name = "linux-guests"
duration_s = 1.0
warmup_s = 0.2
schedulers = ["drover"]
[host]
cores = 2
memory_mib = 1536
[[vm]]
name = "linux"
vmm = "qemu"
vcpus = 2
demand_pct = 200
workload = { kind = "command", run = "sysbench cpu --threads=2 --time=0 run", ready = "Threads started!" }
[[vm]]
name = "reader"
vmm = "qemu"
vcpus = 1
disk = true
demand_pct = 200
workload = { kind = "command", run = "while dd if=/dev/vda of=/dev/null bs=4k count=100 iflag=direct; do :; done" }
[[expect]]
metric = "idle_pct"
max = 2.0
"#;

fn drover(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_drover")).args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

/// Runs the scenario with the exact clock; what it left but for the time on the wall.
fn exact_results(dir: &Path, name: &str) -> serde_json::Value {
    let (file, json) = (dir.join("s.toml"), dir.join(name));
    fs::write(&file, SHARES).unwrap();
    let schedule = json.with_extension("schedule.svg");
    let arguments = ["--json", json.to_str().unwrap(), "--schedule", schedule.to_str().unwrap()];
    let arguments = [&[file.to_str().unwrap()], &arguments[..]].concat();
    let output = drover(&[&["run", "--on", "lab", "--check"], &arguments[..]].concat());
    assert!(output.status.success(), "{}", text(&output));
    for picture in ["svg", "png"] {
        assert!(fs::metadata(json.with_extension(picture)).unwrap().len() > 1000);
    }
    // Both VMs in both shades on both pCPUs, under both schedulers.
    let schedule = fs::read_to_string(schedule).unwrap();
    let boxes = |color: &str| schedule.matches(&format!("fill=\"{color}\"")).count();
    for color in ["#0072B2", "#8CC0DC", "#E69F00", "#F4D48C"] {
        assert!(boxes(color) > 10, "{color}: {schedule}");
    }
    let mut results: serde_json::Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert!(results.as_object_mut().unwrap().remove("wall").is_some());
    results
}

#[test]
fn shares_are_kept_and_exact_runs_are_alike() {
    let dir = tempfile::tempdir().unwrap();
    let first = exact_results(dir.path(), "first.json");
    assert_eq!((&first["ground"], &first["clock"]), (&"lab".into(), &"exact".into()));
    let runs = first["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    for run in runs {
        assert!(run.get("fault").is_none() && run["host"]["context_switches"].is_u64(), "{run}");
        let vms = run["vms"].as_array().unwrap();
        for (vm, owed) in vms.iter().zip([25.0, 75.0]) {
            assert_eq!(vm["share_owed_pct"], owed);
            assert!(vm["progress"].as_u64().unwrap() > 0, "{vm}");
            assert_eq!(vm["vcpu"].as_array().unwrap().len(), 2);
            for counted in [vm, &vm["vcpu"][0], &vm["vcpu"][1]] {
                let drover = run["scheduler"] == "drover";
                assert_eq!(counted["hazard_s"].is_f64(), drover, "{counted}");
                assert!(!drover || counted["progressed_s"].as_f64().unwrap() > 0.1, "{counted}");
            }
            assert_eq!(vm["timeline"]["cpu_s"].as_array().unwrap().len(), 4);
        }
    }
    assert!(first == exact_results(dir.path(), "second.json"), "two exact runs differ");
}

#[test]
fn linux_guests_boot_and_work_on_the_exact_clock_and_the_io_of_a_disk_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let (scenario, json) = (dir.path().join("s.toml"), dir.path().join("r.json"));
    fs::write(&scenario, LINUX_GUESTS).unwrap();
    let (scenario, json) = (scenario.to_str().unwrap(), json.to_str().unwrap());
    let output = drover(&["run", scenario, "--on", "lab", "--check", "--json", json]);
    assert!(output.status.success(), "{}", text(&output));
    let results: serde_json::Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    let vms = &results["runs"][0]["vms"];
    assert!(vms[0].get("io").is_none(), "it has no disk: {}", vms[0]);
    for direction in ["to_guest", "to_device"] {
        let delay = &vms[1]["io"]["delay_us"][direction];
        let count = delay["count"].as_u64().unwrap_or(0);
        assert!(count >= 100 && delay["mean"].as_f64() > Some(0.0), "{}", vms[1]);
    }
}

/// An experiment on the host itself, which here is the virtual one: how it ends, and what it leaves.
const ENDINGS: &str = r#"
pids() { ps | grep "$1" | grep -v grep | awk "{print \$1}"; }
# Whatever an experiment on this machine may change.
state() {
    cat /sys/kernel/sched_ext/state /sys/fs/cgroup/cgroup.subtree_control
    find /run /sys/fs/cgroup -maxdepth 2 \( -type d -o -type s \) | sort
    sysctl -a 2>/dev/null | grep ^kernel.sched
    ps | grep -E "drover (guest|serve) " | grep -v grep
}
left() { state > /tmp/after; echo "left: $(diff /tmp/before /tmp/after && echo nothing)"; }
run() { drover run /job/s.toml --on host --yes --scheduler drover; echo "status $?"; }
# Waits until VMs are at work under drover.
work() {
    until [ "$(cat /sys/kernel/sched_ext/state)" = enabled ] && [ -s /run/drover-lab/large.stats ]
    do sleep 0.1; done
    sleep 1
}
state > /tmp/before
run & work; kill -INT $(pids "drover run"); at=$(date +%s); wait; echo "gone after $(($(date +%s) - at)) s"; left
run & work; kill -HUP $(pids "drover run"); wait; left
(work; echo S > /proc/sysrq-trigger) & run; wait; left
(work; kill -9 $(pids "name small")) & run; wait; left
"#;

#[test]
fn nothing_is_left_however_an_experiment_ends() {
    let dir = tempfile::tempdir().unwrap();
    let (scenario, script) = (dir.path().join("s.toml"), dir.path().join("endings.sh"));
    fs::write(&scenario, SHARES.replace("duration_s = 1.0", "duration_s = 4.0")).unwrap();
    fs::write(&script, ENDINGS).unwrap();
    let files = [(&scenario, "/job/s.toml"), (&script, "/job/endings.sh")]
        .map(|(path, in_lab)| format!("{}:{in_lab}", path.display()));
    let output = drover(&[
        "lab",
        "exec",
        "--file",
        &files[0],
        "--file",
        &files[1],
        "--",
        "sh",
        "/job/endings.sh",
    ]);
    let text = text(&output);
    assert!(text.contains("interrupted") && text.contains("FAULT: drover ended"), "{text}");
    assert!(text.contains("FAULT: VM small ended"), "{text}");
    assert_eq!(text.matches("status 1\n").count(), 4, "{text}");
    let left: Vec<&str> = text.lines().filter(|line| line.starts_with("left: ")).collect();
    assert_eq!(left, ["left: nothing"; 4], "{text}");
    assert!(!text.contains("/usr/bin/drover guest"), "{text}");
}

/// On the oldest kernel that is promised, so that each run of the tests loads the scheduler into both: the
/// others take the newest.
#[test]
fn containers_have_what_their_cgroups_say() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/containers.toml");
    let how = ["--kernel", "6.18", "--scheduler", "drover", "--check"];
    let output = drover(&[&["run", file, "--on", "lab"], &how[..]].concat());
    assert!(output.status.success(), "{}", text(&output));
}
