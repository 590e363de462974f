// SPDX-License-Identifier: GPL-2.0-only
//! What the host's cgroups say of a VM: `cpu.weight` and `cpu.max`, as libvirt, Proxmox and systemd
//! write them.
//!
//! The kernel does not enforce either on tasks of a sched_ext scheduler, so Drover does. A VMM's cgroup
//! lies below the slice of its machine manager: `/machine.slice/machine-qemu\x2d1\x2dweb.scope/libvirt`,
//! `/qemu.slice/100.scope`. What counts is what is said below that slice: a weight of 100 is normal, so
//! weights multiply in hundredths on the way down; of limits the lowest holds.
//!
//! Worked example: `batch.slice` below `machine.slice` has weight 50, the scope of a VM in it 200 and
//! `cpu.max` "150000 100000": the VM has 50/100 * 200/100 = 1 times the normal shares, and 150 %.

use drover_core::asked::{Asked, Limit};
use drover_core::resolve::Layer;
use drover_core::shares::{SHARES_MAX, Shares};
use std::fs;
use std::path::{Path, PathBuf};

/// Where cgroups are on every distribution of the last years.
pub const CGROUPS: &str = "/sys/fs/cgroup";
/// The weight of whoever was given none.
const WEIGHT_NORMAL: u64 = 100;
/// Shares of each vCPU at that weight.
const SHARES_NORMAL: u64 = 1000;

/// What cgroups below `root` ask for the VM that process is.
pub fn layers(root: &Path, tgid: u32) -> Vec<Layer> {
    let membership = fs::read_to_string(format!("/proc/{tgid}/cgroup")).unwrap_or_default();
    let path = membership.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
    layers_of(root, path)
}

fn layers_of(root: &Path, path: &str) -> Vec<Layer> {
    let levels = levels(path);
    let weight = levels.iter().filter_map(|level| Some((level, weight(&root.join(level))?)));
    let weights: Vec<(&PathBuf, u64)> =
        weight.filter(|(_, weight)| *weight != WEIGHT_NORMAL).collect();
    let limits = levels.iter().filter_map(|level| Some((level, limit_mcpu(&root.join(level))?)));
    let lowest = limits.min_by_key(|(_, mcpu)| *mcpu);
    let mut layers = Vec::new();
    if let Some((innermost, _)) = weights.last() {
        let each = weights.iter().fold(SHARES_NORMAL * WEIGHT_NORMAL, |each, (_, weight)| {
            // Two of 10,000 in a row are beyond what shares can say.
            (each.saturating_mul(*weight) / WEIGHT_NORMAL)
                .clamp(1, u64::from(SHARES_MAX) * WEIGHT_NORMAL)
        });
        let each = (each / WEIGHT_NORMAL).max(1);
        let shares = u32::try_from(each).ok().map(Shares::PerVcpu);
        let origin = format!("cgroup /{}/cpu.weight", innermost.display());
        layers.push(Layer { origin, asked: Asked { shares, ..Asked::default() } });
    }
    if let Some((level, mcpu)) = lowest {
        let origin = format!("cgroup /{}/cpu.max", level.display());
        let limit = Some(Limit::At(mcpu));
        layers.push(Layer { origin, asked: Asked { limit, ..Asked::default() } });
    }
    layers
}

/// The cgroups on the way from the machine manager's slice, itself left out, to the VM.
fn levels(path: &str) -> Vec<PathBuf> {
    let mut names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
    // libvirt's cgroups for single threads are no part of the way.
    while names.last().is_some_and(|name| is_of_threads(name)) {
        names.pop();
    }
    let first = if names.len() > 1 { 2 } else { 1 };
    (first..=names.len()).map(|count| names[..count].iter().collect()).collect()
}

