// SPDX-License-Identifier: GPL-2.0-only
//! The scheduler in the kernel: loaded, attached, watched and given orders.
//!
//! It runs for as long as the [`Scheduler`] lives: dropping it, or the death of
//! this process in any way, detaches it, unless a service manager keeps it for
//! the next daemon (`handover`), and all tasks are the kernel's own
//! scheduler's again.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{Ordering, fence};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use drover_core::partition::PartitionSettings;
use drover_core::settings::{PartitionId, PoolId, PoolSettings, VmSettings};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, ProgramInput, ProgramMut};

use crate::domains::{DomainLevel, Domains, Placed};
use crate::exit_info::ExitInfo;
use crate::handover::Predecessor;
use crate::kernel::{Kernel, KernelVcpu, KernelVm, Slots};
use crate::skeleton::{DroverSkel, DroverSkelBuilder, OpenDroverSkel, types};
use crate::status::VcpuState;
use crate::topology::Topology;
use drover_core::allot::{AllotmentOf, Measured};
use drover_core::params::Params;
use drover_core::place::{HomeNumber, Woken, policy_hops};
use drover_policy::{
    self as policy, Order, container_order, counters, counters_of_vcpu, home_order, params_of,
    partition_order, pcpu_order, pool_order, vm_order,
};

/// The macro has 64 bits, the highest of which bindgen takes for a sign.
const OWNER_CGROUP: u64 = policy::OWNER_CGROUP as u64;
const OWNER_HOST_TASKS: u64 = policy::OWNER_HOST_TASKS as u64;
/// The VM in an order is gone, or another has its slot.
const ESRCH: i32 = 3;

/// Layouts are the same for BPF and native code (policy/base/types.h).
const _: () = {
    assert!(size_of::<types::drover>() == size_of::<policy::drover>());
    assert!(std::mem::offset_of!(types::bss, drover) % align_of::<policy::drover>() == 0);
    assert!(size_of::<types::measured>() == size_of::<policy::measured>());
    assert!(size_of::<types::allotment>() == size_of::<policy::allotment>());
};

/// A running scheduler.
pub struct Scheduler {
    skel: DroverSkel<'static>,
    /// Its variables, mapped for as long as `skel` lives.
    bss: *mut types::bss,
    /// What the policy knows, in there.
    drover: *const policy::drover,
    // Detaches when dropped, if nobody else keeps it.
    link: Link,
}

impl Scheduler {
    /// Load the scheduler and give it all normal tasks of the host, which are its predecessor's until then.
    ///
    /// # Errors
    /// When the kernel does not take it, with the kernel's reason.
    pub fn start(
        topology: &Topology,
        domains: &Domains,
        params: &Params,
        predecessor: Option<Predecessor>,
    ) -> Result<Self> {
        let mut skel = load(topology, domains, params)?;
        let ended = predecessor.map(|predecessor| {
            let now = Instant::now();
            predecessor.end();
            now
        });
        let link = skel
            .maps
            .drover_ops
            .attach_struct_ops()
            .context("the kernel does not start the scheduler; see `drover check`")?;
        let bss = skel.maps.bss_data.as_mut().context("the BPF object has no .bss")?;
        let bss = std::ptr::from_mut::<types::bss>(bss);
        // SAFETY: no reference is made.
        let drover = unsafe { (&raw const (*bss).drover).cast() };
        let scheduler = Self { skel, bss, drover, link };
        if let Some(exit_info) = scheduler.exit_info() {
            bail!("the scheduler ended as it began: {exit_info}");
        }
        if let Some(ended) = ended {
            let ms = ended.elapsed().as_millis();
            tracing::info!(
                "took over from the daemon before; tasks were the kernel's own for {ms} ms"
            );
        }
        Ok(scheduler)
    }

    /// What holds the scheduler in the kernel.
    pub fn link(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }

