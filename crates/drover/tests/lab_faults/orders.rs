// SPDX-License-Identifier: GPL-2.0-only
//! Orders and starts that must be refused, in one line, without harm to what runs.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use drover_host::control::SOCKET_PATH;

use crate::foreign;
use crate::host::{self, Daemon, drover, refusal, say, scheduler_state};
use crate::vms::{CPU, MicroVm, all_progress_within};

const NOBODY: u32 = 65_534;

#[test]
#[ignore = "runs inside the lab"]
fn inside() {
    host::must_be_lab();
    let vm = MicroVm::start("web", 1, CPU);
    beside_a_foreign_scheduler();
    let mut daemon = two_at_once();
    host::wait_until("the VM is found", Duration::from_secs(1), || host::list().len() == 1);
    twice();
    as_nobody();
    a_users_namesake();
    bad_orders();
    bad_clients();
    a_sub_scheduler_is_refused();
    daemon.must_serve();
    all_progress_within(Duration::from_millis(500), &[&vm]);
}

fn beside_a_foreign_scheduler() {
    say("another scheduler");
    let foreign = foreign::load("/foreign.bpf.o");
    assert_eq!(scheduler_state(), "enabled");
    let line = refusal(&drover(&["serve"]));
    assert!(line.contains("foreign"), "{line}");
    assert_eq!(scheduler_state(), "enabled", "the other one stays");
    let check = drover(&["check"]);
    let text = String::from_utf8_lossy(&check.stdout);
    assert!(!check.status.success() && text.contains("foreign"), "{text}");
    drop(foreign);
    host::wait_for_fallback();
}

/// Drover has no place for one, and goes on. Kernels before 7.2 know of none.
fn a_sub_scheduler_is_refused() {
    say("a scheduler for a cgroup");
    let cgroup = Path::new("/sys/fs/cgroup/below");
    fs::create_dir(cgroup).unwrap();
    let Err(error) = foreign::load_below("/sub.bpf.o", cgroup) else {
        panic!("a sub-scheduler has some of Drover's tasks");
    };
    say(&format!("{error:#}"));
    assert_eq!(scheduler_state(), "enabled");
    fs::remove_dir(cgroup).unwrap();
}

/// One serves, and the other has one line to say.
fn two_at_once() -> Daemon {
    say("two daemons at the same moment");
    let [mut one, mut other] = ["/tmp/one.log", "/tmp/other.log"].map(Daemon::spawn);
    host::wait_until("one gives way", Duration::from_secs(10), || {
        one.has_ended() || other.has_ended()
    });
    let (loser, winner) = if one.has_ended() { (one, other) } else { (other, one) };
    let (status, said) = loser.end_within(Duration::ZERO);
    println!("{}", said.trim());
    assert!(!status.success() && said.lines().count() == 1, "{said}");
    assert!(said.contains("already runs"), "{said}");
    winner.ready()
}

fn twice() {
    say("a second daemon");
    for arguments in [&["serve"][..], &["serve", "--socket", "/run/other.sock"]] {
        let line = refusal(&drover(arguments));
        println!("{}", line.trim());
        assert!(line.contains("drover"), "{line}");
    }
}

fn drover_as_nobody(arguments: &[&str]) -> Output {
    Command::new("drover").args(arguments).uid(NOBODY).gid(NOBODY).output().unwrap()
}

fn as_nobody() {
    say("without rights");
    for arguments in [
        &["vm", "list"][..],
        &["vm", "set", "web", "--shares", "5"],
        &["pool", "add", "p"],
        &["serve"],
    ] {
        let line = refusal(&drover_as_nobody(arguments));
        assert!(line.contains("sudo"), "{line}");
    }
    assert!(host::list()[0].shares_by_default);
}

