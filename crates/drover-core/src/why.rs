// SPDX-License-Identifier: GPL-2.0-only
//! Why a VM waited: from who ran meanwhile, and what is known of limits and pinning, to the causes, the largest first.
//!
//! Time that a limit or a co-stop took is known from who enforces it, and goes to that cause first. The rest of the
//! ready time is divided as the time was that others ran where the VM's vCPUs waited.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::counters::Yields;
use crate::percent;
use crate::shares::SHARES_MAX;

/// A VM that was ready for less of its vCPUs' time than that waited for nothing worth a word, %.
const NOTHING_PCT: f64 = 2.0;
/// Causes of less than that of the ready time are left out, %.
const CAUSE_LEAST_PCT: f64 = 5.0;
/// pCPUs that are busy for more than that have no room, %.
const FULL_PCT: f64 = 90.0;
/// A neighbour has more shares from so many times as many on.
const MORE_SHARES: f64 = 1.1;
/// A VM that had so much of its limit was held by it.
const AT_LIMIT: f64 = 0.8;
/// A vCPU that asks so often a second for a sibling to run waits for it by spinning.
const SPINS_S: f64 = 100.0;
/// What a task is called that ended before anybody looked for its name.
pub const ENDED: &str = "(ended)";

/// What is known of a VM's time in a window.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Facts {
    /// The VM.
    pub name: String,
    /// The scheduler in charge; none: the kernel's own.
    pub scheduler: Option<String>,
    /// How long the window is, s.
    pub window_s: f64,
    /// From when on events are known: so long at its end, s. Less than the window where rings were too short.
    pub events_s: f64,
    /// Its vCPUs.
    pub vcpus: u32,
    /// Time they ran, summed over them, s.
    pub run_s: f64,
    /// Time they were ready and not co-stopped, s.
    pub ready_s: f64,
    /// Time they were co-stopped, s.
    pub costop_s: f64,
    /// Of the ready time: held by its own limit or its pools', s.
    pub limited_s: f64,
    /// Of that, held by a pool's limit, where it is told apart, s.
    pub pool_limited_s: Option<f64>,
    /// The most CPU it may have, thousandths of a pCPU; none: no limit.
    pub limit_mcpu: Option<u32>,
    /// Its pool; none: the host.
    pub pool: Option<String>,
    /// The most CPU its pool may have, thousandths of a pCPU; none: no limit.
    pub pool_limit_mcpu: Option<u32>,
    /// Its shares.
    pub shares: Option<u32>,
    /// Nobody set them: they follow from its vCPUs.
    #[serde(default)]
    pub shares_by_default: bool,
    /// The pCPUs its vCPUs may run on.
    pub allowed: Vec<u32>,
    /// They are all pCPUs of some NUMA nodes, and not of all.
    pub is_nodes: bool,
    /// How busy these were, %.
    pub allowed_busy_pct: f64,
    /// How busy the others were, %; none: there are none.
    pub others_busy_pct: Option<f64>,
    /// Directed yields of its vCPUs, where a scheduler counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub yields: Option<Yields>,
    /// Who ran where its vCPUs were ready, the longest first.
    pub meanwhile: Vec<Meanwhile>,
}

/// Somebody ran while vCPUs of the VM were ready there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Meanwhile {
    /// What it is.
    pub who: Who,
    /// What it is called.
    pub name: String,
    /// Its shares, where it has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares: Option<u32>,
    /// Nobody set them: they follow from its vCPUs.
    #[serde(default)]
    pub shares_by_default: bool,
    /// For so long, s.
    pub seconds: f64,
    /// There.
    pub pcpus: Vec<u32>,
}

/// Who runs.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Who {
    /// Nobody: the pCPU was idle.
    Idle,
    /// vCPUs of the VM itself.
    Sibling,
    /// Other threads of the VM itself.
    OwnHelper,
    /// vCPUs of another VM.
    Vm,
    /// Other threads of another VM, such as vhost's: they do its I/O.
    VmHelper,
    /// A container, or another service with a cgroup of its own.
    Container,
    /// A task of the host.
    Task,
    /// A thread of the kernel.
    Kernel,
    /// A thread of real-time priority.
    RealTime,
}

