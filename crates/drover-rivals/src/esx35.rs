// SPDX-License-Identifier: GPL-2.0-only
//! ESX 3.5's CPU scheduler as seed 000 describes it (2.1 to 2.4, table 1), as a scheduler of the simulator.
//!
//! Idea. pCPUs are divided into cells of four, each with one lock that every decision takes. A VM is
//! in one cell at any moment. Who runs next is the VM that has used least for its shares, and of it the
//! vCPU that has run least. Each ms every vCPU that is ready while a sibling runs gains 1 ms of skew;
//! where one has more than 3 ms its VM stops (co-stop), until those with so much skew can start at
//! once (co-start). Now and then a VM moves to a cell that is less crowded.
//!
//! Worked example. Eight pCPUs, two VMs of two vCPUs: one in each cell. Any pCPU of the cell will do,
//! also two that share a cache while two others beside them rest: nothing here knows of caches. A third
//! VM shares a cell until the next time cells are compared.
//!
//! Limitations, which are why it is here. A VM cannot use more caches and memory than its cell has; who
//! runs in turn with its sibling has skew; one lock serialises a cell.
//!
//! [`FineLocks`] is the same scheduler with ESX 4's locks instead (3.2): one for each pCPU, and one for each VM.
//! Decisions are the same, so that what differs is who waits for a lock.
//!
//! [ESX 4](super::esx4) is the same but for cells, locks and skew.
//!
//! What is left out. Reservations, limits and pools; home nodes; hardware threads. Where a VM is wider than
//! four, cells double until it fits. Slice, interval of cells and time under the lock are estimates.

use drover_core::counters::{Counters, VmCounters};
use drover_sim::class::{Class, VmTerms};
use drover_sim::machine::{CLASS_TIMER, Machine, NOBODY, TaskId, TaskState};
use drover_sim::scenario::rival::Rival;

