// SPDX-License-Identifier: GPL-2.0-only
//! The VMs and containers on this host: what each is called and what its host says of it.

use crate::helper::{Helper, Op};
use crate::kernel::{KernelVcpu, KernelVm};
use crate::names::{Identity, Places, Source, arguments, arguments_of, named, with_number};
use crate::sources::cgroup;
use crate::sources::cgroup_tree::CgroupTree;
use crate::sources::libvirt;
use crate::topology::{cpus_of_thread, online_list};
use drover_core::cpu_list::CpuList;
use drover_core::resolve::Layer;
use drover_core::tree::Affinity;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime};

/// How often metadata of a VM are looked at.
const SOURCE_INTERVAL: Duration = Duration::from_millis(500);
/// How often the vCPU threads of a VM that were confined or freed are asked where they may run: each is a
/// file to read, and its user may do so all the time.
const AFFINITY_INTERVAL: Duration = Duration::from_secs(1);
/// When so many vCPUs were asked at a look, other VMs wait for the next.
const ASKED_AT_ONCE: u32 = 512;

/// A VM, or a container, the daemon has met.
#[derive(Debug)]
pub struct Vm {
    /// As the kernel saw it last.
    pub kernel: KernelVm,
    /// What it is called: the name in `identity`, unless another one has it.
    pub name: String,
    /// Who it is, and who says so.
    pub identity: Identity,
    /// Where its vCPU threads may run,
    affinity: Affinity,
    /// and what the kernel counted when they were asked last.
    affinity_seen: u32,
    /// The pCPUs that were online when they last were told something else: the kernel names no others.
    online: Option<CpuList>,
    /// Whether its command line is known, which `identity` follows from.
    command: Command,
    /// If it does not come, it is asked for again after so long.
    asked_after: Duration,
    /// Another one, of the same owner, has the name in `identity`.
    limited_as_holder: bool,
    /// What its cgroups ask.
    cgroup: Vec<Layer>,
    /// What libvirt's metadata ask.
    libvirt: Metadata,
}

/// Metadata of a VM, and when the file it is from was last written.
#[derive(Debug, Default)]
struct Metadata {
    stamp: Option<(PathBuf, SystemTime)>,
    layer: Option<Layer>,
}

impl Vm {
    /// What the host itself says of it: below the configuration file, and above it.
    pub fn layers(&self) -> (&[Layer], Option<&Layer>) {
        (&self.cgroup, self.libvirt.layer.as_ref().filter(|_| self.has_its_name()))
    }

    /// Is it called what it is to be called, and no other is?
    pub fn has_its_name(&self) -> bool {
        self.name == self.identity.name
    }

    /// The name of another VM of its owner's that it would have if that one were not here: a limit for it is for both.
    pub fn limited_as(&self) -> Option<&str> {
        self.limited_as_holder.then_some(&self.identity.name)
    }

    /// The pCPUs its vCPUs may run on, as they were told last.
    pub fn affinity(&self) -> &Affinity {
        &self.affinity
    }

    /// Is it confined to the same pCPUs as when that was so? Of those that came or went since, and since it was
    /// asked, neither counts.
    pub fn is_confined_as(&self, before: &Affinity, online: &CpuList) -> bool {
        let both = match &self.online {
            Some(then) => online.common(then).unwrap_or_else(|| online.clone()),
            None => online.clone(),
        };
        self.affinity.is_same_on(before, &both)
    }

    /// A VM as a test wants it.
    #[cfg(test)]
    pub fn for_test(kernel: KernelVm, name: &str, cgroup: Vec<Layer>) -> Self {
        Self { cgroup, ..Self::new(kernel, named(name, Source::Process)) }
    }

    /// Another VM has that name, which it would have.
    #[cfg(test)]
    pub fn be_second_of(&mut self, name: &str) {
        name.clone_into(&mut self.identity.name);
        self.limited_as_holder = true;
    }

    /// A VM where a test wants it.
    #[cfg(test)]
    pub fn confine(&mut self, affinity: Affinity) {
        self.affinity = affinity;
    }

    fn new(kernel: KernelVm, identity: Identity) -> Self {
        let (affinity, cgroup, libvirt) = (Affinity::ANYWHERE, Vec::new(), Metadata::default());
        let name = identity.name.clone();
        let affinity_seen = kernel.affinity_changes;
        Self {
            kernel,
            name,
            identity,
            affinity,
            affinity_seen,
            online: None,
            command: Command::Known,
            asked_after: COMMAND_AGAIN,
            limited_as_holder: false,
            cgroup,
            libvirt,
        }
    }