    /// Why the scheduler ended; None while it runs.
    pub fn exit_info(&self) -> Option<ExitInfo> {
        let bss = self.bss;
        // SAFETY: points into the mapped .bss, which lives as long as `self.skel`; the kernel
        // writes it concurrently, hence the volatile read.
        let kind = unsafe { (&raw const (*bss).exit_info.kind).read_volatile() };
        if kind == 0 {
            return None;
        }
        // The texts are read after the kind. Not volatile: the compiler takes minutes for a volatile read of so much.
        fence(Ordering::Acquire);
        // SAFETY: as above; `kind` is written last, so the texts are complete, and nobody writes them any more.
        let exit_info = unsafe { (&raw const (*bss).exit_info).read() };
        Some(ExitInfo {
            kind,
            reason: text_of(&exit_info.reason),
            message: text_of(&exit_info.message),
            dump: text_of(&exit_info.dump),
        })
    }

    /// Counts pCPUs that came or went.
    pub fn pcpu_changes(&self) -> u32 {
        // SAFETY: points into the mapped .bss, as in `exit_info`.
        unsafe { (&raw const (*self.drover).pcpu_changes).read_volatile() }
    }

    fn vm_in(&self, slot: u32) -> Option<KernelVm> {
        // SAFETY: points into the mapped .bss, as in `exit_info`; `slot` is below the array's length.
        let vm = unsafe { (&raw const (*self.drover).vm[slot as usize]).read_volatile() };
        // SAFETY: as above; the policy keeps `partition` below the array's length.
        let pcpus = unsafe {
            (&raw const (*self.drover).partition[vm.partition as usize].nr_online).read_volatile()
        };
        // SAFETY: as above. It is written before the VM has its id.
        let uid = unsafe { (&raw const (*self.drover).user_of[slot as usize]).read_volatile() };
        let is_container = vm.owner_id & OWNER_CGROUP != 0;
        // The kernel's nice threads are for nobody to set.
        let is_hosts = vm.owner_id & OWNER_HOST_TASKS == OWNER_HOST_TASKS;
        (vm.id != 0 && vm.owner_id != 0 && !is_hosts).then_some(KernelVm {
            slot,
            id: vm.id,
            tgid: if is_container { 0 } else { vm.owner_id as u32 },
            cgroup: if is_container { vm.owner_id & !OWNER_CGROUP } else { 0 },
            uid,
            nr_vcpus: vm.nr_vcpus,
            size: vm.size.min(vm.nr_vcpus).min(pcpus),
            nr_threads: vm.nr_threads,
            affinity_changes: vm.counters.affinity_changes,
            weight_changes: vm.counters.weight_changes,
            shares: vm.shares,
            shares_asked: vm.asked.shares,
            vcpu_run_ns: vm.counters.vcpu_run_ns,
            helper_run_ns: vm.counters.helper_run_ns,
            ready_ns: vm.counters.ready_ns,
            home_run_ns: vm.counters.home_run_ns,
            costop_ns: vm.skew.costop_ns,
            counters: counters(&vm),
            woken: self.woken(slot, vm.counters.ready_ns),
        })
    }

    fn woken(&self, slot: u32, ready_ns: u64) -> Woken {
        // SAFETY: points into the mapped .bss, as in `exit_info`; `slot` is below the array's length.
        let waker = unsafe { (&raw const (*self.drover).waker[slot as usize]).read_volatile() };
        // SAFETY: as above; the policy keeps a waker's slot below the array's length.
        let by = unsafe { (&raw const (*self.drover).vm[waker.slot as usize].id).read_volatile() };
        let policy::waker { votes, wakes, near, .. } = waker;
        Woken { by, votes, wakes, near, waited_ms: ready_ns / 1_000_000 }
    }

    fn slots_in_use(&self) -> u32 {
        // SAFETY: points into the mapped .bss, as in `exit_info`.
        let slots = unsafe { (&raw const (*self.drover).slots_in_use).read_volatile() };
        // SAFETY: as above; no reference is made.
        slots.min(unsafe { places_in(&raw const (*self.drover).vm) })
    }
}

