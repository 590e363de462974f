// SPDX-License-Identifier: GPL-2.0-only
//! Who a VM is: what orders, reservations and shares are given to.
//!
//! The machine manager's word goes first, taken from where only root writes: the cgroup that systemd, Proxmox or
//! the kubelet made for the VM, libvirt's file of the running domain, the kubelet's directory of logs. A process'
//! word for itself (`--name web`) counts only where no manager says anything, and what an unprivileged user's
//! process says carries the user: `alice@web` is never `web`.
//!
//! | manager | cgroup | the VM's name |
//! |---|---|---|
//! | libvirt | any; its file of the domain that the command line names has this process | the domain's: `web` |
//! | libvirt | `/machine.slice/machine-qemu\x2d1\x2dweb.scope/...` | the same, as far as systemd's letters go |
//! | OpenStack | as libvirt; the domain's file has `nova:instance` | the instance's UUID |
//! | Proxmox | `/qemu.slice/100.scope` | the VMID: `100` |
//! | Incus | any; the file of its number that the command line names has this process | `web`, or `PROJECT_web` |
//! | KubeVirt | `/kubepods.slice/.../kubepods-burstable-podUID.slice/...` | `NAMESPACE_VMI`, from the pod's logs |
//!
//! Whose a process is was seen by the kernel's part of the scheduler when it found the VM; /proc may say another by now,
//! as of a process that has executed `sudo`.
//!
//! A user can make cgroups of any name in a subtree that was delegated to him, and such a subtree begins at a
//! service or a scope. So a manager's cgroup counts only where all above it are slices, and not the users'.

use crate::files::{self, ENTRIES_MAX};
use crate::sources::libvirt;
use drover_core::printable::{self, LENGTH_MAX};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// No name is longer.
pub const NAME_LENGTH_MAX: usize = LENGTH_MAX;
/// So much of a command line is looked at: names stand near its beginning, and it is as long as its process likes.
const COMMAND_MAX: usize = 64 << 10;
/// So long may the file of users be: some 50,000.
const USERS_MAX: usize = 4 << 20;

/// So long may a file of one number be.
const NUMBER_MAX: usize = 64;

/// Who a VM is, and who says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// What it is called here; never empty.
    pub name: String,
    /// Who says so.
    pub by: Source,
    /// The UUID that the manager knows it by, where that was found.
    pub uuid: Option<String>,
    /// What people call it, where its manager goes by a number: for them to read, not for orders.
    pub label: Option<String>,
    /// The name of the domain, where libvirt keeps one.
    pub domain: Option<String>,
}

/// Who names a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// libvirt: the domain's name.
    Libvirt,
    /// OpenStack's compute service, by way of libvirt: the instance's UUID.
    OpenStack,
    /// Proxmox: the VMID.
    Proxmox,
    /// Incus: the instance's name, after its project's where that is not the default one.
    Incus,
    /// KubeVirt: namespace and name of the virtual machine instance.
    KubeVirt,
    /// Its own process, which root runs.
    Process,
    /// Its own process, which a user runs: the name begins with the user.
    User,
    /// Its own process, which root runs in a container: the name begins with `container`.
    Container,
    /// Its cgroup, of a container: the path.
    Cgroup,
    /// Somebody that this program does not know: it is of another version.
    #[default]
    #[serde(other)]
    Other,
}

impl Source {
    /// Does who manages the host's VMs or cgroups say so, and no process for itself?
    pub fn is_manager(self) -> bool {
        !matches!(self, Source::Process | Source::User | Source::Container | Source::Other)
    }

    /// How people are told.
    pub fn text(self) -> &'static str {
        match self {
            Source::Libvirt => "libvirt's domain",
            Source::OpenStack => "OpenStack's instance",
            Source::Proxmox => "Proxmox' VMID",
            Source::Incus => "Incus' instance",
            Source::KubeVirt => "KubeVirt's instance",
            Source::Process => "its process, which is root's",
            Source::User => "its process, which is a user's",
            Source::Container => "its process, which is root's in a container",
            Source::Cgroup => "its cgroup",
            Source::Other => "somebody this drover does not know",
        }
    }
}

