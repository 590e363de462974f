// SPDX-License-Identifier: GPL-2.0-only
//! What was to be NUMA balancing in 2012, on top of CFS: AutoNUMA ([`auto`]) and SchedNUMA ([`home`]), as seed 002
//! tested them.
//!
//! Idea. The kernel takes parts of a process's memory away; the next vCPU to use one faults, and so tells where
//! memory is used. AutoNUMA counts that, moves memory to who uses it and threads to their memory. SchedNUMA gives each
//! process a home node, moves its memory there, and would rather run its threads there.
//!
//! A fault of a VM is an EPT violation (tdp_page_fault): some of it under a spinlock of the VM, for which its other
//! vCPUs that fault wait.
//!
//! Worked example. A VM of 20 vCPUs, 16 on node 0 and 4 on node 1, its memory on both. Of the faults on a part 16 of
//! 20 come from node 0; after two from there in succession it lies on node 0. So nearly all of the memory comes to lie
//! there, and then AutoNUMA exchanges the four for threads of others that have less there.
//!
//! Parameters. AutoNUMA's patches of May to October 2012 (linux-mm): a scan of 128 MiB each 100 ms, a pass over all in
//! 10 s at least; a part is moved at the second fault in succession from another node, or at the first fault of all;
//! counts are halved with each pass. SchedNUMA's of March to May 2012: nodes are compared each 2 s. Estimates:
//! memory in use ([`PARTS_PER_VCPU`]), pages used ([`PAGES_PER_MS`]), what a fault and a move take, and how often
//! AutoNUMA looks for an exchange.
//!
//! Limitations. All vCPUs of a VM use all of its memory alike. How fast guests get on does not follow their memory
//! here, and `local_access_pct` knows nothing of it. Memory never runs out. In the kernel the scan and each page that is
//! moved take the VM's lock, too (MMU notifiers); here only faults do.

mod auto;
mod home;
mod memory;

use super::Cfs36;
use drover_core::counters::{Numa as Counted, VmCounters};
use drover_sim::machine::{CLASS_LOOK, Machine, TaskId};
use drover_sim::rng::Rng;
use memory::{Memory, NOWHERE, PAGES, Part};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Memory that a vCPU has in use, in parts of 2 MiB: dbench's 25 MB of files a client, and as much of the guest's own.
const PARTS_PER_VCPU: u32 = 32;
/// Pages of 4 KiB that a vCPU comes to use in a ms: dbench's operations of up to 64 KiB, one each 0.3 ms, and their
/// metadata.
const PAGES_PER_MS: f64 = 64.0;
/// A fault, but for the lock: the exit, the host's own fault, the entry.
const FAULT_NS: u64 = 2_000;
/// ... under the VM's lock.
const LOCKED_NS: u64 = 1_000;
/// To move a part: 512 pages, each unmapped, copied and mapped.
const MOVE_NS: u64 = 1_000_000;
/// knuma_scand: so many parts, so often; and a pass over all takes so long at least.
const SCAN_PARTS: u32 = 64;
const SCAN_NS: u64 = 100_000_000;
const PASS_NS: u64 = 10_000_000_000;

/// Whose balancing it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// AutoNUMA; a pass takes so many times as long.
    Auto {
        /// 1 as it comes.
        slower: u64,
    },
    /// SchedNUMA.
    Home,
}

#[derive(Debug, Default)]
struct Vm {
    tasks: Vec<TaskId>,
    memory: Memory,
    /// AutoNUMA: pages found on each node, in the last passes; in this one.
    pages: Vec<u64>,
    pages_now: Vec<u64>,
    /// SchedNUMA: its node.
    home: u32,
    /// When the lock of its page tables is free.
    lock_free_ns: u64,
    /// Who comes to ask for it, and when, the first on top.
    asks: BinaryHeap<Reverse<(u64, TaskId)>>,
    next_fault_ns: u64,
    ran_ns: u64,
    ran_near_ns: u64,
}

