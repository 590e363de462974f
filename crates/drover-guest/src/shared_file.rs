// SPDX-License-Identifier: GPL-2.0-only
//! The mapped file that a micro VM, its VMM and observers share. See guest/layout.h.

use crate::GuestError;
use crate::layout::{self, Control, Vcpu};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::num::NonZeroUsize;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// A whole stats file, mapped to be read and written.
#[derive(Debug)]
pub(crate) struct SharedFile {
    start: NonNull<c_void>,
    bytes: usize,
    vcpus: u32,
}

// SAFETY: the mapping lives until drop whatever thread holds it, and is only ever seen as atomics.
unsafe impl Send for SharedFile {}
// SAFETY: as above: shared access is by atomic operations alone.
unsafe impl Sync for SharedFile {}

impl SharedFile {
    /// Makes the file of a VM with `vcpus` vCPUs, all zero. An older file of that name is unlinked,
    /// not overwritten: who still reads it keeps what it has.
    pub(crate) fn create(path: &Path, vcpus: u32) -> Result<Self, GuestError> {
        let bytes = layout::stats_bytes(vcpus);
        let make = || {
            match fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let options = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(path)?;
            options.set_len(bytes as u64)?;
            Self::map(&options, bytes, vcpus)
        };
        make().map_err(stats_error(path, "make the file of"))
    }

    /// Maps the file of a VM that has filled in its control page.
    pub(crate) fn open(path: &Path) -> Result<Self, GuestError> {
        let no_stats = |why: &str| GuestError::NoStats { path: path.into(), why: why.to_owned() };
        let (file, bytes) = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .and_then(|file| file.metadata().map(|data| (file, data.len() as usize)))
            .map_err(stats_error(path, "open"))?;
        if bytes < layout::stats_bytes(1) {
            return Err(no_stats("no counters of a micro VM: the file is too short"));
        }
        let mut shared = Self::map(&file, bytes, 0).map_err(stats_error(path, "map"))?;
        let control = shared.control();
        match control.magic.load(Acquire) {
            layout::MAGIC => {}
            0 => return Err(no_stats("the VM has not filled in its counters yet: try again")),
            _ => return Err(no_stats("no counters of a micro VM")),
        }
        let (version, vcpus) = (control.version.load(Relaxed), control.vcpus.load(Relaxed));
        if version != layout::VERSION {
            return Err(no_stats("counters of another version of drover: use the same for both"));
        }
        if vcpus == 0 || layout::stats_bytes(vcpus) != bytes {
            return Err(no_stats("damaged: its size is not that of the VM it names"));
        }
        shared.vcpus = vcpus;
        Ok(shared)
    }

    fn map(file: &File, bytes: usize, vcpus: u32) -> io::Result<Self> {
        let length = NonZeroUsize::new(bytes).ok_or(ErrorKind::InvalidInput)?;
        let rights = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping of a file that is ours to map; no other memory is touched.
        let start = unsafe { mmap(None, length, rights, MapFlags::MAP_SHARED, file, 0) }?;
        Ok(Self { start, bytes, vcpus })
    }

    /// Where the mapping begins, for the memory slot of a VM.
    pub(crate) fn host_address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Its length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of vCPUs it has records of.
    pub(crate) fn vcpus(&self) -> u32 {
        self.vcpus
    }

    /// The control page.
    pub(crate) fn control(&self) -> &Control {
        // SAFETY: the mapping is page-aligned, longer than a Control, lives as long as self; all
        // fields are atomics, for which any bits are valid and others may write at any time.
        unsafe { self.start.cast::<Control>().as_ref() }
    }

    /// The record of vCPU `index`.
    pub(crate) fn vcpu(&self, index: u32) -> &Vcpu {
        assert!(index < self.vcpus, "the VM has {} vCPUs, not vCPU {index}", self.vcpus);
        let offset = layout::CONTROL_BYTES + index as usize * size_of::<Vcpu>();
        assert!(offset + size_of::<Vcpu>() <= self.bytes);
        // SAFETY: inside the mapping by the assertion above, aligned because the control page and the
        // record are multiples of 64 bytes; atomics as in control().
        unsafe { self.start.byte_add(offset).cast::<Vcpu>().as_ref() }
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        // SAFETY: this very mapping, and every reference into it borrowed self.
        let unmapped = unsafe { munmap(self.start, self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

fn stats_error(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> GuestError {
    let path = path.to_owned();
    move |source| GuestError::StatsFile { path, what, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Release;

    fn finish(file: &SharedFile, vcpus: u32) {
        file.control().version.store(layout::VERSION, Relaxed);
        file.control().vcpus.store(vcpus, Relaxed);
        file.control().magic.store(layout::MAGIC, Release);
    }

    #[test]
    fn what_one_mapping_writes_another_reads() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stats");
        let writer = SharedFile::create(&path, 3).unwrap();
        finish(&writer, 3);
        let reader = SharedFile::open(&path).unwrap();
        writer.vcpu(2).progress.store(17, Relaxed);
        assert_eq!(reader.vcpus(), 3);
        assert_eq!(reader.vcpu(2).progress.load(Relaxed), 17);
        assert_eq!(reader.vcpu(1).progress.load(Relaxed), 0);
    }

    #[test]
    fn files_that_hold_no_counters_are_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stats");
        let refusal = || SharedFile::open(&path).unwrap_err().to_string();
        assert!(refusal().contains("No such file"), "{}", refusal());
        fs::write(&path, "short").unwrap();
        assert!(refusal().contains("too short"), "{}", refusal());
        fs::write(&path, vec![7; 1 << 16]).unwrap();
        assert!(refusal().contains("no counters of a micro VM"), "{}", refusal());
        let file = SharedFile::create(&path, 1).unwrap();
        assert!(refusal().contains("not filled in"), "{}", refusal());
        finish(&file, 200);
        assert!(refusal().contains("damaged"), "{}", refusal());
        finish(&file, 1);
        file.control().version.store(99, Relaxed);
        assert!(refusal().contains("another version"), "{}", refusal());
    }

    #[test]
    fn a_new_file_does_not_disturb_who_reads_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stats");
        let old = SharedFile::create(&path, 1).unwrap();
        old.vcpu(0).progress.store(5, Relaxed);
        let new = SharedFile::create(&path, 1).unwrap();
        assert_eq!(old.vcpu(0).progress.load(Relaxed), 5);
        assert_eq!(new.vcpu(0).progress.load(Relaxed), 0);
    }
}
