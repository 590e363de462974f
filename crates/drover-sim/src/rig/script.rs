// SPDX-License-Identifier: GPL-2.0-only
//! What the rig does to the policy: a host, VMs and faults, drawn from a seed or read from a file.

use crate::class::VmBounds;
use crate::rng::Rng;
use drover_core::scenario::Workload;
use drover_core::settings::{Cosched, PoolId, PoolSettings};
use serde::{Deserialize, Serialize};

/// The shape of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Last-level caches.
    pub dies: u32,
    /// Cores of each.
    pub cores: u32,
    /// Hardware threads of a core.
    pub threads: u32,
}

/// A VM, or with helpers only a process of the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptVm {
    /// Threads, vCPUs first.
    pub threads: u32,
    /// How many of them are no vCPUs.
    pub helpers: u32,
    /// Its shares.
    pub shares: u32,
    /// What its threads do.
    pub workload: Workload,
    /// The pCPUs it is confined to; none: any.
    pub pin: Option<Vec<u32>>,
    /// When it starts.
    pub start_us: u64,
    /// What is asked for it beyond shares.
    #[serde(default)]
    pub bounds: VmBounds,
}

/// Something that goes wrong or changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// A pCPU goes.
    Offline(u32),
    /// A pCPU comes back.
    Online(u32),
    /// All threads of a VM are killed.
    Kill(u32),
    /// A VM's shares are changed.
    Shares(u32, u32),
    /// What is asked for a VM beyond shares changes.
    Bounds(u32, VmBounds),
    /// What is asked for a pool changes.
    Pool(u32, PoolSettings),
    /// A VM's thread is confined to these pCPUs; to none: freed.
    Confine(u32, u32, Vec<u32>),
    /// Kicks take so many µs more from now on.
    KicksLate(u64),
    /// The next timer comes so many µs late.
    TimerLate(u64),
    /// The clock the policy reads is off by so many µs from now on.
    ClockOff(i64),
}

/// A fault and its moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimedFault {
    /// When.
    pub at_us: u64,
    /// What.
    pub fault: Fault,
}

/// A trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The seed it was drawn from.
    pub seed: u64,
    /// The host.
    pub host: Shape,
    /// How long it takes.
    pub duration_us: u64,
    /// Virtual time at the start, ns: some begin just before it wraps.
    pub vtime_ns: u64,
    /// The pools, from 1 on; the root is 0.
    #[serde(default)]
    pub pools: Vec<PoolSettings>,
    /// The VMs.
    pub vms: Vec<ScriptVm>,
    /// What goes wrong, in order.
    pub faults: Vec<TimedFault>,
}

impl ScriptVm {
    /// Is it of a mode that may have it wait beside an idle pCPU?
    pub fn may_be_held(&self) -> bool {
        !matches!(self.bounds.cosched, Cosched::Auto | Cosched::Off)
    }
}

impl Shape {
    /// Number of pCPUs.
    pub fn pcpus(&self) -> u32 {
        self.dies * self.cores * self.threads
    }
}

impl Script {
    /// Draws a trial.
    pub fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x0005_eed0_fd20_7e12);
        let wide = rng.chance_pct(10);
        let host = Shape {
            dies: *rng.pick(&[1, 1, 1, 2, 2, 3, 4]),
            cores: 1 + rng.below(if wide { 32 } else { 6 }) as u32,
            threads: *rng.pick(&[1, 1, 2]),
        };
        let duration_us = 200_000 + rng.below(4_000_000);
        let calm = rng.chance_pct(30);
        let mut script = Self {
            seed,
            host,
            duration_us,
            vtime_ns: *rng.pick(&[
                0,
                0,
                1 << 40,
                u64::MAX - 1_000_000_000,
                (1 << 63) - 500_000_000,
            ]),
            pools: Vec::new(),
            vms: Vec::new(),
            faults: Vec::new(),
        };
        let asks = *rng.pick(&[Asks::Nothing, Asks::Modes, Asks::Time, Asks::All]);
        if asks.time() && rng.chance_pct(50) {
            let count = 1 + rng.below(6) as u32;
            let draw = |number| draw_pool(&mut rng, &script.host, number, calm);
            script.pools = (0..count).map(draw).collect();
        }
        // Up to four vCPUs for each pCPU, in VMs of up to twice the host's width.
        let most = (u64::from(host.pcpus()) * (1 + rng.below(4))).min(400);
        let mut threads = 0;
        while threads < most && script.vms.len() < 60 {
            let vm = draw_vm(&mut rng, &script, calm);
            threads += u64::from(vm.threads);
            script.vms.push(vm);
        }
        for vm in 0..script.vms.len() {
            script.vms[vm].bounds = draw_bounds(&mut rng, &script, vm, (asks, calm));
        }
        if !calm {
            let count = rng.below(25);
            script.faults = (0..count).map(|_| draw_fault(&mut rng, &script, asks)).collect();
            script.faults.sort_by_key(|fault| fault.at_us);
        }
        script
    }

    /// No faults and nothing but VMs that are always busy and may run anywhere: time must divide by
    /// shares, reservations and pools (shares.rs). What a reservation is worth to a VM that waits
    /// beside an idle pCPU for its siblings is not known.
    pub fn is_calm(&self) -> bool {
        let busy = |vm: &ScriptVm| {
            let always = matches!(vm.workload, Workload::Cpu { duty_pct: 100, then: None, .. });
            let anywhere = vm.pin.is_none() && vm.start_us == 0 && vm.helpers == 0;
            always && anywhere && vm.bounds.limit_mcpu == 0
        };
        let limited = self.pools.iter().any(|pool| pool.limit_mcpu.is_some());
        let promises =
            self.vms.iter().any(|vm| vm.bounds.pool > 0 || vm.bounds.reservation_mcpu > 0);
        let held = self.vms.iter().any(ScriptVm::may_be_held);
        let known = !(held && promises);
        self.faults.is_empty() && !limited && known && self.vms.iter().all(busy)
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
    }
}