/// What a thread faulted on.
#[derive(Debug, Clone, Default)]
struct Faulted {
    /// Until when it is at a fault.
    at_fault_ns: u64,
    /// AutoNUMA: pages, by the node they lie on.
    pages: Vec<u64>,
    /// The pass in which these were halved last.
    pass: u64,
    /// The node it should run on.
    selected: Option<u32>,
}

/// State of the balancing.
#[derive(Debug)]
pub(super) struct Numa {
    kind: Kind,
    rng: Rng,
    vms: Vec<Vm>,
    tasks: Vec<Faulted>,
    /// The VM and its part that are scanned next, when, and when this pass began.
    scanned: (usize, u32),
    scan_ns: u64,
    pass_ns: u64,
    pass: u64,
    /// When each pCPU looks for an exchange.
    exchange_ns: Vec<u64>,
    /// pCPUs of running threads that are to go to another, and where to.
    orders: Vec<Option<(TaskId, u32)>>,
    /// pCPUs to which one such is on its way.
    expects: Vec<bool>,
    /// How often a pCPU balanced in vain: idle, and between nodes; when it may do so idle.
    failed: Vec<[u32; 2]>,
    idle_ns: Vec<u64>,
    /// SchedNUMA: when nodes are compared.
    compare_ns: u64,
}

impl Numa {
    pub(super) fn new(kind: Kind, m: &Machine) -> Self {
        let pcpus = m.pcpus.len();
        Self {
            kind,
            rng: Rng::new(2012),
            vms: Vec::new(),
            tasks: Vec::new(),
            scanned: (0, 0),
            scan_ns: SCAN_NS,
            pass_ns: 0,
            pass: 0,
            exchange_ns: vec![0; pcpus],
            orders: vec![None; pcpus],
            expects: vec![false; pcpus],
            failed: vec![[0; 2]; pcpus],
            idle_ns: vec![0; pcpus],
            compare_ns: home::COMPARE_NS,
        }
    }

    /// The task comes into being.
    pub(super) fn add(&mut self, m: &Machine, task: TaskId, vcpus: u32) {
        let (at, nodes) = (m.tasks[task as usize].vm as usize, m.topology.nodes.len());
        self.vms.resize_with(self.vms.len().max(at + 1), Vm::default);
        self.tasks.resize(self.tasks.len().max(task as usize + 1), Faulted::default());
        let vm = &mut self.vms[at];
        if vm.tasks.is_empty() {
            vm.memory = Memory::new(PARTS_PER_VCPU * vcpus, nodes);
            (vm.pages, vm.pages_now) = (vec![0; nodes], vec![0; nodes]);
        }
        vm.tasks.push(task);
        self.tasks[task as usize].pages = vec![0; nodes];
    }

    /// The task has left.
    pub(super) fn remove(&mut self, m: &Machine, task: TaskId) {
        self.vms[m.tasks[task as usize].vm as usize].tasks.retain(|&it| it != task);
    }

    /// CPU time of the VM on that pCPU.
    pub(super) fn ran(&mut self, m: &Machine, cpu: u32, vm: u32, ran_ns: u64) {
        let vm = &mut self.vms[vm as usize];
        vm.ran_ns += ran_ns;
        let near =
            vm.memory.most().is_some_and(|(node, _)| node == m.topology.node_of[cpu as usize]);
        vm.ran_near_ns += if near { ran_ns } else { 0 };
    }

    /// Where most of the VM's memory lies, and what it ran there.
    pub(super) fn counters(&self, vm: u32) -> Option<VmCounters> {
        let vm = self.vms.get(vm as usize)?;
        let (node, pct) = vm.memory.most()?;
        let seconds = |ns: u64| ns as f64 / 1e9;
        let numa = Counted {
            home: vec![node],
            local_pct: Some(pct),
            home_s: seconds(vm.ran_near_ns),
            ran_s: seconds(vm.ran_ns),
            ..Counted::default()
        };
        Some(VmCounters { numa: Some(numa), ..VmCounters::default() })
    }

