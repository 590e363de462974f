// SPDX-License-Identifier: GPL-2.0-only
//! The slow loop: every 50 ms, or as its cost allows, everybody is allotted a weight ([`drover_core::allot`]).
//!
//! On a host where shares alone say what everybody is owed there is nothing to do. Elsewhere the message to the kernel
//! is the daemon's heartbeat, too: without one for 2 s VMs have plain shares (policy/allot/allot.h).

use super::Reconciler;
use crate::kernel::Kernel;
use crate::pace::{cpu_time, next_after};
use crate::plan::{Plan, PlannedVm};
use anyhow::Result;
use drover_core::allot::{Allocator, Basis, Claim, PERIOD_MS};
use drover_core::cpu_list::CpuList;
use drover_core::tree::Affinity;
use std::time::{Duration, Instant};

/// Working out weights takes that part of one pCPU at most: where one time takes longer the period does, too,
const COST_ONE_IN: u32 = 500;
/// but no longer than that, for it is the daemon's heartbeat (ALLOT_LAPSES_NS in policy/allot/allot.h).
const PERIOD_MAX: Duration = Duration::from_millis(500);

/// When to work out weights again, that having taken so long.
fn period(took: Duration) -> Duration {
    let least = Duration::from_millis(PERIOD_MS.into());
    next_after(took, least, COST_ONE_IN).min(PERIOD_MAX)
}

/// What is kept from one time to the next.
#[derive(Debug, Default)]
pub(super) struct Allotting {
    allocator: Allocator,
    begun: Option<Instant>,
    next: Option<Instant>,
    lapses: u32,
    /// What was said of a kernel that did not take it.
    said: String,
}

impl Allotting {
    /// Another plan is in force, or other pCPUs are online.
    pub(super) fn look_anew(&mut self) {
        self.allocator.look_anew();
        self.next = None;
    }
}

impl Reconciler {
    /// Allots weights if it is time to. When to come again; none: not before something changes.
    pub fn allot(&mut self, kernel: &dyn Kernel, now: Instant) -> Option<Instant> {
        if self.allotting.allocator.is_at_rest() {
            return None;
        }
        if let Some(next) = self.allotting.next.filter(|next| *next > now) {
            return Some(next);
        }
        let before = cpu_time();
        let done = self.allot_now(kernel, now);
        let took = cpu_time() - before;
        tracing::debug!("to allot took {} us", took.as_micros());
        let said = done.err().map(|error| format!("{error:#}")).unwrap_or_default();
        if !said.is_empty() && said != self.allotting.said {
            tracing::error!(
                "VMs go by plain shares, pools and limits as far as these say it: {said}"
            );
        }
        self.allotting.said = said;
        self.allotting.next = Some(now + period(took));
        self.allotting.next
    }

    fn allot_now(&mut self, kernel: &dyn Kernel, now: Instant) -> Result<()> {
        let Self { allotting, plan, capacity, .. } = self;
        let measured = kernel.measure()?;
        let begun = *allotting.begun.get_or_insert(now);
        let now_ns = u64::try_from((now - begun).as_nanos()).unwrap_or(u64::MAX);
        let online = online_of(plan, &capacity.online);
        let look = |ids: &[u64]| {
            // The host's own tasks have the first slot.
            let each = ids.iter().zip(std::iter::once(true).chain(std::iter::repeat(false)));
            let claims = each.map(|(id, is_host)| match is_host {
                true => {
                    let room = plan.room(None).unwrap_or_default();
                    let everywhere = Affinity::ANYWHERE;
                    let own = plan.partitions.affinity(None, &everywhere, &capacity.known);
                    (Claim::of_host(room.host_mcpu), own.on(&online))
                }
                false => claim(plan.vm(*id), &online),
            });
            Basis { tree: plan.tree.clone(), online: online.clone(), claims: claims.collect() }
        };
        let allotted = allotting.allocator.allot(&measured, now_ns, look);
        kernel.allot(allotted.as_deref())?;
        let lapses = kernel.allot_lapses();
        if lapses != allotting.lapses {
            let guilty = "the daemon did not answer for 2 s (stopped, or starved of CPU)";
            tracing::warn!(
                "{guilty}: until now VMs had plain shares, their reservations and limits; what pools and sets of \
                 pCPUs say counts again"
            );
        }
        allotting.lapses = lapses;
        Ok(())
    }
}

/// The pCPUs online of partitions where weights count. To a partition VMs are confined as others are to a set.
fn online_of(plan: &Plan, online: &CpuList) -> CpuList {
    let sharing = plan.partitions.sharing(online);
    let counts = sharing.iter().flat_map(|(_, cpus)| cpus.cpus().iter().copied());
    CpuList::of(counts).unwrap_or_else(|| online.clone())
}

/// What a VM claims; one that is too new to be planned for has its shares.
fn claim(vm: Option<&PlannedVm>, online: &CpuList) -> (Claim, Affinity) {
    let Some(vm) = vm else {
        return (Claim::default(), Affinity::ANYWHERE);
    };
    let claim = Claim {
        pool: vm.resolved.pool,
        reservation_mcpu: vm.reservation_mcpu,
        limit_mcpu: vm.resolved.limit_mcpu,
        ..Claim::default()
    };
    (claim, vm.affinity.on(online))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_is_done_more_rarely() {
        let period_ms = |took_us: u32| period(Duration::from_micros(took_us.into())).as_millis();
        assert_eq!([0, 50, 400, u32::MAX].map(period_ms), [50, 50, 200, 500]);
    }
}
