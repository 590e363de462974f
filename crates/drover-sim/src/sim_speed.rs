// SPDX-License-Identifier: GPL-2.0-only
//! How fast the simulator is, on fixed hosts that anyone can measure again.

use crate::costs::Costs;
use crate::guest::Programs;
use crate::machine::{Machine, TaskId};
use crate::scx::{Scx, Tunables};
use crate::sim::{Plan, Sim};
use crate::topology::Topology;
use drover_core::shares::Shares;
use drover_scenario::{Host, Workload};
use std::time::Instant;

/// A host with VMs that are all alike.
#[derive(Debug, Clone)]
pub struct Load {
    /// What it is.
    pub name: String,
    /// The host.
    pub host: Host,
    /// How many VMs.
    pub vms: u32,
    /// How many vCPUs each.
    pub vcpus: u32,
    /// What they do.
    pub workload: Workload,
    /// How much is simulated, ms.
    pub length_ms: u64,
}

/// How fast it was.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    /// Events simulated.
    pub events: u64,
    /// Real time taken, s.
    pub real_s: f64,
    /// Virtual time that passed, s.
    pub virtual_s: f64,
}

impl Speed {
    /// Events simulated per second of real time.
    pub fn events_per_s(&self) -> f64 {
        self.events as f64 / self.real_s
    }

    /// How many times faster than real time.
    pub fn times_real(&self) -> f64 {
        self.virtual_s / self.real_s
    }
}

fn busy() -> Workload {
    Workload::Cpu { duty_pct: 100, period_us: 10_000, then: None }
}

/// The loads that figures are published of.
pub fn loads() -> Vec<Load> {
    let host = |sockets, dies, cores, threads| Host {
        sockets,
        dies,
        cores,
        threads,
        nodes: sockets,
        ..Host::default()
    };
    vec![
        Load {
            name: "4 pCPUs, 8 tasks busy 1 ms of every 2".to_owned(),
            host: host(1, 1, 4, 1),
            vms: 8,
            vcpus: 1,
            workload: Workload::Cpu { duty_pct: 50, period_us: 2_000, then: None },
            length_ms: 60_000,
        },
        Load {
            name: "384 pCPUs (4 x 48 x 2), 96 busy VMs of 4 vCPUs".to_owned(),
            host: host(4, 1, 48, 2),
            vms: 96,
            vcpus: 4,
            workload: busy(),
            length_ms: 10_000,
        },
        Load {
            name: "384 pCPUs (4 x 48 x 2), 192 busy VMs of 4 vCPUs".to_owned(),
            host: host(4, 1, 48, 2),
            vms: 192,
            vcpus: 4,
            workload: busy(),
            length_ms: 10_000,
        },
        Load {
            name: "16 pCPUs, 16 VMs of 4 vCPUs that wake every 1 ms".to_owned(),
            host: host(1, 2, 8, 1),
            vms: 16,
            vcpus: 4,
            workload: Workload::Sleep { period_us: 1_000, work_us: 100 },
            length_ms: 10_000,
        },
    ]
}

/// The same load on ever larger hosts: two vCPUs that sleep and work for each pCPU, eight to a VM.
pub fn growing_pcpus() -> Vec<Load> {
    let load = |cores: u32| Load {
        name: format!("{cores} pCPUs, {} vCPUs", 2 * cores),
        host: Host { sockets: cores.div_ceil(64), cores: cores.min(64), ..Host::default() },
        vms: cores.div_ceil(4),
        vcpus: 8,
        workload: Workload::Cpu { duty_pct: 50, period_us: 4_000, then: None },
        length_ms: (400_000 / u64::from(cores)).clamp(200, 20_000),
    };
    [4, 16, 64, 256, 1024, 4096].map(load).to_vec()
}

/// Ever more vCPUs on the widest host. Eight times as many as pCPUs are at work half of the time in all.
pub fn growing_vcpus() -> Vec<Load> {
    let load = |vcpus: u32| {
        let of_vm = (vcpus / 8).clamp(8, 32);
        Load {
            name: format!("4096 pCPUs, {vcpus} vCPUs"),
            host: Host { sockets: 64, cores: 64, ..Host::default() },
            vms: vcpus / of_vm,
            vcpus: of_vm,
            workload: Workload::Sleep { period_us: 4_000, work_us: 250 },
            length_ms: (800_000 / u64::from(vcpus)).clamp(100, 20_000),
        }
    };
    [8, 64, 512, 4096, 32_768].map(load).to_vec()
}

/// Sets a load up; nothing has happened yet.
///
/// # Panics
/// When the load is none the simulator can run: those of this file are.
pub fn set_up(load: &Load) -> Sim<Scx> {
    let tasks = (load.vms * load.vcpus) as usize;
    let m = Machine::new(Topology::of(&load.host), Costs::default(), tasks);
    let class = Scx::new(&m, &Tunables::default()).expect("a host within the policy's tables");
    let mut sim = Sim::new(m, class);
    let programs = Programs::of(&load.workload, load.vcpus).expect("no Linux guest");
    for number in 0..load.vms {
        let vm = sim.add_vm(&programs, Shares::Exact(1000 * load.vcpus), 0);
        sim.plan(0, Plan::Start(vm));
        for task in sim.tasks_of(vm) {
            sim.m.tasks[task as usize].pcpu = task % load.host.pcpus();
            sim.plan(u64::from(task % 4_000) * 1_000 + u64::from(number), Plan::Wake(task));
        }
    }
    sim
}

/// Sets a load up and runs it until every vCPU has been started and found.
pub fn started(load: &Load) -> Sim<Scx> {
    let mut sim = set_up(load);
    sim.run(100_000_000);
    sim
}

/// Runs a load and takes the time, setting up aside.
pub fn measure(load: &Load) -> Speed {
    let mut sim = started(load);
    let before = sim.m.counts.events;
    let begin = Instant::now();
    sim.run(sim.m.now_ns + load.length_ms * 1_000_000);
    Speed {
        events: sim.m.counts.events - before,
        real_s: begin.elapsed().as_secs_f64(),
        virtual_s: load.length_ms as f64 / 1000.0,
    }
}

/// Bytes of a simulation that is as wide as it can be, for each vCPU: 4096 pCPUs and 32,768 vCPUs. As the kernel counts this process' memory; none where it does not tell.
pub fn bytes_per_vcpu() -> Option<u64> {
    let before = resident_bytes()?;
    let host = Host { sockets: 64, cores: 64, nodes: 64, ..Host::default() };
    let load = Load {
        name: "as wide as can be".to_owned(),
        host,
        vms: 1024,
        vcpus: 32,
        workload: busy(),
        length_ms: 0,
    };
    let mut sim = set_up(&load);
    sim.run(200_000_000);
    let used = resident_bytes()?.saturating_sub(before);
    let vcpus = sim.m.tasks.len() as TaskId;
    drop(sim);
    Some(used / u64::from(vcpus))
}

fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_keep_their_hosts_busy() {
        for load in loads() {
            let load = Load { length_ms: 50, ..load };
            let speed = measure(&load);
            assert!(speed.events > 100 && speed.virtual_s > 0.04, "{}: {speed:?}", load.name);
        }
    }

    #[test]
    fn the_largest_host_fits() {
        let load = growing_pcpus().pop().unwrap();
        assert_eq!((load.host.pcpus(), load.vms * load.vcpus), (4096, 8192));
        let mut sim = set_up(&load);
        // All have woken once.
        sim.run(5_000_000);
        assert_eq!(sim.m.fault, None);
    }
}