    /// Something of its own is due: a scan, faults, a comparison of nodes.
    pub(super) fn look(&mut self, m: &mut Machine) {
        match self.kind {
            Kind::Auto { slower } if m.now_ns >= self.scan_ns => self.scan(m, slower),
            Kind::Home if m.now_ns >= self.compare_ns => self.compare_nodes(m),
            _ => {}
        }
        for vm in 0..self.vms.len() {
            while let Some(Reverse((asks_ns, task))) = self.vms[vm].asks.peek().copied()
                && m.now_ns >= asks_ns
            {
                self.vms[vm].asks.pop();
                self.take_lock(m, vm, task);
            }
            if m.now_ns >= self.vms[vm].next_fault_ns {
                self.fault(m, vm);
            }
        }
        self.set_look(m);
    }

    /// Asks to be called again.
    pub(super) fn set_look(&self, m: &mut Machine) {
        let own_ns = match self.kind {
            Kind::Auto { .. } => self.scan_ns,
            Kind::Home => self.compare_ns,
        };
        let asks_ns = |vm: &Vm| vm.asks.peek().map_or(u64::MAX, |Reverse((at_ns, _))| *at_ns);
        let faults = self.vms.iter().map(|vm| vm.next_fault_ns.min(asks_ns(vm)));
        m.events.set(CLASS_LOOK, faults.fold(own_ns, u64::min).max(m.now_ns));
    }

    /// One of the VM's vCPUs, if it runs and is at no fault, uses what is out of reach; and when the next would.
    fn fault(&mut self, m: &mut Machine, at: usize) {
        let vm = &mut self.vms[at];
        let vcpus = vm.tasks.len() as u64;
        if vcpus > 0 {
            let task = vm.tasks[self.rng.below(vcpus) as usize];
            let cpu = m.tasks[task as usize].pcpu;
            if m.current(cpu) == Some(task) && self.tasks[task as usize].at_fault_ns <= m.now_ns {
                self.fault_of(m, at, task, cpu);
            }
        }
        let vm = &mut self.vms[at];
        let faults_per_ms = vm.memory.away() * PAGES_PER_MS * vcpus as f64;
        // Exponential: faults come by themselves. One that finds nobody in the guest is none.
        let luck = (self.rng.below(1 << 53) + 1) as f64 / (1u64 << 53) as f64;
        let after_ns = -luck.ln() * 1e6 / faults_per_ms;
        let known = faults_per_ms > 0.0 && after_ns < 1e15;
        vm.next_fault_ns = if known { m.now_ns + 1 + after_ns as u64 } else { u64::MAX };
    }

    fn fault_of(&mut self, m: &mut Machine, at: usize, task: TaskId, cpu: u32) {
        let node = m.topology.node_of[cpu as usize];
        let (kind, vm) = (self.kind, &mut self.vms[at]);
        let home = vm.home;
        let (fresh, moves) = match kind {
            Kind::Auto { .. } => {
                (node, Box::new(move |part: &mut Part| auto::moves(part, node)) as Moves)
            }
            // migrate-on-fault: to the home of its policy.
            Kind::Home => (home, Box::new(move |_: &mut Part| Some(home)) as Moves),
        };
        let Some(fault) = vm.memory.fault(&mut self.rng, fresh, moves) else { return };
        let takes_ns = FAULT_NS + if fault.moved { MOVE_NS } else { 0 };
        vm.asks.push(Reverse((m.now_ns + takes_ns, task)));
        self.tasks[task as usize].at_fault_ns = u64::MAX;
        m.counts.page_fault_ns += takes_ns;
        m.charge(cpu, takes_ns);
        if matches!(kind, Kind::Auto { .. }) {
            self.note_fault(task, fault);
        }
    }

