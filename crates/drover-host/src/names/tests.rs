// SPDX-License-Identifier: GPL-2.0-only
//! Names, with cgroups and command lines as the managers write them.

use super::*;
use std::fs;

/// A host with one VM process, 7.
struct Host(tempfile::TempDir, Places, u32);

impl Host {
    /// The process is in `cgroup`, was found as user `uid`'s, started as `command`.
    fn with(cgroup: &str, uid: u32, command: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let [proc, domains, instances, pods, users] =
            ["proc", "domains", "incus", "pods", "passwd"].map(|it| dir.path().join(it));
        let host = Self(dir, Places { proc, domains, instances, pods, users }, uid);
        host.write("proc/7/cgroup", &format!("0::{cgroup}\n"));
        host.write("proc/7/status", &format!("Name:\tqemu\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n"));
        host.write("proc/7/cmdline", &command.replace(' ', "\0"));
        host.write(
            "passwd",
            "root:x:0:0:root:/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n",
        );
        host
    }

    fn write(&self, path: &str, text: &str) -> &Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn identity(&self) -> Identity {
        self.1.identity(7, self.2, Some(&arguments(&self.0.path().join("proc/7"))))
    }
}

/// Name and source of the process in `cgroup`, of user `uid`, started as `command`.
fn who(cgroup: &str, uid: u32, command: &str) -> (String, Source) {
    let found = Host::with(cgroup, uid, command).identity();
    (found.name, found.by)
}

const LIBVIRT: &str = "/machine.slice/machine-qemu\\x2d1\\x2dweb\\x2d2.scope/libvirt/emulator";

#[test]
fn libvirts_word_goes_before_the_process_own() {
    let command = |name: &str| {
        format!("/usr/bin/qemu-system-x86_64 -name guest={name},debug-threads=on -uuid 0")
    };
    assert_eq!(who(LIBVIRT, 107, &command("web-2")), ("web-2".into(), Source::Libvirt));
    assert_eq!(who(LIBVIRT, 107, &command("bank")), ("web-2".into(), Source::Libvirt));
    let nested = "/machine.slice/machine-production.slice/machine-qemu\\x2d3\\x2ddb.scope/libvirt";
    assert_eq!(who(nested, 107, "qemu-system-x86_64"), ("db".into(), Source::Libvirt));
}

#[test]
fn the_whole_name_is_taken_where_libvirt_bears_it_out() {
    let scope = "/machine.slice/machine-qemu\\x2d12\\x2dmyshop.scope/libvirt";
    let host = Host::with(scope, 107, "qemu-system-x86_64 -name guest=my_shop,debug-threads=on");
    assert_eq!(host.identity().name, "myshop", "systemd takes no underscores");
    let file =
        |pid| format!("<domstatus pid='{pid}'><domain><name>my_shop</name></domain></domstatus>");
    host.write("domains/my_shop.xml", &file(8));
    assert_eq!(host.identity().name, "myshop", "that domain is another process");
    // Another domain is called so.
    host.write("domains/myshop.xml", &file(9));
    let found = host.identity();
    assert_eq!((found.name.as_str(), found.by, found.domain), ("107@my_shop", Source::User, None));
    host.write("domains/my_shop.xml", &file(7));
    assert_eq!(host.identity().name, "my_shop");
}

#[test]
fn a_domain_is_known_wherever_its_process_is_but_in_users_cgroups() {
    let file =
        "<domstatus pid='7'><domain><name>a--b</name><uuid>ab-12</uuid></domain></domstatus>";
    for cgroup in [
        "/machine/qemu-1-a--b.libvirt-qemu/libvirt",
        "/machine.slice/machine-qemu\\x2d1\\x2da\\x2db.scope/libvirt",
        "/system.slice/elsewhere",
        "/",
    ] {
        let host = Host::with(cgroup, 107, "qemu-system-x86_64 -name guest=a--b,debug-threads=on");
        host.write("domains/a--b.xml", file);
        let found = host.identity();
        assert_eq!((found.name.as_str(), found.by), ("a--b", Source::Libvirt), "{cgroup}");
        assert_eq!((found.uuid.as_deref(), found.domain.as_deref()), (Some("ab-12"), Some("a--b")));
    }
    // Its number may be another's by now, while libvirt is stopped.
    let session = "/user.slice/user-1000.slice/session-1.scope";
    let host = Host::with(session, 1000, "vmm --name a--b");
    host.write("domains/a--b.xml", file);
    assert_eq!(host.identity().name, "alice@a--b");
}

