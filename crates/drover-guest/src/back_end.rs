// SPDX-License-Identifier: GPL-2.0-only
//! The device of workload `io`: a thread of the VM's process for each vCPU, as an I/O thread of a VMM is.
//!
//! The vCPU's doorbell wakes it. It takes CPU time, then waits as long as the device takes, and answers: by a count in
//! the vCPU's record, and an interrupt that wakes the vCPU.

use crate::layout::{IO_PORTS, IO_VECTOR};
use crate::shared_file::SharedFile;
use kvm_bindings::{
    KVM_IRQ_ROUTING_MSI, KvmIrqRouting, kvm_irq_routing_entry, kvm_irq_routing_msi,
};
use kvm_ioctls::{IoEventAddress, NoDatamatch, VmFd};
use nix::time::{ClockId, clock_gettime};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;
use std::thread;
use std::time::Duration;
use vmm_sys_util::eventfd::EventFd;

/// What each answer takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Service {
    /// CPU time.
    pub cpu: Duration,
    /// Time of the device after that.
    pub device: Duration,
}

/// The back end of one vCPU.
#[derive(Debug)]
pub(crate) struct BackEnd {
    vcpu: u32,
    doorbell: EventFd,
    interrupt: EventFd,
    service: Service,
    stats: Arc<SharedFile>,
}

/// Connects a back end to each vCPU of the VM.
pub(crate) fn connect(
    handle: &VmFd,
    stats: &Arc<SharedFile>,
    service: Service,
) -> io::Result<Vec<BackEnd>> {
    let vcpus = 0..stats.vcpus();
    let routes: Vec<_> = vcpus.clone().map(route).collect();
    let routing = KvmIrqRouting::from_entries(&routes).map_err(|_| io::ErrorKind::OutOfMemory)?;
    handle.set_gsi_routing(&routing)?;
    let connect = |vcpu: u32| {
        let (doorbell, interrupt) = (EventFd::new(0)?, EventFd::new(0)?);
        let port = IoEventAddress::Pio(u64::from(IO_PORTS) + u64::from(vcpu));
        handle.register_ioevent(&doorbell, &port, NoDatamatch)?;
        handle.register_irqfd(&interrupt, vcpu)?;
        Ok(BackEnd { vcpu, doorbell, interrupt, service, stats: Arc::clone(stats) })
    };
    vcpus.map(connect).collect()
}

/// Interrupt `vcpu` of the VM is a message to that vCPU's interrupt controller.
fn route(vcpu: u32) -> kvm_irq_routing_entry {
    const TO_CONTROLLERS: u32 = 0xfee0_0000;
    let msi = kvm_irq_routing_msi {
        address_lo: TO_CONTROLLERS | vcpu << 12,
        data: IO_VECTOR.into(),
        ..Default::default()
    };
    let mut entry =
        kvm_irq_routing_entry { gsi: vcpu, type_: KVM_IRQ_ROUTING_MSI, ..Default::default() };
    entry.u.msi = msi;
    entry
}

impl BackEnd {
    /// Starts its thread, which ends with the process.
    pub fn start(self) -> io::Result<()> {
        let named = thread::Builder::new().name(format!("io{}", self.vcpu));
        named.spawn(move || self.serve()).map(drop)
    }

    fn serve(&self) {
        // Else the kernel has its timers wait for others, for 50 us.
        // SAFETY: takes numbers, and is about this thread alone.
        let _ = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        while self.doorbell.read().is_ok() {
            use_cpu(self.service.cpu);
            if !self.service.device.is_zero() {
                thread::sleep(self.service.device);
            }
            self.stats.vcpu(self.vcpu).answers.fetch_add(1, Release);
            // It can only be full, and then the interrupt is on its way.
            let _ = self.interrupt.write(1);
        }
    }
}

/// Uses so much CPU time.
fn use_cpu(time: Duration) {
    let used = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from);
    let Ok(begun) = used() else { return };
    while used().is_ok_and(|now| now.saturating_sub(begun) < time) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_service_takes_cpu_time() {
        let begun = Instant::now();
        use_cpu(Duration::from_millis(3));
        assert!(begun.elapsed() >= Duration::from_millis(3));
    }

    #[test]
    fn each_vcpu_has_an_interrupt_of_its_own() {
        let entry = route(3);
        assert_eq!((entry.gsi, entry.type_), (3, KVM_IRQ_ROUTING_MSI));
        // SAFETY: it was made as a message.
        let msi = unsafe { entry.u.msi };
        assert_eq!((msi.address_lo, msi.data), (0xfee0_3000, 0x21));
    }
}