    /// The rest of a fault: it waits for the VM's lock, in turn, and holds it.
    fn take_lock(&mut self, m: &mut Machine, at: usize, task: TaskId) {
        let vm = &mut self.vms[at];
        let spins_ns = vm.lock_free_ns.saturating_sub(m.now_ns);
        vm.lock_free_ns = m.now_ns + spins_ns + LOCKED_NS;
        let cpu = m.tasks[task as usize].pcpu;
        self.tasks[task as usize].at_fault_ns = vm.lock_free_ns;
        m.counts.page_fault_ns += spins_ns + LOCKED_NS;
        m.counts.page_fault_spin_ns += spins_ns;
        if m.current(cpu) == Some(task) {
            m.charge(cpu, spins_ns + LOCKED_NS);
        }
    }

    /// All of the VM's memory is taken away.
    fn take_all_away(&mut self, m: &Machine, at: usize) {
        let vm = &mut self.vms[at];
        for part in 0..vm.memory.len() {
            vm.memory.take_away(part);
        }
        vm.next_fault_ns = m.now_ns;
    }

    /// How many tasks there are of who is to run on that pCPU from elsewhere.
    fn is_expected(&self, cpu: u32) -> bool {
        self.expects[cpu as usize]
    }
}

type Moves = Box<dyn Fn(&mut Part) -> Option<u32>>;

impl Cfs36 {
    /// The running task goes to another pCPU at the next pick.
    fn send(&mut self, m: &mut Machine, from: u32, to: u32) {
        let Some(numa) = &mut self.numa else { return };
        if let (Some(task), None) = (m.current(from), numa.orders[from as usize]) {
            numa.orders[from as usize] = Some((task, to));
            numa.expects[to as usize] = true;
            m.resched(from);
        }
    }

    /// The pCPU picks: who is to leave it goes.
    pub(super) fn let_go(&mut self, m: &mut Machine, cpu: u32, ready: bool) {
        let order = self.numa.as_mut().and_then(|numa| numa.orders[cpu as usize].take());
        let Some((task, to)) = order else { return };
        if let Some(numa) = &mut self.numa {
            numa.expects[to as usize] = false;
        }
        if ready && m.current(cpu) == Some(task) && m.may_run_on(task, to) && m.online.contains(to)
        {
            self.migrate(m, task, to);
            m.resched(to);
        }
    }

    /// Is somebody on the way to that pCPU, so that it need not look for work?
    pub(super) fn expects(&self, cpu: u32) -> bool {
        self.numa.as_ref().is_some_and(|numa| numa.is_expected(cpu))
    }

    /// The tick, after balancing: is there a better node for who runs there?
    pub(super) fn numa_tick(&mut self, m: &mut Machine, cpu: u32, task: TaskId) {
        if matches!(self.numa.as_ref().map(|numa| numa.kind), Some(Kind::Auto { .. })) {
            self.exchange_at_tick(m, cpu, task);
        }
    }

    /// Those of the tasks that may go from one pCPU to the other, who should first. `idle`: the other has nothing to run.
    pub(super) fn by_node(
        &self,
        m: &Machine,
        mut tasks: Vec<TaskId>,
        (from, to): (u32, u32),
        idle: bool,
    ) -> Vec<TaskId> {
        let Some(numa) = &self.numa else { return tasks };
        let node = |cpu: u32| m.topology.node_of[cpu as usize];
        match numa.kind {
            Kind::Auto { .. } => {
                let wishes = |task: &TaskId| numa.tasks[*task as usize].selected != Some(node(to));
                tasks.sort_by_key(wishes);
            }
            Kind::Home => {
                let home = |task: &TaskId| numa.vms[m.tasks[*task as usize].vm as usize].home;
                let tries = numa.failed[to as usize][usize::from(!idle)];
                if tries <= home::NICE_TRIES {
                    tasks.retain(|task| home(task) == node(to) && home(task) != node(from));
                }
                tasks.sort_by_key(|task| home(task) == node(from));
            }
        }
        tasks
    }
}
