// SPDX-License-Identifier: GPL-2.0-only
//! The smallest VM: one CPU, one page, one instruction (`hlt`). It tells whether KVM really runs VMs here.

use anyhow::{Context, Result, ensure};
use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::{Kvm, VcpuExit};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::num::NonZeroUsize;

const PAGE_LEN: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
const HLT: u8 = 0xf4;

/// Runs the VM.
///
/// # Errors
/// One line that says which step KVM refused.
pub fn run() -> Result<()> {
    let kvm = Kvm::new().context("cannot open /dev/kvm")?;
    let vm = kvm.create_vm().context("KVM makes no VM")?;
    // SAFETY: a fresh anonymous mapping; nothing else knows its address.
    let page = unsafe {
        mmap_anonymous(
            None,
            PAGE_LEN,
            ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
            MapFlags::MAP_SHARED,
        )
    }?;
    // SAFETY: the page was just mapped, is writable and one byte fits.
    unsafe { page.cast::<u8>().write(HLT) };
    let region = kvm_userspace_memory_region {
        slot: 0,
        flags: 0,
        guest_phys_addr: 0,
        memory_size: PAGE_LEN.get() as u64,
        userspace_addr: page.as_ptr() as u64,
    };
    // SAFETY: the page stays mapped until after the VM's last use below.
    unsafe { vm.set_user_memory_region(region) }.context("KVM takes no memory for a VM")?;
    let mut vcpu = vm.create_vcpu(0).context("KVM makes no virtual CPU")?;
    let mut segments = vcpu.get_sregs().context("KVM tells no registers")?;
    segments.cs.base = 0;
    segments.cs.selector = 0;
    vcpu.set_sregs(&segments).context("KVM takes no registers")?;
    let mut registers = vcpu.get_regs().context("KVM tells no registers")?;
    registers.rip = 0;
    registers.rflags = 2;
    vcpu.set_regs(&registers).context("KVM takes no registers")?;
    let halted = matches!(vcpu.run().context("KVM does not run the VM")?, VcpuExit::Hlt);
    drop((vcpu, vm));
    // SAFETY: mapped above with this length; the VM that used it is gone.
    unsafe { munmap(page, PAGE_LEN.get()) }?;
    ensure!(halted, "the VM did not halt");
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_answers_instead_of_panicking() {
        if let Err(error) = super::run() {
            assert!(!format!("{error:#}").contains('\n'));
        }
    }
}
