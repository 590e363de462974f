// SPDX-License-Identifier: GPL-2.0-only
//! What is out of balance in a domain, and how much of it to move (sched_balance_find_src_group).
//!
//! A group of pCPUs with more threads than pCPUs is overloaded; one that is busy and has none to
//! spare is full; else there is room. Between overloaded groups loads are levelled to the mean of the
//! domain; where there is room it is threads that are counted.
//!
//! Worked example. Of four pCPUs three have loads of 284 and one has 170: the mean is 255. The last
//! may pull 29, what is missing from the first above the mean: no thread is so light. So it fails, and
//! every time half as much weight counts: at the third attempt a thread of 113 goes for 28.

use super::domains::{Domain, Shared, Span};
use super::load::ALWAYS;
use super::weigh::Weighed;
use super::{Eevdf, balance::Why};
use drover_sim::cpu_set::CpuSet;
use drover_sim::machine::Machine;

/// How busy a group is, the busiest last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Kind {
    #[default]
    HasRoom,
    Full,
    /// Both threads of a core are busy, and a core is idle elsewhere (group_smt_balance).
    SharesCores,
    /// Balancing within it failed because threads were confined.
    Confined,
    Overloaded,
}

/// What is to be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Imbalance {
    Load(u64),
    Busy(u64),
    Tasks(u64),
}

impl Imbalance {
    pub(super) fn is_none(self) -> bool {
        let (Self::Load(left) | Self::Busy(left) | Self::Tasks(left)) = self;
        left == 0
    }
}

/// Figures of a group.
#[derive(Debug, Clone, Copy, Default)]
struct Stats {
    kind: Kind,
    load: u64,
    util: u64,
    tasks: u64,
    idle: u64,
    pcpus: u64,
    cores: u64,
    /// Load for each pCPU, of groups that are overloaded.
    mean: u64,
}

/// What a pCPU looks at when it balances.
pub(super) struct Look<'a> {
    pub(super) all: &'a [Weighed],
    pub(super) domain: &'a Domain,
    pub(super) why: Why,
    /// pCPUs all of whose threads are confined to others: they do not count any more.
    pub(super) tried: &'a CpuSet,
}

impl Eevdf {
    pub(super) fn is_idle(&self, m: &Machine, cpu: u32) -> bool {
        m.current(cpu).is_none() && self.rqs[cpu as usize].nr == 0 && !m.is_taken(cpu)
    }

    fn stats(&self, m: &Machine, look: &Look, group: usize) -> Stats {
        let Look { all, domain, why, .. } = *look;
        let span = &self.domains.spans[domain.span];
        let mut stats = Stats::default();
        let mut ready = 0;
        for &cpu in span.groups[group].iter().filter(|&&cpu| m.online.contains(cpu)) {
            stats.pcpus += 1;
            stats.cores += u64::from(cpu % m.topology.threads == 0);
            if look.tried.contains(cpu) {
                continue;
            }
            let there = &all[cpu as usize];
            stats.load += there.load;
            stats.util += there.util;
            ready += there.ready;
            stats.tasks += u64::from(self.rqs[cpu as usize].nr);
            stats.idle += u64::from(self.is_idle(m, cpu));
        }
        let (capacity, pct) = (stats.pcpus * ALWAYS, span.imbalance_pct());
        let full = capacity * 100 < stats.util * pct;
        let crowded = capacity * pct < ready * 100;
        let shares_cores = span.shared == Shared::Cache
            && group != domain.local
            && m.topology.threads > 1
            && why != Why::Busy
            && stats.tasks > 1;
        stats.kind = match stats.tasks {
            tasks if tasks > stats.pcpus && (full || crowded) => Kind::Overloaded,
            _ if span.confined[group] => Kind::Confined,
            _ if shares_cores => Kind::SharesCores,
            tasks if tasks < stats.pcpus || !(crowded || full) => Kind::HasRoom,
            _ => Kind::Full,
        };
        if stats.kind == Kind::Overloaded {
            stats.mean = stats.load / stats.pcpus;
        }
        stats
    }

    /// The group to pull from, and how much.
    pub(super) fn find_group(&self, m: &Machine, look: &Look) -> Option<(usize, Imbalance)> {
        let Look { domain, why, .. } = *look;
        let span = &self.domains.spans[domain.span];
        let local = self.stats(m, look, domain.local);
        let mut total = (local.load, local.pcpus);
        let mut busiest: Option<(usize, Stats)> = None;
        for step in 1..span.groups.len() {
            let group = (domain.local + step) % span.groups.len();
            let stats = self.stats(m, look, group);
            total = (total.0 + stats.load, total.1 + stats.pcpus);
            if stats.tasks > 0 && is_busier(&stats, busiest.as_ref().map(|(_, stats)| stats)) {
                busiest = Some((group, stats));
            }
        }
        let (group, busiest) = busiest?;
        let mean = total.0 / total.1;
        let found = Found { local, busiest, mean, why, span };
        let imbalance = found.needs_balance(group).then(|| found.imbalance(group, m))?;
        (!imbalance.is_none()).then_some((group, imbalance))
    }