impl Who {
    /// As people are told.
    pub fn text(self) -> &'static str {
        match self {
            Who::Idle => "nobody",
            Who::Sibling => "its own vCPUs",
            Who::OwnHelper => "its own helper",
            Who::Vm => "VM",
            Who::VmHelper => "helper of VM",
            Who::Container => "container",
            Who::Task => "host task",
            Who::Kernel => "kernel thread",
            Who::RealTime => "real-time task",
        }
    }
}

/// What kept a VM from running.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Its own limit.
    OwnLimit,
    /// The limit of its pool.
    PoolLimit,
    /// Its siblings lagged behind, and Drover stopped it for them.
    CoStop,
    /// Its own threads had its place.
    OwnThreads,
    /// A real-time task.
    RealTime,
    /// Threads of the kernel.
    KernelThreads,
    /// I/O threads of another VM.
    OthersHelpers,
    /// It is confined to pCPUs that are full, while others have room.
    Pinned,
    /// So are those of the NUMA node it is confined to.
    NodeFull,
    /// Somebody with more shares.
    MoreShares,
    /// There is more work than pCPUs.
    Busy,
    /// The pCPU was idle: the scheduler did not use it in time.
    Idle,
    /// Nothing is known of who ran meanwhile.
    Unknown,
}

/// A cause, and what would help.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// What it is.
    pub cause: Cause,
    /// So much of the ready and co-stopped time, s.
    pub seconds: f64,
    /// The same in % of it.
    pub pct: f64,
    /// What it is, with the figures it is concluded from, in a line.
    pub what: String,
    /// What would help, in a line.
    pub helps: String,
}

/// The causes, the largest first; empty: there is nothing wrong.
pub fn conclude(facts: &Facts) -> Vec<Finding> {
    let waited_s = facts.ready_s + facts.costop_s;
    if facts.waited_pct() < NOTHING_PCT {
        return Vec::new();
    }
    let pct = |seconds: f64| 100.0 * seconds / waited_s;
    let found = seconds_by_cause(facts).into_iter();
    let mut found: Vec<(Cause, f64)> =
        found.filter(|(_, seconds)| pct(*seconds) >= CAUSE_LEAST_PCT).collect();
    found.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let finding = |(cause, seconds)| {
        let (what, helps) = said(facts, cause);
        Finding { cause, seconds, pct: pct(seconds), what, helps }
    };
    found.into_iter().map(finding).collect()
}

impl Facts {
    /// Ready and co-stopped time, in % of all time of its vCPUs.
    pub fn waited_pct(&self) -> f64 {
        self.of_vcpus_pct(self.ready_s + self.costop_s)
    }

    /// So much time in % of all time of its vCPUs.
    pub fn of_vcpus_pct(&self, seconds: f64) -> f64 {
        100.0 * seconds / (f64::from(self.vcpus) * self.window_s).max(1e-9)
    }

    /// CPU that it had, pCPUs.
    fn ran_pcpus(&self) -> f64 {
        self.run_s / self.window_s.max(1e-9)
    }

    /// Whether Drover schedules, and so takes orders.
    pub fn takes_orders(&self) -> bool {
        self.scheduler.as_deref() == Some("drover")
    }

    /// That its vCPUs wait for one another by spinning, with the figures that say so, in a line; none: they do not.
    pub fn spins(&self) -> Option<String> {
        let yields = self.yields?;
        let asked_s = yields.asked_per_s(self.window_s);
        let in_vain = yields.in_vain_pct()?;
        (asked_s >= SPINS_S * f64::from(self.vcpus)).then(|| {
            format!(
                "its vCPUs spin for one another: {asked_s:.0} times a second one asked that a sibling run, {in_vain:.0} \
                 % of it in vain"
            )
        })
    }

    /// Whether it had what its own limit allows.
    fn had_its_limit(&self) -> bool {
        self.limit_mcpu.is_some_and(|mcpu| self.ran_pcpus() >= AT_LIMIT * f64::from(mcpu) / 1e3)
    }

    /// How it gets a higher limit.
    fn raise_limit(&self) -> String {
        match self.takes_orders() {
            true => format!("`drover vm set {} --limit none`, or a higher one", self.name),
            false => "a higher cpu.max of its cgroup, or `max`".to_owned(),
        }
    }