    /// Was any of its threads confined, or freed, since they were asked last?
    fn was_moved(&self) -> bool {
        self.kernel.affinity_changes != self.affinity_seen
    }

    /// Asks where it may run; whether that is elsewhere than before.
    fn look_at_affinity(&mut self, vcpus_of: VcpusOf) -> bool {
        self.affinity_seen = self.kernel.affinity_changes;
        let affinity = if self.is_container() {
            cgroup::cpus(&self.identity.name).map(Affinity::within)
        } else {
            affinity_of(&self.kernel, vcpus_of)
        };
        // Of one that just left nothing is known any more.
        let Some(affinity) = affinity else { return false };
        if affinity == self.affinity {
            return false;
        }
        self.affinity = affinity;
        self.online = online_list().ok();
        true
    }

    /// Is it no VM, but a cgroup that is scheduled as one?
    pub fn is_container(&self) -> bool {
        self.kernel.cgroup != 0
    }

    /// Was it said that it was found? That waits for its name.
    fn was_told(&self) -> bool {
        self.command == Command::Known || self.asked_after > COMMAND_AGAIN
    }

    /// Takes what was read of its command line; whether it is called else for that.
    fn take_command(&mut self, read: io::Result<Vec<u8>>, now: Instant) -> bool {
        let gone = [libc::ENOENT, libc::ESRCH].map(Some);
        // As it is while another program is executed.
        let is_empty = || io::Error::other("it is empty");
        let read = read.and_then(|line| if line.is_empty() { Err(is_empty()) } else { Ok(line) });
        let did_not_come = || io::Error::other("it did not come in time");
        let is_late = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
        let read = read.map_err(|error| if is_late(&error) { did_not_come() } else { error });
        let args = match read {
            Ok(line) => arguments_of(&line),
            Err(error) if gone.contains(&error.raw_os_error()) => Vec::new(),
            // So many are under way.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.command = Command::Unknown(now + COMMANDS_WAIT);
                return false;
            }
            Err(error) => {
                let after = self.asked_after;
                if after == COMMAND_AGAIN {
                    tell_found(self);
                    tracing::warn!(
                        "{} has kept its command line to itself ({error}): what it calls itself is asked again",
                        self.name
                    );
                }
                self.asked_after = (2 * after).min(COMMAND_AGAIN_MOST);
                self.command = Command::Unknown(now + after);
                return false;
            }
        };
        let was_told = self.was_told();
        self.command = Command::Known;
        let before = std::mem::replace(
            &mut self.identity,
            Places::default().identity(self.kernel.tgid, self.kernel.uid, Some(&args)),
        );
        let is_else = self.identity != before;
        if is_else {
            let name = std::mem::replace(&mut self.name, self.identity.name.clone());
            self.look_at_metadata();
            if was_told {
                tracing::info!("VM {name} is called {}{}", self.name, pid(&self.kernel));
            }
        }
        if !was_told {
            tell_found(self);
        }
        is_else
    }

    fn look_at_cgroups(&mut self, tree: &CgroupTree) {
        let layers = match self.is_container() {
            true => tree.containers.get(&self.kernel.cgroup).map(|it| &it.layers),
            false => tree.vms.get(&self.kernel.tgid),
        };
        self.cgroup = layers.cloned().unwrap_or_default();
    }

    fn look_at_metadata(&mut self) -> bool {
        let (dirs, domain) = (libvirt::DIRS.map(Path::new), self.identity.domain.as_deref());
        domain.is_some_and(|domain| self.libvirt.look(&dirs, domain))
    }
}

impl Metadata {
    /// Reads the file if it was written since; whether it asks something else now.
    fn look(&mut self, dirs: &[&Path], name: &str) -> bool {
        let file = libvirt::file(dirs, name);
        let stamp = file.and_then(|file| {
            let written = file.metadata().and_then(|meta| meta.modified()).ok()?;
            Some((file, written))
        });
        if stamp == self.stamp {
            return false;
        }
        self.stamp = stamp;
        let layer = match &self.stamp {
            None => None,
            Some((file, _)) => match libvirt::layer(file) {
                Ok(layer) => layer,
                Err(fault) => {
                    tracing::warn!("{fault}; what it said before still counts");
                    return false;
                }
            },
        };
        let changed = layer != self.layer;
        self.layer = layer;
        changed
    }
}

