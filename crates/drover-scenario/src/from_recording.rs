// SPDX-License-Identifier: GPL-2.0-only
//! A recording of a host as a scenario: its shape, its VMs and their settings, and programs that run and sleep as the vCPUs did.
//!
//! Idea. A vCPU wakes, computes for a while and sleeps for a while. What it computes between two sleeps is what it wants,
//! however often it was preempted in between; waits belong to the scheduler, and are not in the program. vCPUs of a VM that
//! are alike share a role.
//!
//! Worked example: a vCPU is woken 500 times a second and computes 0.4 to 0.6 ms each time: `compute 400 us to 600 us`,
//! `sleep 1.5 ms`, `count`. Where times between wake-ups vary less than those it slept, a timer wakes it: `timer 2 ms`. One that
//! never slept computes without end.
//!
//! Limitations. Why a vCPU woke is not recorded: all sleeps become sleeps of the mean length, and vCPUs that wake each other
//! do so no more. Spinning for a sibling is computing here. Helpers of VMs, and threads of the host, are the host's own work.

use crate::host::Host;
use drover_core::cpu_list::CpuList;
use drover_core::recording::{Event, What};
use drover_core::recording_file::{Recording, Setup, VmSetup};
use drover_core::why::Who;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// A vCPU that computed for less of the time did nothing.
const IDLE: f64 = 0.000_1;
/// A vCPU that was ready or ran for more of the time never slept.
const BUSY: f64 = 0.995;
/// vCPUs share a role while their means are no further apart.
const ALIKE: f64 = 1.3;
/// Times that vary by more of their mean are drawn at random.
const VARIES: f64 = 0.05;
/// The middle half of the times between wake-ups of a timer is within so much of them.
const REGULAR: f64 = 0.05;
/// Times that vary by more are drawn the longer the rarer.
const VARIES_MUCH: f64 = 0.75;
/// A recording that is shorter says nothing, ns.
const LEAST_NS: u64 = 100_000_000;

/// A scenario, and what is to be said of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Described {
    /// The scenario file.
    pub text: String,
    /// What was recorded of each VM, in its order.
    pub recorded: Vec<Recorded>,
    /// What of the recording is not in it, a line each.
    pub left_out: Vec<String>,
}

/// What was recorded of a VM.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Recorded {
    /// Its name in the scenario.
    pub name: String,
    /// Time its vCPUs ran, pCPUs.
    pub ran_pcpus: f64,
    /// Time they were ready and did not run, pCPUs.
    pub ready_pcpus: f64,
    /// How often they woke, a second.
    pub wakeups_per_s: f64,
}