/// What is asked for a VM. All reservations together fit three quarters of the host, whatever
/// changes: more might not have been admitted. The first VM's may be far above its share.
fn draw_bounds(rng: &mut Rng, script: &Script, vm: usize, (asks, calm): (Asks, bool)) -> VmBounds {
    let threads = script.vms[vm].threads;
    let mut bounds = VmBounds::default();
    if asks.modes() && rng.chance_pct(60) {
        bounds.cosched = *rng.pick(&Cosched::WORDS.map(|(_, mode)| mode));
    }
    if asks.time() {
        let host_mcpu = 1000 * script.host.pcpus();
        let part = if vm == 0 { 2 } else { 4 * script.vms.len() as u32 };
        let most_mcpu = (host_mcpu / part).min(1000 * threads);
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
    if calm {
        let shares = 500 * (1 + rng.below(8)) as u32;
        let workload = Workload::Cpu { duty_pct: 100, period_us: 10_000, then: None };
        let bounds = VmBounds::default();
        return ScriptVm { threads, helpers: 0, shares, workload, pin: None, start_us: 0, bounds };
    }
    let shares = match rng.below(10) {
        0 => 1,
        1 => 1_000_000,
        _ => 1 << (5 + rng.below(10)),
    };
    let helpers = match rng.below(8) {
        0 => threads,
        1 | 2 => rng.below(u64::from(threads)) as u32,
        _ => 0,
    };
    let pin = rng.chance_pct(25).then(|| draw_cpus(rng, pcpus));
    let start_us = if rng.chance_pct(30) { rng.below(script.duration_us) } else { 0 };
    let (workload, bounds) = (draw_workload(rng), VmBounds::default());
    ScriptVm { threads, helpers, shares, workload, pin, start_us, bounds }
}

fn draw_workload(rng: &mut Rng) -> Workload {
    let period_us = 200 + rng.below(20_000) as u32;
    match rng.below(8) {
        0..=2 => Workload::Cpu { duty_pct: 100, period_us, then: None },
        3 => Workload::Cpu { duty_pct: rng.below(100) as u32, period_us, then: None },
        4 => Workload::Lock { hold_us: rng.below(50) as u32, think_us: 5 + rng.below(200) as u32 },
        5 => Workload::Barrier { work_us: 10 + rng.below(300) as u32 },
        6 => Workload::Sleep { period_us, work_us: rng.below(u64::from(period_us)) as u32 },
        _ => Workload::Mix {},
    }
}

fn draw_cpus(rng: &mut Rng, pcpus: u32) -> Vec<u32> {
    let keep_pct = 10 + rng.below(80);
    let mut cpus: Vec<u32> = (0..pcpus).filter(|_| rng.chance_pct(keep_pct)).collect();
    if cpus.is_empty() {
        cpus.push(rng.below(u64::from(pcpus)) as u32);
    }
    cpus
}

fn draw_fault(rng: &mut Rng, script: &Script, asks: Asks) -> TimedFault {
    let pcpus = script.host.pcpus();
    let cpu = rng.below(u64::from(pcpus)) as u32;
    let vm = rng.below(script.vms.len() as u64) as u32;
    let thread = rng.below(u64::from(script.vms[vm as usize].threads)) as u32;
    let fault = match rng.below(if asks == Asks::Nothing { 12 } else { 16 }) {
        12.. if rng.chance_pct(20) && !script.pools.is_empty() => {
            let pool = rng.below(script.pools.len() as u64) as u32;
            let parent = script.pools[pool as usize].parent;
            Fault::Pool(
                pool + 1,
                PoolSettings { parent, ..draw_pool(rng, &script.host, pool, false) },
            )
        }
        12.. => Fault::Bounds(vm, draw_bounds(rng, script, vm as usize, (asks, false))),
        0 | 1 => Fault::Offline(cpu),
        2 | 3 => Fault::Online(cpu),
        4 => Fault::Kill(vm),
        5 => Fault::Shares(vm, 1 << rng.below(20)),
        6 | 7 => Fault::Confine(vm, thread, draw_cpus(rng, pcpus)),
        8 => Fault::Confine(vm, thread, Vec::new()),
        9 => Fault::KicksLate(rng.below(400)),
        10 => Fault::TimerLate(rng.below(300_000)),
        _ => Fault::ClockOff(rng.below(20_000) as i64 - 10_000),
    };
    TimedFault { at_us: rng.below(script.duration_us), fault }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_trial_and_files_keep_it() {
        for seed in 0..200 {
            let script = Script::of_seed(seed);
            assert_eq!(Script::of_seed(seed), script);
            assert!(!script.vms.is_empty() && script.host.pcpus() > 0);
            let json = serde_json::to_string(&script).unwrap();
            assert_eq!(serde_json::from_str::<Script>(&json).unwrap(), script);
        }
        assert!((0..100).any(|seed| Script::of_seed(seed).is_calm()));
        assert!((0..100).any(|seed| Script::of_seed(seed).faults.len() > 10));
    }
}