/// pCPUs of a cell.
const CELL: u32 = 4;
/// How long a vCPU runs before the next has its turn: ESX's quantum.
const SLICE_NS: u64 = 50_000_000;
/// Interval at which skew is looked at.
pub(crate) const LOOK_NS: u64 = 1_000_000;
/// Skew beyond which a VM stops: "typically a few milliseconds".
pub(crate) const SKEW_NS: u64 = 3_000_000;
/// Interval at which cells are compared, an estimate of "much coarser granularity".
const CELLS_NS: u64 = 500_000_000;
/// Time under a cell's lock: an estimate of some ten cache lines, 50 to 100 ns each.
const LOCKED_NS: u64 = 1_000;
/// What a VM may be behind in weighted time when it wakes, and must be to take a pCPU from another.
const BEHIND: u64 = 5_000_000;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Vcpu {
    ran_ns: u64,
    skew_ns: u64,
    queued: bool,
    cell: usize,
    /// Time in which it ran or halted, under ESX 4.
    pub(crate) progress_ns: u64,
    /// Stopped by itself, under ESX 4.
    pub(crate) stopped: bool,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Vm {
    shares: u64,
    /// CPU time over shares, so that 1000 shares have ns.
    used: u64,
    pub(crate) tasks: Vec<TaskId>,
    vcpus: u32,
    cell: usize,
    stopped: bool,
    /// What happened to it, as looked at each ms.
    pub(crate) seen: Counters,
    /// When its own lock will be free, where it has one.
    free_ns: u64,
}

#[derive(Debug, Clone, Default)]
struct Cell {
    queue: Vec<TaskId>,
    /// When the lock will be free.
    free_ns: u64,
}

#[derive(Debug, Clone, Copy)]
struct Pcpu {
    slice_ends_ns: u64,
    /// Who must run here next, for a co-start.
    kept_for: TaskId,
    /// Who runs here must give way to who is first in the queue.
    yields: bool,
    /// Waiting for the lock and holding it, not yet paid.
    lock_ns: u64,
    /// When its own lock will be free, where it has one.
    free_ns: u64,
}

/// ESX 3.5's scheduler.
#[derive(Debug)]
pub struct Esx35 {
    /// pCPUs and VMs have locks, not cells.
    fine: bool,
    /// It is ESX 4: one cell, and skew as [`esx4`](super::esx4) has it.
    four: bool,
    width: u32,
    cells: Vec<Cell>,
    pcpus: Vec<Pcpu>,
    pub(crate) vms: Vec<Vm>,
    pub(crate) vcpus: Vec<Vcpu>,
    look_ns: u64,
    cells_ns: u64,
}

impl Rival for Esx35 {
    type Class = Self;

    const NAME: &'static str = "esx35";

    fn new(m: &Machine) -> Self {
        let pcpus = m.pcpus.len() as u32;
        let pcpu = Pcpu {
            slice_ends_ns: u64::MAX,
            kept_for: NOBODY,
            yields: false,
            lock_ns: 0,
            free_ns: 0,
        };
        Self {
            four: false,
            fine: false,
            width: CELL,
            cells: vec![Cell::default(); pcpus.div_ceil(CELL) as usize],
            pcpus: vec![pcpu; pcpus as usize],
            vms: Vec::new(),
            vcpus: Vec::new(),
            look_ns: LOOK_NS,
            cells_ns: CELLS_NS,
        }
    }
}

/// ESX 3.5's scheduler with the locks of ESX 4.
#[derive(Debug)]
pub struct FineLocks;

impl Rival for FineLocks {
    type Class = Esx35;

    const NAME: &'static str = "esx35-fine-locks";

    fn new(m: &Machine) -> Esx35 {
        Esx35 { fine: true, ..Esx35::new(m) }
    }
}

impl Esx35 {
    /// The same with one cell, fine locks and ESX 4's rules.
    pub(crate) fn four(m: &Machine) -> Self {
        let width = m.pcpus.len() as u32;
        Self { fine: true, four: true, width, cells: vec![Cell::default()], ..Self::new(m) }
    }

    fn cell_of(&self, cpu: u32) -> usize {
        (cpu / self.width) as usize
    }

    fn pcpus_of(&self, cell: usize) -> std::ops::Range<u32> {
        let from = cell as u32 * self.width;
        from..(from + self.width).min(self.pcpus.len() as u32)
    }

    fn vm_of(&self, m: &Machine, task: TaskId) -> &Vm {
        &self.vms[m.tasks[task as usize].vm as usize]
    }

    /// Who goes first: the least.
    pub(crate) fn key(&self, m: &Machine, task: TaskId) -> (u64, u64) {
        (self.vm_of(m, task).used, self.vcpus[task as usize].ran_ns)
    }

    /// A decision of `cpu` about `task`, if about anybody, and the queue of `target` takes the lock of that pCPU's
    /// cell; or that pCPU's own, then the task's VM's.
    fn lock(&mut self, m: &Machine, cpu: u32, target: u32, task: Option<TaskId>) {
        let cell = self.cell_of(target);
        let free_ns = if self.fine {
            let pcpu_ns = take(&mut self.pcpus[target as usize].free_ns, m.now_ns);
            let vm = task.map(|task| &mut self.vms[m.tasks[task as usize].vm as usize]);
            vm.map_or(pcpu_ns, |vm| take(&mut vm.free_ns, pcpu_ns))
        } else {
            take(&mut self.cells[cell].free_ns, m.now_ns)
        };
        self.pcpus[cpu as usize].lock_ns += free_ns - m.now_ns;
    }

    /// Who waits in the queue of a pCPU's cell.
    pub(crate) fn waiting(&self, cpu: u32) -> &[TaskId] {
        &self.cells[self.cell_of(cpu)].queue
    }

    fn usable(&self, m: &Machine, cell: usize, task: TaskId) -> bool {
        self.pcpus_of(cell).any(|cpu| m.online.contains(cpu) && m.may_run_on(task, cpu))
    }

    fn queue(&mut self, m: &mut Machine, task: TaskId) {
        let at_home = self.vm_of(m, task).cell;
        let mut cells = std::iter::once(at_home).chain(0..self.cells.len());
        let cell = cells.find(|&cell| self.usable(m, cell, task)).unwrap_or(at_home);
        let vcpu = &mut self.vcpus[task as usize];
        debug_assert!(!vcpu.queued, "nobody stands in two queues");
        (vcpu.queued, vcpu.cell) = (true, cell);
        self.cells[cell].queue.push(task);
        let last = m.tasks[task as usize].pcpu;
        if self.cell_of(last) != cell || !m.may_run_on(task, last) {
            let mut pcpus = self.pcpus_of(cell);
            m.tasks[task as usize].pcpu =
                pcpus.find(|&cpu| m.may_run_on(task, cpu)).unwrap_or(last);
        }
    }

    fn unqueue(&mut self, task: TaskId) {
        let vcpu = &mut self.vcpus[task as usize];
        if std::mem::take(&mut vcpu.queued) {
            self.cells[vcpu.cell].queue.retain(|&it| it != task);
        }
    }

    /// Finds a pCPU of its cell for who has come: its last if idle, any idle one, one of somebody who has had
    /// clearly more.
    pub(crate) fn place(&mut self, m: &mut Machine, task: TaskId, preempts: bool) {
        let cell = self.vcpus[task as usize].cell;
        let last = m.tasks[task as usize].pcpu;
        let idle = |cpu: &u32| m.idle.contains(*cpu) && m.may_run_on(task, *cpu);
        let mut pcpus = std::iter::once(last).chain(self.pcpus_of(cell)).filter(idle);
        // Only ESX 4 knows of caches.
        let found = match self.four {
            true => pcpus.min_by_key(|&cpu| self.busy_beside(m, cpu)),
            false => pcpus.next(),
        };
        if let Some(cpu) = found {
            m.resched(cpu);
            return;
        }
        if !preempts {
            return;
        }
        let used = self.vm_of(m, task).used;
        let runs = |cpu: u32| Some((self.vm_of(m, m.current(cpu)?).used, cpu));
        let allowed = self.pcpus_of(cell).filter(|&cpu| m.may_run_on(task, cpu));
        if let Some((most, cpu)) = allowed.filter_map(runs).max()
            && most > used + BEHIND
        {
            self.pcpus[cpu as usize].yields = true;
            m.resched(cpu);
        }
    }

    fn skewed(&self, m: &Machine, vm: &Vm) -> Vec<TaskId> {
        let ready = |task: TaskId| m.tasks[task as usize].state == TaskState::Ready;
        let lags = |task: TaskId| self.vcpus[task as usize].skew_ns > SKEW_NS;
        vm.tasks.iter().copied().filter(|&task| ready(task) && lags(task)).collect()
    }

    /// The pCPUs that a co-start of the VM can have beside `cpu`: idle ones, then those of who has had most.
    fn to_be_had(&self, m: &Machine, cpu: u32, vm: &Vm) -> Vec<u32> {
        let used = |cpu: u32| m.current(cpu).map_or(u64::MAX, |task| self.vm_of(m, task).used);
        let free = |&other: &u32| {
            let kept = self.pcpus[other as usize].kept_for != NOBODY;
            other != cpu && m.online.contains(other) && !kept && used(other) > vm.used
        };
        let mut found: Vec<u32> = self.pcpus_of(self.cell_of(cpu)).filter(free).collect();
        found.sort_by_key(|&cpu| std::cmp::Reverse(used(cpu)));
        found
    }

    /// May it run there, as far as its siblings are concerned?
    fn eligible(&self, m: &Machine, cpu: u32, task: TaskId) -> bool {
        let vm = self.vm_of(m, task);
        if self.vcpus[task as usize].stopped {
            return false;
        }
        if !vm.stopped {
            return true;
        }
        let skewed = self.skewed(m, vm);
        skewed.contains(&task) && skewed.len() <= self.to_be_had(m, cpu, vm).len() + 1
    }

    /// Those with skew start together, the first of them here.
    fn co_start(&mut self, m: &mut Machine, cpu: u32, first: TaskId) {
        let vm = m.tasks[first as usize].vm as usize;
        let skewed = self.skewed(m, &self.vms[vm]);
        let pcpus = self.to_be_had(m, cpu, &self.vms[vm]);
        for (task, other) in skewed.into_iter().filter(|&task| task != first).zip(pcpus) {
            if m.may_run_on(task, other) {
                self.pcpus[other as usize].kept_for = task;
                m.resched(other);
            }
        }
        let vm = &mut self.vms[vm];
        vm.stopped = false;
        vm.seen.costarts += 1;
        vm.tasks.iter().for_each(|&task| self.vcpus[task as usize].skew_ns = 0);
    }

    /// Who waits while a sibling runs gains skew, which shrinks while nobody of the VM waits; too much stops a VM.
    fn look_at_skew(&mut self, m: &mut Machine) {
        for at in 0..self.vms.len() {
            let is = |task: TaskId, state| m.tasks[task as usize].state == state;
            let vm = &self.vms[at];
            let runs = vm.tasks.iter().any(|&task| is(task, TaskState::Running));
            let waits = vm.tasks.iter().any(|&task| is(task, TaskState::Ready));
            if vm.tasks.len() > 1 && runs && !vm.stopped {
                for &task in &vm.tasks {
                    let skew_ns = &mut self.vcpus[task as usize].skew_ns;
                    match waits {
                        true if is(task, TaskState::Ready) => *skew_ns += LOOK_NS,
                        true => {}
                        false => *skew_ns = skew_ns.saturating_sub(LOOK_NS),
                    }
                }
            }
            let lags = !self.skewed(m, &self.vms[at]).is_empty();
            let waiting = self.vms[at].tasks.iter();
            let waiting = waiting.filter(|&&task| is(task, TaskState::Ready)).count();
            let vm = &mut self.vms[at];
            let look_s = LOOK_NS as f64 / 1e9;
            *vm.seen.progressed_s.get_or_insert(0.0) += if runs { look_s } else { 0.0 };
            *vm.seen.hazard_s.get_or_insert(0.0) += if runs && waits { look_s } else { 0.0 };
            vm.seen.costop_s += if vm.stopped { waiting as f64 * look_s } else { 0.0 };
            vm.seen.costops += u64::from(lags && !vm.stopped);
            if lags && !self.vms[at].stopped {
                let here = |&cpu: &u32| {
                    m.current(cpu).is_some_and(|task| self.vms[at].tasks.contains(&task))
                };
                let pcpus: Vec<u32> = (0..self.pcpus.len() as u32).filter(here).collect();
                pcpus.into_iter().for_each(|cpu| m.resched(cpu));
            }
            self.vms[at].stopped = lags;
        }
    }

    /// vCPUs of a cell that want to run.
    fn crowd(&self, m: &Machine, cell: usize) -> u32 {
        let in_cell = self.vms.iter().filter(|vm| vm.cell == cell);
        in_cell.map(|vm| Self::wants(m, vm)).sum()
    }

    fn wants(m: &Machine, vm: &Vm) -> u32 {
        let awake = |task: &&TaskId| {
            matches!(m.tasks[**task as usize].state, TaskState::Ready | TaskState::Running)
        };
        vm.tasks.iter().filter(awake).count() as u32
    }

    /// The VM that is farthest behind leaves the most crowded cell for the least, where it is no worse there.
    fn compare_cells(&mut self, m: &mut Machine) {
        let crowds = (0..self.cells.len()).map(|cell| (self.crowd(m, cell), cell));
        let crowds: Vec<(u32, usize)> = crowds.collect();
        let (Some(&(most, from)), Some(&(least, to))) = (crowds.iter().max(), crowds.iter().min())
        else {
            return;
        };
        if most <= self.pcpus_of(from).len() as u32 {
            return;
        }
        let better = |&at: &usize| {
            let vm = &self.vms[at];
            let wants = Self::wants(m, vm);
            vm.cell == from
                && wants > 0
                && least + wants <= most
                && vm.tasks.iter().all(|&task| self.usable(m, to, task))
        };
        let found = (0..self.vms.len()).filter(better).min_by_key(|&at| self.vms[at].used);
        let Some(at) = found else { return };
        self.vms[at].cell = to;
        for task in self.vms[at].tasks.clone() {
            match m.tasks[task as usize].state {
                TaskState::Running => m.resched(m.tasks[task as usize].pcpu),
                TaskState::Ready if self.vcpus[task as usize].queued => {
                    self.unqueue(task);
                    self.queue(m, task);
                    self.place(m, task, false);
                }
                _ => {}
            }
        }
    }

    /// Cells are twice as wide from now on.
    fn widen(&mut self) {
        self.width *= 2;
        let narrow = std::mem::take(&mut self.cells);
        let join = |pair: &[Cell]| Cell {
            queue: pair.iter().flat_map(|cell| cell.queue.clone()).collect(),
            free_ns: pair.iter().map(|cell| cell.free_ns).max().unwrap_or(0),
        };
        self.cells = narrow.chunks(2).map(join).collect();
        self.vms.iter_mut().for_each(|vm| vm.cell /= 2);
        self.vcpus.iter_mut().for_each(|vcpu| vcpu.cell /= 2);
    }
}

/// Takes a lock that is free from `free_ns` on for so long as a decision takes; when it is free again.
fn take(free_ns: &mut u64, now_ns: u64) -> u64 {
    *free_ns = now_ns.max(*free_ns) + LOCKED_NS;
    *free_ns
}

impl Class for Esx35 {
    fn start(&mut self, m: &mut Machine) {
        m.events.set(CLASS_TIMER, self.look_ns);
    }

    fn add(&mut self, m: &mut Machine, task: TaskId, terms: VmTerms) {
        while self.width < terms.vcpus && self.cells.len() > 1 {
            self.widen();
        }
        let at = m.tasks[task as usize].vm as usize;
        self.vcpus.resize(self.vcpus.len().max(task as usize + 1), Vcpu::default());
        self.vms.resize(self.vms.len().max(at + 1), Vm::default());
        if self.vms[at].vcpus == 0 {
            let load = |cell: usize| -> u32 {
                self.vms.iter().filter(|vm| vm.cell == cell).map(|vm| vm.vcpus).sum()
            };
            let cells = (0..self.cells.len()).filter(|&cell| self.usable(m, cell, task));
            self.vms[at].cell = cells.min_by_key(|&cell| load(cell)).unwrap_or(0);
            self.vms[at].used = self.vms.iter().map(|vm| vm.used).max().unwrap_or(0);
        }
        self.vcpus[task as usize] = Vcpu::default();
        self.vms[at].tasks.push(task);
        self.set_terms(m, at as u32, terms);
    }

    fn set_terms(&mut self, _: &mut Machine, vm: u32, terms: VmTerms) {
        let vm = &mut self.vms[vm as usize];
        (vm.shares, vm.vcpus) = (u64::from(terms.shares_of_all().max(1)), terms.vcpus.max(1));
    }

    fn wake(&mut self, m: &mut Machine, task: TaskId) {
        let at = m.tasks[task as usize].vm as usize;
        let awake = |vm: &&Vm| Self::wants(m, vm) > 0;
        if Self::wants(m, &self.vms[at]) <= 1
            && let Some(least) = self.vms.iter().filter(awake).map(|vm| vm.used).min()
        {
            // What a VM did not use it has no right to later.
            self.vms[at].used = self.vms[at].used.max(least.saturating_sub(BEHIND));
        }
        self.queue(m, task);
        self.lock(m, m.this_cpu, m.tasks[task as usize].pcpu, Some(task));
        self.place(m, task, true);
    }

    fn stopped(&mut self, _: &mut Machine, _: u32, task: TaskId) {
        self.unqueue(task);
    }

    fn pick(
        &mut self,
        m: &mut Machine,
        cpu: u32,
        previous: Option<TaskId>,
        ready: bool,
    ) -> Option<TaskId> {
        let cell = self.cell_of(cpu);
        let kept = std::mem::replace(&mut self.pcpus[cpu as usize].kept_for, NOBODY);
        let yields = std::mem::take(&mut self.pcpus[cpu as usize].yields);
        let over = yields || m.now_ns >= self.pcpus[cpu as usize].slice_ends_ns;
        let stays = |task: &TaskId| {
            let vm = self.vm_of(m, *task);
            let at_home = vm.cell == cell || !self.usable(m, vm.cell, *task);
            let stopped = vm.stopped || self.vcpus[*task as usize].stopped;
            ready && at_home && !stopped && m.may_run_on(*task, cpu) && m.online.contains(cpu)
        };
        let previous = previous.filter(stays);
        let queue = self.cells[cell].queue.iter().copied();
        let may = |&task: &TaskId| m.may_run_on(task, cpu) && self.eligible(m, cpu, task);
        let first = queue.filter(may).min_by_key(|&task| self.key(m, task));
        let first = first.map(|first| if self.four { self.near(m, cpu, first) } else { first });
        let chosen = if self.vcpus.get(kept as usize).is_some_and(|vcpu| vcpu.queued) {
            Some(kept)
        } else {
            match (previous, first) {
                (Some(previous), Some(first)) => {
                    let turns = over && self.key(m, first) < self.key(m, previous);
                    Some(if turns { first } else { previous })
                }
                (previous, first) => previous.or(first),
            }
        };
        self.lock(m, cpu, cpu, chosen);
        let task = chosen?;
        if chosen != previous || over {
            self.pcpus[cpu as usize].slice_ends_ns = m.now_ns + SLICE_NS;
        }
        if self.vm_of(m, task).stopped {
            self.co_start(m, cpu, task);
        }
        m.counts.migrations += u64::from(m.tasks[task as usize].pcpu != cpu);
        self.unqueue(task);
        chosen
    }

    fn put(&mut self, m: &mut Machine, _: u32, task: TaskId) {
        self.queue(m, task);
        self.place(m, task, false);
    }

    fn set(&mut self, m: &mut Machine, cpu: u32, _: TaskId) {
        // The lock's time goes before its work.
        m.pcpus[cpu as usize].work_from_ns += std::mem::take(&mut self.pcpus[cpu as usize].lock_ns);
    }

    fn rest(&mut self, _: &mut Machine, cpu: u32) {
        self.pcpus[cpu as usize].lock_ns = 0;
    }

    fn ran(&mut self, m: &mut Machine, _: u32, task: TaskId, ran_ns: u64) {
        let vm = &mut self.vms[m.tasks[task as usize].vm as usize];
        vm.used += ran_ns * 1000 / vm.shares;
        self.vcpus[task as usize].ran_ns += ran_ns;
    }

    fn tick(&mut self, _: &mut Machine, _: u32, _: TaskId) {}

    fn timer(&mut self, m: &mut Machine) {
        self.look_ns = m.now_ns + LOOK_NS;
        m.events.set(CLASS_TIMER, self.look_ns);
        if self.four {
            self.look_at_progress(m);
        } else {
            self.look_at_skew(m);
        }
        if m.now_ns >= self.cells_ns {
            self.cells_ns = m.now_ns + CELLS_NS;
            self.compare_cells(m);
        }
        for cpu in 0..self.pcpus.len() as u32 {
            let waiting = !self.cells[self.cell_of(cpu)].queue.is_empty();
            let over = m.now_ns >= self.pcpus[cpu as usize].slice_ends_ns;
            if waiting && (over || m.idle.contains(cpu)) && m.online.contains(cpu) {
                m.resched(cpu);
            }
        }
    }

    fn yield_to(&mut self, _: &mut Machine, _: u32, _: TaskId, _: TaskId) -> bool {
        false
    }

    fn counters(&self, _: &Machine, vm: u32) -> Option<VmCounters> {
        let vm = self.vms.get(vm as usize)?.seen;
        Some(VmCounters { vm, ..VmCounters::default() })
    }

    fn remove(&mut self, m: &mut Machine, task: TaskId) {
        self.unqueue(task);
        self.vms[m.tasks[task as usize].vm as usize].tasks.retain(|&it| it != task);
    }

    fn evict(&mut self, m: &mut Machine, _: u32, task: TaskId) {
        self.queue(m, task);
        self.place(m, task, true);
    }

    fn confine(&mut self, m: &mut Machine, task: TaskId) {
        if self.vcpus[task as usize].queued {
            self.unqueue(task);
            self.queue(m, task);
            self.place(m, task, true);
        }
    }

    /// The core calls `confine` for every task next, which moves those that wait here.
    fn offline(&mut self, _: &mut Machine, _: u32) {}

    fn online(&mut self, _: &mut Machine, _: u32) {}
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use drover_core::shares::Shares;
    use drover_scenario::Host;
    use drover_sim::costs::Costs;
    use drover_sim::topology::Topology;

    /// A host of so many pCPUs and VMs of so many vCPUs, all waiting.
    fn host(pcpus: u32, vms: &[u32]) -> (Machine, Esx35) {
        let host = Host { cores: pcpus, ..Host::default() };
        let mut m = Machine::new(Topology::of(&host), Costs::default(), 32);
        let mut esx = Esx35::new(&m);
        for (vm, &vcpus) in (0..).zip(vms) {
            for vcpu in 0..vcpus {
                let task = m.add_task(vm, vcpu, 0, 0);
                esx.add(&mut m, task, VmTerms { shares: Shares::Exact(1000), vcpus });
                m.tasks[task as usize].state = TaskState::Ready;
                esx.wake(&mut m, task);
            }
        }
        (m, esx)
    }

    /// That pCPU picks and runs it.
    pub(crate) fn run(m: &mut Machine, esx: &mut Esx35, cpu: u32) -> Option<TaskId> {
        let task = esx.pick(m, cpu, None, false)?;
        m.tasks[task as usize].state = TaskState::Running;
        m.tasks[task as usize].pcpu = cpu;
        m.pcpus[cpu as usize].current = task;
        m.idle.remove(cpu);
        Some(task)
    }

    #[test]
    fn siblings_stay_in_one_cell() {
        let (mut m, mut esx) = host(8, &[4, 4]);
        let picked: Vec<_> = (0..8).map(|cpu| run(&mut m, &mut esx, cpu).unwrap()).collect();
        let vms: Vec<u32> = picked.iter().map(|&task| m.tasks[task as usize].vm).collect();
        assert_eq!(vms, [0, 0, 0, 0, 1, 1, 1, 1]);
        let (mut m, mut esx) = host(8, &[4]);
        assert_eq!(run(&mut m, &mut esx, 4), None, "the other cell has nothing of it");
        (0..4).for_each(|cpu| assert!(run(&mut m, &mut esx, cpu).is_some()));
    }

    #[test]
    fn a_vm_of_eight_makes_one_cell_of_eight_pcpus_with_one_lock() {
        let (mut m, mut esx) = host(8, &[2, 8]);
        assert_eq!(esx.cells.len(), 1);
        m.now_ns = 1_000_000;
        (0..8).for_each(|cpu| assert!(run(&mut m, &mut esx, cpu).is_some()));
        assert_eq!(esx.pcpus[7].lock_ns, 8 * LOCKED_NS, "the eighth waited for seven");
        let (mut m, mut esx) = host(8, &[4, 4]);
        m.now_ns = 1_000_000;
        (0..8).for_each(|cpu| assert!(run(&mut m, &mut esx, cpu).is_some()));
        assert_eq!(esx.pcpus[7].lock_ns, 4 * LOCKED_NS, "the fourth of its own cell");
    }

    #[test]
    fn a_lock_for_each_pcpu_and_vm_is_waited_for_by_siblings_only() {
        let (mut m, mut esx) = host(8, &[1, 1, 1, 1, 1, 1, 8]);
        esx.fine = true;
        m.now_ns = 1_000_000;
        (0..8).for_each(|cpu| assert!(run(&mut m, &mut esx, cpu).is_some()));
        // The first has also paid for all wake-ups.
        let lock_ns: Vec<u64> =
            esx.pcpus[1..].iter().map(|pcpu| pcpu.lock_ns / LOCKED_NS).collect();
        assert_eq!(lock_ns, [2, 2, 2, 2, 2, 2, 3], "the last two are of one VM");
    }

    #[test]
    fn too_much_skew_stops_a_vm_until_those_behind_can_start_together() {
        let (mut m, mut esx) = host(2, &[2, 1]);
        assert_eq!(run(&mut m, &mut esx, 0), Some(0));
        m.pcpus[1].current = 2;
        m.tasks[2].state = TaskState::Running;
        esx.unqueue(2);
        m.idle.remove(1);
        (0..3).for_each(|_| esx.look_at_skew(&mut m));
        assert!(!esx.vms[0].stopped, "3 ms are allowed");
        esx.look_at_skew(&mut m);
        assert!(esx.vms[0].stopped && m.pcpus[0].need_resched);
        let seen = esx.counters(&m, 0).unwrap().vm;
        assert_eq!((seen.costops, seen.costarts), (1, 0));
        assert!((seen.hazard_s.unwrap() - 0.004).abs() < 1e-9, "{seen:?}");
        m.tasks[0].state = TaskState::Ready;
        assert_eq!(esx.pick(&mut m, 0, Some(0), true), Some(1), "who was behind starts");
        assert!(!esx.vms[0].stopped);
        assert_eq!(esx.counters(&m, 0).unwrap().vm.costarts, 1);
    }

    #[test]
    fn who_has_used_least_for_its_shares_is_first() {
        let (mut m, mut esx) = host(1, &[1, 1]);
        esx.set_terms(&mut m, 1, VmTerms { shares: Shares::Exact(3000), vcpus: 1 });
        esx.ran(&mut m, 0, 0, 2_000);
        esx.ran(&mut m, 0, 1, 3_000);
        assert_eq!(run(&mut m, &mut esx, 0), Some(1));
    }
}
