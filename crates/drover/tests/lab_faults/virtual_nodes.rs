// SPDX-License-Identifier: GPL-2.0-only
//! A Linux guest with two virtual nodes (vNUMA), wider than a node of the host: the memory of each virtual node goes
//! to the node where its vCPUs are at home. Its two memory backends are alike, so which is which must be found out:
//! the guest itself fills the second.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use drover_lab::guest_image::{Guest, GuestImage};

use crate::host::{self, Daemon, say, wait_until};

const CONSOLE: &str = "/tmp/wide.console";
/// The second virtual node has more vCPUs than half, and both backends have the same size.
const NODES: &str = "-smp 3,sockets=3 -object memory-backend-ram,id=a,size=128M \
    -object memory-backend-ram,id=b,size=128M -numa node,cpus=0,memdev=a -numa node,cpus=1-2,memdev=b";
const BACKEND_BYTES: u64 = 128 << 20;
/// Fills the second virtual node, then keeps all vCPUs busy.
const RUN: &str = "taskset 4 dd if=/dev/zero of=/dev/shm/it bs=1M count=90; \
    echo filled; sysbench cpu --threads=3 --time=0 run";
/// More than is free in a virtual node: the writer's own is full first, and the other has room left.
const FULL_MIB: u64 = 124;
/// It boots under two emulators.
const BOOTS_WITHIN: Duration = Duration::from_secs(120);
const MOVES_WITHIN: Duration = Duration::from_secs(60);
const LOCAL_PCT: f64 = 95.0;

#[test]
#[ignore = "runs inside the lab"]
fn inside() {
    host::must_be_lab();
    let mut guest = Qemu::start();
    guest.wait_for("filled");
    let mib = guest.backends().map(|it| it.mib());
    println!("backends have {mib:?} MiB");
    assert!(mib[1] >= FULL_MIB && mib[0] < FULL_MIB, "the lower one is the second's: {mib:?}");

    say("the daemon starts");
    let mut daemon = Daemon::start();
    let mut home = Vec::new();
    wait_until("each virtual node's memory is at home", MOVES_WITHIN, || {
        home = host::list().pop().and_then(|vm| vm.numa).map_or(Vec::new(), |numa| numa.home);
        let are = guest.backends();
        home.len() == 2 && (0..2).all(|it| are[it].pct_on(home[it]) >= LOCAL_PCT)
    });
    let pcts = [0, 1].map(|it| guest.backends()[it].pct_on(home[it]));
    println!("homes are {home:?}, and of the virtual nodes' memory {pcts:.1?} % lie there");
    assert_ne!(home[0], home[1]);
    let told = || host::list().pop().and_then(|vm| vm.numa).and_then(|numa| numa.local_pct);
    wait_until("that is told", MOVES_WITHIN, || told().is_some_and(|pct| pct >= LOCAL_PCT));
    assert!(!daemon.said().contains("not followed"), "{}", daemon.said());
    daemon.must_serve();
}

/// A guest under QEMU, killed when dropped.
struct Qemu {
    child: Child,
}

/// What of a backend lies on each of the two nodes, pages of 4 KiB.
struct Backend([u64; 2]);

impl Backend {
    fn mib(&self) -> u64 {
        self.0.iter().sum::<u64>() >> 8
    }

    fn pct_on(&self, node: u32) -> f64 {
        100.0 * self.0[node as usize] as f64 / self.0.iter().sum::<u64>().max(1) as f64
    }
}

impl Qemu {
    fn start() -> Self {
        // The smallest machine has no nodes; with a disk it is a PC.
        let guest = Guest {
            name: "wide",
            vcpus: 3,
            memory_mib: 256,
            disk: Some(drover_lab::disk::Disk::MadeUp),
            network: None,
            run: RUN,
        };
        let mut line = guest.command_line(&GuestImage::in_lab(), Path::new(CONSOLE)).unwrap();
        line.extend(NODES.split_whitespace().map(str::to_owned));
        let mut command = Command::new(&line[0]);
        Self { child: command.args(&line[1..]).stdin(Stdio::null()).spawn().unwrap() }
    }

    fn wait_for(&mut self, word: &str) {
        wait_until(word, BOOTS_WITHIN, || {
            assert!(self.child.try_wait().unwrap().is_none(), "QEMU has ended");
            let console = fs::read(CONSOLE).unwrap_or_default();
            String::from_utf8_lossy(&console).lines().any(|line| line.trim() == word)
        });
        say(word);
    }

    /// Its backends, that with the highest address first.
    fn backends(&self) -> [Backend; 2] {
        let read =
            |name: &str| fs::read_to_string(format!("/proc/{}/{name}", self.child.id())).unwrap();
        let is_one = |line: &str| {
            let (start, end) = line.split(' ').next()?.split_once('-')?;
            let address = |text| u64::from_str_radix(text, 16).ok();
            let is_it = address(end)? - address(start)? == BACKEND_BYTES && line.contains("rw-");
            is_it.then(|| start.to_owned())
        };
        let starts: Vec<String> = read("maps").lines().rev().filter_map(is_one).collect();
        assert_eq!(starts.len(), 2, "{}", read("maps"));
        let numa_maps = read("numa_maps");
        [0, 1].map(|it| {
            let mut lines = numa_maps.lines();
            let line = lines.find(|line| line.starts_with(&format!("{} ", starts[it]))).unwrap();
            let pages_kib = if line.contains("kernelpagesize_kB=4") { 4 } else { 2048 };
            let on = |node: u32| {
                let mut words = line.split(' ');
                let pages = words.find_map(|word| word.strip_prefix(&format!("N{node}=")));
                pages.map_or(0, |pages| pages.parse::<u64>().unwrap() * pages_kib / 4)
            };
            Backend([on(0), on(1)])
        })
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