fn is_of_threads(name: &str) -> bool {
    let numbered = |kind: &str| {
        name.strip_prefix(kind)
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    name == "emulator" || numbered("vcpu") || numbered("iothread")
}

fn weight(dir: &Path) -> Option<u64> {
    let text = fs::read_to_string(dir.join("cpu.weight")).ok()?;
    // 0 is the kernel's word for an idle group.
    text.trim().parse().ok().map(|weight: u64| weight.max(1))
}

/// The limit of a VM's cgroup: its own, or what its vCPUs' cgroups allow together.
fn limit_mcpu(dir: &Path) -> Option<u32> {
    let own = quota_mcpu(&dir.join("cpu.max"));
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let is_vcpu = |name: &str| name.starts_with("vcpu") && is_of_threads(name);
    let vcpus: Vec<PathBuf> = entries
        .filter(|entry| is_vcpu(&entry.file_name().to_string_lossy()))
        .map(|entry| entry.path().join("cpu.max"))
        .collect();
    let of_vcpus: Option<u64> = vcpus.iter().map(|file| quota_mcpu(file).map(u64::from)).sum();
    let of_vcpus = of_vcpus.filter(|_| !vcpus.is_empty()).and_then(|mcpu| mcpu.try_into().ok());
    own.into_iter().chain(of_vcpus).min()
}

/// `50000 100000` (us of CPU time in each period of us) is half a pCPU; `max` is no limit.
fn quota_mcpu(file: &Path) -> Option<u32> {
    let text = fs::read_to_string(file).ok()?;
    let mut words = text.split_whitespace();
    let quota_us: u64 = words.next()?.parse().ok()?;
    let period_us: u64 = words.next()?.parse().ok().filter(|period_us| *period_us > 0)?;
    u32::try_from(quota_us.saturating_mul(1000) / period_us).ok().map(|mcpu| mcpu.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_core::asked::Key;

    fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    fn said(files: &[(&str, &str)], path: &str) -> Vec<(String, String)> {
        let root = host(files);
        let text = |layer: Layer| {
            let value = Key::ALL.into_iter().find_map(|key| layer.asked.text(key)).unwrap();
            (value, layer.origin)
        };
        layers_of(root.path(), path).into_iter().map(text).collect()
    }

    #[test]
    fn the_worked_example_of_the_header_holds() {
        let scope = "machine.slice/batch.slice/vm.scope";
        let found = said(
            &[
                ("machine.slice/cpu.weight", "10\n"),
                ("machine.slice/batch.slice/cpu.weight", "50\n"),
                (&format!("{scope}/cpu.weight"), "200\n"),
                (&format!("{scope}/cpu.max"), "150000 100000\n"),
            ],
            &format!("/{scope}"),
        );
        assert_eq!(found[0], ("normal".into(), format!("cgroup /{scope}/cpu.weight")));
        assert_eq!(found[1], ("150%".into(), format!("cgroup /{scope}/cpu.max")));
    }

    #[test]
    fn what_was_never_touched_asks_nothing() {
        let files = [
            ("qemu.slice/100.scope/cpu.weight", "100"),
            ("qemu.slice/100.scope/cpu.max", "max 100000"),
        ];
        assert!(said(&files, "/qemu.slice/100.scope").is_empty());
        assert!(said(&[], "/").is_empty() && said(&[], "").is_empty());
        assert!(said(&[], "/gone.slice/gone.scope").is_empty());
    }

    #[test]
    fn libvirts_cgroups_of_threads_count_as_their_vm() {
        let scope = "machine.slice/machine-qemu\\x2d1\\x2dweb.scope";
        let found = said(
            &[
                (&format!("{scope}/cpu.weight"), "250"),
                (&format!("{scope}/libvirt/cpu.weight"), "100"),
                (&format!("{scope}/libvirt/emulator/cpu.max"), "1000 100000"),
                (&format!("{scope}/libvirt/vcpu0/cpu.max"), "50000 100000"),
                (&format!("{scope}/libvirt/vcpu1/cpu.max"), "25000 100000"),
            ],
            &format!("/{scope}/libvirt/emulator"),
        );
        assert_eq!(found[0].0, "2500/vcpu");
        assert_eq!(found[1], ("75%".into(), format!("cgroup /{scope}/libvirt/cpu.max")));
    }

    #[test]
    fn the_lowest_limit_on_the_way_holds_and_extremes_stay_in_range() {
        let found = said(
            &[
                ("a/b/cpu.max", "100000 100000"),
                ("a/b/c/cpu.max", "400000 100000"),
                ("a/b/cpu.weight", "10000"),
                ("a/b/c/cpu.weight", "10000"),
            ],
            "/a/b/c",
        );
        assert_eq!(found[0].0, "1000000/vcpu");
        assert_eq!(found[1], ("100%".into(), "cgroup /a/b/cpu.max".into()));
        assert_eq!(said(&[("vm/cpu.weight", "0")], "/vm")[0].0, "10/vcpu", "idle is the least");
        assert!(said(&[("vm/cpu.max", "50000 0"), ("vm/cpu.weight", "x")], "/vm").is_empty());
    }
}