    /// How it gets so many shares.
    fn raise_shares(&self, to: u32) -> String {
        match self.takes_orders() {
            true => {
                let shares = to.clamp(1, SHARES_MAX);
                format!("more shares: `drover vm set {} --shares {shares}`", self.name)
            }
            false => "more shares: a higher cpu.weight of its cgroup".to_owned(),
        }
    }

    fn longest(&self, is_so: impl Fn(&Meanwhile) -> bool) -> Option<&Meanwhile> {
        self.meanwhile
            .iter()
            .filter(|one| is_so(one))
            .max_by(|a, b| a.seconds.total_cmp(&b.seconds))
    }
}

fn seconds_by_cause(facts: &Facts) -> Vec<(Cause, f64)> {
    let limited_s = facts.limited_s.min(facts.ready_s);
    let mut causes = limits(facts, limited_s);
    causes.push((Cause::CoStop, facts.costop_s));
    // While it was held pCPUs were left to others, or idle: the idle time is what that explains first.
    let (mut known_s, mut shares) = (limited_s + facts.costop_s, Vec::new());
    for one in &facts.meanwhile {
        let explained_s = if one.who == Who::Idle { one.seconds.min(known_s) } else { 0.0 };
        known_s -= explained_s;
        shares.push((cause_of(facts, one), one.seconds - explained_s));
    }
    let all_s: f64 = shares.iter().map(|(_, seconds)| seconds).sum();
    let left_s = facts.ready_s - limited_s;
    if all_s <= 0.0 {
        causes.push((Cause::Unknown, left_s));
    }
    for (cause, seconds) in shares.into_iter().filter(|_| all_s > 0.0) {
        let seconds = left_s * seconds / all_s;
        match causes.iter_mut().find(|(known, _)| *known == cause) {
            Some((_, sum_s)) => *sum_s += seconds,
            None => causes.push((cause, seconds)),
        }
    }
    causes
}

/// Time held by limits, divided between the VM's own and its pool's.
fn limits(facts: &Facts, limited_s: f64) -> Vec<(Cause, f64)> {
    let of_pool_s = facts.pool_limited_s.unwrap_or(match facts.pool_limit_mcpu {
        Some(_) if !facts.had_its_limit() => limited_s,
        _ => 0.0,
    });
    let of_pool_s = of_pool_s.min(limited_s);
    vec![(Cause::OwnLimit, limited_s - of_pool_s), (Cause::PoolLimit, of_pool_s)]
}

fn cause_of(facts: &Facts, one: &Meanwhile) -> Cause {
    let has_room = facts.others_busy_pct.is_some_and(|pct| pct < FULL_PCT);
    match one.who {
        Who::Idle => Cause::Idle,
        Who::RealTime => Cause::RealTime,
        Who::Kernel => Cause::KernelThreads,
        Who::VmHelper => Cause::OthersHelpers,
        Who::Sibling | Who::OwnHelper => Cause::OwnThreads,
        _ if has_room && facts.is_nodes => Cause::NodeFull,
        _ if has_room => Cause::Pinned,
        _ if has_more(facts, one) => Cause::MoreShares,
        _ => Cause::Busy,
    }
}

fn has_more(facts: &Facts, one: &Meanwhile) -> bool {
    // Other schedulers do not derive shares from a VM's size: only shares that were set for both can be compared.
    let counts = facts.takes_orders() || !facts.shares_by_default && !one.shares_by_default;
    let shares = facts.shares.zip(one.shares).filter(|_| counts);
    shares.is_some_and(|(own, other)| f64::from(other) >= MORE_SHARES * f64::from(own))
}

/// A cause with its figures, and what would help.
fn said(facts: &Facts, cause: Cause) -> (String, String) {
    match cause {
        Cause::OwnLimit | Cause::PoolLimit => of_limits(facts, cause),
        Cause::CoStop => (
            "co-stops: it was stopped until its siblings could run, too".to_owned(),
            format!("fewer vCPUs, or `drover vm set {} --cosched relaxed` or `off`", facts.name),
        ),
        Cause::OwnThreads => (
            format!("its own threads: {} vCPUs on {}", facts.vcpus, pcpus(&facts.allowed)),
            "fewer vCPUs, or more pCPUs for them to run on".to_owned(),
        ),
        Cause::Idle => (
            "its pCPU was idle: it was held, or not found in time".to_owned(),
            "look for limits of cgroups above it (cpu.max), and for deep idle states".to_owned(),
        ),
        Cause::Unknown => (
            "it is not known who ran meanwhile".to_owned(),
            "ask again while it waits, for fewer seconds (`--seconds`)".to_owned(),
        ),
        Cause::RealTime | Cause::KernelThreads | Cause::OthersHelpers => of_host(facts, cause),
        Cause::Pinned | Cause::NodeFull => of_places(facts, cause),
        Cause::MoreShares | Cause::Busy => of_rivals(facts, cause),
    }
}