/// Where a host keeps what says who is who.
#[derive(Debug, Clone)]
pub struct Places {
    /// Processes, as `/proc`.
    pub proc: PathBuf,
    /// libvirt's files of running domains.
    pub domains: PathBuf,
    /// Incus' directories of running instances, `PROJECT_NAME`.
    pub instances: PathBuf,
    /// The kubelet's directories of pods, `NAMESPACE_POD_UID`.
    pub pods: PathBuf,
    /// The users of the host.
    pub users: PathBuf,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            proc: "/proc".into(),
            domains: libvirt::DIRS[0].into(),
            instances: "/run/incus".into(),
            pods: "/var/log/pods".into(),
            users: "/etc/passwd".into(),
        }
    }
}

/// The name of the VM that process is, never empty, where nobody has seen whose it was when it became one.
pub fn vm_name(tgid: u32) -> String {
    Places::default().identity_now(tgid).name
}

/// What a VM is called while another one has its name: `web-4711`, and in the end another one still.
pub fn with_number(name: &str, number: u32, others: u32) -> String {
    let behind = if others == 0 { format!("-{number}") } else { format!("-{number}-{others}") };
    let before: String = name.chars().take(NAME_LENGTH_MAX - behind.len()).collect();
    before + &behind
}

/// What the host calls that user; the number where it does not say.
pub(crate) fn user_name(uid: u32) -> String {
    Places::default().user(uid).unwrap_or_else(|| uid.to_string())
}

impl Places {
    /// Who the VM is that this process is, if it is its owner's still.
    pub fn identity_now(&self, tgid: u32) -> Identity {
        let owner = self.owner(tgid);
        let args = arguments(&self.proc.join(tgid.to_string()));
        let found = self.identity(tgid, owner.unwrap_or(0), Some(&args));
        // Of one that is gone nobody knows whose word that was.
        match owner {
            None if !found.by.is_manager() => {
                named(self.name_of_process(&[], tgid), Source::Process)
            }
            _ => found,
        }
    }

    /// Who the VM is that this process is, which was that user's when it was found, and was started with that command
    /// line; none: it is not known.
    pub fn identity(&self, tgid: u32, uid: u32, args: Option<&[String]>) -> Identity {
        let dir = self.proc.join(tgid.to_string());
        let cgroup = files::kernel(&dir.join("cgroup")).unwrap_or_default();
        let args = args.unwrap_or_default();
        let path = cgroup.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
        let word = name_from_command(args);
        let mut found = self.of_manager(path, args, tgid).unwrap_or_else(|| {
            let name = word.clone().unwrap_or_else(|| self.name_of_process(args, tgid));
            self.of_process(name, uid, tgid)
        });
        found.name = printable(&found.name);
        found.label = found.label.map(|label| printable(&label)).filter(|it| *it != found.name);
        found
    }

