// SPDX-License-Identifier: GPL-2.0-only
//! What run queues' locks cost on hosts of up to 384 pCPUs, by how many pCPUs share one.
//!
//! Idea. A pCPU computes for a while, then queues a thread, computes, then takes one: twice it has its domain's
//! lock, in the order of asking. Under it the tree is changed, and those lines of the tree and of the lock that
//! another pCPU wrote last come from that pCPU's cache. Between the two it reads one line of another domain. What
//! is counted is waiting, lines and work, all that a larger or smaller domain changes.
//!
//! Worked example. Two pCPUs of a cache, one domain, 4 lines and 20 ns of work under the lock: 20 + 4 * 51 = 224 ns, if
//! the other had it before, and 20 ns if not. If the two are of two sockets, 20 + 4 * 188 = 772 ns.
//!
//! Limitations. Lines of a VM, which the pCPU that runs it writes, are not counted: they are the same for any domain. Nor
//! is the interconnect, which is never full here. What small domains lose by what they do not see is
//! another measurement: nothing is scheduled here.

use crate::rng::Rng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Lines of the domain that one pass of the lock writes: 8 a cycle (docs/performance.md, `make -C policy/test lines`),
/// in which the lock is taken twice.
pub const LINES: u64 = 4;
/// Work under the lock whose lines are at hand, ns: an estimate; run_queue_stress takes 8 on one thread of a CPU of
/// today, and the kernel's lock and program are slower than native code.
pub const WORK_NS: u64 = 20;

/// Prices of a line that another pCPU wrote last, ns: 109, 289 and 400 cycles of a Xeon E7-8867L at 2.13 GHz (David,
/// Guerraoui, Trigonakis, SOSP 2013: same die, one hop, two hops).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prices {
    /// From the same last-level cache.
    pub llc_ns: u64,
    /// From another cache of the same socket.
    pub socket_ns: u64,
    /// From another socket.
    pub host_ns: u64,
}

impl Prices {
    /// As published.
    pub const PUBLISHED: Self = Self { llc_ns: 51, socket_ns: 136, host_ns: 188 };

    /// All of them so many % of these.
    pub fn times_pct(self, pct: u64) -> Self {
        let of = |ns: u64| ns * pct / 100;
        Self { llc_ns: of(self.llc_ns), socket_ns: of(self.socket_ns), host_ns: of(self.host_ns) }
    }
}

/// A host, and how its pCPUs share run queues.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// pCPUs of the host.
    pub pcpus: u32,
    /// Of a last-level cache.
    pub llc: u32,
    /// Of a socket.
    pub socket: u32,
    /// Of a domain.
    pub domain: u32,
    /// How often a pCPU queues a thread and takes one, 1/s.
    pub cycles_per_s: u32,
    /// What lines cost.
    pub prices: Prices,
}

/// Passes of the lock that are simulated for each pCPU, and those before that, in which queues fill.
const PASSES: u32 = 400;
const WARM_UP: u32 = 100;

impl Shape {
    fn line_ns(&self, a: u32, b: u32) -> u64 {
        if a == b {
            0
        } else if a / self.llc == b / self.llc {
            self.prices.llc_ns
        } else if a / self.socket == b / self.socket {
            self.prices.socket_ns
        } else {
            self.prices.host_ns
        }
    }

    /// A line of a domain chosen at random, if there is another.
    fn glance_ns(&self, cpu: u32, rng: &mut Rng) -> u64 {
        let domains = self.pcpus.div_ceil(self.domain);
        if domains == 1 {
            return 0;
        }
        let step = 1 + rng.below(u64::from(domains) - 1) as u32;
        let there = (cpu / self.domain + step) % domains * self.domain;
        self.line_ns(cpu, there.min(self.pcpus - 1))
    }

    /// What a cycle takes of the pCPU beside its own computing, ns, on average.
    pub fn cost_ns(&self) -> f64 {
        let mut rng = Rng::new(1);
        let think_ns = 1e9 / f64::from(self.cycles_per_s) / 2.0;
        let think = |rng: &mut Rng| {
            let part = ((rng.bits() >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
            (-part.ln() * think_ns) as u64
        };
        let domains = self.pcpus.div_ceil(self.domain) as usize;
        // When each lock is free, and who had it last.
        let mut locks = vec![(0u64, u32::MAX); domains];
        let mut asks: BinaryHeap<Reverse<(u64, u32)>> =
            (0..self.pcpus).map(|cpu| Reverse((think(&mut rng), cpu))).collect();
        let (mut passes, mut cost_ns) = (0u64, 0u64);
        let (first, all) = (self.pcpus * WARM_UP, self.pcpus * (WARM_UP + PASSES));
        for pass in 0..all {
            let Some(Reverse((asked_ns, cpu))) = asks.pop() else { break };
            let (free_ns, last) = &mut locks[(cpu / self.domain) as usize];
            let line_ns = if *last == u32::MAX { 0 } else { self.line_ns(cpu, *last) };
            let done_ns = asked_ns.max(*free_ns) + WORK_NS + LINES * line_ns;
            (*free_ns, *last) = (done_ns, cpu);
            // One such line for two passes of the lock: half of its price for each.
            let glance_ns = self.glance_ns(cpu, &mut rng) / 2;
            if pass >= first {
                passes += 1;
                cost_ns += done_ns - asked_ns + glance_ns;
            }
            asks.push(Reverse((done_ns + glance_ns + think(&mut rng), cpu)));
        }
        2.0 * cost_ns as f64 / passes as f64
    }

    /// The same as a part of the pCPU's time, %.
    pub fn cost_pct(&self) -> f64 {
        let cost_ns = self.cost_ns();
        100.0 * cost_ns / (cost_ns + 1e9 / f64::from(self.cycles_per_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Shape = Shape {
        pcpus: 384,
        llc: 16,
        socket: 192,
        domain: 16,
        cycles_per_s: 5_000,
        prices: Prices::PUBLISHED,
    };

    #[test]
    fn a_pcpu_alone_pays_for_its_work_and_two_of_a_cache_for_lines() {
        let one = Shape { pcpus: 1, domain: 1, ..HOST };
        assert_eq!(one.cost_ns(), 2.0 * WORK_NS as f64);
        let two = Shape { pcpus: 2, domain: 2, ..HOST };
        // Every other time the other had it before.
        let lines_ns = (LINES * 51) as f64;
        let expected = 2.0 * WORK_NS as f64 + lines_ns;
        assert!((two.cost_ns() / expected - 1.0).abs() < 0.1, "{} {expected}", two.cost_ns());
    }

    #[test]
    fn one_lock_for_all_is_full_where_a_lock_for_each_cache_is_not() {
        let host = Shape { domain: 384, ..HOST };
        // 384 pCPUs take it 3.84 million times a second, for some 700 ns.
        assert!(host.cost_pct() > 50.0, "{}", host.cost_pct());
        assert!(HOST.cost_pct() < 1.0, "{}", HOST.cost_pct());
    }
}