/// Makes a scenario of that name of a recording.
///
/// # Errors
/// In one line, when there is too little in it, or the simulator cannot hold such a host.
pub fn describe(recording: &Recording, name: &str) -> Result<Described, String> {
    let from_ns = recording.head.from_ns;
    let to_ns = recording.events.iter().map(|event| event.at_ns).max().unwrap_or(from_ns);
    if to_ns < from_ns + LEAST_NS {
        return Err(format!(
            "it has {} ms of events: record for a second at least",
            to_ns.saturating_sub(from_ns) / 1_000_000
        ));
    }
    let vms = vms_of(recording);
    if vms.is_empty() {
        return Err("no VM ran while it was recorded".to_owned());
    }
    let shape = Shape::of(recording)?;
    let mut lives = lives(&recording.events, (from_ns, to_ns), &vms);
    let window_s = seconds(to_ns - from_ns);
    let mut described =
        Described { text: String::new(), recorded: Vec::new(), left_out: Vec::new() };
    let own = lives.remove(&OTHERS).unwrap_or_default();
    described.head(recording, name, window_s);
    described.host(&shape, &own, window_s);
    for vm in &vms {
        described.vm(vm, recording.setup.as_ref(), &shape, &lives, window_s);
    }
    if recording.lost > 0 {
        let line = format!(
            "{} events were lost: what happened then looks like sleep or work",
            recording.lost
        );
        described.left_out.push(line);
    }
    Ok(described)
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// A VM of a recording.
struct Recordee {
    /// Its process.
    pid: u32,
    /// A name that no other has.
    name: String,
    /// The threads of its vCPUs, by number.
    vcpus: Vec<u32>,
}

fn vms_of(recording: &Recording) -> Vec<Recordee> {
    let mut found: BTreeMap<u32, (String, BTreeMap<u32, u32>)> = BTreeMap::new();
    for thread in recording.threads.iter().filter(|thread| thread.who == Who::Vm) {
        let (Some(pid), Some(vcpu)) = (thread.vm, thread.vcpu) else { continue };
        let vm = found.entry(pid).or_default();
        vm.0.clone_from(&thread.name);
        vm.1.insert(vcpu, thread.thread);
    }
    let mut names = HashMap::new();
    let vm = |(pid, (name, vcpus)): (u32, (String, BTreeMap<u32, u32>))| {
        let plain = plain_name(&name);
        let number = names.entry(plain.clone()).and_modify(|number| *number += 1).or_insert(1);
        let name = if *number == 1 { plain } else { format!("{plain}.{number}") };
        Recordee { pid, name, vcpus: vcpus.into_values().collect() }
    };
    found.into_iter().map(vm).collect()
}

/// The name as scenarios take it.
fn plain_name(name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let plain: String =
        name.chars().map(|letter| if is_plain(letter) { letter } else { '-' }).take(59).collect();
    if plain.is_empty() { "vm".to_owned() } else { plain }
}

/// What a vCPU did, or all that are none together.
#[derive(Debug, Default, Clone)]
struct Life {
    ran_ns: u64,
    ready_ns: u64,
    wakeups: u64,
    /// What it computed between two sleeps, ns.
    bursts: Vec<u64>,
    /// How long it slept, ns.
    sleeps: Vec<u64>,
    /// From one wake-up to the next, ns.
    periods: Vec<u64>,
    /// When it woke last.
    woke_ns: Option<u64>,
    now: Now,
    /// What it has computed since it woke; none: it has not slept yet.
    burst_ns: Option<u64>,
}

#[derive(Debug, Default, Clone, Copy)]
enum Now {
    #[default]
    Unknown,
    Asleep(u64),
    Ready(u64),
    Running,
}

/// Under which thread all are counted that are no vCPUs.
const OTHERS: u32 = 0;

/// What each vCPU did in the window. One that was never told of was ready or asleep all the time: that is not known.
fn lives(events: &[Event], (from_ns, to_ns): (u64, u64), vms: &[Recordee]) -> HashMap<u32, Life> {
    let mut lives: HashMap<u32, Life> =
        vms.iter().flat_map(|vm| &vm.vcpus).map(|&thread| (thread, Life::default())).collect();
    let others = Life::default();
    lives.insert(OTHERS, others);
    let mut events: Vec<&Event> = events.iter().collect();
    events.sort_by_key(|event| event.at_ns);
    let mut running: HashMap<u32, (u32, u64)> = HashMap::new();
    for event in events {
        let at_ns = event.at_ns.max(from_ns);
        match event.what {
            What::Woken => {
                if let Some(life) = lives.get_mut(&event.thread).filter(|_| event.thread != OTHERS)
                {
                    life.woken(at_ns);
                }
            }
            What::Ran { left_ready, .. } => {
                if let Some((before, since_ns)) = running.insert(event.pcpu, (event.thread, at_ns))
                {
                    stop(&mut lives, before, (since_ns, at_ns), left_ready);
                }
                if let Some(life) = lives.get_mut(&event.thread).filter(|_| event.thread != OTHERS)
                {
                    life.runs(from_ns, at_ns);
                }
            }
        }
    }
    for (thread, since_ns) in running.into_values() {
        stop(&mut lives, thread, (since_ns, to_ns), true);
    }
    for life in lives.values_mut() {
        if let Now::Ready(since_ns) = life.now {
            life.ready_ns += to_ns.saturating_sub(since_ns);
        }
    }
    lives
}

/// The thread that ran on a pCPU does no more. On an idle pCPU none runs.
fn stop(
    lives: &mut HashMap<u32, Life>,
    thread: u32,
    (since_ns, at_ns): (u64, u64),
    left_ready: bool,
) {
    if thread == 0 {
        return;
    }
    match lives.get_mut(&thread) {
        Some(life) => life.stops(since_ns, at_ns, left_ready),
        None => {
            let others = lives.entry(OTHERS).or_default();
            others.ran_ns += at_ns - since_ns;
            others.wakeups += u64::from(!left_ready);
        }
    }
}

impl Life {
    fn woken(&mut self, at_ns: u64) {
        match self.now {
            Now::Asleep(since_ns) => self.wakes(since_ns, at_ns),
            Now::Unknown => self.burst_ns = Some(0),
            Now::Ready(_) | Now::Running => return,
        }
        self.wakeups += 1;
        self.periods.extend(self.woke_ns.replace(at_ns).map(|before_ns| at_ns - before_ns));
        self.now = Now::Ready(at_ns);
    }

    fn wakes(&mut self, since_ns: u64, at_ns: u64) {
        self.sleeps.push(at_ns - since_ns);
        self.burst_ns = Some(0);
    }

    fn runs(&mut self, from_ns: u64, at_ns: u64) {
        match self.now {
            Now::Ready(since_ns) => self.ready_ns += at_ns - since_ns,
            // Each wake-up is told of: it was ready since before the recording began.
            Now::Unknown => self.ready_ns += at_ns - from_ns,
            // It was woken on its way to sleep.
            Now::Asleep(_) | Now::Running => {}
        }
        self.now = Now::Running;
    }

    fn stops(&mut self, since_ns: u64, at_ns: u64, left_ready: bool) {
        self.ran_ns += at_ns - since_ns;
        if let Some(burst_ns) = &mut self.burst_ns {
            *burst_ns += at_ns - since_ns;
        }
        self.now = match left_ready {
            true => Now::Ready(at_ns),
            false => {
                self.bursts.extend(self.burst_ns.take());
                Now::Asleep(at_ns)
            }
        };
    }

    /// The width of the grid on which a timer wakes it, ns; none: it sleeps for a time of its own.
    fn timer_ns(&self) -> Option<u64> {
        let (period_ns, wide_ns) = middle(&self.periods).filter(|_| self.periods.len() > 2)?;
        let (_, sleeps_wide_ns) = middle(&self.sleeps)?;
        let is_regular = (wide_ns as f64) < REGULAR * period_ns as f64 && wide_ns < sleeps_wide_ns;
        // What is read of the clock is late by some µs.
        is_regular.then_some((period_ns + 5_000) / 10_000 * 10_000).filter(|&ns| ns > 0)
    }

    /// What it does, as a scenario has it.
    fn habit(&self, window_s: f64) -> Habit {
        let of_window = |ns: u64| seconds(ns) / window_s;
        if of_window(self.ran_ns + self.ready_ns) > BUSY {
            return Habit::Busy;
        }
        if of_window(self.ran_ns) < IDLE && self.wakeups < 2 {
            return Habit::Idle;
        }
        // Of one that slept once only neither is known whole.
        let asleep_ns = ((window_s * 1e9) as u64).saturating_sub(self.ran_ns + self.ready_ns);
        let or = |times: &Vec<u64>, ns: u64| match times.is_empty() {
            true => Times::of(&[ns]),
            false => Times::of(times),
        };
        let (bursts, sleeps) = (or(&self.bursts, self.ran_ns), or(&self.sleeps, asleep_ns));
        Habit::Both { bursts, sleeps, timer_ns: self.timer_ns() }
    }
}

/// The median, and how wide the middle half is.
fn middle(times: &[u64]) -> Option<(u64, u64)> {
    let mut times = times.to_vec();
    times.sort_unstable();
    let at = |part: usize| times.get(times.len() * part / 4).copied();
    Some((at(2)?, at(3)? - at(1)?))
}

/// What a vCPU does again and again.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Habit {
    Busy,
    Idle,
    Both { bursts: Times, sleeps: Times, timer_ns: Option<u64> },
}