    fn of_manager(&self, path: &str, args: &[String], tgid: u32) -> Option<Identity> {
        let word = name_from_command(args);
        let word = word.as_deref();
        let units: Vec<&str> = path.split('/').filter(|unit| !unit.is_empty()).collect();
        let delegated = units.iter().position(|unit| !is_slice(unit)).unwrap_or(units.len());
        let (slices, rest) = units.split_at(delegated);
        if let Some(pod) = pod_uid(&units, slices.len()) {
            return Some(self.of_pod(&pod));
        }
        if slices.first() == Some(&"user.slice") {
            return None;
        }
        // Wherever that process is: without machined libvirt makes cgroups of its own, and they are moved by hand, too.
        let facts = |domain: &str| {
            let file = libvirt::file(&[&self.domains], domain)?;
            Some(libvirt::facts(&file)).filter(|facts| facts.pid.is_some())
        };
        let of_word = word.and_then(|word| Some((word, facts(word)?)));
        if let Some((domain, facts)) = of_word.filter(|(_, facts)| facts.pid == Some(tgid)) {
            return Some(of_domain(domain, facts));
        }
        if let Some(instance) = self.incus_instance(args, tgid) {
            let label = word.map(str::to_owned);
            return Some(Identity { label, ..named(instance, Source::Incus) });
        }
        let scope = rest.first()?.strip_suffix(".scope")?;
        let scope = scope.replace("\\x2d", "-");
        if let Some(machine) = scope.strip_prefix("machine-qemu-") {
            // `1-web`: systemd knows a domain by its number and its name without letters that a host name may not have.
            let domain = machine.split_once('-').map_or(machine, |(_, name)| name);
            let facts = facts(domain).unwrap_or_default();
            // Or that domain is another one.
            return facts.pid.is_none_or(|pid| pid == tgid).then(|| of_domain(domain, facts));
        }
        let vmid = slices == ["qemu.slice"] && scope.bytes().all(|byte| byte.is_ascii_digit());
        let label = word.map(str::to_owned);
        vmid.then_some(Identity { label, ..named(scope, Source::Proxmox) })
    }

    /// What Incus calls the instance of that process: the directory of its file of the process' number.
    fn incus_instance(&self, args: &[String], tgid: u32) -> Option<String> {
        let file = args.iter().skip_while(|arg| *arg != "-pidfile").nth(1)?;
        let dir = Path::new(file).strip_prefix(&self.instances).ok()?.parent()?;
        let name = dir.to_str().filter(|name| !name.is_empty() && !name.contains(['/', '.']))?;
        let number = files::text(&self.instances.join(name).join("qemu.pid"), NUMBER_MAX).ok()?;
        (number.trim().parse() == Ok(tgid)).then(|| name.to_owned())
    }

    /// KubeVirt runs each VM in a pod `virt-launcher-VMI-xxxxx`; other pods are called as they are.
    fn of_pod(&self, uid: &str) -> Identity {
        let dirs = files::entries(&self.pods, ENTRIES_MAX);
        let suffix = format!("_{uid}");
        let mut pods = dirs
            .filter_map(|dir| Some(dir.file_name().to_str()?.strip_suffix(&suffix)?.to_owned()));
        let name = match pods.next().as_deref().and_then(|pod| pod.split_once('_')) {
            Some((namespace, pod)) => format!("{namespace}_{}", vmi_of_pod(pod)),
            None => format!("pod-{uid}"),
        };
        Identity { uuid: Some(uid.to_owned()), ..named(name, Source::KubeVirt) }
    }

    /// A name of a process' own choice; a user's carries the user, and that of root in a container what the host's own
    /// root never has.
    fn of_process(&self, name: String, uid: u32, tgid: u32) -> Identity {
        if uid == 0 {
            return match self.is_in_container(tgid) {
                true => named(format!("container@{name}"), Source::Container),
                false => named(name, Source::Process),
            };
        }
        let user = self.user(uid).unwrap_or_else(|| uid.to_string());
        named(format!("{user}@{name}"), Source::User)
    }

    /// Has the process a number of its own in a PID namespace below the host's? It never leaves that.
    fn is_in_container(&self, tgid: u32) -> bool {
        let status = files::kernel(&self.proc.join(tgid.to_string()).join("status"));
        let status = status.unwrap_or_default();
        files::field(&status, "NSpid:").is_some_and(|all| all.split_whitespace().count() > 1)
    }

    /// The user whose process that is now.
    pub fn owner(&self, tgid: u32) -> Option<u32> {
        let status = files::kernel(&self.proc.join(tgid.to_string()).join("status")).ok()?;
        let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        uids.split_whitespace().next()?.parse().ok()
    }

