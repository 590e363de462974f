// SPDX-License-Identifier: GPL-2.0-only
//! A domain's metadata as libvirt writes them.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use drover_host::sources::libvirt;
use libfuzzer_sys::fuzz_target;

/// In memory, and of this process.
static FILE: LazyLock<PathBuf> =
    LazyLock::new(|| format!("/dev/shm/drover-fuzz-{}.xml", std::process::id()).into());

fuzz_target!(|text: &[u8]| {
    std::fs::write(&*FILE, text).expect("there is room in /dev/shm");
    let _ = libvirt::layer(&FILE);
});