/// Some lengths of time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Times {
    count: f64,
    sum_ns: f64,
    sum_of_squares: f64,
}

impl Times {
    fn of(times: &[u64]) -> Self {
        let sum_of = |of: fn(f64) -> f64| times.iter().map(|&ns| of(ns as f64)).sum();
        Self {
            count: times.len() as f64,
            sum_ns: sum_of(|ns| ns),
            sum_of_squares: sum_of(|ns| ns * ns),
        }
    }

    fn with(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            sum_ns: self.sum_ns + other.sum_ns,
            sum_of_squares: self.sum_of_squares + other.sum_of_squares,
        }
    }

    fn mean_ns(self) -> f64 {
        self.sum_ns / self.count.max(1.0)
    }

    /// The standard deviation, as a part of the mean.
    fn varies(self) -> f64 {
        let mean = self.mean_ns();
        let variance = (self.sum_of_squares / self.count.max(1.0) - mean * mean).max(0.0);
        variance.sqrt() / mean.max(1.0)
    }

    fn is_like(self, other: Self) -> bool {
        let ratio = (self.mean_ns() + 1.0) / (other.mean_ns() + 1.0);
        (1.0 / ALIKE..ALIKE).contains(&ratio)
    }

    /// The step that computes so: of the same mean and, up to where none would be left, deviation.
    fn compute(self) -> String {
        let mean = self.mean_ns().max(100.0);
        match self.varies() {
            varies if varies < VARIES => format!("compute {}", time(mean)),
            varies if varies > VARIES_MUCH => format!("compute about {}", time(mean)),
            varies => {
                // Of a uniform distribution the deviation is its width by the root of 12.
                let half = (varies * mean * 3f64.sqrt()).min(mean);
                format!("compute {} to {}", time((mean - half).max(0.0)), time(mean + half))
            }
        }
    }
}

