// SPDX-License-Identifier: GPL-2.0-only
//! What becomes of a command whose output is read no further, as by `head`.

use nix::sys::signal::{SigHandler, Signal, signal};

/// From here on it ends at once, and says nothing of it, as commands do: for those that only tell, or have nothing under
/// way any more. Rust has writing fail instead, and `print!` panic.
pub fn end_with_reader() {
    // SAFETY: sets the kernel's own way, so no function of ours is called.
    let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) };
}