impl Kernel for Scheduler {
    fn vms(&self) -> Vec<KernelVm> {
        let slots = self.slots_in_use();
        let mut vms = Vec::with_capacity(slots as usize);
        vms.extend((1..slots).filter_map(|slot| self.vm_in(slot)));
        vms
    }

    fn vcpus(&self, vm: &KernelVm) -> Vec<KernelVcpu> {
        // SAFETY: points into the mapped .bss, as in `exit_info`.
        let (of_vm, all) = unsafe {
            (&raw const (*self.drover).vm[vm.slot as usize], &raw const (*self.drover).vcpu)
        };
        // SAFETY: as above.
        let (mode, places) = unsafe {
            ((*of_vm).cosched_mode, (&raw const (*of_vm).vcpu_places).read_volatile() as usize)
        };
        // SAFETY: as above.
        let records = unsafe { &raw const (*self.drover).vcpu_of[vm.slot as usize] };
        let vcpu = |place: usize| {
            // SAFETY: as above; `place` is within `records`, and what is in it is a record of
            // `vcpu`, or 0.
            let (record, vcpu) = unsafe {
                let record = (&raw const (*records)[place]).read_volatile();
                if record >= places_in(all) {
                    return None;
                }
                (record, (&raw const (*all)[record as usize]).read_volatile())
            };
            (record != 0 && u32::from(vcpu.slot) == vm.slot).then_some(KernelVcpu {
                number: u32::from(vcpu.vcpu_id),
                tid: vcpu.tid,
                state: state_of(&vcpu),
                counters: counters_of_vcpu(&vcpu, mode),
            })
        };
        let mut vcpus: Vec<KernelVcpu> =
            (0..places.min(places_in(records) as usize)).filter_map(vcpu).collect();
        vcpus.sort_by_key(|vcpu| vcpu.number);
        vcpus
    }

    fn set_vm(&self, vm: &KernelVm, settings: &VmSettings) -> Result<()> {
        match call(&self.skel.progs.drover_order, vm_order::of(vm.slot, vm.id, settings))? {
            0 => Ok(()),
            code if code == -ESRCH => Err(anyhow!("the VM is gone")),
            code => Err(anyhow!("the scheduler refused the order (code {code})")),
        }
    }

    fn cgroup_changes(&self) -> u32 {
        // SAFETY: points into the mapped .bss, as in `exit_info`.
        unsafe { (&raw const (*self.drover).cgroup_changes).read_volatile() }
    }

    fn slots(&self) -> Slots {
        // SAFETY: points into the mapped .bss, as in `exit_info`.
        unsafe {
            Slots {
                held: (&raw const (*self.drover).slots_held).read_volatile(),
                crowded_user: (&raw const (*self.drover).crowded_user).read_volatile(),
                unplaced_vcpus: (&raw const (*self.drover).nr_unplaced).read_volatile(),
            }
        }
    }

    fn set_container(&self, cgroup: u64, user: u32, live: bool) -> Result<()> {
        let order = container_order { cgroup, live: live.into(), user };
        match call(&self.skel.progs.drover_container_order, order)? {
            0 => Ok(()),
            code => Err(anyhow!("the scheduler refused cgroup {cgroup} (code {code})")),
        }
    }

    fn set_pool(&self, pool: PoolId, settings: Option<&PoolSettings>) -> Result<()> {
        match call(&self.skel.progs.drover_pool_order, pool_order::of(pool, settings))? {
            0 => Ok(()),
            code => Err(anyhow!("the scheduler refused the pool (code {code})")),
        }
    }