/// What people are told it is.
fn kind(vm: &KernelVm) -> &'static str {
    if vm.cgroup == 0 { "VM" } else { "container" }
}

fn pid(vm: &KernelVm) -> String {
    if vm.cgroup == 0 { format!(" (pid {})", vm.tgid) } else { String::new() }
}

impl Commands {
    /// Asks for those that are due; whether there were any, and whether any is under way.
    fn ask(&self, vms: &mut [Vm], now: Instant) -> (bool, bool) {
        let mut any = false;
        let mut of_users: HashMap<u32, usize> = HashMap::new();
        let asked = vms.iter().filter(|vm| vm.command == Command::Asked);
        asked.for_each(|vm| *of_users.entry(vm.kernel.uid).or_default() += 1);
        for vm in vms {
            let Command::Unknown(again) = vm.command else { continue };
            let of_user = of_users.entry(vm.kernel.uid).or_default();
            if again > now || *of_user >= COMMANDS_OF_USER {
                continue;
            }
            *of_user += 1;
            any = true;
            vm.command = Command::Asked;
            let (id, tell) = (vm.kernel.id, self.tell.clone());
            self.helper.names.begin(
                Op::CommandLine,
                vm.kernel.tgid,
                Default::default(),
                move |it| {
                    // The daemon ends.
                    let _ = tell.send((id, it));
                },
            );
        }
        (any, of_users.values().any(|count| *count > 0))
    }
}

fn tell_found(vm: &Vm) {
    tracing::info!("{} {} found{}", kind(&vm.kernel), vm.name, pid(&vm.kernel));
}

/// The VM is called that from now on. Of several that would have one name the first says so for all.
fn tell_renamed(vm: &Vm, name: &str, is_first: bool) {
    let (is_now, pid) = (&vm.identity.name, vm.kernel.tgid);
    if name == is_now {
        tracing::info!("VM {} is called {name} again: no other is any more (pid {pid})", vm.name);
    } else if is_first {
        tracing::warn!(
            "another VM is called {is_now}: the one of process {pid} is called {name} until that one is gone, and has \
             nothing of what is asked for {is_now} but a limit; give each VM a name of its own"
        );
    }
}

/// Says which vCPUs the kernel knows of a VM: what threads call themselves is their own choice.
type VcpusOf<'a> = &'a dyn Fn(&KernelVm) -> Vec<KernelVcpu>;

/// Where the vCPU threads of a process may run; none when it is gone.
fn affinity_of(vm: &KernelVm, vcpus_of: VcpusOf) -> Option<Affinity> {
    let threads = Path::new("/proc").join(vm.tgid.to_string()).join("task");
    let cpus = |vcpu: KernelVcpu| {
        let cpus = cpus_of_thread(&threads.join(vcpu.tid.to_string())).ok()?;
        CpuList::of(cpus.into_iter().filter_map(|cpu| u32::try_from(cpu).ok()))
    };
    let each: Vec<CpuList> = vcpus_of(vm).into_iter().filter_map(cpus).collect();
    (!each.is_empty()).then(|| Affinity::of_vcpus(each))
}

/// What is known of a command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    /// All there is to know.
    Known,
    /// It was asked for.
    Asked,
    /// Nothing: it is asked for then.
    Unknown(Instant),
}

/// Reads command lines, which may take as long as a process likes: so others do, and nobody waits for them.
#[derive(Debug)]
struct Commands {
    helper: Arc<Helper>,
    tell: Sender<(u64, io::Result<Vec<u8>>)>,
    told: Receiver<(u64, io::Result<Vec<u8>>)>,
    /// The first VMs were met.
    has_begun: bool,
}

/// Most command lines come at once: so long they are waited for where VMs are new, and so long as the daemon begins.
const COMMANDS_WAIT: Duration = Duration::from_millis(20);
const FIRST_COMMANDS_WAIT: Duration = Duration::from_secs(1);
/// One that did not come is asked for again after so long, then twice that each time.
const COMMAND_AGAIN: Duration = Duration::from_secs(1);
const COMMAND_AGAIN_MOST: Duration = Duration::from_secs(64);
/// So many of one user's are asked for at a time.
const COMMANDS_OF_USER: usize = 4;

