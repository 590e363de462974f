// SPDX-License-Identifier: GPL-2.0-only
//! What a VM is called: from its VMM's command line, else its cgroup, else its process.

use std::fs;

/// No name is longer.
const NAME_LENGTH_MAX: usize = 255;

/// The name of the VM that process is, never empty.
pub fn vm_name(tgid: u32) -> String {
    let cmdline = fs::read(format!("/proc/{tgid}/cmdline")).unwrap_or_default();
    let cgroup = fs::read_to_string(format!("/proc/{tgid}/cgroup")).unwrap_or_default();
    let args: Vec<String> = cmdline
        .split(|&byte| byte == 0)
        .filter(|arg| !arg.is_empty())
        .map(|arg| String::from_utf8_lossy(arg).into_owned())
        .collect();
    let name = name_from_command(&args)
        .or_else(|| name_from_cgroup(&cgroup))
        .unwrap_or_else(|| name_from_process(&args, tgid));
    printable(&name)
}

/// Anybody who may run a VM chooses its name, and root's terminal shows it.
fn printable(name: &str) -> String {
    let printed =
        |letter: char| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter };
    name.chars().map(printed).take(NAME_LENGTH_MAX).collect()
}

/// The options by which VMMs are told a VM's name: QEMU and kvmtool, Firecracker, crosvm.
const NAME_OPTIONS: [&str; 4] = ["-name", "--name", "--id", "-id"];

fn name_from_command(args: &[String]) -> Option<String> {
    for option in NAME_OPTIONS {
        for (i, arg) in args.iter().enumerate().skip(1) {
            let value = if arg == option {
                args.get(i + 1).map(String::as_str)
            } else {
                arg.strip_prefix(option).and_then(|rest| rest.strip_prefix('='))
            };
            if let Some(name) = value.and_then(plain_name) {
                return Some(name);
            }
        }
    }
    None
}

/// QEMU allows `guest=NAME,debug-threads=on` and plain `NAME,process=...`.
fn plain_name(value: &str) -> Option<String> {
    let by_key = value.split(',').find_map(|part| part.strip_prefix("guest="));
    let name = by_key.or_else(|| value.split(',').next()).unwrap_or("");
    (!name.is_empty() && !name.starts_with('-')).then(|| name.to_owned())
}

/// libvirt: `machine-qemu\x2d1\x2dweb.scope`; Proxmox: `qemu.slice/100.scope`.
fn name_from_cgroup(cgroup: &str) -> Option<String> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::"))?;
    for unit in path.split('/').rev() {
        let Some(stem) = unit.strip_suffix(".scope") else { continue };
        let stem = stem.replace("\\x2d", "-");
        if let Some(rest) = stem.strip_prefix("machine-qemu-") {
            let name = rest.split_once('-').map_or(rest, |(_, name)| name);
            return Some(name.to_owned());
        }
        if path.contains("qemu.slice") {
            return Some(stem);
        }
    }
    None
}

fn name_from_process(args: &[String], tgid: u32) -> String {
    let program = args.first().and_then(|arg| arg.rsplit('/').next()).unwrap_or("vm");
    format!("{program}-{tgid}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_command(line: &str) -> Option<String> {
        name_from_command(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn what_a_terminal_would_obey_is_not_in_a_name() {
        assert_eq!(printable("web\u{1b}[2J\n"), "web\u{fffd}[2J\u{fffd}");
        assert_eq!(printable(&"x".repeat(200_000)).len(), NAME_LENGTH_MAX);
    }

    #[test]
    fn vmms_are_understood() {
        for (line, name) in [
            ("qemu-system-x86_64 -name guest=web,debug-threads=on -m 1G", "web"),
            ("qemu-system-x86_64 -name web,process=x", "web"),
            ("kvm -id 100 -name db1 -smp 4", "db1"),
            ("firecracker --id fc7 --api-sock /s", "fc7"),
            ("crosvm run --name=cr", "cr"),
            ("drover guest --name vm0 --vcpus 4", "vm0"),
        ] {
            assert_eq!(from_command(line).as_deref(), Some(name), "{line}");
        }
        assert_eq!(from_command("qemu-system-x86_64 -m 1G"), None);
    }

    #[test]
    fn an_option_is_no_name() {
        assert_eq!(from_command("vmm --name --other"), None);
        assert_eq!(from_command("vmm --name"), None);
    }

    #[test]
    fn managers_scopes_are_understood() {
        let libvirt = "0::/machine.slice/machine-qemu\\x2d1\\x2dweb\\x2d2.scope/libvirt/emulator\n";
        assert_eq!(name_from_cgroup(libvirt).as_deref(), Some("web-2"));
        assert_eq!(name_from_cgroup("0::/qemu.slice/100.scope\n").as_deref(), Some("100"));
        assert_eq!(name_from_cgroup("0::/user.slice/session-1.scope\n"), None);
    }

    #[test]
    fn without_any_hint_the_process_names_it() {
        assert_eq!(name_from_process(&["/usr/bin/vmm".into()], 7), "vmm-7");
        assert_eq!(name_from_process(&[], 7), "vm-7");
    }

    #[test]
    fn a_process_that_is_gone_still_has_a_name() {
        assert_eq!(vm_name(u32::MAX), format!("vm-{}", u32::MAX));
    }
}
