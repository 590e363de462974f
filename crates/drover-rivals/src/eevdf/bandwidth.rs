// SPDX-License-Identifier: GPL-2.0-only
//! Bandwidth of groups: cpu.max, for a VM that has a limit.
//!
//! A group has a quota for each period of 100 ms. Its pCPUs draw on it in slices of 5 ms; where
//! nothing is left to draw the group is throttled: its tasks stay on the run queue and do not
//! compete. At the next period every throttled pCPU is given what it is in debt, as far as the
//! quota goes.
//!
//! Worked example. A limit of 50 % and one busy vCPU: it draws ten slices of 5 ms, runs 50 ms, is
//! throttled, found out at the tick up to 4 ms late, and has to repay that from the next period.

use super::Eevdf;
use drover_sim::machine::{CLASS_TIMER, Machine};

/// Period of cpu.max by default.
const PERIOD_NS: u64 = 100_000_000;
/// sched_cfs_bandwidth_slice: what a pCPU draws at once.
const SLICE_NS: i64 = 5_000_000;

/// A group's quota.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bandwidth {
    /// For each period.
    quota_ns: i64,
    /// What is left of it in this period.
    left_ns: i64,
}

impl Bandwidth {
    /// Draws so much, or what is there.
    fn draw(&mut self, wanted_ns: i64) -> i64 {
        let drawn_ns = wanted_ns.min(self.left_ns).max(0);
        self.left_ns -= drawn_ns;
        drawn_ns
    }
}

impl Eevdf {
    /// The VM may have so many thousandths of a pCPU at most; 0: as many as it can.
    pub(super) fn set_limit(&mut self, m: &mut Machine, vm: u32, limit_mcpu: u32) {
        if self.bandwidth.len() <= vm as usize {
            self.bandwidth.resize(vm as usize + 1, None);
        }
        let quota_ns = i64::from(limit_mcpu) * PERIOD_NS as i64 / 1000;
        let limited = Bandwidth { quota_ns, left_ns: quota_ns };
        self.bandwidth[vm as usize] = (limit_mcpu > 0).then_some(limited);
        if limit_mcpu > 0 {
            m.events.set_if_sooner(CLASS_TIMER, m.now_ns + PERIOD_NS);
        }
        for cpu in 0..self.rqs.len() as u32 {
            if limit_mcpu == 0 && self.is_throttled(cpu, vm) {
                self.unthrottle(m, cpu, vm);
            }
        }
    }

    pub(super) fn is_throttled(&self, cpu: u32, vm: u32) -> bool {
        self.rqs[cpu as usize].find(vm).is_some_and(|group| group.throttled)
    }

    /// account_cfs_rq_runtime: the group has run there for so long. Is it to stop?
    pub(super) fn spend(&mut self, m: &mut Machine, cpu: u32, vm: u32, ran_ns: u64) {
        let Some(Some(bandwidth)) = self.bandwidth.get_mut(vm as usize) else { return };
        let rq = &mut self.rqs[cpu as usize];
        let at = rq.group_at(vm);
        let group = &mut rq.groups[at];
        group.runtime_ns -= ran_ns as i64;
        if group.runtime_ns <= 0 {
            group.runtime_ns += bandwidth.draw(SLICE_NS - group.runtime_ns);
        }
        if group.runtime_ns <= 0 && group.queued {
            self.throttle(m, cpu, vm);
        }
    }

    /// The group competes there no longer.
    fn throttle(&mut self, m: &mut Machine, cpu: u32, vm: u32) {
        let (slice_ns, tick_ns) = (self.slice_ns, m.costs.tick_interval_ns);
        let rq = &mut self.rqs[cpu as usize];
        let (mean, _) = rq.mean().expect("the group is among them");
        let at = rq.group_at(vm);
        rq.zero = mean;
        let group = &mut rq.groups[at];
        group.entity.leave(mean, slice_ns, tick_ns);
        group.queued = false;
        group.throttled = true;
        rq.nr -= group.tasks.len() as u32;
        m.resched(cpu);
    }

    /// The group competes there again.
    fn unthrottle(&mut self, m: &mut Machine, cpu: u32, vm: u32) {
        self.update(m, cpu);
        let slice_ns = self.slice_ns;
        let rq = &mut self.rqs[cpu as usize];
        let (mean, weight) = rq.mean().unwrap_or((rq.zero, 0));
        let at = rq.group_at(vm);
        let group = &mut rq.groups[at];
        group.throttled = false;
        if let Some(&task) = group.tasks.first() {
            group.entity.join(mean, weight, slice_ns);
            group.queued = true;
            rq.nr += group.tasks.len() as u32;
            self.preempt(m, cpu, task);
        }
    }

    /// sched_cfs_period_timer: a new quota, first for those in debt.
    pub(super) fn new_period(&mut self, m: &mut Machine) {
        let mut limited = false;
        for vm in 0..self.bandwidth.len() as u32 {
            let Some(bandwidth) = &mut self.bandwidth[vm as usize] else { continue };
            limited = true;
            bandwidth.left_ns = bandwidth.quota_ns;
            for cpu in 0..self.rqs.len() as u32 {
                if !self.is_throttled(cpu, vm) {
                    continue;
                }
                let rq = &mut self.rqs[cpu as usize];
                let at = rq.group_at(vm);
                let group = &mut rq.groups[at];
                if let Some(bandwidth) = &mut self.bandwidth[vm as usize] {
                    group.runtime_ns += bandwidth.draw(1 - group.runtime_ns);
                }
                if group.runtime_ns > 0 {
                    self.unthrottle(m, cpu, vm);
                }
            }
        }
        match limited {
            true => m.events.set(CLASS_TIMER, m.now_ns + PERIOD_NS),
            false => m.events.cancel(CLASS_TIMER),
        }
    }
}