/// All of them.
#[derive(Debug, Default)]
pub struct VmRegistry {
    vms: Vec<Vm>,
    /// None: they are read here, as by who looks once and ends.
    commands: Option<Commands>,
    looked_at_sources: Option<Instant>,
    looked_at_affinity: Option<Instant>,
    /// Names that several would have.
    said_names: HashSet<String>,
    /// Whose was asked last, and whether others wait for that.
    affinity_turn: u64,
    affinity_waits: bool,
    /// A VM was found elsewhere between two looks: an order that is refused leaves the plan as it was.
    moved: bool,
}

impl VmRegistry {
    /// Command lines are to be read by that one.
    pub(crate) fn read_by(&mut self, helper: Arc<Helper>) {
        let (tell, told) = channel();
        self.commands = Some(Commands { helper, tell, told, has_begun: false });
    }

    /// Takes what has come of command lines, and asks for more; whether a VM is called else for it.
    fn look_at_commands(&mut self, now: Instant, are_new: bool) -> bool {
        let Some(commands) = &mut self.commands else { return false };
        let begun = Instant::now();
        let (mut until, mut changed) = (begun, false);
        loop {
            let (asked, under_way) = commands.ask(&mut self.vms, now);
            if asked && until == begun {
                let is_first = are_new && !std::mem::replace(&mut commands.has_begun, true);
                until += if is_first { FIRST_COMMANDS_WAIT } else { COMMANDS_WAIT };
            }
            let left = until.saturating_duration_since(Instant::now());
            let told = match under_way && !left.is_zero() {
                true => commands.told.recv_timeout(left).ok(),
                false => commands.told.try_recv().ok(),
            };
            let Some((id, read)) = told else { return changed };
            if let Some(vm) = self.vms.iter_mut().find(|vm| vm.kernel.id == id) {
                changed |= vm.take_command(read, now);
            }
        }
    }

    /// The cgroups are others now.
    pub fn look_at_cgroups(&mut self, tree: &CgroupTree) {
        self.vms.iter_mut().for_each(|vm| vm.look_at_cgroups(tree));
    }

    /// Takes note of who is there now, in the order of slots; whether anything changed that settings follow
    /// from. Of most containers there is nothing to say, five times a second, so this is cheap for them.
    pub fn look(
        &mut self,
        seen: &[KernelVm],
        vcpus_of: VcpusOf,
        tree: &CgroupTree,
        now: Instant,
    ) -> bool {
        let mut changed = std::mem::take(&mut self.moved);
        self.vms.retain_mut(|vm| match vm.kernel.found_in(seen) {
            Some(one) => {
                let grown = vm.kernel.nr_vcpus != one.nr_vcpus;
                vm.kernel = *one;
                changed |= grown;
                if grown {
                    // The new ones may run elsewhere.
                    vm.affinity_seen = one.affinity_changes.wrapping_sub(1);
                }
                true
            }
            None => {
                if vm.was_told() {
                    tracing::info!("{} {} is gone", kind(&vm.kernel), vm.name);
                }
                changed = true;
                false
            }
        });
        let are_new = self.vms.len() < seen.len();
        if are_new {
            self.meet(seen, vcpus_of, tree, now);
            changed = true;
        }
        changed |= self.look_at_commands(now, are_new);
        if changed {
            self.give_names();
        }
        let due = |last: &mut Option<Instant>, interval: Duration| {
            let due = last.is_none_or(|last| now.duration_since(last) >= interval);
            *last = if due { Some(now) } else { *last };
            due
        };
        if due(&mut self.looked_at_sources, SOURCE_INTERVAL) {
            self.vms.iter_mut().for_each(|vm| changed |= vm.look_at_metadata());
        }
        if due(&mut self.looked_at_affinity, AFFINITY_INTERVAL) || self.affinity_waits {
            changed |= self.look_at_affinities(vcpus_of);
        }
        changed
    }

    /// Asks those that were confined or freed where they may run, as many as are asked at once; others are asked at the next
    /// look.
    fn look_at_affinities(&mut self, vcpus_of: VcpusOf) -> bool {
        let (mut asked, mut changed, turn) = (0, false, self.affinity_turn);
        self.affinity_waits = false;
        // Those that come after the last one first.
        let mut moved: Vec<&mut Vm> = self.vms.iter_mut().filter(|vm| vm.was_moved()).collect();
        moved.sort_by_key(|vm| (vm.kernel.id <= turn, vm.kernel.id));
        for vm in moved {
            if asked >= ASKED_AT_ONCE {
                self.affinity_waits = true;
                break;
            }
            asked += vm.kernel.nr_vcpus.max(1);
            self.affinity_turn = vm.kernel.id;
            changed |= vm.look_at_affinity(vcpus_of);
        }
        changed
    }

