// SPDX-License-Identifier: GPL-2.0-only
//! No thread of a VM is ready for longer than its VM is guaranteed ([`drover_core::delay`]).
//!
//! A guarantee is for settings as they are: a wait counts from when the VM's settings, those of pools,
//! the pCPUs or the thread's own mask last changed. And all who may ever come count as there.

use crate::machine::{TaskId, TaskState};
use crate::scx::Scx;
use crate::sim::Sim;
use drover_core::delay::{self, guaranteed};
use std::collections::BTreeMap;

/// Settings are in force at once; promises that have to shrink, when weights are allotted next (policy/allot/allot.h).
const IN_FORCE_AFTER_NS: u64 = 10_000_000;

/// Since when what is guaranteed has been so.
#[derive(Debug, Default)]
pub(super) struct Delays {
    /// To each VM that was asked otherwise.
    vms_ns: BTreeMap<u32, u64>,
    /// To all.
    all_ns: u64,
    /// Of each task: the slot it is attached to, and since when.
    attached: Vec<(u32, u64)>,
    /// Timers came, and the clock was off, by so much at worst.
    pub late_ns: u64,
}

impl Delays {
    /// What is asked for the VM was changed.
    pub(super) fn vm_changed(&mut self, vm: u32, now_ns: u64) {
        self.vms_ns.insert(vm, now_ns + IN_FORCE_AFTER_NS);
    }

    /// What all depends on was changed.
    pub(super) fn all_changed(&mut self, now_ns: u64) {
        self.all_ns = now_ns + IN_FORCE_AFTER_NS;
    }

    /// Has anybody waited for longer? `since_ns` is when each task's mask last counted anew, `taken_ns`
    /// what real-time tasks took since a moment.
    pub(super) fn look(
        &mut self,
        sim: &Sim<Scx>,
        since_ns: impl Fn(usize) -> u64,
        taken_ns: impl Fn(u64) -> u64,
        kicks_late_ns: u64,
    ) -> Result<(), String> {
        self.note_attached(sim);
        let m = &sim.m;
        let plain = sim.class.policy.delay_host(m);
        let slack_ns = self.late_ns + 2 * kicks_late_ns;
        let mut known = BTreeMap::new();
        for (task, it) in m.tasks.iter().enumerate() {
            let (slot, attached_ns) = self.attached[task];
            let begun_ns = it.ready_since_ns.max(attached_ns).max(since_ns(task)).max(self.all_ns);
            let begun_ns = begun_ns.max(self.vms_ns.get(&it.vm).copied().unwrap_or(0));
            let waited_ns = m.now_ns.saturating_sub(begun_ns);
            // Nobody is guaranteed less than that.
            let short = waited_ns < 2 * (plain.slice_ns + plain.tick_ns);
            if it.state != TaskState::Ready || slot == 0 || short || sim.class.is_capped(it.vm) {
                continue;
            }
            // Confined or freed by a pCPU that went or came, it stands where it stood before.
            if since_ns(task) > it.ready_since_ns {
                continue;
            }
            let (host, terms, most_ns) = *known.entry(it.vm).or_insert_with(|| {
                let mut terms = sim.class.delay_terms(m, it.vm);
                terms.reservation_mcpu *= u32::from(is_admitted(sim, it.vm, &terms));
                // Those of a killed VM leave one by one; who waits for the last began behind all.
                terms.threads = m.tasks.iter().filter(|other| other.vm == it.vm).count() as u32;
                let others = (m.tasks.len() as u32).saturating_sub(terms.threads);
                let host = sim.class.delay_host(m, it.vm);
                (host, terms, guaranteed(&host, &terms, others).ready_ns())
            });
            if waited_ns > most_ns + slack_ns + taken_ns(begun_ns) {
                return Err(format!(
                    "task {task} has waited {} ms, its VM {} is guaranteed {} ms by {}",
                    waited_ns / 1_000_000,
                    it.vm,
                    most_ns / 1_000_000,
                    delay::why(&host, &terms, m.tasks.len() as u32 - terms.threads),
                ));
            }
        }
        Ok(())
    }

    fn note_attached(&mut self, sim: &Sim<Scx>) {
        self.attached.resize(sim.m.tasks.len(), (0, 0));
        for (task, attached) in self.attached.iter_mut().enumerate() {
            let slot = sim.class.policy.thread(task as TaskId).slot;
            if attached.0 != slot {
                *attached = (slot, sim.m.now_ns + IN_FORCE_AFTER_NS);
            }
        }
    }
}

/// Does what is promised to the VM, to pools and to all who may come to its pCPUs fit these? More is not
/// admitted, or shrinks.
fn is_admitted(sim: &Sim<Scx>, vm: u32, terms: &delay::Vm) -> bool {
    let m = &sim.m;
    let Some(first) = sim.tasks_of(vm).next() else { return false };
    let set = m.allowed(first);
    let meets =
        |vm: &u32| sim.tasks_of(*vm).any(|task| m.allowed(task).any_common(set, 0).is_some());
    let vms = (0..sim.vms.len() as u32).filter(meets);
    let vms = vms.map(|vm| sim.class.bounds_of(vm).reservation_mcpu);
    let pools = sim.class.pools().iter().map(|pool| pool.reservation_mcpu);
    let promised_mcpu: u64 = vms.chain(pools).map(u64::from).sum();
    promised_mcpu <= 1000 * u64::from(terms.reach.pcpus)
}