    fn set_home(&self, vm: &KernelVm, homes: &[HomeNumber]) -> Result<()> {
        let parts = u32::try_from(homes.len()).unwrap_or(u32::MAX).max(1);
        let words = homes.iter().map(|home| home.word());
        let words: Vec<u32> = if homes.is_empty() { vec![0] } else { words.collect() };
        (0..).zip(words).try_for_each(|(part, home)| {
            let order = home_order { slot: vm.slot, home, vm_id: vm.id, part, parts };
            match call(&self.skel.progs.drover_home_order, order)? {
                0 => Ok(()),
                _ => Err(anyhow!("the VM is gone")),
            }
        })
    }

    fn set_partition(&self, partition: PartitionId, settings: PartitionSettings) -> Result<()> {
        let order = partition_order::of(partition, settings);
        match call(&self.skel.progs.drover_partition_order, order)? {
            0 => Ok(()),
            code => Err(anyhow!("the scheduler refused the partition (code {code})")),
        }
    }

    fn place(&self, placed: Placed) -> Result<()> {
        let Placed { pcpu, domain, partition: PartitionId(partition), sibling, node, llc } = placed;
        let (sibling, node, llc) = (from_1(sibling), from_1(node), from_1(Some(llc)));
        let order = pcpu_order { pcpu, domain, partition, sibling, node, llc };
        match call(&self.skel.progs.drover_pcpu_order, order)? {
            0 => Ok(()),
            code => {
                Err(anyhow!("the scheduler refused pCPU {pcpu} in domain {domain} (code {code})"))
            }
        }
    }

    fn measure(&self) -> Result<Vec<Measured>> {
        run(&self.skel.progs.drover_measure)?;
        let slot = |slot: u32| {
            // SAFETY: points into the mapped .bss, as in `exit_info`; `slot` is below the array's length.
            let of = unsafe {
                (&raw const (*self.bss).measured[slot as usize])
                    .cast::<policy::measured>()
                    .read_volatile()
            };
            of.into()
        };
        Ok((0..self.slots_in_use()).map(slot).collect())
    }

    fn allot(&self, allotted: Option<&[AllotmentOf]>) -> Result<()> {
        let Some(allotted) = allotted else {
            return run(&self.skel.progs.drover_allot_end);
        };
        // SAFETY: points into the mapped .bss, as in `exit_info`; no reference is made.
        let places = unsafe { places_in(&raw const (*self.bss).allotted) };
        for (slot, of) in allotted.iter().enumerate().take(places as usize) {
            // SAFETY: as above; the kernel reads it only when it is told to, by this thread.
            unsafe {
                (&raw mut (*self.bss).allotted[slot])
                    .cast::<policy::allotment>()
                    .write_volatile(of.into())
            };
        }
        run(&self.skel.progs.drover_allot)
    }

    fn allot_lapses(&self) -> u32 {
        // SAFETY: points into the mapped .bss, as in `exit_info`.
        unsafe { (&raw const (*self.drover).allot_lapses).read_volatile() }
    }

    #[cfg(feature = "fault-injection")]
    fn break_on_purpose(&self) -> Result<()> {
        self.skel.progs.drover_break.test_run(ProgramInput::default())?;
        Ok(())
    }
}

/// Whether the running kernel takes the scheduler: loads it, and does not start it.
///
/// # Errors
/// When it does not, with the kernel's reason.
pub fn try_load() -> Result<()> {
    let topology = Topology::read()?;
    let domains = Domains::new(&topology, DomainLevel::Llc);
    load(&topology, &domains, &Params::default()).map(drop)
}

fn load(topology: &Topology, domains: &Domains, params: &Params) -> Result<DroverSkel<'static>> {
    // Lives as long as the process: the skeleton borrows it, and one process loads once.
    let object = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open =
        DroverSkelBuilder::default().open(object).context("cannot open the BPF object")?;
    set_params(&mut open, topology, domains, params)?;
    open.load().context("the kernel rejected the BPF program")
}