fn of_limits(facts: &Facts, cause: Cause) -> (String, String) {
    let of_limit = |mcpu: Option<u32>| {
        let had = 100.0 * facts.ran_pcpus();
        let limit = mcpu.map_or("unknown".to_owned(), percent::text);
        format!("{limit}; the VM had {had:.0} %")
    };
    if cause == Cause::OwnLimit {
        let what = format!("its own limit: {}", of_limit(facts.limit_mcpu));
        return (what, facts.raise_limit());
    }
    let pool = facts.pool.as_deref().unwrap_or("its pool");
    let limit = of_limit(facts.pool_limit_mcpu);
    (
        format!("the limit of its pool {pool}: {limit}"),
        format!("a higher limit of {pool}, or fewer VMs in it"),
    )
}

/// Who it is, in a sentence.
fn named(one: &Meanwhile) -> String {
    match one.name == ENDED {
        true => format!("{}s that have ended since", one.who.text()),
        false => format!("{} {}", one.who.text(), one.name),
    }
}

/// Who ran longest of those that are behind this cause.
fn main_one(facts: &Facts, cause: Cause) -> Option<&Meanwhile> {
    facts.longest(|one| cause_of(facts, one) == cause)
}

fn of_host(facts: &Facts, cause: Cause) -> (String, String) {
    let what = main_one(facts, cause)
        .map_or_else(String::new, |one| format!("{} ran on {}", named(one), pcpus(&one.pcpus)));
    let helps = match cause {
        Cause::RealTime => "give it a pCPU the VM does not use, or no real-time priority",
        Cause::KernelThreads => {
            "find what it works for: I/O, writeback, interrupts; keep it on other pCPUs"
        }
        _ => "less I/O of that VM, or its I/O threads on other pCPUs",
    };
    (what, helps.to_owned())
}

/// It is confined to pCPUs that are full.
fn of_places(facts: &Facts, cause: Cause) -> (String, String) {
    let busy = facts.allowed_busy_pct;
    let others = facts.others_busy_pct.unwrap_or(100.0);
    let allowed = pcpus(&facts.allowed);
    let one = main_one(facts, cause).map_or_else(String::new, named);
    let free = format!("busy {busy:.0} %, others {others:.0} %; with it there: {one}");
    if cause == Cause::Pinned {
        return (
            format!("it is pinned to {allowed}, {free}"),
            "let it run on more pCPUs: its affinity (virsh vcpupin) or cpuset".to_owned(),
        );
    }
    let how = match facts.takes_orders() {
        true => "`drover numa plan`",
        false => "its affinity (virsh vcpupin) or cpuset",
    };
    (
        format!("its NUMA node is full: {allowed}, {free}"),
        format!("move it, or a neighbour, to another node: {how}"),
    )
}

/// Others run where it may, and there is no room elsewhere.
fn of_rivals(facts: &Facts, cause: Cause) -> (String, String) {
    let Some(most) = main_one(facts, cause) else { return Default::default() };
    let own = facts.shares.unwrap_or(0);
    let theirs = most.shares.unwrap_or(0);
    let one = named(most);
    let (what, wanted) = match cause {
        Cause::MoreShares => {
            (format!("{one} has more shares: {theirs} beside {own} of its own"), theirs)
        }
        _ => {
            let busy = facts.allowed_busy_pct;
            let allowed = pcpus(&facts.allowed);
            let what = format!("more work than pCPUs: {allowed} busy {busy:.0} %; longest: {one}");
            (what, own.saturating_mul(2))
        }
    };
    let more = match facts.had_its_limit() {
        // Shares bring no more than a limit allows.
        true => {
            format!("a higher limit first, it had what its own allows: {}", facts.raise_limit())
        }
        false => facts.raise_shares(wanted),
    };
    (what, less_beside_it(most, cause).map_or(more.clone(), |less| format!("{less}; or {more}")))
}