/// A time as scenarios write it, with three digits or four.
fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 9_999.5 => return format!("{ns:.0} ns"),
        ns if ns < 9_999_500.0 => (ns / 1e3, "us"),
        ns if ns < 9_999_500_000.0 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    let digits = if value < 99.95 { 2 } else { 0 };
    format!("{value:.digits$} {unit}")
}

impl Habit {
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Busy, Self::Busy) | (Self::Idle, Self::Idle) => true,
            (
                Self::Both { bursts, sleeps, timer_ns },
                Self::Both { bursts: burst, sleeps: sleep, timer_ns: timer },
            ) => match (timer_ns, timer) {
                (None, None) => bursts.is_like(*burst) && sleeps.is_like(*sleep),
                (Some(a), Some(b)) => {
                    bursts.is_like(*burst) && Times::of(&[*a]).is_like(Times::of(&[*b]))
                }
                _ => false,
            },
            _ => false,
        }
    }

    fn with(self, other: Self) -> Self {
        match (self, other) {
            (
                Self::Both { bursts, sleeps, timer_ns },
                Self::Both { bursts: burst, sleeps: sleep, .. },
            ) => Self::Both { bursts: bursts.with(burst), sleeps: sleeps.with(sleep), timer_ns },
            _ => self,
        }
    }

    /// Its steps; `count` counts wake-ups.
    fn steps(self) -> String {
        match self {
            Self::Busy => "\"compute 10 ms\"".to_owned(),
            Self::Idle => "\"sleep 10 s\", \"compute 1 us\", \"count\"".to_owned(),
            Self::Both { bursts, timer_ns: Some(timer_ns), .. } => {
                format!("\"{}\", \"timer {}\"", bursts.compute(), time(timer_ns as f64))
            }
            Self::Both { bursts, sleeps, timer_ns: None } => {
                format!(
                    "\"{}\", \"sleep {}\", \"count\"",
                    bursts.compute(),
                    time(sleeps.mean_ns().max(100.0))
                )
            }
        }
    }
}

/// The host of a recording: its shape, and its pCPUs in the order of a scenario.
struct Shape {
    host: Host,
    /// The number in the recording of each pCPU.
    order: Vec<u32>,
    is_known: bool,
}

