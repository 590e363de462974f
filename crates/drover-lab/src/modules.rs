// SPDX-License-Identifier: GPL-2.0-only
//! Kernel modules: found below a modules directory, unpacked, and put in the order they load in.
//!
//! Packages carry no `modules.dep` (depmod writes it when a kernel is installed, and ours never is), so the
//! dependencies are read from the modules themselves: each has a `depends=` entry in its `.modinfo`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// What the lab loads, as far as the kernel has it as a module. One of the two KVM vendors' modules fits
/// the CPU, the other refuses to load, which [`crate::init`] takes as normal.
pub const WANTED: [&str; 4] = ["virtio_pci", "virtio_console", "kvm_amd", "kvm_intel"];

/// What the lab loads when its Linux guests are to have a network.
pub const WANTED_FOR_NETWORK: [&str; 3] = ["bridge", "tun", "vhost_net"];

/// What the lab loads when its Linux guests are to have disks.
pub const WANTED_FOR_DISKS: [&str; 1] = ["null_blk"];

/// What a Linux guest in it loads: for its disk.
pub const WANTED_BY_GUESTS: [&str; 2] = ["virtio_pci", "virtio_blk"];

/// What such a guest loads when it has a network.
pub const WANTED_BY_GUESTS_FOR_NETWORK: [&str; 1] = ["virtio_net"];

/// A module, uncompressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its name with underscores, as `lsmod` prints it.
    pub name: String,
    /// The ELF file.
    pub data: Vec<u8>,
}

/// The wanted modules and what they depend on, each after what it needs. Modules the kernel does not have
/// are left out, because they may be built in; what is needed by a module that is there must be there.
///
/// # Errors
/// When the directory cannot be read, a module cannot be unpacked or a dependency is missing.
pub fn collect(modules_dir: &Path, wanted: &[&str]) -> Result<Vec<Module>> {
    let files = find(modules_dir)?;
    let mut ordered = Vec::new();
    for name in wanted.iter().filter(|name| files.contains_key(**name)) {
        add_with_dependencies(name, &files, &mut ordered, 0)?;
    }
    Ok(ordered)
}

/// Deeper chains than this are a loop in a broken module.
const MAX_DEPTH: usize = 16;

fn add_with_dependencies(
    name: &str,
    files: &BTreeMap<String, PathBuf>,
    ordered: &mut Vec<Module>,
    depth: usize,
) -> Result<()> {
    if ordered.iter().any(|module| module.name == name) {
        return Ok(());
    }
    ensure!(depth < MAX_DEPTH, "kernel module {name} depends on itself");
    let path = files.get(name).with_context(|| format!("kernel module {name} is missing"))?;
    let data = unpacked(path)?;
    for dependency in dependencies(&data) {
        add_with_dependencies(&dependency, files, ordered, depth + 1)?;
    }
    ordered.push(Module { name: name.to_owned(), data });
    Ok(())
}

/// All module files below a directory, by name.
fn find(modules_dir: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut files = BTreeMap::new();
    let mut pending = vec![modules_dir.to_owned()];
    while let Some(dir) = pending.pop() {
        let entries =
            fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))?;
        for entry in entries {
            let entry = entry?;
            let path = entry.path();
            // `build` and `source` are links out of the tree, so links are not followed.
            if entry.file_type()?.is_dir() {
                pending.push(path);
            } else if let Some(name) = module_name(&path) {
                files.insert(name, path);
            }
        }
    }
    Ok(files)
}

/// `kvm_amd` for `.../kvm-amd.ko.xz`.
fn module_name(path: &Path) -> Option<String> {
    let (stem, suffix) = path.file_name()?.to_str()?.split_once(".ko")?;
    matches!(suffix, "" | ".xz" | ".zst" | ".gz").then(|| stem.replace('-', "_"))
}

/// A module file's content, unpacked when it is packed.
fn unpacked(path: &Path) -> Result<Vec<u8>> {
    let tools: &[&[&str]] = match path.extension().and_then(|e| e.to_str()) {
        Some("xz") => &[&["xz", "-dc"], &["busybox", "xz", "-dc"]],
        Some("gz") => &[&["gzip", "-dc"], &["busybox", "gzip", "-dc"]],
        Some("zst") => &[&["zstd", "-dcq"]],
        _ => return fs::read(path).with_context(|| format!("cannot read {}", path.display())),
    };
    for tool in tools {
        if let Ok(result) = Command::new(tool[0]).args(&tool[1..]).arg(path).output() {
            ensure!(result.status.success(), "{} cannot unpack {}", tool[0], path.display());
            return Ok(result.stdout);
        }
    }
    bail!("cannot unpack {}: install the package of `{}`", path.display(), tools[0][0])
}

/// The names in a module's `depends=` entry.
fn dependencies(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let value = module[at + KEY.len()..].split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(value)
        .split(',')
        .filter(|name| !name.is_empty())
        .map(|name| name.replace('-', "_"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(modules: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("kernel/arch")).unwrap();
        for (file, depends) in modules {
            let data = format!("\x7fELF\0license=GPL\0depends={depends}\0name=x\0");
            fs::write(dir.path().join("kernel/arch").join(file), data).unwrap();
        }
        dir
    }

    fn names(dir: &tempfile::TempDir, wanted: &[&str]) -> Vec<String> {
        collect(dir.path(), wanted).unwrap().into_iter().map(|module| module.name).collect()
    }

    #[test]
    fn modules_follow_what_they_need() {
        let dir = tree(&[
            ("kvm-amd.ko", "kvm,ccp"),
            ("kvm.ko", "irqbypass"),
            ("irqbypass.ko", ""),
            ("ccp.ko", ""),
        ]);
        assert_eq!(names(&dir, &["kvm_amd"]), ["irqbypass", "kvm", "ccp", "kvm_amd"]);
    }

    #[test]
    fn built_in_modules_are_left_out() {
        let dir = tree(&[("kvm.ko", "")]);
        assert_eq!(names(&dir, &["virtio_console", "kvm"]), ["kvm"]);
    }

    #[test]
    fn a_missing_dependency_is_named() {
        let dir = tree(&[("kvm.ko", "irqbypass")]);
        let message = collect(dir.path(), &["kvm"]).unwrap_err().to_string();
        assert_eq!(message, "kernel module irqbypass is missing");
    }

    #[test]
    fn a_loop_ends_in_an_error() {
        let dir = tree(&[("a.ko", "b"), ("b.ko", "a")]);
        assert!(collect(dir.path(), &["a"]).unwrap_err().to_string().contains("depends on itself"));
    }

    #[test]
    fn packed_modules_are_unpacked() {
        let dir = tree(&[("kvm.ko", "")]);
        let path = dir.path().join("kernel/arch/kvm.ko");
        assert!(Command::new("gzip").arg(&path).status().unwrap().success());
        let module = &collect(dir.path(), &["kvm"]).unwrap()[0];
        assert!(module.data.starts_with(b"\x7fELF"));
    }

    #[test]
    fn file_names_give_module_names() {
        assert_eq!(module_name(Path::new("/x/kvm-amd.ko.xz")).unwrap(), "kvm_amd");
        assert_eq!(module_name(Path::new("/x/kvm.ko.sig")), None);
        assert_eq!(module_name(Path::new("/x/modules.dep")), None);
    }
}
