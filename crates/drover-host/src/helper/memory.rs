// SPDX-License-Identifier: GPL-2.0-only
//! Where memory of processes lies: what the kernel is asked for it, and moved by it.

use std::ffi::c_void;
use std::io;
use std::ptr;

/// A list of mappings that is longer is not read: one is 100 bytes, a VMM has some hundreds, and a process may have a
/// million. Where the memory of such a VM lies is not known then, which is said, and it is not moved.
pub const MAPS_MAX: usize = 16 << 20;

/// Pages that only this process has (MPOL_MF_MOVE of linux/mempolicy.h, which libc does not have).
const MOVE: libc::c_int = 2;

/// move_pages(2): what it says of each page. With nodes, one for each, they are moved.
pub fn call_move_pages(pid: u32, pages: &[u64], nodes: Option<&[i32]>) -> io::Result<Vec<i32>> {
    if nodes.is_some_and(|nodes| nodes.len() != pages.len()) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut status = vec![-1; pages.len()];
    let nodes = nodes.map_or(ptr::null(), <[i32]>::as_ptr);
    let addresses: Vec<*const c_void> =
        pages.iter().map(|&page| ptr::without_provenance(page as usize)).collect();
    let pid = libc::c_long::from(pid);
    // SAFETY: the three arrays have `pages.len()` items, or `nodes` is null; addresses are of another
    // process and are not followed here.
    let done = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid,
            pages.len(),
            addresses.as_ptr(),
            nodes,
            status.as_mut_ptr(),
            MOVE,
        )
    };
    // Above 0: so many pages could not be moved.
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(status) }
}
