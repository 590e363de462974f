// SPDX-License-Identifier: GPL-2.0-only
//! Draws a trial from a seed.
//!
//! Three trials of ten are calm: VMs that are always busy, no faults, and shares that must hold
//! (shares.rs). In some of those, and in many of the others, VMs are confined as hosts confine them: to
//! a die each, to sets that overlap, to all but the host's own pCPU, or each vCPU to a pCPU of its own.

use super::script::{DIVIDED_US, Fault, Script, ScriptVm, Shape, TimedFault};
use crate::class::VmBounds;
use crate::rng::Rng;
use drover_core::partition::PartitionPolicy;
use drover_core::settings::{Cosched, PoolId, PoolSettings};
use drover_scenario::Workload;

impl Script {
    /// Draws a trial.
    pub fn of_seed(seed: u64) -> Self {
        // Another number makes other trials of the same seeds: change it when the drawing changes.
        let mut rng = Rng::new(seed ^ 0x0005_eed0_fd20_7e13);
        let host = draw_host(&mut rng);
        let hz = *rng.pick(&[250, 250, 100, 1000]);
        let duration_us = 200_000 + rng.below(4_000_000);
        let starts_ns = [0, 0, 1 << 40, u64::MAX - 1_000_000_000, (1 << 63) - 500_000_000];
        let vtime_ns = *rng.pick(&starts_ns);
        let (pools, vms, faults) = (Vec::new(), Vec::new(), Vec::new());
        let mut script = Self { seed, host, hz, duration_us, vtime_ns, pools, vms, faults };
        let calm = rng.chance_pct(30);
        let mut asks = *rng.pick(&[Asks::Nothing, Asks::Modes, Asks::Time, Asks::All]);
        let sets = draw_sets(&mut rng, &script.host, calm);
        if calm && sets != Sets::Any {
            // What a VM of a mode is owed there is not known.
            asks = if asks.time() { Asks::Time } else { Asks::Nothing };
        }
        if asks.time() && rng.chance_pct(50) {
            let count = 1 + rng.below(6) as u32;
            let draw = |number| draw_pool(&mut rng, &script.host, number, calm);
            script.pools = (0..count).map(draw).collect();
        }
        // Up to four vCPUs for each pCPU, in VMs of up to twice the host's width.
        let most = (u64::from(script.host.pcpus()) * (1 + rng.below(4))).min(400);
        let mut threads = 0;
        while threads < most && script.vms.len() < 60 {
            let mut vm = draw_vm(&mut rng, &script, calm);
            confine(&mut rng, &script.host, sets, &mut vm);
            threads += u64::from(vm.threads);
            script.vms.push(vm);
        }
        for vm in 0..script.vms.len() {
            script.vms[vm].bounds = draw_bounds(&mut rng, &script, vm, (asks, calm));
        }
        if !calm {
            for _ in 0..rng.below(25) {
                let fault = draw_fault(&mut rng, &script, asks);
                script.faults.extend(and_what_follows(&mut rng, &script, fault));
            }
            script.faults.sort_by_key(|fault| fault.at_us);
        }
        // Drawn apart: all else in a seed's trial is as it was before.
        let mut rng = Rng::new(seed ^ 0x0005_eed0_001e_1d00);
        if rng.chance_pct(30) {
            script.faults.insert(0, draw_yields(&mut rng, &script));
        }
        let mut rng = Rng::new(seed ^ 0x0005_eed0_0040_3e00);
        if script.host.dies > 1 && rng.chance_pct(40) {
            let homes = draw_homes(&mut rng, &script, calm);
            script.faults.extend(homes);
            script.faults.sort_by_key(|fault| fault.at_us);
        }
        let mut rng = Rng::new(seed ^ 0x0005_eed0_0da3_0000);
        if !calm && rng.chance_pct(20) {
            let at_us = rng.below(script.duration_us);
            let fault = Fault::DaemonHangs(rng.below(4_000_000));
            script.faults.push(TimedFault { at_us, fault });
            script.faults.sort_by_key(|fault| fault.at_us);
        }
        let mut rng = Rng::new(seed ^ 0x0005_eed0_0dd1_51de);
        let knows = !calm || script.vms.iter().all(|vm| vm.pin.is_none() && !vm.may_be_held());
        if script.host.pcpus() > script.host.threads && knows && rng.chance_pct(40) {
            let partitions = draw_partitions(&mut rng, &script, calm);
            script.faults.extend(partitions);
            script.faults.sort_by_key(|fault| fault.at_us);
        }
        script
    }
}

/// What a trial's VMs ask for beyond shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    Nothing,
    Modes,
    Time,
    All,
}

impl Asks {
    fn modes(self) -> bool {
        matches!(self, Self::Modes | Self::All)
    }

