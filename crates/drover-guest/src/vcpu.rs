// SPDX-License-Identifier: GPL-2.0-only
//! One thread, one vCPU: enter the guest again and again until told to stop.

use crate::layout::PANIC_PORT;
use kvm_ioctls::{VcpuExit, VcpuFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Acquire;

/// Why a vCPU's thread came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// It was told to.
    Stopped,
    /// The guest cannot go on: one line for the user.
    Fault(String),
}

/// Runs the vCPU until `stop` is set and the thread is kicked out of the guest by a signal.
pub(crate) fn run_until_stopped(vcpu: &mut VcpuFd, stop: &AtomicBool) -> End {
    while !stop.load(Acquire) {
        let reason = match vcpu.run() {
            Ok(VcpuExit::Intr) => continue,
            Ok(exit) => describe(&exit),
            Err(error) if matches!(error.errno(), libc::EINTR | libc::EAGAIN) => continue,
            Err(error) => format!("KVM cannot run it: {error}"),
        };
        return End::Fault(reason);
    }
    End::Stopped
}

/// What an exit means that a guest of ours never causes on a sound host.
fn describe(exit: &VcpuExit<'_>) -> String {
    match exit {
        VcpuExit::IoOut(PANIC_PORT, data) => {
            let vector = data.first().copied().unwrap_or_default();
            format!("the guest met exception {vector}: report this as a bug of drover")
        }
        VcpuExit::FailEntry(reason, _) => format!(
            "the CPU refused to enter the guest (reason {reason:#x}): \
             nested virtualisation may be broken here"
        ),
        VcpuExit::InternalError => "KVM met an internal error: the kernel log may say more".into(),
        VcpuExit::Shutdown => "the guest triple-faulted: report this as a bug of drover".into(),
        other => format!("unexpected exit {other:?}: report this as a bug of drover"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_say_in_one_line_what_happened() {
        assert!(describe(&VcpuExit::IoOut(PANIC_PORT, &[14, 0, 0, 0])).contains("exception 14"));
        assert!(describe(&VcpuExit::FailEntry(0x80000021, 0)).contains("0x80000021"));
        for exit in [VcpuExit::Shutdown, VcpuExit::InternalError, VcpuExit::Hlt] {
            assert_eq!(describe(&exit).lines().count(), 1);
        }
    }
}
