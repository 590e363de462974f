// SPDX-License-Identifier: GPL-2.0-only
//! The disk of Linux guests: 64 MiB that take everything and give zeros, at once. What its I/O waits for is pCPUs only.
//!
//! In the lab it is a device of the kernel's (null_blk), without the page cache, so that bytes are counted as those of any
//! disk. All guests have the same one, for there is nothing in it. On a host without a lab around it QEMU makes it up
//! (null-co), and nobody counts its bytes.

use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::init::{DISK_MODULES_DIR, load_modules};

const DEVICE: &str = "/dev/nullb0";
/// Who asks is answered at once, and not by an interrupt.
const PARAMETERS: &std::ffi::CStr = c"gb=1 irqmode=0";

/// Where the bytes of a disk go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disk {
    /// To a device of the lab's kernel.
    Device,
    /// Nowhere, says QEMU.
    MadeUp,
}

impl Disk {
    /// As this host has it.
    #[must_use]
    pub fn make() -> Self {
        // In the lab nobody else loads it, and a device of that name elsewhere is somebody's.
        if !Path::new(DISK_MODULES_DIR).exists() {
            return Self::MadeUp;
        }
        load_modules(DISK_MODULES_DIR, "", PARAMETERS);
        let is_device =
            |file: File| file.metadata().is_ok_and(|it| it.file_type().is_block_device());
        match File::open(DEVICE).is_ok_and(is_device) {
            true => Self::Device,
            false => Self::MadeUp,
        }
    }

    /// What QEMU is told of it: it is on an I/O thread of its own.
    pub(crate) fn options(self) -> String {
        let back = match self {
            Self::Device => format!(
                "driver=raw,node-name=disk0,size=67108864,file.driver=host_device,file.filename={DEVICE},\
                 file.cache.direct=on,file.aio=native,file.locking=off"
            ),
            Self::MadeUp => "null-co,node-name=disk0,size=67108864,read-zeroes=on".to_owned(),
        };
        format!(
            "-object iothread,id=io0 -blockdev {back} \
             -device virtio-blk-pci,disable-modern=on,drive=disk0,iothread=io0"
        )
    }
}
