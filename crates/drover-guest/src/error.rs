// SPDX-License-Identifier: GPL-2.0-only
//! Why a guest could not be run or read: each error is one line with what, where and the fix.

use std::io;
use std::path::PathBuf;

/// Why a guest could not be run, or its counters not be read.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// The number of vCPUs is out of range.
    #[error("VM {name}: {asked} vCPUs asked for: a VM has 1 to {max} here")]
    VcpuCount {
        /// The VM.
        name: String,
        /// vCPUs asked for.
        asked: u32,
        /// The most there may be.
        max: u32,
    },
    /// The workload is a program of a Linux guest.
    #[error("VM {name}: a micro VM cannot run commands: use vmm = \"qemu\" for kind = \"command\"")]
    NeedsLinux {
        /// The VM.
        name: String,
    },
    /// The workload is a program of the simulator's guests.
    #[error("VM {name}: a micro VM cannot run kind = \"program\": use drover run --on sim")]
    NeedsSimulator {
        /// The VM.
        name: String,
    },
    /// A loop speed of 0 was given.
    #[error("VM {name}: the work loop's speed is 0: give loops per ms, or leave it out")]
    ZeroSpeed {
        /// The VM.
        name: String,
    },
    /// There is no KVM here.
    #[error(
        "/dev/kvm is not there: load kvm_intel or kvm_amd (modprobe), with virtualisation switched \
         on in the firmware or, in a VM, with nested virtualisation"
    )]
    NoKvm,
    /// KVM is here, but not for this user.
    #[error("/dev/kvm: permission denied: run as root or as a member of the group kvm")]
    KvmDenied,
    /// KVM is here, but cannot be opened now.
    #[error("/dev/kvm: cannot be opened: {source}")]
    OpenKvm {
        /// The system's reason.
        source: io::Error,
    },
    /// KVM lacks something the guest needs.
    #[error("this kernel's KVM lacks {0}: a newer kernel has it")]
    KvmLacks(&'static str),
    /// A request to KVM failed.
    #[error("VM {name}: KVM refused to {what}: {source}")]
    Kvm {
        /// The VM.
        name: String,
        /// What was asked of KVM, as in "refused to ...".
        what: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A vCPU stopped for a reason the guest has none for.
    #[error("VM {name}, vCPU {vcpu}: {reason}")]
    Fault {
        /// The VM.
        name: String,
        /// The vCPU.
        vcpu: u32,
        /// What happened, and what to do about it.
        reason: String,
    },
    /// A system call of the VMM failed.
    #[error("VM {name}: cannot {what}: {source}")]
    System {
        /// The VM.
        name: String,
        /// What was tried.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The file of counters could not be made, opened or mapped.
    #[error("{}: cannot {what} the VM's counters: {source}", path.display())]
    StatsFile {
        /// The file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// What a Linux guest prints could not be read.
    #[error("{}: cannot read what the VM prints: {source}", path.display())]
    Console {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The program of a Linux guest has ended when it should be at work.
    #[error(
        "{}: the VM's command ended with status {status}, its last words \"{last_line}\": \
         fix `run` in the scenario, so that it runs until the VM is stopped", path.display()
    )]
    CommandEnded {
        /// The file that holds all it printed.
        path: PathBuf,
        /// Its exit status.
        status: i32,
        /// The last line it printed.
        last_line: String,
    },
    /// The file holds no counters, or none yet.
    #[error("{}: {why}", path.display())]
    NoStats {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

impl GuestError {
    /// The error for `/dev/kvm` itself, from the error number of opening it.
    pub(crate) fn opening_kvm(error: kvm_ioctls::Error) -> Self {
        match error.errno() {
            libc::ENOENT | libc::ENODEV | libc::ENXIO => Self::NoKvm,
            libc::EACCES | libc::EPERM => Self::KvmDenied,
            errno => Self::OpenKvm { source: io::Error::from_raw_os_error(errno) },
        }
    }

    /// What turns an error number of KVM into the error of VM `name`, asked to do `what`.
    pub(crate) fn kvm<'a>(
        name: &'a str,
        what: &'a str,
    ) -> impl Fn(kvm_ioctls::Error) -> GuestError + 'a {
        move |error| Self::Kvm {
            name: name.to_owned(),
            what: what.to_owned(),
            source: io::Error::from_raw_os_error(error.errno()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_miss_kvm_names_its_mend() {
        let text = |errno| GuestError::opening_kvm(kvm_ioctls::Error::new(errno)).to_string();
        assert!(text(libc::ENOENT).contains("modprobe"));
        assert!(text(libc::EACCES).contains("group kvm"));
        assert!(text(libc::EMFILE).contains("Too many open files"));
    }

    #[test]
    fn errors_are_one_line() {
        let errors = [
            GuestError::NoKvm,
            GuestError::KvmDenied,
            GuestError::KvmLacks("user memory"),
            GuestError::kvm("vm0", "make a vCPU")(kvm_ioctls::Error::new(libc::ENOMEM)),
        ];
        for error in errors {
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
        }
    }
}