    /// Takes in those of the seen that are new, in the order in which the kernel found them.
    fn meet(&mut self, seen: &[KernelVm], vcpus_of: VcpusOf, tree: &CgroupTree, now: Instant) {
        let known: HashSet<u64> = self.vms.iter().map(|vm| vm.kernel.id).collect();
        let mut new: Vec<&KernelVm> = seen.iter().filter(|one| !known.contains(&one.id)).collect();
        new.sort_unstable_by_key(|one| one.id);
        for one in new {
            let process = Path::new("/proc").join(one.tgid.to_string());
            let read_here = self.commands.is_none().then(|| arguments(&process));
            let identity = match tree.containers.get(&one.cgroup) {
                Some(container) => named(&container.path, Source::Cgroup),
                None => Places::default().identity(one.tgid, one.uid, read_here.as_deref()),
            };
            let mut vm = Vm::new(*one, identity);
            if one.cgroup == 0 && self.commands.is_some() {
                vm.command = Command::Unknown(now);
            } else {
                tell_found(&vm);
            }
            vm.look_at_cgroups(tree);
            vm.look_at_metadata();
            vm.look_at_affinity(vcpus_of);
            self.vms.push(vm);
        }
    }

    /// Gives each name to one VM: to the VM that a manager calls so, else to the first that was found. So the settings
    /// of a name are one VM's, and no other VM gets a part of them by claiming the name. Other VMs of that name are
    /// called by their processes until the name is free.
    fn give_names(&mut self) {
        let is_manager = |vm: &Vm| vm.identity.by.is_manager();
        let mut holders: HashMap<&str, usize> = HashMap::new();
        for managers in [true, false] {
            for (place, vm) in self.vms.iter().enumerate() {
                if is_manager(vm) == managers {
                    holders.entry(vm.identity.name.as_str()).or_insert(place);
                }
            }
        }
        let mut others = Vec::new();
        for (place, vm) in self.vms.iter().enumerate() {
            let holder = holders[vm.identity.name.as_str()];
            if holder != place {
                others.push((place, is_manager(&self.vms[holder]) == is_manager(vm)));
            }
        }
        let mut taken: HashSet<String> = holders.keys().map(|name| (*name).to_owned()).collect();
        let mut given: HashMap<usize, (String, bool)> = HashMap::new();
        for (place, is_same_owner) in others {
            let vm = &self.vms[place];
            let made = |other| with_number(&vm.identity.name, vm.kernel.tgid, other);
            let name = (0..).map(made).find(|name| !taken.contains(name));
            let name = name.expect("there are more numbers than VMs");
            taken.insert(name.clone());
            given.insert(place, (name, is_same_owner));
        }
        let before = std::mem::take(&mut self.said_names);
        for (place, vm) in self.vms.iter_mut().enumerate() {
            let own = (vm.identity.name.clone(), false);
            let (name, limited) = given.remove(&place).unwrap_or(own);
            let is_new =
                name != vm.identity.name && self.said_names.insert(vm.identity.name.clone());
            if name != vm.name {
                tell_renamed(vm, &name, is_new && !before.contains(&vm.identity.name));
            }
            (vm.name, vm.limited_as_holder) = (name, limited);
        }
    }

    /// Has a VM run where a test wants it.
    #[cfg(test)]
    pub fn confine(&mut self, id: u64, affinity: Affinity) {
        let vm = self.vms.iter_mut().find(|vm| vm.kernel.id == id);
        vm.expect("the VM is there").confine(affinity);
    }

    /// The VMs, in the order they were found.
    pub fn vms(&self) -> &[Vm] {
        &self.vms
    }

    /// Asks where VMs of that name may run now: what is to be promised to them hangs on it.
    pub fn look_at_affinity_of(&mut self, name: &str, vcpus_of: VcpusOf) {
        for vm in self.vms.iter_mut().filter(|vm| vm.name == name) {
            self.moved |= vm.look_at_affinity(vcpus_of);
        }
    }