    fn time(self) -> bool {
        matches!(self, Self::Time | Self::All)
    }
}

/// To what a trial's VMs are confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sets {
    /// To nothing.
    Any,
    /// Each to a die, as libvirt places them; a few to nothing.
    Dies,
    /// To pCPUs in a row, some of them the same as others'.
    Rows,
    /// All of them to all but the first pCPU, as isolcpus leaves it to the host.
    NotFirst,
    /// Some to anything of this kind, most to nothing.
    Mixed,
}

fn draw_host(rng: &mut Rng) -> Shape {
    let most = if rng.chance_pct(10) { 32 } else { 6 };
    let dies = *rng.pick(&[1, 1, 1, 2, 2, 3, 4]);
    let cores = 1 + rng.below(most) as u32;
    let threads = *rng.pick(&[1, 1, 2]);
    let uneven = dies > 1 && rng.chance_pct(30);
    let draw = |_| 1 + rng.below(most) as u32;
    let cores_of = if uneven { (0..dies).map(draw).collect() } else { Vec::new() };
    Shape { dies, cores, threads, cores_of }
}

fn draw_sets(rng: &mut Rng, host: &Shape, calm: bool) -> Sets {
    let all_confined = match host.dies {
        1 => *rng.pick(&[Sets::Rows, Sets::NotFirst]),
        _ => *rng.pick(&[Sets::Dies, Sets::Dies, Sets::Dies, Sets::Rows, Sets::NotFirst]),
    };
    match calm {
        true if host.pcpus() >= 4 && rng.chance_pct(40) => all_confined,
        true => Sets::Any,
        false if rng.chance_pct(20) => all_confined,
        false => Sets::Mixed,
    }
}

fn confine(rng: &mut Rng, host: &Shape, sets: Sets, vm: &mut ScriptVm) {
    let pcpus = host.pcpus();
    vm.pin = match sets {
        Sets::Any => None,
        Sets::Dies => rng.chance_pct(85).then(|| draw_die(rng, host)),
        Sets::Rows => rng.chance_pct(75).then(|| draw_row(rng, pcpus)),
        Sets::NotFirst => Some((u32::from(pcpus > 1)..pcpus).collect()),
        Sets::Mixed => rng.chance_pct(35).then(|| draw_set(rng, host)),
    };
    vm.one_each = sets == Sets::Mixed && rng.chance_pct(10);
}

/// pCPUs that a VM may be confined to.
fn draw_set(rng: &mut Rng, host: &Shape) -> Vec<u32> {
    match rng.below(4) {
        0 => draw_die(rng, host),
        1 => draw_row(rng, host.pcpus()),
        _ => draw_cpus(rng, host.pcpus()),
    }
}

fn draw_die(rng: &mut Rng, host: &Shape) -> Vec<u32> {
    let widths: Vec<u32> = host.cores_by_die().iter().map(|cores| cores * host.threads).collect();
    let die = rng.below(widths.len() as u64) as usize;
    let first = widths[..die].iter().sum();
    (first..first + widths[die]).collect()
}

/// Two pCPUs in a row, or more, up to half of them and one. They begin at few places, so that several VMs have the same.
fn draw_row(rng: &mut Rng, pcpus: u32) -> Vec<u32> {
    let width = (2 + rng.below(u64::from(pcpus / 2).max(1)) as u32).min(pcpus);
    let first = (pcpus - width) * rng.below(3) as u32 / 2;
    (first..first + width).collect()
}

fn draw_cpus(rng: &mut Rng, pcpus: u32) -> Vec<u32> {
    let keep_pct = 10 + rng.below(80);
    let mut cpus: Vec<u32> = (0..pcpus).filter(|_| rng.chance_pct(keep_pct)).collect();
    if cpus.is_empty() {
        cpus.push(rng.below(u64::from(pcpus)) as u32);
    }
    cpus
}

/// A pool in one of those before it. It promises nothing, as its VMs do (admission: a pool that may
/// expand takes its VMs' reservations from the host); it may have a limit.
fn draw_pool(rng: &mut Rng, host: &Shape, number: u32, calm: bool) -> PoolSettings {
    let most_mcpu = u64::from(1000 * host.pcpus());
    let limited = !calm && rng.chance_pct(20);
    PoolSettings {
        parent: PoolId(rng.below(u64::from(number) + 1) as u32),
        shares: 250 << rng.below(6),
        reservation_mcpu: 0,
        limit_mcpu: limited.then(|| 10 + rng.below(most_mcpu) as u32),
        burst_us: 0,
    }
}

