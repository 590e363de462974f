// SPDX-License-Identifier: GPL-2.0-only
//! Scheduling domains: among whom load is levelled, and how often.
//!
//! The pCPUs of a core, the cores of a cache, the caches of a node and the nodes of a host are
//! groups of one domain each; where there would be but one group there is no domain. Each pCPU
//! balances by a clock of its own in every domain it is in: an idle one every so many ms as the
//! domain has pCPUs, a busy one 16 times less often, a tick less than that; twice that after it
//! has found nothing to do.
//!
//! Worked example. Four pCPUs of one cache, ticks of 4 ms, all busy: each balances every 60 ms, 124
//! while loads are level.

use drover_sim::topology::Topology;

/// A busy pCPU balances so many times less often than an idle one (sd->busy_factor).
const BUSY_FACTOR: u64 = 16;

/// What the pCPUs of a domain have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shared {
    Core,
    Cache,
    Node,
    Host,
}

/// The pCPUs of a domain.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) shared: Shared,
    /// Loads are compared between these.
    pub(super) groups: Vec<Vec<u32>>,
    /// Of each group: balancing within it failed because threads were confined (sgc->imbalance).
    pub(super) confined: Vec<bool>,
    pub(super) pcpus: u32,
}

impl Span {
    /// A difference of load below this is left alone, % (sd->imbalance_pct).
    pub(super) fn imbalance_pct(&self) -> u64 {
        if self.shared == Shared::Core { 110 } else { 117 }
    }

    /// Threads that ran a moment ago stay until so many attempts failed (sd->cache_nice_tries).
    pub(super) fn nice_tries(&self) -> u32 {
        match self.shared {
            Shared::Core => 0,
            Shared::Cache | Shared::Node => 1,
            Shared::Host => 2,
        }
    }

    /// Tasks are spread over the groups, rather than idle pCPUs evened out (SD_PREFER_SIBLING of the
    /// domain below).
    pub(super) fn prefers_siblings(&self, group: usize) -> bool {
        self.groups[group].len() > 1
    }

    /// So many tasks may share a node beside idle ones before they are spread (imb_numa_nr).
    pub(super) fn numa_slack(&self, topology: &Topology) -> u32 {
        let (caches, nodes) = (topology.llcs.len() as u32, topology.nodes.len() as u32);
        if caches > nodes { caches / nodes } else { caches }
    }
}

/// A domain as one of its pCPUs has it.
#[derive(Debug, Clone)]
pub(super) struct Domain {
    /// Which of [`Domains::spans`].
    pub(super) span: usize,
    /// The group the pCPU is in.
    pub(super) local: usize,
    /// How long an idle pCPU waits between balancing, ms: the number of pCPUs to twice that.
    pub(super) interval_ms: u64,
    /// The tick at which it balanced last; none: it has not been busy yet.
    pub(super) last_tick: Option<i64>,
    /// How often it has found an imbalance and nothing to move (nr_balance_failed).
    pub(super) failed: u32,
}

impl Domain {
    /// Is it time to balance? The clock of a pCPU that was never busy here may stand anywhere: by `chance`.
    pub(super) fn is_due(&mut self, now: i64, ticks: i64, chance: u64) -> bool {
        let last = *self.last_tick.get_or_insert(now - (chance % ticks as u64) as i64);
        now >= last + ticks
    }

    /// Ticks between balancing (get_sd_balance_interval).
    pub(super) fn ticks(&self, tick_ns: u64, pcpus: u32, busy: bool) -> i64 {
        let ticks = |ns: u64| ns.div_ceil(tick_ns);
        let most = (u64::from(pcpus) * 100_000_000 / tick_ns).max(1);
        let ns = self.interval_ms * 1_000_000;
        let ticks = if busy { ticks(ns * BUSY_FACTOR) - 1 } else { ticks(ns) };
        ticks.clamp(1, most) as i64
    }
}