impl Shape {
    fn of(recording: &Recording) -> Result<Self, String> {
        let Some(setup) = &recording.setup else {
            let pcpus = recording.head.pcpus.max(1);
            let host = Host { cores: pcpus, ..Host::default() };
            return Ok(Self { host, order: (0..pcpus).collect(), is_known: false });
        };
        let mut pcpus = setup.pcpus.clone();
        pcpus.sort_unstable_by_key(|it| (it.node, it.llc, it.core, it.pcpu));
        let of_each = |key: fn(&drover_core::recording_file::PcpuSetup) -> u32| {
            let mut sizes: BTreeMap<u32, u32> = BTreeMap::new();
            pcpus.iter().for_each(|it| *sizes.entry(key(it)).or_default() += 1);
            let largest = sizes.values().copied().max().unwrap_or(0);
            (sizes.len() as u32, largest, sizes.values().all(|&size| size == largest))
        };
        let (nodes, _, nodes_alike) = of_each(|it| it.node);
        let (llcs, of_llc, llcs_alike) = of_each(|it| it.llc);
        let (cores, threads, cores_alike) = of_each(|it| it.core);
        if pcpus.is_empty() || !(nodes_alike && llcs_alike && cores_alike) || llcs % nodes != 0 {
            return Err(format!(
                "the simulator cannot hold this host: its {} pCPUs are on {cores} cores, {llcs} last-level caches and \
                 {nodes} nodes of unlike sizes",
                pcpus.len()
            ));
        }
        let host = Host {
            sockets: nodes,
            dies: llcs / nodes,
            cores: of_llc / threads,
            threads,
            nodes,
            memory_mib: setup.memory_mib.clamp(256, Host::MEMORY_MIB_MAX),
            node_distances: setup.node_distances.clone(),
            llc_kib: setup.llc_kib.filter(|&kib| kib > 0),
            ..Host::default()
        };
        Ok(Self { host, order: pcpus.iter().map(|it| it.pcpu).collect(), is_known: true })
    }

    /// A list of the recording's pCPUs as a scenario numbers them; none: they are all of them, or none is here.
    fn pin(&self, pcpus: &CpuList) -> Option<CpuList> {
        let here = (0u32..).zip(&self.order).filter(|(_, pcpu)| pcpus.contains(**pcpu));
        let pin = CpuList::of(here.map(|(number, _)| number))?;
        (pin.cpus().len() < self.order.len()).then_some(pin)
    }
}

impl Described {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn head(&mut self, recording: &Recording, name: &str, window_s: f64) {
        let head = &recording.head;
        let plain = |text: &str| text.chars().filter(|it| !it.is_control()).collect::<String>();
        let scheduler = head.scheduler.as_deref().map_or("the kernel's".to_owned(), plain);
        self.line(&format!(
            "# {} for {window_s:.1} s from {} on, under {scheduler} scheduler. `drover scenario from` made it; change what you like.",
            plain(&head.host),
            plain(&head.began)
        ));
        self.line(&format!("name = \"{}\"", plain_name(name)));
        self.line(&format!("duration_s = {:.1}", window_s.clamp(1.0, 5.0)));
        let known = if head.scheduler.as_deref() == Some("drover") { "drover" } else { "eevdf" };
        self.line(&format!("schedulers = [\"{known}\"]"));
    }

    fn host(&mut self, shape: &Shape, own: &Life, window_s: f64) {
        let host = &shape.host;
        self.line("\n[host]");
        for (key, value) in [
            ("sockets", host.sockets),
            ("dies", host.dies),
            ("cores", host.cores),
            ("threads", host.threads),
            ("nodes", host.nodes),
            ("memory_mib", host.memory_mib),
        ] {
            self.line(&format!("{key} = {value}"));
        }
        if host.nodes > 1 && !host.node_distances.is_empty() {
            self.line(&format!("node_distances = {:?}", host.node_distances));
        }
        if let Some(kib) = host.llc_kib {
            self.line(&format!("llc_kib = {kib}"));
        }
        let pcpus = f64::from(host.pcpus());
        let per_s = (own.wakeups as f64 / window_s / pcpus).round();
        let work_us = seconds(own.ran_ns) * 1e6 / (own.wakeups as f64).max(1.0);
        if per_s >= 1.0 && work_us >= 1.0 {
            self.line("# All that is no vCPU: the host's tasks, and helpers of VMs.");
            self.line(&format!("own_wakeups_per_s = {}", per_s.min(1e6)));
            self.line(&format!("own_work_us = {:.0}", work_us.min(1e6 / per_s * 0.9)));
        }
        let share = seconds(own.ran_ns) / window_s;
        if share > 0.05 * pcpus {
            self.left_out.push(format!(
                "threads that are no vCPUs ran on {share:.1} pCPUs; here they are the host's own, alike on all pCPUs"
            ));
        }
        if !shape.is_known {
            let line = "the host's shape was not recorded: its pCPUs are cores of one socket, and settings and pins are not known";
            self.left_out.push(line.to_owned());
        }
    }