/// What is asked for a VM. All reservations together fit three quarters of the host, and those of VMs
/// confined to any set three quarters of that: more might not have been admitted. The first VM's may be
/// far above its share.
fn draw_bounds(rng: &mut Rng, script: &Script, vm: usize, (asks, calm): (Asks, bool)) -> VmBounds {
    let threads = script.vms[vm].threads;
    let mut bounds = VmBounds::default();
    if asks.modes() && rng.chance_pct(60) {
        bounds.cosched = *rng.pick(&Cosched::WORDS.map(|(_, mode)| mode));
    }
    if asks.time() {
        // What is reserved is paid with what is charged: all threads busy, 0.625 of a pCPU each.
        let pcpu_mcpu = if script.host.threads == 2 { 625 } else { 1000 };
        let set_mcpu = pcpu_mcpu * script.vms[vm].may_use(script.host.pcpus()).count();
        let part = if vm == 0 { 2 } else { 4 * script.vms.len() as u32 };
        let most_mcpu = (set_mcpu / part).min(1000 * threads);
        if rng.chance_pct(50) {
            bounds.reservation_mcpu = rng.below(u64::from(most_mcpu) + 1) as u32;
        }
        bounds.pool = rng.below(script.pools.len() as u64 + 1) as u32;
        if !calm && rng.chance_pct(25) {
            let above_mcpu = rng.below(u64::from(1000 * threads)) as u32;
            bounds.limit_mcpu = bounds.reservation_mcpu + 10 + above_mcpu;
        }
    }
    bounds
}

fn draw_vm(rng: &mut Rng, script: &Script, calm: bool) -> ScriptVm {
    let pcpus = script.host.pcpus();
    let threads = 1 + rng.below(u64::from(2 * pcpus).min(24)) as u32;
    let workload = match calm {
        true => Workload::Cpu { duty_pct: 100, period_us: 10_000, then: None },
        false => draw_workload(rng),
    };
    let bounds = VmBounds::default();
    let mut vm = ScriptVm {
        threads,
        helpers: 0,
        shares: 0,
        workload,
        pin: None,
        one_each: false,
        start_us: 0,
        bounds,
    };
    if calm {
        vm.shares = 500 * (1 + rng.below(8)) as u32;
        return vm;
    }
    vm.shares = match rng.below(10) {
        0 => 1,
        1 => 1_000_000,
        _ => 1 << (5 + rng.below(10)),
    };
    vm.helpers = match rng.below(8) {
        0 => threads,
        1 | 2 => rng.below(u64::from(threads)) as u32,
        _ => 0,
    };
    vm.start_us = if rng.chance_pct(30) { rng.below(script.duration_us) } else { 0 };
    vm
}

fn draw_workload(rng: &mut Rng) -> Workload {
    let period_us = 200 + rng.below(20_000) as u32;
    match rng.below(8) {
        0..=2 => Workload::Cpu { duty_pct: 100, period_us, then: None },
        3 => Workload::Cpu { duty_pct: rng.below(100) as u32, period_us, then: None },
        4 => Workload::Lock {
            hold_us: rng.below(50) as u32,
            think_us: 5 + rng.below(200) as u32,
            notify_us: 0,
        },
        5 => Workload::Barrier { work_us: 10 + rng.below(300) as u32, notify_us: 0 },
        6 => Workload::Sleep { period_us, work_us: rng.below(u64::from(period_us)) as u32 },
        _ => Workload::Mix {},
    }
}

fn draw_fault(rng: &mut Rng, script: &Script, asks: Asks) -> TimedFault {
    let pcpus = script.host.pcpus();
    let cpu = rng.below(u64::from(pcpus)) as u32;
    let vm = rng.below(script.vms.len() as u64) as u32;
    let thread = rng.below(u64::from(script.vms[vm as usize].threads)) as u32;
    let fault = match rng.below(if asks == Asks::Nothing { 16 } else { 20 }) {
        16.. if rng.chance_pct(20) && !script.pools.is_empty() => {
            let pool = rng.below(script.pools.len() as u64) as u32;
            let parent = script.pools[pool as usize].parent;
            let drawn = draw_pool(rng, &script.host, pool, false);
            Fault::Pool(pool + 1, PoolSettings { parent, ..drawn })
        }
        16.. => Fault::Bounds(vm, draw_bounds(rng, script, vm as usize, (asks, false))),
        0 | 1 => Fault::Offline(cpu),
        2 | 3 => Fault::Online(cpu),
        4 => Fault::Kill(vm),
        5 => Fault::Shares(vm, 1 << rng.below(20)),
        6 | 7 => Fault::Confine(vm, thread, draw_set(rng, &script.host)),
        8 => Fault::Confine(vm, thread, Vec::new()),
        9 => Fault::KicksLate(rng.below(400)),
        10 => Fault::TimerLate(rng.below(300_000)),
        11 => Fault::ClockOff(rng.below(20_000) as i64 - 10_000),
        12 | 13 => Fault::Cpuset(vm, draw_set(rng, &script.host)),
        _ => {
            let most_us = *rng.pick(&[200, 2_000, 30_000]);
            Fault::RealTime(cpu, 10 + rng.below(most_us))
        }
    };
    TimedFault { at_us: rng.below(script.duration_us), fault }
}

