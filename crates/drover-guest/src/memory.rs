// SPDX-License-Identifier: GPL-2.0-only
//! A micro VM's memory: code, page tables and stacks, before the first instruction.

use crate::config::Touched;
use crate::layout;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

/// The guest's code, built from guest/ by build.rs: a flat image, entry first.
pub(crate) const GUEST_CODE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/guest.bin"));

/// Present, writable, and for an entry of the last level used here: a 2 MiB page.
const PAGE_RIGHTS: u64 = 0x3;
const PAGE_2_MIB: u64 = 0x80;
const TABLE_BYTES: u64 = 4096;
const TABLE_ENTRIES: u64 = 512;

/// RAM of one VM: private memory, paid for only where touched.
#[derive(Debug)]
pub(crate) struct GuestMemory {
    start: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: plain memory of this process, unmapped on drop only.
unsafe impl Send for GuestMemory {}

impl GuestMemory {
    /// Memory for `vcpus` vCPUs, with code and page tables in place.
    pub(crate) fn new(vcpus: u32, touched: Touched) -> io::Result<Self> {
        let needed = layout::STACKS_ADDRESS + u64::from(vcpus) * layout::STACK_BYTES;
        let touched_bytes = u64::from(touched.mib) << 20;
        let bytes = needed.max(touched_bytes).min(layout::STATS_ADDRESS) as usize;
        let length = NonZeroUsize::new(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        let rights = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping touches no other memory.
        let start = unsafe { mmap_anonymous(None, length, rights, flags) }?;
        let mut memory = Self { start, bytes };
        if let Some(node) = touched.node {
            memory.prefer(node)?;
        }
        memory.touch(touched_bytes.min(bytes as u64));
        assert!(GUEST_CODE.len() as u64 <= layout::CODE_END - layout::CODE_ADDRESS);
        memory.write(layout::CODE_ADDRESS, GUEST_CODE);
        memory.write_page_tables();
        Ok(memory)
    }

    /// What is touched from now on lies on that node if it can; it may be moved.
    fn prefer(&self, node: u32) -> io::Result<()> {
        let node = node as usize;
        let mut mask = vec![0u64; node / 64 + 1];
        mask[node / 64] = 1 << (node % 64);
        // The kernel takes one bit less than it is told of.
        let bits = 64 * mask.len() + 1;
        let (start, mode) = (self.start.as_ptr(), libc::MPOL_PREFERRED);
        // SAFETY: the mapping is ours, `mask` has as many bits as are named.
        let done = unsafe {
            libc::syscall(libc::SYS_mbind, start, self.bytes, mode, mask.as_ptr(), bits, 0)
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// So many bytes from the beginning on are there.
    fn touch(&mut self, bytes: u64) {
        const PAGE_BYTES: u64 = 4096;
        for page in 0..bytes / PAGE_BYTES {
            self.write(page * PAGE_BYTES, &[0]);
        }
    }

    /// Where the mapping begins, for a memory slot of the VM.
    pub(crate) fn host_address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Its length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first GiB, each address mapped to itself by one table of 2 MiB pages.
    fn write_page_tables(&mut self) {
        let level_4 = layout::PAGE_TABLES_ADDRESS;
        let (level_3, level_2) = (level_4 + TABLE_BYTES, level_4 + 2 * TABLE_BYTES);
        self.write(level_4, &(level_3 | PAGE_RIGHTS).to_le_bytes());
        self.write(level_3, &(level_2 | PAGE_RIGHTS).to_le_bytes());
        for entry in 0..TABLE_ENTRIES {
            let page = (entry << 21) | PAGE_2_MIB | PAGE_RIGHTS;
            self.write(level_2 + entry * 8, &page.to_le_bytes());
        }
    }

    fn write(&mut self, guest_address: u64, content: &[u8]) {
        let offset = guest_address as usize;
        assert!(offset + content.len() <= self.bytes, "outside guest memory: {guest_address:#x}");
        // SAFETY: inside the mapping by the assertion; no vCPU runs yet, so nobody else writes, and
        // `content` is Rust's own memory, which the mapping cannot overlap.
        unsafe {
            let target = self.start.cast::<u8>().byte_add(offset);
            target.copy_from_nonoverlapping(NonNull::from(content).cast(), content.len());
        }
    }

    #[cfg(test)]
    fn read_u64(&self, guest_address: u64) -> u64 {
        assert!(guest_address as usize + 8 <= self.bytes);
        // SAFETY: inside the mapping by the assertion; test addresses are multiples of 8.
        unsafe { self.start.cast::<u8>().byte_add(guest_address as usize).cast::<u64>().read() }
    }
}

impl Drop for GuestMemory {
    fn drop(&mut self) {
        // SAFETY: this very mapping; the VM that had it as a slot is dropped before (see vm.rs).
        let unmapped = unsafe { munmap(self.start, self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(memory: &GuestMemory, address: u64) -> u64 {
        let entry = |table: u64, shift: u32| {
            let value = memory.read_u64(table + ((address >> shift) % TABLE_ENTRIES) * 8);
            assert_eq!(value & PAGE_RIGHTS, PAGE_RIGHTS, "{address:#x} is mapped");
            value & !0xfff
        };
        let level_3 = entry(layout::PAGE_TABLES_ADDRESS, 39);
        let page = entry(entry(level_3, 30), 21);
        page + address % (2 << 20)
    }

    #[test]
    fn every_address_the_guest_uses_is_mapped_to_itself() {
        let memory = GuestMemory::new(256, Touched::default()).unwrap();
        for address in [
            layout::CODE_ADDRESS,
            layout::STEAL_ADDRESS + 255 * layout::STEAL_RECORD_BYTES,
            layout::STACKS_ADDRESS + 256 * layout::STACK_BYTES - 8,
            layout::STATS_ADDRESS,
            layout::STATS_ADDRESS + layout::stats_bytes(256) as u64 - 8,
        ] {
            assert_eq!(walk(&memory, address), address);
        }
    }

    #[test]
    fn the_code_starts_with_its_entry() {
        let lgdt_rip_relative = [0x0f, 0x01, 0x15];
        assert_eq!(GUEST_CODE[..3], lgdt_rip_relative);
        let memory = GuestMemory::new(1, Touched::default()).unwrap();
        assert_eq!(memory.read_u64(layout::CODE_ADDRESS).to_le_bytes()[..3], lgdt_rip_relative);
    }
}
