// SPDX-License-Identifier: GPL-2.0-only
//! Making the VM: memory slots, interrupt controller, vCPUs ready to run.

use crate::back_end::{BackEnd, Service};
use crate::error::GuestError;
use crate::layout::{self, STATS_ADDRESS};
use crate::memory::GuestMemory;
use crate::program::{self, Speed};
use crate::shared_file::SharedFile;
use crate::{GuestConfig, back_end, calibrate, registers, tsc};
use drover_scenario::Workload;
use kvm_bindings::{
    CpuId, KVM_MAX_CPUID_ENTRIES, KVM_MP_STATE_RUNNABLE, Msrs, kvm_mp_state,
    kvm_userspace_memory_region,
};
use kvm_ioctls::{Cap, Kvm, VcpuFd, VmFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Duration;

/// Three pages Intel's VMX wants for itself; far from all the guest uses.
const TSS_ADDRESS: usize = 0xfffb_d000;

const SLOT_MEMORY: u32 = 0;
const SLOT_STATS: u32 = 1;

/// A VM whose vCPUs have not run yet. Fields are dropped in order: KVM's handles before the memory
/// they use.
pub(crate) struct Vm {
    /// The vCPUs, in order, to be taken out by the threads that run them.
    pub vcpus: Vec<VcpuFd>,
    /// The back ends of workload `io`, to be taken out and started.
    pub back_ends: Vec<BackEnd>,
    _handle: VmFd,
    _memory: GuestMemory,
    _stats: Arc<SharedFile>,
}

impl Vm {
    /// Makes the VM and publishes its counters at the configured path.
    pub(crate) fn new(config: &GuestConfig) -> Result<Self, GuestError> {
        let name = config.name.as_str();
        let kvm = open_kvm(config)?;
        let loops_per_ms = config.loops_per_ms.unwrap_or_else(calibrate::loops_per_ms);
        let handle = kvm.create_vm().map_err(GuestError::kvm(name, "make a VM"))?;
        handle.set_tss_address(TSS_ADDRESS).map_err(GuestError::kvm(name, "place the TSS"))?;
        handle.create_irq_chip().map_err(GuestError::kvm(name, "make an interrupt controller"))?;

        let memory = GuestMemory::new(config.vcpus, config.memory).map_err(|source| {
            GuestError::System { name: name.to_owned(), what: "get memory for the guest", source }
        })?;
        let stats = Arc::new(SharedFile::create(&config.stats_path, config.vcpus)?);
        add_slot(&handle, name, SLOT_MEMORY, 0, memory.host_address(), memory.bytes())?;
        add_slot(&handle, name, SLOT_STATS, STATS_ADDRESS, stats.host_address(), stats.bytes())?;

        let tsc_deadline = kvm.check_extension(Cap::TscDeadlineTimer);
        let mut cpuid = kvm
            .get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)
            .map_err(GuestError::kvm(name, "say which CPU it offers"))?;
        registers::complete_cpuid(&mut cpuid, tsc_deadline);
        let vcpus = (0..config.vcpus)
            .map(|index| make_vcpu(&handle, name, index, &cpuid))
            .collect::<Result<Vec<VcpuFd>, GuestError>>()?;

        let speed = Speed { loops_per_ms, tsc_khz: tsc::guest_khz(vcpus[0].get_tsc_khz()) };
        publish(&stats, config, speed, tsc_deadline);
        let back_ends = match config.workload {
            Workload::Io { back_end_us, device_us, .. } => {
                let time = |us: u32| Duration::from_micros(us.into());
                let service = Service { cpu: time(back_end_us), device: time(device_us) };
                back_end::connect(&handle, &stats, service).map_err(|source| {
                    GuestError::System { name: name.to_owned(), what: "connect a device", source }
                })?
            }
            _ => Vec::new(),
        };
        Ok(Self { vcpus, back_ends, _handle: handle, _memory: memory, _stats: stats })
    }
}

/// Opens KVM and sees to it that it can do what is asked.
fn open_kvm(config: &GuestConfig) -> Result<Kvm, GuestError> {
    let kvm = Kvm::new().map_err(GuestError::opening_kvm)?;
    let wanted = [
        (Cap::UserMemory, "user memory"),
        (Cap::Irqchip, "an interrupt controller"),
        (Cap::ImmediateExit, "immediate exits"),
        (Cap::ExtCpuid, "CPUID"),
    ];
    for (cap, what) in wanted {
        if !kvm.check_extension(cap) {
            return Err(GuestError::KvmLacks(what));
        }
    }
    let max = u32::try_from(kvm.get_max_vcpus()).unwrap_or(u32::MAX);
    if config.vcpus > max {
        return Err(GuestError::VcpuCount { name: config.name.clone(), asked: config.vcpus, max });
    }
    Ok(kvm)
}

fn add_slot(
    handle: &VmFd,
    name: &str,
    slot: u32,
    guest_phys_addr: u64,
    userspace_addr: u64,
    bytes: usize,
) -> Result<(), GuestError> {
    let memory_size = bytes as u64;
    let region = kvm_userspace_memory_region {
        slot,
        flags: 0,
        guest_phys_addr,
        memory_size,
        userspace_addr,
    };
    // SAFETY: the range is a mapping that Vm owns and drops after the VM's handle.
    unsafe { handle.set_user_memory_region(region) }.map_err(GuestError::kvm(name, "add memory"))
}

fn make_vcpu(handle: &VmFd, name: &str, index: u32, cpuid: &CpuId) -> Result<VcpuFd, GuestError> {
    let refused_to = |what| GuestError::kvm(name, what);
    let vcpu = handle.create_vcpu(index.into()).map_err(refused_to("make a vCPU"))?;
    vcpu.set_cpuid2(cpuid).map_err(refused_to("set a vCPU's features"))?;
    let mut sregs = vcpu.get_sregs().map_err(refused_to("show a vCPU's registers"))?;
    registers::enter_long_mode(&mut sregs);
    vcpu.set_sregs(&sregs).map_err(refused_to("set a vCPU's system registers"))?;
    vcpu.set_regs(&registers::general(index)).map_err(refused_to("set a vCPU's registers"))?;
    let runnable = kvm_mp_state { mp_state: KVM_MP_STATE_RUNNABLE };
    vcpu.set_mp_state(runnable).map_err(refused_to("start a vCPU"))?;
    // A kernel without steal time sets no MSR: `cpu` then counts waiting as work (guest/cpu.c).
    let steal_time = Msrs::from_entries(&[registers::steal_time(index)]);
    let _ = steal_time.map(|msrs| vcpu.set_msrs(&msrs));
    Ok(vcpu)
}

fn publish(stats: &SharedFile, config: &GuestConfig, speed: Speed, tsc_deadline: bool) {
    let control = stats.control();
    program::write(control, config.vcpus, &config.workload, speed);
    control.tsc_deadline.store(tsc_deadline.into(), Relaxed);
    control.go.store((!config.wait_for_go).into(), Relaxed);
    control.version.store(layout::VERSION, Relaxed);
    control.magic.store(layout::MAGIC, Release);
}
