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
use drover_core::settings::{Cosched, PartitionId, PoolId, PoolSettings, VmSettings};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, ProgramInput, ProgramMut};

use crate::constants;
use crate::domains::{DomainLevel, Domains, Placed};
use crate::exit_info::ExitInfo;
use crate::handover::Predecessor;
use crate::kernel::{Kernel, KernelVcpu, KernelVm, Slots};
use crate::skeleton::{DroverSkel, DroverSkelBuilder, OpenDroverSkel, types};
use crate::status::VcpuState;
use crate::topology::Topology;
use drover_core::allot::{Allotment, AllotmentOf, Measured};
use drover_core::counters::Yields;
use drover_core::params::Params;
use drover_core::place::{HomeNumber, Woken, policy_hops};
use drover_core::shares::PER_VCPU;

/// The macro has 64 bits, the highest of which bindgen takes for a sign.
const OWNER_CGROUP: u64 = constants::OWNER_CGROUP as u64;
const OWNER_HOST_TASKS: u64 = constants::OWNER_HOST_TASKS as u64;
const _: () = assert!(PER_VCPU == constants::SHARES_PER_VCPU);
/// The VM in an order is gone, or another has its slot.
const ESRCH: i32 = 3;

/// A running scheduler.
pub struct Scheduler {
    skel: DroverSkel<'static>,
    /// Its variables, mapped for as long as `skel` lives.
    bss: *mut types::bss,
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
        let scheduler = Self { skel, bss, link };
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
        let bss = self.bss;
        // SAFETY: points into the mapped .bss, as in `exit_info`.
        unsafe { (&raw const (*bss).drover.pcpu_changes).read_volatile() }
    }

    fn vm_in(&self, slot: u32) -> Option<KernelVm> {
        let bss = self.bss;
        // SAFETY: points into the mapped .bss, as in `exit_info`; `slot` is below the array's length.
        let vm = unsafe { (&raw const (*bss).drover.vm[slot as usize]).read_volatile() };
        // SAFETY: as above; the policy keeps `partition` below the array's length.
        let pcpus = unsafe {
            (&raw const (*bss).drover.partition[vm.partition as usize].nr_online).read_volatile()
        };
        // SAFETY: as above. It is written before the VM has its id.
        let uid = unsafe { (&raw const (*bss).drover.user_of[slot as usize]).read_volatile() };
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
            smt_discount_ns: vm.counters.smt_discount_ns,
            ready_ns: vm.counters.ready_ns,
            longest_ready_ns: vm.counters.longest_ready_ns,
            progressed_ns: vm.pressure.progressed_ns,
            hazard_ns: vm.pressure.hazard_ns,
            limited_ns: vm.counters.limited_ns,
            home_run_ns: vm.counters.home_run_ns,
            costop_ns: vm.skew.costop_ns,
            nr_costops: vm.skew.nr_costops,
            nr_costarts: vm.skew.nr_costarts,
            yields: Yields {
                asked: vm.counters.yields_asked,
                granted: vm.counters.yields_granted,
                throttled: vm.counters.yields_throttled,
            },
            skew_max_ns: bounds_skew(vm.cosched_mode).then_some(vm.skew.max_ns),
            woken: self.woken(slot, vm.counters.ready_ns),
        })
    }

    fn woken(&self, slot: u32, ready_ns: u64) -> Woken {
        let bss = self.bss;
        // SAFETY: points into the mapped .bss, as in `exit_info`; `slot` is below the array's length.
        let waker = unsafe { (&raw const (*bss).drover.waker[slot as usize]).read_volatile() };
        // SAFETY: as above; the policy keeps a waker's slot below the array's length.
        let by = unsafe { (&raw const (*bss).drover.vm[waker.slot as usize].id).read_volatile() };
        let types::waker { votes, wakes, near, .. } = waker;
        Woken { by, votes, wakes, near, waited_ms: ready_ns / 1_000_000 }
    }

    fn set_home_of_part(&self, mut order: types::home_order) -> Result<()> {
        // SAFETY: `home_order` is plain old data without padding; the slice covers exactly it.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut((&raw mut order).cast::<u8>(), size_of_val(&order))
        };
        match call(&self.skel.progs.drover_home_order, bytes)? {
            0 => Ok(()),
            _ => Err(anyhow!("the VM is gone")),
        }
    }

    fn slots_in_use(&self) -> u32 {
        let bss = self.bss;
        // SAFETY: points into the mapped .bss, as in `exit_info`.
        let slots = unsafe { (&raw const (*bss).drover.slots_in_use).read_volatile() };
        // SAFETY: as above; no reference is made.
        slots.min(unsafe { places_in(&raw const (*bss).drover.vm) })
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
        let bss = self.bss;
        // SAFETY: points into the mapped .bss, as in `exit_info`.
        let (of_vm, all) = unsafe {
            (&raw const (*bss).drover.vm[vm.slot as usize], &raw const (*bss).drover.vcpu)
        };
        // SAFETY: as above.
        let (mode, places) = unsafe {
            ((*of_vm).cosched_mode, (&raw const (*of_vm).vcpu_places).read_volatile() as usize)
        };
        // SAFETY: as above.
        let records = unsafe { &raw const (*bss).drover.vcpu_of[vm.slot as usize] };
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
                progress_ns: vcpu.progress_ns,
                hazard_ns: vcpu.hazard_ns,
                costop_ns: vcpu.costop_ns,
                nr_costops: vcpu.nr_costops,
                // Read in the middle of the first co-stop it may not be counted yet.
                nr_costarts: vcpu.nr_costops.saturating_sub(u64::from(vcpu.costop_since_ns != 0)),
                skew_max_ns: bounds_skew(mode).then_some(vcpu.skew_max_ns),
            })
        };
        let mut vcpus: Vec<KernelVcpu> =
            (0..places.min(places_in(records) as usize)).filter_map(vcpu).collect();
        vcpus.sort_by_key(|vcpu| vcpu.number);
        vcpus
    }

    fn set_vm(&self, vm: &KernelVm, settings: &VmSettings) -> Result<()> {
        let mut order = types::vm_order {
            vm_id: vm.id,
            slot: vm.slot,
            cosched_mode: settings.cosched as u32,
            partition: settings.partition.0,
            burst_us: settings.burst_us,
            asked: types::vm_settings {
                shares: settings.shares.word(),
                reservation_mcpu: settings.reservation_mcpu,
                limit_mcpu: settings.limit_mcpu.unwrap_or(0),
                vcpu_limit_mcpu: settings.vcpu_limit.mcpu,
                vcpu_burst_us: settings.vcpu_limit.burst_us,
                pool: settings.pool.0,
            },
        };
        // SAFETY: `vm_order` is plain old data without padding; the slice covers exactly it.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut((&raw mut order).cast::<u8>(), size_of_val(&order))
        };
        match call(&self.skel.progs.drover_order, bytes)? {
            0 => Ok(()),
            code if code == -ESRCH => Err(anyhow!("the VM is gone")),
            code => Err(anyhow!("the scheduler refused the order (code {code})")),
        }
    }

    fn cgroup_changes(&self) -> u32 {
        let bss = self.bss;
        // SAFETY: points into the mapped .bss, as in `exit_info`.
        unsafe { (&raw const (*bss).drover.cgroup_changes).read_volatile() }
    }

    fn slots(&self) -> Slots {
        let bss = self.bss;
        // SAFETY: points into the mapped .bss, as in `exit_info`.
        unsafe {
            Slots {
                held: (&raw const (*bss).drover.slots_held).read_volatile(),
                crowded_user: (&raw const (*bss).drover.crowded_user).read_volatile(),
                unplaced_vcpus: (&raw const (*bss).drover.nr_unplaced).read_volatile(),
            }
        }
    }

    fn set_container(&self, cgroup: u64, user: u32, live: bool) -> Result<()> {
        let mut order = types::container_order { cgroup, live: live.into(), user };
        // SAFETY: `container_order` is plain old data without padding; the slice covers exactly it.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut((&raw mut order).cast::<u8>(), size_of_val(&order))
        };
        match call(&self.skel.progs.drover_container_order, bytes)? {
            0 => Ok(()),
            code => Err(anyhow!("the scheduler refused cgroup {cgroup} (code {code})")),
        }
    }

    fn set_pool(&self, pool: PoolId, settings: Option<&PoolSettings>) -> Result<()> {
        let live = settings.is_some();
        let settings = settings.cloned().unwrap_or_default();
        let mut order = types::pool_order {
            pool: pool.0,
            live: live.into(),
            parent: settings.parent.0,
            limit_mcpu: settings.limit_mcpu.unwrap_or(0),
            burst_us: settings.burst_us,
        };
        // SAFETY: `pool_order` is plain old data without padding; the slice covers exactly it.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut((&raw mut order).cast::<u8>(), size_of_val(&order))
        };
        match call(&self.skel.progs.drover_pool_order, bytes)? {
            0 => Ok(()),
            code => Err(anyhow!("the scheduler refused the pool (code {code})")),
        }
    }

    fn set_home(&self, vm: &KernelVm, homes: &[HomeNumber]) -> Result<()> {
        let parts = u32::try_from(homes.len()).unwrap_or(u32::MAX).max(1);
        let words = homes.iter().map(|home| home.word());
        let words: Vec<u32> = if homes.is_empty() { vec![0] } else { words.collect() };
        (0..).zip(words).try_for_each(|(part, home)| {
            self.set_home_of_part(types::home_order {
                slot: vm.slot,
                home,
                vm_id: vm.id,
                part,
                parts,
            })
        })
    }

    fn set_partition(&self, partition: PartitionId, settings: PartitionSettings) -> Result<()> {
        let mut order = types::partition_order {
            partition: partition.0,
            policy: settings.policy as u32,
            slice_ns: settings.slice_ns,
        };
        // SAFETY: `partition_order` is plain old data without padding; the slice covers exactly it.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut((&raw mut order).cast::<u8>(), size_of_val(&order))
        };
        match call(&self.skel.progs.drover_partition_order, bytes)? {
            0 => Ok(()),
            code => Err(anyhow!("the scheduler refused the partition (code {code})")),
        }
    }

    fn place(&self, placed: Placed) -> Result<()> {
        let Placed { pcpu, domain, partition: PartitionId(partition), sibling, node, llc } = placed;
        let (sibling, node, llc) = (from_1(sibling), from_1(node), from_1(Some(llc)));
        let mut order = types::pcpu_order { pcpu, domain, partition, sibling, node, llc };
        // SAFETY: `pcpu_order` is plain old data without padding; the slice covers exactly it.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut((&raw mut order).cast::<u8>(), size_of_val(&order))
        };
        match call(&self.skel.progs.drover_pcpu_order, bytes)? {
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
            let of = unsafe { (&raw const (*self.bss).measured[slot as usize]).read_volatile() };
            let types::measured { vm_id, used_ns, awake, shares } = of;
            Measured { vm_id, used_ns, awake, shares }
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
            let Allotment { share_inverse, entitled_ucpu, promised_mcpu, shares_part } =
                of.allotment;
            let order = types::allotment {
                vm_id: of.vm_id,
                share_inverse,
                entitled_ucpu,
                promised_mcpu,
                shares_part: shares_part.into(),
            };
            // SAFETY: as above; the kernel reads it only when it is told to, by this thread.
            unsafe { (&raw mut (*self.bss).allotted[slot]).write_volatile(order) };
        }
        run(&self.skel.progs.drover_allot)
    }

    fn allot_lapses(&self) -> u32 {
        let bss = self.bss;
        // SAFETY: points into the mapped .bss, as in `exit_info`.
        unsafe { (&raw const (*bss).drover.allot_lapses).read_volatile() }
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
    bss.drover.params = types::params {
        slice_ns: params.slice_ns,
        wake_credit_ns: params.wake_credit_ns,
        claim_bound_ns: params.claim_bound_ns,
        preempt_gain_ns: params.preempt_gain_ns,
        steal_gain_ns: params.steal_gain_ns,
        wait_bound_ns: params.wait_bound_ns,
        skew_max_ns: params.skew_max_ns,
        hold_max_ns: params.hold_max_ns,
        judge_window_ns: params.judge_window_ns,
        shared_core_permille: params.shared_core_permille,
        nr_pcpus: u32::try_from(nr_pcpus)?,
        nr_domains: domains.used(),
    };
    let known = domains.of().iter().zip(&topology.pcpus);
    for (domain, known) in (0..domains.all()).zip(bss.drover.domain.iter_mut()) {
        known.node = from_1(domains.node_of(domain));
        known.llc = from_1(domains.llc_of(domain));
    }
    for (from, node) in &topology.nodes {
        for (to, distance) in &node.distances {
            let hops = bss.drover.node_hops.get_mut(*from).and_then(|row| row.get_mut(*to));
            hops.into_iter().for_each(|hops| *hops = policy_hops(*distance));
        }
    }
    for (number, (&domain, known)) in known.enumerate() {
        let pcpu = &mut bss.drover.pcpu[number];
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
fn call(program: &ProgramMut<'_>, order: &mut [u8]) -> Result<i32> {
    let input = ProgramInput { context_in: Some(order), ..ProgramInput::default() };
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
fn state_of(vcpu: &types::vcpu) -> VcpuState {
    match vcpu.state {
        constants::VCPU_RUNNING => VcpuState::Running,
        constants::VCPU_READY if vcpu.costop_since_ns != 0 => VcpuState::CoStopped,
        constants::VCPU_READY => VcpuState::Ready,
        _ => VcpuState::Halted,
    }
}

/// Whether vCPUs of a VM in that mode are stopped for being ahead: only then it is kept how far.
fn bounds_skew(mode: u32) -> bool {
    [Cosched::Strict, Cosched::Relaxed, Cosched::Skew].iter().any(|it| *it as u32 == mode)
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
