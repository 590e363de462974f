// SPDX-License-Identifier: GPL-2.0-only
//! The release of the kernel that runs.

use crate::files;
use std::path::Path;

/// The running kernel's: 7.3.4 of `7.3.4+deb14-amd64`, and 7.4.0 of `7.4-rc1`; 0.0.0 where it is not known.
pub fn version(root: &Path) -> (u32, u32, u32) {
    let release = files::kernel(&root.join("proc/sys/kernel/osrelease")).unwrap_or_default();
    let plain = release.split(|c: char| c != '.' && !c.is_ascii_digit()).next().unwrap_or_default();
    let mut numbers = plain.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next())
}
