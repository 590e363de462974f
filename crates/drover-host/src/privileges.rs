// SPDX-License-Identifier: GPL-2.0-only
//! What the daemon may still do once the scheduler is loaded.
//!
//! Loading takes CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN. After that programs and maps are reached by file
//! descriptors that are open. What remains: the memory of VMs is looked at (CAP_SYS_PTRACE) and moved
//! (CAP_SYS_NICE). Files are read and written as root's own, which takes no capability.

use anyhow::{Context, Result};
use caps::{CapSet, Capability, CapsHashSet};

/// What is kept.
const KEPT: [Capability; 2] = [Capability::CAP_SYS_NICE, Capability::CAP_SYS_PTRACE];

/// Gives up every other capability for good, of this thread and of those it starts from now on.
///
/// # Errors
/// When the kernel does not let it.
pub fn drop_others() -> Result<()> {
    give_up().context("cannot give up privileges")
}

fn give_up() -> Result<()> {
    let had = caps::read(None, CapSet::Permitted)?;
    let kept: CapsHashSet = KEPT.into_iter().filter(|one| had.contains(one)).collect();
    // To give up what is not in the bounding set takes a capability that is given up below.
    if had.contains(&Capability::CAP_SETPCAP) {
        for one in caps::read(None, CapSet::Bounding)?.difference(&kept) {
            caps::drop(None, CapSet::Bounding, *one)?;
        }
    }
    caps::clear(None, CapSet::Ambient)?;
    caps::set(None, CapSet::Effective, &kept)?;
    caps::set(None, CapSet::Permitted, &kept)?;
    caps::clear(None, CapSet::Inheritable)?;
    nix::sys::prctl::set_no_new_privs()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_what_is_kept_is_left() {
        // Of that thread only.
        let left = std::thread::spawn(|| {
            drop_others().unwrap();
            [CapSet::Permitted, CapSet::Effective, CapSet::Inheritable, CapSet::Ambient]
                .map(|set| caps::read(None, set).unwrap())
        });
        for set in left.join().unwrap() {
            assert!(set.iter().all(|one| KEPT.contains(one)), "{set:?}");
        }
    }
}