    fn vm(
        &mut self,
        vm: &Recordee,
        setup: Option<&Setup>,
        shape: &Shape,
        lives: &HashMap<u32, Life>,
        window_s: f64,
    ) {
        let of_vm = || vm.vcpus.iter().map(|thread| &lives[thread]);
        let sum = |of: fn(&Life) -> u64| of_vm().map(of).sum::<u64>();
        let recorded = Recorded {
            name: vm.name.clone(),
            ran_pcpus: seconds(sum(|life| life.ran_ns)) / window_s,
            ready_pcpus: seconds(sum(|life| life.ready_ns)) / window_s,
            wakeups_per_s: sum(|life| life.wakeups) as f64 / window_s,
        };
        let vcpus = vm.vcpus.len();
        self.line("\n[[vm]]");
        self.line(&format!(
            "# Ran {:.1} % of its vCPUs' time, was ready {:.1} %, woke {:.0} times a second.",
            100.0 * recorded.ran_pcpus / vcpus as f64,
            100.0 * recorded.ready_pcpus / vcpus as f64,
            recorded.wakeups_per_s
        ));
        self.line(&format!("name = \"{}\"", vm.name));
        self.line(&format!("vcpus = {vcpus}"));
        if let Some(set) = setup.and_then(|setup| setup.vms.iter().find(|it| it.vm == vm.pid)) {
            self.settings(vm, set, shape);
        }
        let habits: Vec<Habit> = of_vm().map(|life| life.habit(window_s)).collect();
        self.workload(&habits);
        self.recorded.push(recorded);
    }

    fn settings(&mut self, vm: &Recordee, set: &VmSetup, shape: &Shape) {
        if let Some(shares) = set.shares {
            self.line(&format!("shares = {shares}"));
        }
        for (key, mcpu) in
            [("reservation_pct", set.reservation_mcpu), ("limit_pct", set.limit_mcpu)]
        {
            if let Some(mcpu) = mcpu.filter(|&mcpu| mcpu > 0) {
                self.line(&format!("{key} = {}", mcpu.div_ceil(10)));
            }
        }
        if let Some(pool) = &set.pool {
            let line =
                format!("VM {} is in pool {pool}: what that has is not in the recording", vm.name);
            self.left_out.push(line);
        }
        let pins: Vec<Option<CpuList>> =
            set.pins.iter().map(|it| shape.pin(it.as_ref()?)).collect();
        let all = || CpuList::all(shape.host.pcpus());
        match &pins[..] {
            [first, rest @ ..] if rest.iter().all(|it| it == first) => {
                if let Some(pin) = first {
                    self.line(&format!("pin = \"{pin}\""));
                }
            }
            [] => {}
            each => {
                let each: Vec<String> = each
                    .iter()
                    .map(|it| format!("\"{}\"", it.clone().unwrap_or_else(all)))
                    .collect();
                self.line(&format!("pin = [{}]", each.join(", ")));
            }
        }
    }

    fn workload(&mut self, habits: &[Habit]) {
        let mut roles: Vec<(Habit, Vec<u32>)> = Vec::new();
        for (vcpu, habit) in (0..).zip(habits) {
            match roles.iter_mut().find(|(role, _)| role.is_like(habit)) {
                Some((role, vcpus)) => {
                    *role = role.with(*habit);
                    vcpus.push(vcpu);
                }
                None => roles.push((*habit, vec![vcpu])),
            }
        }
        let mut text = "workload = { kind = \"program\", roles = [".to_owned();
        for (habit, vcpus) in &roles {
            let list =
                CpuList::of(vcpus.iter().copied()).map_or(String::new(), |list| list.to_string());
            // A string takes all.
            let _ = write!(text, "\n    {{ vcpus = \"{list}\", steps = [{}] }},", habit.steps());
        }
        text += "\n] }";
        self.line(&text);
    }
}
