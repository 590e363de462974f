// SPDX-License-Identifier: GPL-2.0-only
//! How one daemon takes over from another: the scheduler stays in the kernel while the next one is loaded.
//!
//! Loading takes seconds, to change schedulers some milliseconds. So systemd keeps what holds the scheduler in
//! the kernel (its file descriptor store), and gives it to the daemon it starts next, after an upgrade or a
//! crash. When the unit is stopped, systemd lets go of it, and the scheduler ends.
//!
//! ```text
//! daemon           serves | gone      | loads another ... | serves
//! in the kernel    the first scheduler ....................| the second
//! ```
//!
//! Elsewhere than under systemd nobody keeps it: the scheduler ends with its daemon.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use sd_notify::NotifyState;

/// What systemd calls what it keeps for us.
const NAME: &str = "scheduler";

/// A scheduler that is in the kernel still, of a daemon that is gone.
#[derive(Debug)]
pub struct Predecessor(OwnedFd);

impl Predecessor {
    /// What systemd kept. For once, at the start of the program: the descriptor is owned from then on.
    pub fn take() -> Option<Self> {
        let mut kept = sd_notify::listen_fds_with_names().ok()?;
        let (fd, _) = kept.find(|(_, name)| name == NAME)?;
        // SAFETY: systemd opened it for this process, and nobody else here asks for it.
        Some(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Ends it: every task is the kernel's own scheduler's on return.
    pub fn end(self) {
        end(self.0.as_fd());
    }
}

/// Ends a scheduler, whoever keeps it: every task is the kernel's own scheduler's on return.
pub fn end(link: BorrowedFd<'_>) {
    // SAFETY: the descriptor is open. One that has ended already, thrown out, is refused, which is as well.
    unsafe { libbpf_rs::libbpf_sys::bpf_link_detach(link.as_raw_fd()) };
    tell(&[NotifyState::FdStoreRemove, NotifyState::FdName(NAME)], &[]);
}

/// Has systemd keep the scheduler for the daemon after this one.
pub fn keep(link: BorrowedFd<'_>) {
    tell(&[NotifyState::FdStore, NotifyState::FdName(NAME)], &[link]);
}

fn tell(state: &[NotifyState<'_>], fds: &[BorrowedFd<'_>]) {
    if let Err(err) = sd_notify::notify_with_fds(state, fds) {
        tracing::warn!(
            "the service manager does not keep the scheduler for the next daemon: {err}"
        );
    }
}