#[test]
fn openstacks_instance_is_known_by_its_uuid() {
    let scope =
        "/machine.slice/machine-qemu\\x2d3\\x2dinstance\\x2d0000002a.scope/libvirt/emulator";
    let command =
        "/usr/bin/qemu-system-x86_64 -name guest=instance-0000002a,debug-threads=on -uuid ffff";
    let host = Host::with(scope, 107, command);
    assert_eq!(host.identity().name, "instance-0000002a", "without the domain's file");
    let uuid = "c6e1a3f0-5b1c-4f0e-9d58-1f5a8b1d3c11";
    host.write(
        "domains/instance-0000002a.xml",
        &format!(
            "<domstatus state='running' pid='7'><domain type='kvm' id='3'><name>instance-0000002a</name><uuid>{uuid}</uuid><metadata>\
             <nova:instance xmlns:nova='http://openstack.org/xmlns/libvirt/nova/1.1'>\
             <nova:name>shop-1</nova:name></nova:instance></metadata></domain></domstatus>"
        ),
    );
    let found = host.identity();
    assert_eq!((found.name.as_str(), found.by), (uuid, Source::OpenStack));
    assert_eq!(found.label.as_deref(), Some("shop-1"));
    assert_eq!(
        found.domain.as_deref(),
        Some("instance-0000002a"),
        "its metadata are under that name"
    );
}

#[test]
fn a_domains_uuid_is_its_managers() {
    let host = Host::with(LIBVIRT, 107, "qemu-system-x86_64 -uuid not-this-one");
    host.write(
        "domains/web-2.xml",
        "<domstatus state='running' pid='7'><domain><name>web-2</name><uuid>ab-12</uuid></domain></domstatus>",
    );
    let found = host.identity();
    assert_eq!((found.name.as_str(), found.uuid.as_deref()), ("web-2", Some("ab-12")));
}

#[test]
fn proxmox_knows_vms_by_number() {
    let command = "/usr/bin/kvm -id 100 -name web,debug-threads=on -no-shutdown";
    let found = Host::with("/qemu.slice/100.scope", 0, command).identity();
    assert_eq!(
        (found.name.as_str(), found.by, found.label.as_deref()),
        ("100", Source::Proxmox, Some("web"))
    );
    let liar = "/usr/bin/kvm -id 101 -name bank";
    assert_eq!(who("/qemu.slice/100.scope", 0, liar), ("100".into(), Source::Proxmox));
}

/// The command line is from Incus' source (internal/server/instance/drivers/driver_qemu.go), not from a host with it.
#[test]
fn incus_instances_are_named_by_project() {
    let host = Host::with("/system.slice/incus.service", 998, "");
    let pidfile = host.1.instances.join("shop_web/qemu.pid");
    let command =
        format!("qemu-system-x86_64 -S -name web -daemonize -pidfile {}", pidfile.display());
    host.write("proc/7/cmdline", &command.replace(' ', "\0"));
    assert_eq!(host.identity().name, "998@web", "its file is not there");
    host.write("incus/shop_web/qemu.pid", "8\n");
    assert_eq!(host.identity().name, "998@web", "it is another process'");
    host.write("incus/shop_web/qemu.pid", "7\n");
    let found = host.identity();
    assert_eq!((found.name.as_str(), found.by), ("shop_web", Source::Incus));
    assert_eq!(found.label.as_deref(), Some("web"));
    host.write("proc/7/cgroup", "0::/user.slice/user-998.slice/session-1.scope\n");
    assert_eq!(host.identity().by, Source::User);
}

#[test]
fn kubevirts_instance_is_named_by_its_pod() {
    let uid = "0f3b6d7e-1c2d-4e5f-8a9b-0c1d2e3f4a5b";
    let pod = format!("pod{}", uid.replace('-', "_"));
    let slices = format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-{pod}.slice");
    let by_systemd = format!("{slices}/cri-containerd-9a.scope/machine/qemu-1-shop.libvirt-qemu");
    let by_kubelet = format!("/kubepods/burstable/pod{uid}/9a");
    let command = "/usr/libexec/qemu-kvm -name guest=bank_vault,debug-threads=on -uuid 1";
    for cgroup in [by_systemd, by_kubelet] {
        let host = Host::with(&cgroup, 107, command);
        assert_eq!(host.identity().name, format!("pod-{uid}"), "without the kubelet's directory");
        host.write(&format!("pods/default_virt-launcher-my-shop-x7k2p_{uid}/compute/0.log"), "");
        let found = host.identity();
        assert_eq!((found.name.as_str(), found.by), ("default_my-shop", Source::KubeVirt));
        assert_eq!(found.uuid.as_deref(), Some(uid));
    }
}

#[test]
fn what_a_user_runs_carries_the_user() {
    let session = "/user.slice/user-1000.slice/session-1.scope";
    assert_eq!(
        who(session, 1000, "qemu-system-x86_64 -name web"),
        ("alice@web".into(), Source::User)
    );
    assert_eq!(who(session, 1001, "crosvm run --name=web"), ("1001@web".into(), Source::User));
    assert_eq!(who("/system.slice/fc.service", 1000, "firecracker --id web").0, "alice@web");
    assert_eq!(who("/", 1000, "/usr/bin/vmm").0, "alice@vmm-7");
    assert_eq!(
        who("/user.slice/user-0.slice/session-1.scope", 0, "vmm --name web"),
        ("web".into(), Source::Process)
    );
}