/// A user's VM that calls itself as root's does is another one, and has nothing of what is ordered for that.
fn a_users_namesake() {
    say("a user's namesake");
    let dir = Path::new("/tmp/of-a-user");
    fs::create_dir_all(dir).unwrap();
    for (path, mode) in [(Path::new("/dev/kvm"), 0o666), (dir, 0o777)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let arguments = ["guest", "--name", "web", "--vcpus", "1", "--loops-per-ms", "15000"];
    let mut namesake = Command::new("drover")
        .args(arguments)
        .args(["--workload", CPU, "--stats"])
        .arg(dir.join("stats"))
        .uid(NOBODY)
        .gid(NOBODY)
        .spawn()
        .unwrap();
    host::wait_until("it is found", Duration::from_secs(10), || host::list().len() == 2);
    let output = drover(&["vm", "set", "web", "--shares", "3000"]);
    assert!(output.status.success(), "{output:?}");
    let list = host::list();
    let of = |name: &str| list.iter().find(|vm| vm.name == name).map(|vm| vm.shares);
    assert_eq!((of("web"), of(&format!("{NOBODY}@web"))), (Some(3000), Some(1000)), "{list:?}");
    assert!(drover(&["vm", "forget", "web"]).status.success());
    namesake.kill().unwrap();
    namesake.wait().unwrap();
    host::wait_until("it is gone", Duration::from_secs(5), || host::list().len() == 1);
}

fn bad_orders() {
    say("bad orders");
    let output = drover(&["vm", "set", "nobody", "--shares", "2000"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("kept until it comes"), "{output:?}");
    let orders = drover(&["vm", "orders"]);
    assert!(String::from_utf8_lossy(&orders.stdout).contains("nobody  no"), "{orders:?}");
    assert!(drover(&["vm", "forget", "nobody"]).status.success());
    let line = refusal(&drover(&["vm", "forget", "nobody"]));
    assert!(line.contains("nobody") && line.contains("drover vm orders"), "{line}");
    for shares in ["0", "1000001", "many", "1e3", "18446744073709551617", ""] {
        let line = refusal(&drover(&["vm", "set", "web", &format!("--shares={shares}")]));
        assert!(line.contains("1 to 1000000"), "{line}");
    }
    let line = refusal(&drover(&["vm", "set", "web", "--shares", "-5"]));
    assert!(line.contains("-5"), "{line}");
    assert!(host::list()[0].shares_by_default, "a refused order changes nothing");
    for (shares, now) in [("1", 1), ("1000000", 1_000_000), ("default", 1000)] {
        let output = drover(&["vm", "set", "web", "--shares", shares]);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(host::list()[0].shares, now);
    }
}

fn bad_clients() {
    say("bad clients");
    let past_bounds = r#"{"request":"set_vm","name":"web","set":{"shares":"1000001"}}"#;
    let negative = r#"{"request":"set_vm","name":"web","set":{"shares":"-1"}}"#;
    for text in ["", "\n", "{", "null\n", r#"{"request":"reboot"}"#, past_bounds, negative] {
        let mut client = UnixStream::connect(SOCKET_PATH).unwrap();
        client.write_all(format!("{text}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("refused"), "{text:?}: {answer:?}");
    }
    // Silent, talkative without end, gone before the answer.
    let _silent: Vec<UnixStream> =
        (0..3).map(|_| UnixStream::connect(SOCKET_PATH).unwrap()).collect();
    let mut talkative = UnixStream::connect(SOCKET_PATH).unwrap();
    talkative.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    let megabyte = vec![b'x'; 1 << 20];
    // It is cut off at some point, which is an error here.
    let _ = (0..16).try_for_each(|_| talkative.write_all(&megabyte));
    let mut hasty = UnixStream::connect(SOCKET_PATH).unwrap();
    hasty.write_all(b"{\"request\":\"list_vms\"}\n").unwrap();
    drop(hasty);
    // Whoever asks is answered beside all who do not go on.
    let halves: Vec<UnixStream> = (0..200)
        .map(|_| {
            let mut half = UnixStream::connect(SOCKET_PATH).unwrap();
            // The first of them may have been sent away by now.
            let _ = half.write_all(b"{\"request\":");
            half
        })
        .collect();
    let begun = Instant::now();
    assert!(host::list()[0].shares_by_default);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    drop(halves);
    assert!(host::list()[0].shares_by_default);
}