/// The threads of a VM yield all the time, as those of a hostile guest would.
fn draw_yields(rng: &mut Rng, script: &Script) -> TimedFault {
    let vm = rng.below(script.vms.len() as u64) as u32;
    let most_us = *rng.pick(&[30, 500, 20_000]);
    TimedFault { at_us: 0, fault: Fault::Yields(vm, 10 + rng.below(most_us)) }
}

/// Homes of most VMs, most of them on the same node; where nothing need be calm, they change.
fn draw_homes(rng: &mut Rng, script: &Script, calm: bool) -> Vec<TimedFault> {
    let vms = script.vms.len() as u64;
    let crowded = 1 + rng.below(script.host.dies.into()) as u32;
    let changes = if calm { 0 } else { rng.below(20) };
    let draw = |number: u64| {
        let first = number < vms;
        let vm = if first { number } else { rng.below(vms) } as u32;
        // One more than there are nodes: no such node.
        let any = rng.below(u64::from(script.host.dies) + 2) as u32;
        let home = if rng.chance_pct(60) { crowded } else { any };
        let at_us = if first { 2_000 } else { rng.below(script.duration_us) };
        TimedFault { at_us, fault: Fault::Home(vm, home) }
    };
    (0..vms + changes).map(draw).collect()
}

/// Partitions, and who is in them; where nothing need be calm, they change.
fn draw_partitions(rng: &mut Rng, script: &Script, calm: bool) -> Vec<TimedFault> {
    let count = 1 + rng.below(3) as u32;
    let vms = script.vms.len() as u64;
    let mut faults = Vec::new();
    for number in 1..=count {
        let fault = draw_partition(rng, script, number, calm);
        faults.push(TimedFault { at_us: DIVIDED_US / 2, fault });
    }
    for vm in 0..vms as u32 {
        let fault = Fault::Join(vm, rng.below(u64::from(count) + 1) as u32);
        faults.push(TimedFault { at_us: DIVIDED_US, fault });
    }
    let most = *rng.pick(&[10, 80]);
    let changes = if calm { 0 } else { rng.below(most) };
    for _ in 0..changes {
        let number = 1 + rng.below(count.into()) as u32;
        let fault = match rng.below(10) {
            0 => Fault::Partition(number, Vec::new(), PartitionPolicy::Share, 7_000),
            1..=3 => draw_partition(rng, script, number, false),
            _ => Fault::Join(rng.below(vms) as u32, rng.below(u64::from(count) + 1) as u32),
        };
        faults.push(TimedFault { at_us: rng.below(script.duration_us), fault });
    }
    faults
}

/// The first pCPU is left to `default`, which must have one; where time must divide, whole cores.
fn draw_partition(rng: &mut Rng, script: &Script, number: u32, calm: bool) -> Fault {
    let mut cpus = draw_set(rng, &script.host);
    if calm {
        let threads = script.host.threads;
        let cores: Vec<u32> = cpus.iter().map(|cpu| cpu / threads).collect();
        cpus =
            (threads..script.host.pcpus()).filter(|it| cores.contains(&(it / threads))).collect();
    }
    cpus.retain(|&cpu| cpu > 0);
    let policy = *rng.pick(&PartitionPolicy::WORDS.map(|(_, policy)| policy));
    let slice_us = match rng.chance_pct(60) {
        true => policy.slice_ns() / 1000,
        false => *rng.pick(&[500, 3_000, 30_000, 200_000]),
    };
    Fault::Partition(number, cpus, policy, slice_us)
}

/// A cpuset that is changed may be changed to the others and back, within ms; and real-time tasks come
/// again.
fn and_what_follows(rng: &mut Rng, script: &Script, first: TimedFault) -> Vec<TimedFault> {
    let pcpus = script.host.pcpus();
    let mut all = vec![first];
    let times = if rng.chance_pct(50) { rng.below(6) } else { 0 };
    for _ in 0..times {
        let last = &all[all.len() - 1];
        let fault = match &last.fault {
            Fault::Cpuset(vm, cpus) if (cpus.len() as u32) < pcpus => {
                Fault::Cpuset(*vm, (0..pcpus).filter(|cpu| !cpus.contains(cpu)).collect())
            }
            again @ Fault::RealTime(..) => again.clone(),
            _ => break,
        };
        let at_us = last.at_us + rng.below(20_000);
        all.push(TimedFault { at_us, fault });
    }
    all
}
