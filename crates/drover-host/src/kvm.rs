// SPDX-License-Identifier: GPL-2.0-only
//! Does the kernel describe KVM's vCPUs? By that the scheduler finds VMs.
//!
//! The loader looks up `struct kvm_vcpu` once, when the scheduler is loaded: in the kernel's own types,
//! where some kernels have it, and in those of loaded modules. A module that comes later is too late. So
//! KVM's module is loaded first. Its first half, `kvm`, loads on any CPU, and has the type.

use std::fs;
use std::path::Path;
use std::process::Command;

use libbpf_rs::btf::{Btf, types::Struct};

/// See to it that vCPUs are described; if that cannot be, say so: host tasks are scheduled all the same.
pub fn make_known() {
    let root = Path::new("/");
    if is_known(root) {
        return;
    }
    let said = match Command::new("modprobe").arg("kvm").output() {
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; "),
        Err(err) => format!("modprobe: {err}"),
    };
    if !is_known(root) {
        tracing::warn!(
            "no VM will be found: KVM is not loaded and `modprobe kvm` did not load it ({said}); load \
             kvm-intel or kvm-amd, then start drover again"
        );
    }
}

/// Are they described now? `root`: the file system's.
pub fn is_known(root: &Path) -> bool {
    // Built in it is listed there, too.
    fs::exists(root.join("sys/module/kvm")).unwrap_or(false)
        || Btf::from_path(root.join("sys/kernel/btf/vmlinux"))
            .is_ok_and(|btf| btf.type_by_name::<Struct<'_>>("kvm_vcpu").is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loaded_module_or_the_kernel_itself_describes_vcpus() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_known(dir.path()));
        fs::create_dir_all(dir.path().join("sys/kernel/btf")).unwrap();
        fs::write(dir.path().join("sys/kernel/btf/vmlinux"), "no BTF").unwrap();
        assert!(!is_known(dir.path()));
        fs::create_dir_all(dir.path().join("sys/module/kvm")).unwrap();
        assert!(is_known(dir.path()));
    }
}