    /// The run queue of the group to pull from (sched_balance_find_src_rq).
    pub(super) fn find_queue(
        &self,
        look: &Look,
        group: usize,
        imbalance: Imbalance,
    ) -> Option<u32> {
        let group = &self.domains.spans[look.domain.span].groups[group];
        let mut found = (None, 0);
        for &cpu in group.iter().filter(|&&cpu| !look.tried.contains(cpu)) {
            let (tasks, there) = (u64::from(self.rqs[cpu as usize].nr), &look.all[cpu as usize]);
            let value = match imbalance {
                _ if tasks == 0 => 0,
                Imbalance::Load(most) if tasks == 1 && there.load > most => 0,
                Imbalance::Busy(_) if tasks == 1 => 0,
                Imbalance::Load(_) => there.load,
                Imbalance::Busy(_) => there.util,
                Imbalance::Tasks(_) => tasks,
            };
            if value > found.1 {
                found = (Some(cpu), value);
            }
        }
        found.0
    }
}

/// Is the group busier than what was the busiest so far (update_sd_pick_busiest)?
fn is_busier(stats: &Stats, than: Option<&Stats>) -> bool {
    let Some(than) = than else { return true };
    if stats.kind != than.kind {
        return stats.kind > than.kind;
    }
    match stats.kind {
        Kind::Overloaded => stats.mean > than.mean,
        Kind::Confined => false,
        Kind::Full => true,
        Kind::SharesCores | Kind::HasRoom => {
            stats.idle < than.idle || stats.idle == than.idle && stats.tasks > than.tasks
        }
    }
}

/// The two groups that are compared.
struct Found<'a> {
    local: Stats,
    busiest: Stats,
    mean: u64,
    why: Why,
    span: &'a Span,
}

impl Found<'_> {
    /// By how many threads for each core the other group has more (sibling_imbalance).
    fn siblings_apart(&self) -> u64 {
        let (local, busiest) = (&self.local, &self.busiest);
        if self.why == Why::Busy || busiest.tasks == 0 {
            return 0;
        }
        if busiest.cores == local.cores {
            return busiest.tasks.saturating_sub(local.tasks);
        }
        let cores = local.cores + busiest.cores;
        let apart = (local.cores * busiest.tasks).saturating_sub(busiest.cores * local.tasks);
        let apart = (2 * apart + cores) / cores;
        if apart <= 1 && local.tasks == 0 && busiest.tasks > 1 { 2 } else { apart }
    }

    fn needs_balance(&self, group: usize) -> bool {
        let (local, busiest) = (&self.local, &self.busiest);
        if busiest.kind == Kind::Confined {
            return true;
        }
        if local.kind > busiest.kind {
            return false;
        }
        if local.kind == Kind::Overloaded {
            let level = busiest.mean * 100 <= self.span.imbalance_pct() * local.mean;
            return local.mean < busiest.mean && local.mean < self.mean && !level;
        }
        let prefers = self.span.prefers_siblings(group);
        if prefers && local.kind == Kind::HasRoom && self.siblings_apart() > 1 {
            return true;
        }
        if busiest.kind == Kind::Overloaded {
            return true;
        }
        if self.why == Why::Busy {
            return false;
        }
        if busiest.kind == Kind::SharesCores && local.pcpus == local.cores {
            return true;
        }
        if busiest.pcpus > 1 && local.idle <= busiest.idle + 1 {
            return false;
        }
        busiest.tasks > 1
    }

    /// calculate_imbalance.
    fn imbalance(&self, group: usize, m: &Machine) -> Imbalance {
        let (local, busiest) = (&self.local, &self.busiest);
        if matches!(busiest.kind, Kind::SharesCores | Kind::Confined) {
            return Imbalance::Tasks(1);
        }
        if local.kind == Kind::HasRoom {
            let far = matches!(self.span.shared, Shared::Node | Shared::Host);
            if busiest.kind == Kind::Overloaded && far {
                let room = (local.pcpus * ALWAYS).saturating_sub(local.util);
                let full = self.why != Why::Busy && room == 0;
                return if full { Imbalance::Tasks(1) } else { Imbalance::Busy(room) };
            }
            let counted = busiest.pcpus == 1 || self.span.prefers_siblings(group);
            let apart = match counted {
                true => self.siblings_apart(),
                false => local.idle.saturating_sub(busiest.idle),
            };
            let slack = u64::from(self.span.numa_slack(&m.topology));
            let tolerated = self.span.shared == Shared::Host
                && m.topology.nodes.len() > 1
                && local.tasks < slack
                && apart <= NUMA_SLACK_TASKS;
            return Imbalance::Tasks(if tolerated { 0 } else { apart / 2 });
        }
        let local_mean = local.load / local.pcpus;
        if local_mean >= busiest.mean || local_mean >= self.mean {
            return Imbalance::Load(0);
        }
        let above = (busiest.mean - self.mean.min(busiest.mean)) * busiest.pcpus;
        Imbalance::Load(above.min((self.mean - local_mean) * local.pcpus))
    }
}

/// A difference of so many threads between nodes is left alone while few run (NUMA_IMBALANCE_MIN).
const NUMA_SLACK_TASKS: u64 = 2;