#[test]
fn who_has_executed_sudo_is_still_the_users() {
    let host = Host::with("/user.slice/user-1000.slice/session-1.scope", 1000, "sudo x --name web");
    host.write("proc/7/status", "Name:\tsudo\nUid:\t0\t0\t0\t0\n");
    let found = host.identity();
    assert_eq!((found.name.as_str(), found.by), ("alice@web", Source::User));
    assert_eq!(host.1.identity_now(7).name, "web", "where nobody saw whose it was");
}

#[test]
fn root_in_a_container_has_no_name_that_the_hosts_root_could_have() {
    let host = Host::with("/system.slice/docker-1.scope", 0, "vmm --name web");
    assert_eq!(host.identity().name, "web");
    host.write("proc/7/status", "Name:\tvmm\nUid:\t0\t0\t0\t0\nNSpid:\t7\t1\n");
    let found = host.identity();
    assert_eq!((found.name.as_str(), found.by), ("container@web", Source::Container));
    assert_eq!(host.1.user(4711), None, "and no user is called so");
    host.write("passwd", "container:x:4711:1::/:/bin/sh\n");
    assert_eq!(host.1.user(4711), None);
}

#[test]
fn names_of_others_are_made_different_and_stay_names() {
    assert_eq!(with_number("web", 17, 0), "web-17");
    let long = "x".repeat(NAME_LENGTH_MAX);
    let made = [0, 1, 12].map(|others| with_number(&long, 4_000_000, others));
    assert!(made.iter().all(|name| is_name(name)) && made[0] != made[1] && made[1] != made[2]);
}

#[test]
fn cgroups_of_a_users_own_are_no_managers() {
    let own = "/user.slice/user-1000.slice/user@1000.service";
    for made in [
        format!("{own}/machine.slice/machine-qemu\\x2d1\\x2dbank.scope"),
        format!("{own}/qemu.slice/100.scope"),
        format!("{own}/kubepods.slice/kubepods-pod12.slice/x.scope"),
        "/user.slice/machine-qemu\\x2d1\\x2dbank.scope".to_owned(),
        "/system.slice/docker-1.scope/machine.slice/machine-qemu\\x2d1\\x2dbank.scope".to_owned(),
    ] {
        assert_eq!(
            who(&made, 1000, "qemu -name web"),
            ("alice@web".into(), Source::User),
            "{made}"
        );
    }
}

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
fn without_any_hint_the_process_names_it() {
    let host = Host::with("/", 0, "");
    let name = |args: Option<&[String]>| host.1.identity(7, 0, args).name;
    assert_eq!(name(Some(&["/usr/bin/vmm".into()])), "vmm-7");
    assert_eq!((name(Some(&[])), name(None)), ("vm-7".to_owned(), "vm-7".to_owned()));
    host.write("proc/7/comm", "qemu\n");
    assert_eq!(name(None), "qemu-7", "what it was started as is not known yet");
    assert_eq!(who(LIBVIRT, 107, "").0, "web-2", "a manager's word is known without it");
}

#[test]
fn a_process_that_is_gone_still_has_a_name() {
    assert_eq!(vm_name(u32::MAX), format!("vm-{}", u32::MAX));
}

#[test]
fn of_a_command_line_without_end_the_beginning_counts() {
    let host = Host::with("/", 1000, "vmm --name web");
    let file = host.0.path().join("proc/7/cmdline");
    // As large as prctl(2) lets a process say that it is.
    fs::File::options().write(true).open(&file).unwrap().set_len(8 << 30).unwrap();
    assert_eq!(host.identity().name, "alice@web");
    // Half of a name would be another's.
    for (behind, name) in [(0, "alice@web"), (1, "alice@vmm-7"), (3, "alice@vmm-7")] {
        let long = "x".repeat(COMMAND_MAX - "vmm0x0--name0web".len() + 1 + behind);
        fs::write(&file, format!("vmm\0{long}\0--name\0web")).unwrap();
        assert_eq!(host.identity().name, name, "{behind} behind the end");
    }
}

#[test]
fn a_user_is_told_whatever_his_threads_and_cgroups_are_called() {
    let host = Host::with("/", 1000, "vmm --name web");
    let at = |file: &str| host.0.path().join("proc/7").join(file);
    fs::write(at("status"), b"Name:\t\xff\xfe\nUid:\t1000\t0\t0\t0\nGroups:\t1\n").unwrap();
    fs::write(at("cgroup"), b"0::/user.slice/\xff.scope\n").unwrap();
    assert_eq!((host.identity().name.as_str(), host.identity().by), ("alice@web", Source::User));
}

#[test]
fn a_name_is_letters_only() {
    let name = "a\x1b]0;t\x07\u{9b}2J\u{202e}\u{2028}b";
    let shown = who("/", 0, &format!("vmm --name {name}")).0;
    assert_eq!(shown, "a\u{fffd}]0;t\u{fffd}\u{fffd}2J\u{fffd}\u{fffd}b");
    assert!(is_name(&shown) && !is_name(name));
}
