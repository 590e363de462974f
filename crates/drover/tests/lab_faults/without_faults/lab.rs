// SPDX-License-Identifier: GPL-2.0-only
//! Boots the lab: a real kernel, with real KVM VMs, in QEMU. Takes about a minute.

use std::fs;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn lab(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
    command.args(["lab", "exec"]).args(arguments);
    command
}

fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

#[test]
fn a_command_runs_as_root_with_kvm_and_its_files_and_status_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("input");
    fs::write(&input, "brought in").unwrap();
    let script = "uname -n; id -u; cat /job/input; drover lab-kvm-probe; \
        test -w /sys/fs/cgroup/cgroup.procs && mount -t bpf x /tmp && echo mounted; \
        mkdir /out/sub; echo brought back > /out/sub/file; ls /boot/config-$(uname -r); exit 3";
    let output = lab(&["--out", &dir.path().to_string_lossy()])
        .args(["--file", &format!("{}:/job/input", input.display()), "--", "sh", "-c", script])
        .output()
        .unwrap();
    let text = text(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("drover-lab\n0\nbrought in"), "{text}");
    assert!(text.contains("mounted\n"), "{text}");
    assert!(text.contains("KVM runs VMs here.") && text.contains("/boot/config-"), "{text}");
    assert_eq!(fs::read_to_string(dir.path().join("sub/file")).unwrap(), "brought back\n");
}

/// What would show the slightest difference between two runs: times, counts of interrupts, random numbers.
const FINGERPRINT: &str = "drover lab-kvm-probe; cat /proc/uptime /proc/stat /proc/interrupts; dmesg | md5sum; \
    head -c 16 /dev/urandom | md5sum; cat /proc/uptime";

#[test]
fn the_exact_clock_gives_the_same_run_bit_for_bit_and_another_seed_another() {
    let run = |seed: &str| {
        let arguments =
            ["--clock", "exact", "--pcpus", "2", "--seed", seed, "--", "sh", "-c", FINGERPRINT];
        let output = lab(&arguments).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        output.stdout
    };
    let first = run("7");
    assert!(first == run("7"), "two runs with one seed differ");
    assert!(first != run("8"), "another seed changes nothing");
}

#[test]
fn qemu_never_outlives_drover() {
    let mut drover = lab(&["--", "sleep", "1000"]).spawn().unwrap();
    let started = Instant::now();
    let qemu = loop {
        assert!(started.elapsed() < Duration::from_secs(120), "QEMU did not start");
        let path = format!("/proc/{0}/task/{0}/children", drover.id());
        let children = fs::read_to_string(path).unwrap_or_default();
        let is_qemu = |pid: &&str| {
            fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| name.starts_with("qemu-system"))
        };
        if let Some(pid) = children.split_whitespace().find(is_qemu) {
            break pid.to_owned();
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    drover.kill().unwrap();
    drover.wait().unwrap();
    let killed = Instant::now();
    while alive(&qemu) {
        assert!(killed.elapsed() < Duration::from_secs(5), "QEMU still runs");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process is there and not only waiting to be reaped.
fn alive(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_hang_and_a_crash_end_with_the_reason_and_the_console() {
    let output =
        lab(&["--timeout-s", "30", "--", "sh", "-c", "echo c > /proc/sysrq-trigger"]).output();
    let crash = text(&output.unwrap());
    assert!(crash.contains("the virtual host crashed") && crash.contains("sysrq"), "{crash}");
    let hang = text(&lab(&["--timeout-s", "1", "--", "sleep", "1000"]).output().unwrap());
    assert!(hang.contains("within 1 s"), "{hang}");
}

#[test]
fn a_command_that_cannot_start_ends_as_in_a_shell() {
    let output = lab(&["--", "no-such-program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127), "{}", text(&output));
    assert!(text(&output).contains("lab: cannot start no-such-program"), "{}", text(&output));
}

#[test]
fn lab_commands_do_nothing_outside() {
    let output = Command::new(env!("CARGO_BIN_EXE_drover")).arg("lab-init").output().unwrap();
    assert!(text(&output).contains("see `drover lab exec`") && !output.status.success());
}

#[test]
fn the_host_has_the_shape_asked_for() {
    let lab = drover_lab::Lab::new(drover_lab::Topology {
        sockets: 2,
        cores: 2,
        threads: 2,
        nodes: 2,
        ..drover_lab::Topology::default()
    })
    // Eight threads that race on few CPUs make the emulator lose patches of the kernel (docs/lab.md).
    .clock(drover_lab::Clock::Exact)
    .drover(env!("CARGO_BIN_EXE_drover").as_ref())
    .command([
        "sh",
        "-c",
        "cd /sys/devices/system; cat node/node1/cpulist cpu/cpu2/topology/thread_siblings_list \
         cpu/cpu5/cache/index3/shared_cpu_list",
    ]);
    let mut printed = String::new();
    let outcome = lab.run(&mut |event| {
        if let drover_lab::Event::Output(line) = event {
            printed.push_str(line);
        }
    });
    assert_eq!(outcome.unwrap().exit_status, 0);
    assert_eq!(printed, "4-7\n2-3\n4-7\n");
}
