// SPDX-License-Identifier: GPL-2.0-only
//! What a scheduler must answer to run on the simulated host.

use crate::machine::{Machine, Task, TaskId, TaskState};
use drover_core::counters::VmCounters;
use drover_core::partition::PartitionSettings;
use drover_core::place::{HomeNumber, Woken};
use drover_core::settings::{Cosched, PartitionId, PoolId, PoolSettings, VmSettings};
use drover_core::shares::Shares;
use serde::{Deserialize, Serialize};

/// A VM as its scheduler is told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VmTerms {
    /// Relative share of CPU time.
    pub shares: Shares,
    /// Number of vCPUs.
    pub vcpus: u32,
}

impl VmTerms {
    /// The shares in numbers, while all of its vCPUs run.
    pub fn shares_of_all(&self) -> u32 {
        self.shares.of_vm(self.vcpus)
    }
}

/// What a VM is asked to be beyond its [`VmTerms`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VmBounds {
    /// CPU it is promised, thousandths of a pCPU.
    pub reservation_mcpu: u32,
    /// CPU it may have at most, thousandths of a pCPU; 0: no limit.
    pub limit_mcpu: u32,
    /// Its pool, 0 for the root.
    pub pool: u32,
    /// How its vCPUs are kept together.
    pub cosched: Cosched,
    /// The NUMA node that is its home, + 1; 0: none.
    pub home: u32,
    /// Its partition, 0 for `default`.
    pub partition: u32,
}

impl VmBounds {
    /// Everything that is asked for the VM.
    pub fn settings(self, shares: Shares) -> VmSettings {
        VmSettings {
            shares,
            reservation_mcpu: self.reservation_mcpu,
            limit_mcpu: (self.limit_mcpu > 0).then_some(self.limit_mcpu),
            pool: PoolId(self.pool),
            cosched: self.cosched,
            partition: PartitionId(self.partition),
            ..VmSettings::default()
        }
    }
}

/// A scheduler: the kernel's core calls it, in the order of `__schedule()`.
///
/// A pick goes `stopped` (only if the running task sleeps), `pick`, then, if another task was
/// picked, `put` (only if the old one is still ready), `set` or `rest`.
pub trait Class {
    /// The host is up: set timers.
    fn start(&mut self, m: &mut Machine);
    /// The task comes into being, asleep; its VM has these terms.
    fn add(&mut self, m: &mut Machine, task: TaskId, terms: VmTerms);
    /// The terms of a VM change.
    fn set_terms(&mut self, m: &mut Machine, vm: u32, terms: VmTerms);
    /// What else is asked for a VM changes. Schedulers that know nothing of it pay no heed.
    fn set_bounds(&mut self, _: &mut Machine, _vm: u32, _: VmBounds) {}
    /// What is asked for a pool changes, likewise; none: the pool goes.
    fn set_pool(&mut self, _: &mut Machine, _pool: u32, _: Option<&PoolSettings>) {}
    /// A partition, from 1 on, has these pCPUs and no others, likewise; what it loses is `default`'s.
    fn set_partition(&mut self, _: &mut Machine, _: u32, _: &[u32], _: PartitionSettings) {}
    /// The task was asleep and is ready: choose its pCPU, queue it, make somebody pick.
    fn wake(&mut self, m: &mut Machine, task: TaskId);
    /// The running task, accounted up to now, goes to sleep.
    fn stopped(&mut self, m: &mut Machine, cpu: u32, task: TaskId);
    /// What next on this pCPU? `previous` runs there, and is ready to go on or sleeping by now.
    fn pick(
        &mut self,
        m: &mut Machine,
        cpu: u32,
        previous: Option<TaskId>,
        ready: bool,
    ) -> Option<TaskId>;
    /// The task that ran there is ready and not picked: queue it.
    fn put(&mut self, m: &mut Machine, cpu: u32, task: TaskId);
    /// The picked task is about to run there.
    fn set(&mut self, m: &mut Machine, cpu: u32, task: TaskId);
    /// The pCPU becomes idle.
    fn rest(&mut self, m: &mut Machine, cpu: u32);
    /// The pCPU, which was idle, is so no longer: a task is about to run there.
    fn rests_no_more(&mut self, _: &mut Machine, _cpu: u32) {}
    /// CPU time of the running task was accounted.
    fn ran(&mut self, m: &mut Machine, cpu: u32, task: TaskId, ran_ns: u64);
    /// The tick found the task running there.
    fn tick(&mut self, m: &mut Machine, cpu: u32, task: TaskId);
    /// Its own timer ([`crate::machine::CLASS_TIMER`]) fired.
    fn timer(&mut self, m: &mut Machine);
    /// Its second timer ([`crate::machine::CLASS_LOOK`]), if it has one, fired.
    fn look(&mut self, _: &mut Machine) {}
    /// Its third timer ([`crate::machine::CLASS_ALARM`]), if it has one, fired.
    fn timers(&mut self, _: &mut Machine) {}
    /// How many tasks, running and ready, that pCPU's run queue has (rq->nr_running).
    fn nr_running(&self, m: &Machine, cpu: u32) -> u32 {
        let there = |task: &&Task| {
            task.pcpu == cpu && matches!(task.state, TaskState::Running | TaskState::Ready)
        };
        m.tasks.iter().filter(there).count() as u32
    }
    /// The VM's home, or those of its parts in order, are these from now on; schedulers that know nothing of
    /// homes pay no heed.
    fn set_homes(&mut self, _: &mut Machine, _vm: u32, _: &[HomeNumber]) {}
    /// CPU time that the VM used or waited for, if the scheduler knows VMs.
    fn wanted_ns(&self, _: &Machine, _vm: u32) -> u64 {
        0
    }
    /// Who wakes the VM, if the scheduler knows VMs; by its number, of so many.
    fn woken(&self, _: &Machine, _vm: u32, _vms: u32) -> Option<Woken> {
        None
    }
    /// What it counts of a VM since it found it, if it knows VMs.
    fn counters(&self, _: &Machine, _vm: u32) -> Option<VmCounters> {
        None
    }
    /// The running task spins and would rather have `to`, which is ready, run (yield_to_task). If
    /// that helps, both pCPUs pick anew.
    fn yield_to(&mut self, m: &mut Machine, cpu: u32, from: TaskId, to: TaskId) -> bool;
    /// The running task spins and lets others run first (sched_yield). Its pCPU picks anew.
    fn yields(&mut self, _: &mut Machine, _cpu: u32, _task: TaskId) {}
    /// The task has left for good; it ran until now.
    fn remove(&mut self, m: &mut Machine, task: TaskId);
    /// The task that ran there, ready, must wait somewhere else: it may not run there any more.
    fn evict(&mut self, m: &mut Machine, cpu: u32, task: TaskId);
    /// The task may run elsewhere from now on (its mask is the new one). It sleeps, waits or runs.
    fn confine(&mut self, m: &mut Machine, task: TaskId);
    /// A real-time task takes the pCPU from `task`, which was accounted up to now and would go on, or
    /// from nobody.
    fn taken(&mut self, m: &mut Machine, cpu: u32, task: Option<TaskId>) {
        if let Some(task) = task {
            self.put(m, cpu, task);
        }
    }
    /// That task leaves: the pCPU picks next.
    fn given(&mut self, _: &mut Machine, _cpu: u32) {}
    /// The pCPU goes; it is idle by now and has left [`Machine::online`].
    fn offline(&mut self, m: &mut Machine, cpu: u32);
    /// The pCPU is back.
    fn online(&mut self, m: &mut Machine, cpu: u32);
}
