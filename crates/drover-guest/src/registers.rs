// SPDX-License-Identifier: GPL-2.0-only
//! The state a vCPU starts in: 64-bit mode, its own stack, its index in rdi.
//!
//! Every vCPU starts this way, by its registers alone: no firmware, no INIT and SIPI. The tables
//! interrupts go through are set by the guest itself (guest/boot.S).

use crate::layout;
use kvm_bindings::{CpuId, kvm_msr_entry, kvm_regs, kvm_segment, kvm_sregs};

const CR0_PE: u64 = 1;
const CR0_MP: u64 = 1 << 1;
const CR0_ET: u64 = 1 << 4;
const CR0_NE: u64 = 1 << 5;
const CR0_WP: u64 = 1 << 16;
const CR0_PG: u64 = 1 << 31;
const CR4_PAE: u64 = 1 << 5;
const EFER_LME: u64 = 1 << 8;
const EFER_LMA: u64 = 1 << 10;
const APIC_BASE_X2APIC: u64 = 1 << 10;
const APIC_BASE_ENABLE: u64 = 1 << 11;
const RFLAGS_ALWAYS_1: u64 = 1 << 1;

const SEGMENT_CODE: u8 = 0xb;
const SEGMENT_DATA: u8 = 0x3;

const LEAF_FEATURES: u32 = 1;
const ECX_X2APIC: u32 = 1 << 21;
const ECX_TSC_DEADLINE: u32 = 1 << 24;

const MSR_KVM_STEAL_TIME: u32 = 0x4b56_4d03;
const STEAL_TIME_ENABLE: u64 = 1;

/// General registers of vCPU `index` at its first instruction.
pub(crate) fn general(index: u32) -> kvm_regs {
    let stack_top = layout::STACKS_ADDRESS + u64::from(index + 1) * layout::STACK_BYTES;
    kvm_regs {
        rip: layout::CODE_ADDRESS,
        rsp: stack_top,
        rdi: index.into(),
        rflags: RFLAGS_ALWAYS_1,
        ..Default::default()
    }
}

/// Turns the reset state KVM gives a vCPU into 64-bit mode with the page tables of memory.rs.
pub(crate) fn enter_long_mode(sregs: &mut kvm_sregs) {
    sregs.cs = segment(0x08, SEGMENT_CODE);
    let data = segment(0x10, SEGMENT_DATA);
    (sregs.ds, sregs.es, sregs.fs, sregs.gs, sregs.ss) = (data, data, data, data, data);
    sregs.cr0 = CR0_PE | CR0_MP | CR0_ET | CR0_NE | CR0_WP | CR0_PG;
    sregs.cr3 = layout::PAGE_TABLES_ADDRESS;
    sregs.cr4 = CR4_PAE;
    sregs.efer = EFER_LME | EFER_LMA;
    // By MSR rather than by memory: an exit on an MSR costs no instruction decoding.
    sregs.apic_base |= APIC_BASE_ENABLE | APIC_BASE_X2APIC;
}

fn segment(selector: u16, type_: u8) -> kvm_segment {
    let code = type_ == SEGMENT_CODE;
    kvm_segment {
        base: 0,
        limit: u32::MAX,
        selector,
        type_,
        present: 1,
        dpl: 0,
        db: u8::from(!code),
        s: 1,
        l: u8::from(code),
        g: 1,
        ..Default::default()
    }
}

/// Adds what the guest relies on and KVM emulates whether or not the CPU has it.
pub(crate) fn complete_cpuid(cpuid: &mut CpuId, tsc_deadline: bool) {
    for entry in cpuid.as_mut_slice() {
        if entry.function == LEAF_FEATURES {
            entry.ecx |= ECX_X2APIC;
            entry.ecx = if tsc_deadline {
                entry.ecx | ECX_TSC_DEADLINE
            } else {
                entry.ecx & !ECX_TSC_DEADLINE
            };
        }
    }
}

/// The MSR by which KVM keeps vCPU `index` told of the time its host gave to others.
pub(crate) fn steal_time(index: u32) -> kvm_msr_entry {
    let record = layout::STEAL_ADDRESS + u64::from(index) * layout::STEAL_RECORD_BYTES;
    kvm_msr_entry {
        index: MSR_KVM_STEAL_TIME,
        data: record | STEAL_TIME_ENABLE,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvm_bindings::kvm_cpuid_entry2;

    #[test]
    fn stacks_are_apart_and_records_aligned() {
        assert_eq!(general(0).rsp, layout::STACKS_ADDRESS + layout::STACK_BYTES);
        assert_eq!(general(1).rsp - general(0).rsp, layout::STACK_BYTES);
        assert_eq!(general(7).rdi, 7);
        assert_eq!(steal_time(3).data % 64, 1, "an aligned record, and the enable bit");
    }

    #[test]
    fn only_code_is_64_bit() {
        let mut sregs = kvm_sregs { apic_base: 0xfee0_0000, ..Default::default() };
        enter_long_mode(&mut sregs);
        assert_eq!((sregs.cs.l, sregs.cs.db), (1, 0));
        assert_eq!((sregs.ss.l, sregs.ss.db), (0, 1));
        assert_eq!(sregs.apic_base, 0xfee0_0c00);
        assert_ne!(sregs.cr0 & CR0_PG, 0);
    }

    #[test]
    fn the_timer_mode_in_cpuid_is_the_one_chosen() {
        let leaf = kvm_cpuid_entry2 { function: LEAF_FEATURES, ..Default::default() };
        let other = kvm_cpuid_entry2 { function: 7, ..Default::default() };
        let mut cpuid = CpuId::from_entries(&[leaf, other]).unwrap();
        complete_cpuid(&mut cpuid, true);
        assert_eq!(cpuid.as_slice()[0].ecx, ECX_X2APIC | ECX_TSC_DEADLINE);
        complete_cpuid(&mut cpuid, false);
        assert_eq!(cpuid.as_slice()[0].ecx, ECX_X2APIC);
        assert_eq!(cpuid.as_slice()[1].ecx, 0);
    }
}