/// The domains of a host.
#[derive(Debug)]
pub(super) struct Domains {
    pub(super) spans: Vec<Span>,
    /// Those of each pCPU, the narrowest first.
    pub(super) of: Vec<Vec<Domain>>,
}

impl Domains {
    pub(super) fn of(topology: &Topology) -> Self {
        let pcpus = topology.pcpus();
        let mut domains = Self { spans: Vec::new(), of: vec![Vec::new(); pcpus as usize] };
        let within = |groups: &[Vec<u32>], all: &[u32]| -> Vec<Vec<u32>> {
            groups.iter().filter(|group| all.contains(&group[0])).cloned().collect()
        };
        let host: Vec<u32> = (0..pcpus).collect();
        let single: Vec<Vec<u32>> = host.iter().map(|&cpu| vec![cpu]).collect();
        let cores: Vec<Vec<u32>> = host
            .iter()
            .filter(|&&cpu| cpu % topology.threads == 0)
            .map(|&cpu| topology.siblings(cpu).collect())
            .collect();
        let lists = |sets: &[drover_sim::cpu_set::CpuSet]| -> Vec<Vec<u32>> {
            sets.iter().map(|set| set.iter().collect()).collect()
        };
        let (caches, nodes) = (lists(&topology.llcs), lists(&topology.nodes));
        let levels = [
            (Shared::Core, &cores, &single),
            (Shared::Cache, &caches, &cores),
            (Shared::Node, &nodes, &caches),
            (Shared::Host, &vec![host.clone()], &nodes),
        ];
        for (shared, spans, groups) in levels {
            for span in spans {
                domains.add(shared, within(groups, span));
            }
        }
        domains
    }

    fn add(&mut self, shared: Shared, groups: Vec<Vec<u32>>) {
        if groups.len() < 2 {
            return;
        }
        let pcpus = groups.iter().map(Vec::len).sum::<usize>() as u32;
        for (local, group) in groups.iter().enumerate() {
            for &cpu in group {
                let (span, interval_ms) = (self.spans.len(), pcpus.into());
                let domain = Domain { span, local, interval_ms, last_tick: None, failed: 0 };
                self.of[cpu as usize].push(domain);
            }
        }
        let confined = vec![false; groups.len()];
        self.spans.push(Span { shared, groups, confined, pcpus });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_scenario::Host;

    #[test]
    fn a_domain_is_where_there_are_groups_to_compare() {
        let host = Host { sockets: 2, cores: 2, threads: 2, nodes: 2, ..Host::default() };
        let domains = Domains::of(&Topology::of(&host));
        let of = |cpu: usize| -> Vec<Shared> {
            domains.of[cpu].iter().map(|domain| domains.spans[domain.span].shared).collect()
        };
        assert_eq!(of(5), [Shared::Core, Shared::Cache, Shared::Host]);
        assert_eq!(domains.spans[domains.of[5][1].span].groups, [vec![4, 5], vec![6, 7]]);
        let flat = Domains::of(&Topology::of(&Host { cores: 4, ..Host::default() }));
        assert_eq!((flat.of[3].len(), flat.of[3][0].local), (1, 3));
        assert!(Domains::of(&Topology::of(&Host { cores: 1, ..Host::default() })).of[0].is_empty());
    }

    #[test]
    fn busy_pcpus_balance_every_60_ms_where_there_are_four() {
        let mut domains = Domains::of(&Topology::of(&Host { cores: 4, ..Host::default() }));
        let domain = &mut domains.of[0][0];
        assert_eq!((domain.ticks(4_000_000, 4, true), domain.ticks(4_000_000, 4, false)), (15, 1));
        domain.interval_ms = 8;
        assert_eq!(domain.ticks(4_000_000, 4, true), 31);
        assert!(!domain.is_due(100, 15, 29) && !domain.is_due(100, 15, 0));
        assert!(domain.is_due(101, 15, 0), "14 ticks had passed by chance, and one more");
        domain.interval_ms = 1000;
        assert_eq!(domain.ticks(4_000_000, 4, true), 100);
    }
}