    /// By what it was started as; where that is not known, by what it calls itself.
    fn name_of_process(&self, args: &[String], tgid: u32) -> String {
        let program = args.first().and_then(|arg| arg.rsplit('/').next()).map(str::to_owned);
        let comm = || files::kernel(&self.proc.join(tgid.to_string()).join("comm")).ok();
        let program = program.or_else(|| Some(comm()?.trim().to_owned()));
        let program = program.filter(|program| !program.is_empty());
        format!("{}-{tgid}", program.as_deref().unwrap_or("vm"))
    }

    /// The user's name as the host's own file has it: asking a directory service could take forever.
    fn user(&self, uid: u32) -> Option<String> {
        let users = files::text(&self.users, USERS_MAX).ok()?;
        let name = |line: &str| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
        };
        let is_told_apart =
            |name: &String| !name.is_empty() && !name.contains('@') && name != "container";
        users.lines().find_map(name).filter(is_told_apart)
    }
}

/// A VM of that name, and no more known of it.
pub(crate) fn named(name: impl Into<String>, by: Source) -> Identity {
    Identity { name: name.into(), by, uuid: None, label: None, domain: None }
}

/// A domain of libvirt's of that name.
fn of_domain(domain: &str, facts: libvirt::Facts) -> Identity {
    let libvirt::Facts { uuid, nova_name, .. } = facts;
    let mut found = match (&nova_name, &uuid) {
        (Some(_), Some(uuid)) => named(uuid.clone(), Source::OpenStack),
        _ => named(domain, Source::Libvirt),
    };
    (found.label, found.uuid, found.domain) = (nova_name, uuid, Some(domain.to_owned()));
    found
}

/// A cgroup that only systemd, or a kubelet without it, makes.
fn is_slice(unit: &str) -> bool {
    unit.ends_with(".slice")
}

/// The UID of the pod that cgroup is of: `kubepods-burstable-pod1234_5678.slice`, or `kubepods/burstable/pod1234-5678`.
fn pod_uid(units: &[&str], slices: usize) -> Option<String> {
    let uid = match *units.first()? {
        "kubepods" => units.iter().take(3).find_map(|unit| unit.strip_prefix("pod"))?.to_owned(),
        "kubepods.slice" => units[..slices].iter().find_map(|unit| {
            let (_, uid) = unit.strip_suffix(".slice")?.split_once("-pod")?;
            Some(uid.replace('_', "-"))
        })?,
        _ => return None,
    };
    let fits = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    (!uid.is_empty() && uid.bytes().all(fits)).then_some(uid)
}

/// `virt-launcher-shop-x7k2p` runs the instance `shop`.
fn vmi_of_pod(pod: &str) -> &str {
    let vmi = pod.strip_prefix("virt-launcher-").and_then(|rest| rest.rsplit_once('-'));
    vmi.map_or(pod, |(vmi, _)| vmi)
}

/// The arguments of that process, as far as they are looked at; `dir` is its directory in /proc. May wait for it.
pub(crate) fn arguments(dir: &Path) -> Vec<String> {
    arguments_of(&command_line(dir).unwrap_or_default())
}

/// Its command line, as far as it is looked at. May wait for it.
pub(crate) fn command_line(dir: &Path) -> std::io::Result<Vec<u8>> {
    let (mut line, is_cut) = files::head(&dir.join("cmdline"), COMMAND_MAX)?;
    if is_cut {
        // Half of a name would be another's.
        line.truncate(line.iter().rposition(|&byte| byte == 0).unwrap_or(0));
    }
    Ok(line)
}

/// The arguments in a command line.
pub(crate) fn arguments_of(line: &[u8]) -> Vec<String> {
    let args = line.split(|&byte| byte == 0).filter(|arg| !arg.is_empty());
    args.map(|arg| String::from_utf8_lossy(arg).into_owned()).collect()
}

/// Whether a VM could be called that.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && printable(name) == name
}

/// Anybody who may run a VM chooses its name, and root's terminal shows it.
fn printable(name: &str) -> String {
    printable::printable(name).chars().take(NAME_LENGTH_MAX).collect()
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

#[cfg(test)]
mod tests;