    /// All names, each with how many would have it: it is one VM's, and a limit is for all of them together.
    pub fn names(&self) -> HashMap<&str, u32> {
        let mut names = HashMap::new();
        for vm in &self.vms {
            *names.entry(vm.name.as_str()).or_default() += 1;
            vm.limited_as().into_iter().for_each(|name| *names.entry(name).or_default() += 1);
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
    use nix::unistd::{Pid, gettid};
    use std::fs;
    use std::sync::atomic::{AtomicI32, Ordering};
    use std::sync::{Arc, Barrier};
    use std::thread;

    fn called(registry: &VmRegistry) -> Vec<&str> {
        registry.vms.iter().map(|vm| vm.name.as_str()).collect()
    }

    /// The process numbers of these VMs are their ids.
    fn registry(names: &[(&str, Source)]) -> VmRegistry {
        let vm = |(&(name, by), id): (&(&str, Source), u64)| {
            let kernel = KernelVm { tgid: u32::try_from(id).unwrap(), ..KernelVm::for_test(id) };
            Vm::new(kernel, named(name, by))
        };
        let vms = names.iter().zip(1..).map(vm).collect();
        VmRegistry { vms, ..VmRegistry::default() }
    }

    #[test]
    fn a_name_is_the_first_ones_until_that_is_gone() {
        let mut all = registry(&[("web", Source::Process); 3]);
        all.give_names();
        assert_eq!(called(&all), ["web", "web-2", "web-3"]);
        assert_eq!(all.names(), HashMap::from([("web", 3), ("web-2", 1), ("web-3", 1)]));
        let limited: Vec<_> = all.vms.iter().map(Vm::limited_as).collect();
        assert_eq!(limited, [None, Some("web"), Some("web")]);
        all.vms.remove(0);
        all.give_names();
        assert_eq!(called(&all), ["web", "web-3"]);
        assert_eq!(all.vms[0].limited_as(), None);
    }

    #[test]
    fn who_seems_to_be_the_second_of_another_name_is_told_from_that() {
        let word = |name| (name, Source::Process);
        let mut all = registry(&[word("web-2"), word("web"), word("web"), word("web-3")]);
        all.give_names();
        assert_eq!(called(&all), ["web-2", "web", "web-3-1", "web-3"]);
    }

    #[test]
    fn managers_names_go_before_the_word_of_processes() {
        let mut all = registry(&[("web", Source::Process), ("web", Source::Libvirt)]);
        all.give_names();
        assert_eq!(called(&all), ["web-1", "web"]);
        assert_eq!(all.vms[0].limited_as(), None, "that limit is the domain's");
    }

    #[test]
    fn command_lines_are_read_by_the_helper_and_one_that_does_not_come_is_asked_for_again() {
        let own = KernelVm { tgid: std::process::id(), ..KernelVm::for_test(1) };
        let mut all = VmRegistry::default();
        all.read_by(Helper::for_test());
        let (none, now) = (|_: &KernelVm| Vec::new(), Instant::now());
        assert!(all.look(&[own], &none, &CgroupTree::default(), now));
        let named = Places::default().identity_now(own.tgid).name;
        assert_eq!((called(&all), all.vms[0].command), (vec![named.as_str()], Command::Known));
        let mut vm = Vm::new(own, named_vm("x-1"));
        let late = |vm: &mut Vm| vm.take_command(Err(io::ErrorKind::TimedOut.into()), now);
        vm.command = Command::Asked;
        assert!(!vm.was_told(), "one that goes now is not said to be gone");
        for after in [1, 2, 4] {
            let empty = after == 2;
            assert!(if empty { !vm.take_command(Ok(Vec::new()), now) } else { !late(&mut vm) });
            assert_eq!(vm.command, Command::Unknown(now + Duration::from_secs(after)));
            assert_eq!(vm.name, "x-1", "what is known without it");
            assert!(vm.was_told());
        }
        assert!(vm.take_command(Ok(b"vmm\0--name\0web".to_vec()), now));
        assert_eq!((vm.name.as_str(), vm.command), ("web", Command::Known));
    }

    fn named_vm(name: &str) -> Identity {
        named(name, Source::Process)
    }

    #[test]
    fn vms_that_are_confined_all_the_time_take_turns() {
        let wide = |id| KernelVm { nr_vcpus: 400, ..KernelVm::for_test(id) };
        let mut vms: Vec<KernelVm> = (1..=3).map(wide).collect();
        let (mut all, mut now) = (VmRegistry::default(), Instant::now());
        let asked = std::cell::RefCell::new(Vec::new());
        let vcpus_of = |vm: &KernelVm| {
            asked.borrow_mut().push(vm.id);
            Vec::new()
        };
        let mut look = |vms: &[KernelVm], after_ms: u64| {
            now += Duration::from_millis(after_ms);
            all.look(vms, &vcpus_of, &CgroupTree::default(), now);
            asked.take()
        };
        assert_eq!(look(&vms, 0), [1, 2, 3]);
        for (after_ms, those) in [(1000, &[1, 2][..]), (200, &[3, 1]), (200, &[2, 3])] {
            vms.iter_mut().for_each(|vm| vm.affinity_changes += 1);
            assert_eq!(look(&vms, after_ms), those);
        }
    }

    #[test]
    fn who_comes_and_goes_is_noted() {
        let (mut registry, now) = (VmRegistry::default(), Instant::now());
        let none = |_: &KernelVm| Vec::new();
        let mut look = |seen: &[KernelVm]| registry.look(seen, &none, &CgroupTree::default(), now);
        assert!(look(&[KernelVm::for_test(1)]));
        assert!(!look(&[KernelVm::for_test(1)]));
        let wider = KernelVm { nr_vcpus: 9, ..KernelVm::for_test(1) };
        assert!(look(&[wider]), "it has other shares");
        assert!(look(&[]));
        assert!(registry.vms().is_empty());
    }

    #[test]
    fn where_the_vcpus_that_the_kernel_knows_may_run_is_where_the_vm_may() {
        let all = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let first = (0..CpuSet::count()).find(|&cpu| all.is_set(cpu).unwrap()).unwrap();
        let mut one = CpuSet::new();
        one.set(first).unwrap();
        let (ready, go_on) = (Arc::new(Barrier::new(3)), Arc::new(Barrier::new(3)));
        let thread = |name: &str, set: CpuSet| {
            let (at_ready, at_go_on) = (Arc::clone(&ready), Arc::clone(&go_on));
            let tid = Arc::new(AtomicI32::new(0));
            let own = Arc::clone(&tid);
            let body = move || {
                sched_setaffinity(Pid::from_raw(0), &set).unwrap();
                own.store(gettid().as_raw(), Ordering::SeqCst);
                at_ready.wait();
                at_go_on.wait();
            };
            (thread::Builder::new().name(name.to_owned()).spawn(body).unwrap(), tid)
        };
        let (vcpu, vcpu_tid) = thread("worker", one);
        // A liar.
        let (other, _) = thread("cpu", all);
        ready.wait();
        let tid = u32::try_from(vcpu_tid.load(Ordering::SeqCst)).unwrap();
        let known = |_: &KernelVm| vec![KernelVcpu::of_thread(tid)];
        let vm = KernelVm { tgid: std::process::id(), ..KernelVm::for_test(1) };
        let affinity = affinity_of(&vm, &known);
        go_on.wait();
        vcpu.join().unwrap();
        other.join().unwrap();
        let first = CpuList::of([u32::try_from(first).unwrap()]).unwrap();
        assert_eq!(affinity, Some(Affinity::within(first)), "other threads do not count");
        let gone = KernelVm { tgid: 0x3fff_fff0, ..vm };
        assert_eq!(affinity_of(&gone, &known), None, "nobody has that number");
    }

    #[test]
    fn metadata_are_read_again_when_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("web.xml");
        let text = |shares: &str| {
            format!("<domain><d:cpu xmlns:d='urn:drover:cpu' shares='{shares}'/></domain>")
        };
        let write = |text: &str, at_s: u64| {
            fs::write(&file, text).unwrap();
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(at_s);
            fs::File::options().write(true).open(&file).unwrap().set_modified(at).unwrap();
        };
        let (mut metadata, dirs) = (Metadata::default(), [dir.path()]);
        assert!(!metadata.look(&dirs, "web"));
        write(&text("5"), 1);
        assert!(metadata.look(&dirs, "web") && !metadata.look(&dirs, "web"));
        write("<domain>", 2);
        assert!(!metadata.look(&dirs, "web"), "what it said before still counts");
        assert!(metadata.layer.is_some());
        write(&text("6"), 3);
        assert!(metadata.look(&dirs, "web"));
        fs::remove_file(&file).unwrap();
        assert!(metadata.look(&dirs, "web") && metadata.layer.is_none());
    }
}