fn set_params(
    open: &mut OpenDroverSkel,
    topology: &Topology,
    domains: &Domains,
    params: &Params,
) -> Result<()> {
    let nr_pcpus = topology.pcpus.len();
    open.maps.domains.set_max_entries(domains.all())?;
    let bss = open.maps.bss_data.as_mut().context("the BPF object has no .bss")?;
    if nr_pcpus > bss.drover.pcpu.len() {
        let most = bss.drover.pcpu.len();
        bail!(
            "this host may have {nr_pcpus} pCPUs, Drover schedules {most} at most; boot with \
             possible_cpus={most}"
        );
    }
    bss.nr_all_domains = domains.all();
    // SAFETY: the policy's state, of which there is one, laid out as below; `bss` is not used while this is.
    let drover = unsafe { &mut *(&raw mut bss.drover).cast::<policy::drover>() };
    drover.params = params_of(params, u32::try_from(nr_pcpus)?, domains.used());
    let known = domains.of().iter().zip(&topology.pcpus);
    for (domain, known) in (0..domains.all()).zip(drover.domain.iter_mut()) {
        known.node = from_1(domains.node_of(domain));
        known.llc = from_1(domains.llc_of(domain));
    }
    for (from, node) in &topology.nodes {
        for (to, distance) in &node.distances {
            let hops = drover.node_hops.get_mut(*from).and_then(|row| row.get_mut(*to));
            hops.into_iter().for_each(|hops| *hops = policy_hops(*distance));
        }
    }
    for (number, (&domain, known)) in known.enumerate() {
        let pcpu = &mut drover.pcpu[number];
        pcpu.domain = domain;
        pcpu.online = u32::from(known.online);
        pcpu.sibling = from_1(topology.sibling(number));
    }
    Ok(())
}

/// A pCPU's or a node's number as the policy keeps one that may not be there.
fn from_1(number: Option<usize>) -> u32 {
    number.and_then(|number| u32::try_from(number + 1).ok()).unwrap_or(0)
}

/// How many an array holds: what the kernel says is no index before it is held against that.
fn places_in<T, const N: usize>(_: *const [T; N]) -> u32 {
    u32::try_from(N).unwrap_or(u32::MAX)
}

/// Run one of the scheduler's order programs; what it returned.
fn call<T: Order>(program: &ProgramMut<'_>, mut order: T) -> Result<i32> {
    // SAFETY: an order is plain old data without padding; the slice covers exactly it.
    let bytes = unsafe {
        std::slice::from_raw_parts_mut((&raw mut order).cast::<u8>(), size_of_val(&order))
    };
    let input = ProgramInput { context_in: Some(bytes), ..ProgramInput::default() };
    Ok(program.test_run(input).context("cannot reach the scheduler")?.return_value as i32)
}

/// Run one of the scheduler's programs that takes no order.
fn run(program: &ProgramMut<'_>) -> Result<()> {
    let answer = program.test_run(ProgramInput::default()).context("cannot reach the scheduler")?;
    match answer.return_value as i32 {
        0 => Ok(()),
        code => Err(anyhow!("the scheduler refused (code {code})")),
    }
}

/// What a vCPU does, by its record.
fn state_of(vcpu: &policy::vcpu) -> VcpuState {
    match vcpu.state {
        policy::VCPU_RUNNING => VcpuState::Running,
        policy::VCPU_READY if vcpu.costop_since_ns != 0 => VcpuState::CoStopped,
        policy::VCPU_READY => VcpuState::Ready,
        _ => VcpuState::Halted,
    }
}

/// A NUL-terminated text of the kernel.
fn text_of(bytes: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = bytes.iter().map(|&byte| byte as u8).take_while(|&b| b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_end_at_the_nul() {
        let bytes: Vec<std::ffi::c_char> =
            b"stall\0junk".iter().map(|&b| b as std::ffi::c_char).collect();
        assert_eq!(text_of(&bytes), "stall");
    }
}