/// What those might do that run meanwhile.
fn less_beside_it(most: &Meanwhile, cause: Cause) -> Option<String> {
    let less = match (cause, most.who) {
        (Cause::MoreShares, _) => return None,
        (_, Who::Task) if most.name == ENDED => {
            "find what starts so many short tasks (`systemd-cgtop`), and run it at other times"
                .to_owned()
        }
        (_, Who::Container) => format!("a lower cpu.weight or cpu.max of {}", most.name),
        (_, Who::Task) => format!("run {} at other times, or with `nice`", most.name),
        _ => "fewer vCPUs or VMs on this host".to_owned(),
    };
    Some(less)
}

/// `pCPU 3`, `pCPUs 0-3,8`.
pub fn pcpus(list: &[u32]) -> String {
    let mut text = String::new();
    let mut rest = list;
    while let Some((&first, _)) = rest.split_first() {
        let run = rest.iter().zip(first..).take_while(|(pcpu, next)| **pcpu == *next).count();
        let comma = if text.is_empty() { "" } else { "," };
        text += &match run {
            1 => format!("{comma}{first}"),
            _ => format!("{comma}{first}-{}", rest[run - 1]),
        };
        rest = &rest[run..];
    }
    match list.len() {
        0 => "no pCPU".to_owned(),
        1 => format!("pCPU {text}"),
        _ => format!("pCPUs {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A VM of two vCPUs that was ready half of the time of ten seconds, on a host of four pCPUs that are all busy.
    fn facts(meanwhile: &[(Who, &str, f64)]) -> Facts {
        let one = |(who, name, seconds): &(Who, &str, f64)| Meanwhile {
            who: *who,
            name: (*name).to_owned(),
            shares: (*who == Who::Vm).then_some(2000),
            shares_by_default: false,
            seconds: *seconds,
            pcpus: vec![0],
        };
        Facts {
            name: "web".to_owned(),
            window_s: 10.0,
            events_s: 10.0,
            vcpus: 2,
            run_s: 10.0,
            ready_s: 10.0,
            shares: Some(2000),
            allowed: vec![0, 1, 2, 3],
            allowed_busy_pct: 100.0,
            meanwhile: meanwhile.iter().map(one).collect(),
            ..Facts::default()
        }
    }

    fn first(facts: &Facts) -> (Cause, f64) {
        let found = conclude(facts);
        let first = found.first().unwrap_or_else(|| panic!("nothing found of {facts:?}"));
        for finding in &found {
            assert!(!finding.what.is_empty() && !finding.helps.is_empty(), "{finding:?}");
            assert!(!finding.what.contains('\n'), "{finding:?}");
        }
        (first.cause, first.pct.round())
    }

    #[test]
    fn its_own_limit() {
        let held = facts(&[(Who::Idle, "", 7.0), (Who::Vm, "db", 3.0)]);
        let held = Facts { limited_s: 8.0, limit_mcpu: Some(1000), ..held };
        assert_eq!(first(&held), (Cause::OwnLimit, 80.0));
        assert!(conclude(&held)[0].what.contains("100%; the VM had 100 %"));
    }

    #[test]
    fn vcpus_that_spin() {
        let asked = |asked| Facts {
            yields: Some(Yields { asked, granted: asked / 4, throttled: asked / 2, wasted: 0 }),
            ..facts(&[(Who::Vm, "db", 10.0)])
        };
        let spins = asked(50_000).spins().expect("5,000 a second");
        assert!(spins.contains("5000 times a second"), "{spins}");
        assert!(spins.ends_with("50 % of it in vain"), "{spins}");
        assert_eq!(asked(1990).spins(), None, "under 100 a second for each vCPU");
        assert_eq!(asked(0).spins(), None);
        assert_eq!(facts(&[]).spins(), None, "nobody counts");
    }

    #[test]
    fn the_limit_of_its_pool() {
        let held = facts(&[(Who::Idle, "", 10.0)]);
        let held = Facts {
            limited_s: 9.0,
            pool: Some("prod".to_owned()),
            pool_limit_mcpu: Some(1500),
            ..held
        };
        assert_eq!(first(&held).0, Cause::PoolLimit);
        let far_from_its_own = Facts { limit_mcpu: Some(2000), ..held.clone() };
        assert_eq!(first(&far_from_its_own).0, Cause::PoolLimit);
        let told_apart = Facts { pool_limited_s: Some(1.0), limit_mcpu: Some(2000), ..held };
        assert_eq!(first(&told_apart).0, Cause::OwnLimit);
    }

    #[test]
    fn a_neighbour_with_more_shares() {
        let mut starved = facts(&[(Who::Vm, "db", 8.0), (Who::Task, "make", 2.0)]);
        starved.meanwhile[0].shares = Some(8000);
        assert_eq!(first(&starved), (Cause::MoreShares, 80.0));
        let found = conclude(&starved);
        assert!(found[0].what.contains("VM db has more shares: 8000 beside 2000"), "{found:?}");
    }

    /// The same where Drover schedules.
    fn under_drover(facts: Facts) -> Facts {
        Facts { scheduler: Some("drover".to_owned()), ..facts }
    }

    /// All that is said.
    fn said(facts: &Facts) -> String {
        let lines = conclude(facts).into_iter().map(|one| one.what + "\n" + &one.helps + "\n");
        lines.collect()
    }

    #[test]
    fn shares_do_not_help_who_has_what_its_limit_allows() {
        let crowded = facts(&[(Who::Vm, "db", 10.0)]);
        let limited = Facts { limited_s: 1.0, limit_mcpu: Some(1000), ..crowded };
        for (facts, how) in [(under_drover(limited.clone()), "--limit none"), (limited, "cpu.max")]
        {
            let said = said(&facts);
            assert!(said.contains("more work than pCPUs"), "{said}");
            assert!(!said.contains("shares"), "{said}");
            assert!(said.contains("a higher limit first") && said.contains(how), "{said}");
        }
    }

    #[test]
    fn more_vcpus_are_no_more_shares_to_the_kernel() {
        let mut beside_wide = facts(&[(Who::Vm, "db", 10.0)]);
        beside_wide.meanwhile[0].shares = Some(4000);
        beside_wide.meanwhile[0].shares_by_default = true;
        beside_wide.shares_by_default = true;
        assert_eq!(first(&beside_wide).0, Cause::Busy);
        assert!(!said(&beside_wide).contains("4000"), "{}", said(&beside_wide));
        let half_set = Facts { shares_by_default: false, ..beside_wide.clone() };
        assert_eq!(first(&half_set).0, Cause::Busy, "what was set is not of the same scale");
        let set = Facts { meanwhile: facts_of_set(), ..half_set };
        assert_eq!(first(&set).0, Cause::MoreShares);
        assert_eq!(first(&under_drover(beside_wide)).0, Cause::MoreShares, "Drover goes by size");
    }

    fn facts_of_set() -> Vec<Meanwhile> {
        let mut set = facts(&[(Who::Vm, "db", 10.0)]).meanwhile;
        set[0].shares = Some(4000);
        set
    }

    #[test]
    fn orders_are_advised_where_drover_takes_them_only() {
        let idle = facts(&[(Who::Idle, "", 10.0)]);
        let pinned =
            Facts { is_nodes: true, others_busy_pct: Some(9.0), ..facts(&[(Who::Vm, "db", 10.0)]) };
        let cases = [
            (
                Facts { limited_s: 9.0, limit_mcpu: Some(1000), ..idle },
                "drover vm set web --limit none",
            ),
            (facts(&[(Who::Vm, "db", 10.0)]), "drover vm set web --shares 4000"),
            (Facts { meanwhile: facts_of_set(), ..facts(&[]) }, "drover vm set web --shares 4000"),
            (pinned, "drover numa plan"),
        ];
        for (facts, order) in cases {
            let alone = said(&facts);
            assert!(!alone.contains("drover"), "{alone}");
            let in_charge = said(&under_drover(facts));
            assert!(in_charge.contains(order), "{in_charge}");
        }
    }

    #[test]
    fn tasks_that_have_ended_are_told_of_in_english() {
        let building = facts(&[(Who::Task, ENDED, 9.0), (Who::Vm, "db", 1.0)]);
        let of_building = said(&building);
        assert!(of_building.contains("longest: host tasks that have ended since"), "{of_building}");
        assert!(
            of_building.contains("short tasks") && !of_building.contains(ENDED),
            "{of_building}"
        );
        let hog = said(&facts(&[(Who::RealTime, ENDED, 9.0)]));
        assert!(hog.contains("real-time tasks that have ended since ran on pCPU 0"), "{hog}");
        let make = said(&facts(&[(Who::Task, "make", 9.0)]));
        assert!(
            make.contains("longest: host task make") && make.contains("run make at other times")
        );
        let nginx = said(&facts(&[(Who::Container, "/nginx", 9.0)]));
        assert!(nginx.contains("cpu.max of /nginx") && !nginx.contains("fewer vCPUs"), "{nginx}");
    }

    #[test]
    fn a_wait_of_which_nothing_is_known_is_not_nothing() {
        assert_eq!(first(&facts(&[])), (Cause::Unknown, 100.0));
    }

    #[test]
    fn its_own_siblings() {
        let crowded = facts(&[(Who::Sibling, "web", 9.0), (Who::Idle, "", 1.0)]);
        assert_eq!(first(&crowded), (Cause::OwnThreads, 90.0));
        let stopped = Facts { ready_s: 1.0, costop_s: 9.0, ..facts(&[(Who::Vm, "db", 10.0)]) };
        assert_eq!(first(&stopped), (Cause::CoStop, 90.0));
    }

    #[test]
    fn pinned_together() {
        let pinned = Facts {
            allowed: vec![0],
            others_busy_pct: Some(5.0),
            ..facts(&[(Who::Vm, "db", 10.0)])
        };
        assert_eq!(first(&pinned), (Cause::Pinned, 100.0));
        let all_full = Facts { others_busy_pct: Some(99.0), ..pinned };
        assert_eq!(first(&all_full).0, Cause::Busy, "elsewhere there is no room either");
    }

    #[test]
    fn a_full_node() {
        let full = Facts {
            allowed: vec![0, 1],
            is_nodes: true,
            others_busy_pct: Some(10.0),
            ..facts(&[(Who::Vm, "db", 10.0)])
        };
        assert_eq!(first(&full).0, Cause::NodeFull);
    }

    #[test]
    fn a_real_time_task_and_kernel_threads() {
        let pinned = |facts| Facts { allowed: vec![0], others_busy_pct: Some(1.0), ..facts };
        let hog = pinned(facts(&[(Who::RealTime, "jackd", 9.5), (Who::Vm, "db", 0.5)]));
        assert_eq!(first(&hog), (Cause::RealTime, 95.0));
        assert!(conclude(&hog)[0].what.contains("jackd ran on pCPU 0"));
        let writeback = pinned(facts(&[(Who::Kernel, "kworker/0:1", 9.0)]));
        assert_eq!(first(&writeback), (Cause::KernelThreads, 100.0));
    }

    #[test]
    fn steal_by_vhost_of_another_vm() {
        let stolen = facts(&[(Who::VmHelper, "db", 6.0), (Who::Vm, "db", 4.0)]);
        assert_eq!(first(&stolen), (Cause::OthersHelpers, 60.0));
    }

    #[test]
    fn nothing_is_wrong_with_a_vm_that_hardly_waits() {
        let fine = Facts { ready_s: 0.3, ..facts(&[(Who::Vm, "db", 0.3)]) };
        assert_eq!(conclude(&fine), []);
        assert_eq!(conclude(&Facts::default()), [], "of one that was not there");
    }

    #[test]
    fn causes_add_up_to_the_time_it_waited() {
        let mixed = Facts {
            limited_s: 2.0,
            limit_mcpu: Some(1000),
            costop_s: 3.0,
            ..facts(&[(Who::Idle, "", 4.0), (Who::Vm, "db", 6.0), (Who::RealTime, "jackd", 2.0)])
        };
        let sum: f64 = seconds_by_cause(&mixed).iter().map(|(_, seconds)| seconds).sum();
        assert!((sum - 13.0).abs() < 1e-9, "{sum}");
        assert!(seconds_by_cause(&mixed).iter().all(|(_, seconds)| *seconds >= 0.0));
    }

    #[test]
    fn pcpus_are_listed_as_the_kernel_does() {
        assert_eq!(pcpus(&[]), "no pCPU");
        assert_eq!(pcpus(&[3]), "pCPU 3");
        assert_eq!(pcpus(&[0, 1, 2, 8, 10, 11]), "pCPUs 0-2,8,10-11");
    }
}
