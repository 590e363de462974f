// SPDX-License-Identifier: GPL-2.0-only
//! Brings what is asked into force: looks at the sources, plans, tells the kernel, keeps orders.
//!
//! An order is tried as a whole: planned, given to the kernel, saved. Whatever of that fails, what was
//! before is in force again and the order is refused. A change of a source cannot be refused to anybody:
//! what of it cannot be is said, and everything else is done.

mod allotting;
mod arranging;
mod export;
mod homes;
mod statuses;

use crate::applied::Applied;
use crate::changes::changes;
use crate::containers::Containers;
use crate::control::{Answer, Request};
use crate::delays::Delays;
use crate::domains::Domains;
use crate::helper::Helper;
use crate::history::Kept;
use crate::kernel::{Kernel, KernelVm};
use crate::meter::Meter;
use crate::numa::Numa;
use crate::orders::{Ground, LIVE_ORIGIN, VM_ORIGIN};
use crate::plan::{Capacity, Plan, PlannedVm, Trouble};
use crate::privileges::Writer;
use crate::profiles::{Process, Profiles};
use crate::registry::{Vm, VmRegistry};
use crate::saved::{Before, Saved, merged, merged_partitions, merged_sets};
use crate::sources::cgroup_tree::CgroupTree;
use crate::sources::config_file::ConfigFile;
use crate::status::Change;
use crate::store::Store;
use crate::thread_sets::ThreadSets;
use crate::topology::Topology;
use allotting::Allotting;
use anyhow::{Context, Result, bail, ensure};
use arranging::Arranging;
use drover_core::asked::{Asked, Key};
use drover_core::config::Config;
use drover_core::cpu_list::{CpuList, cpus_text};
use drover_core::percent;
use drover_core::place::Wishes;
use drover_core::resolve::Layer;
use drover_core::tree::admission::Shortage;
use drover_core::tree::pcpus::Siblings;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the configuration is looked at.
const CONFIG_INTERVAL: Duration = Duration::from_millis(150);

/// Keeps what everybody asks in force.
pub struct Reconciler {
    file: ConfigFile,
    config: Config,
    /// When the file was last looked at.
    config_looked: Option<Instant>,
    /// What the file says does not fit what was ordered.
    config_waits: bool,
    /// Why what the file says is not in force; none: it is.
    config_fault: Option<String>,
    store: Store,
    saved: Saved,
    registry: VmRegistry,
    meter: Meter,
    history: Kept,
    delays: Delays,
    thread_sets: ThreadSets,
    capacity: Capacity,
    plan: Plan,
    applied: Applied,
    allotting: Allotting,
    arranging: Arranging,
    /// None where cgroups have no say.
    containers: Option<Containers>,
    /// None on a host of one last-level cache.
    numa: Option<Numa>,
    /// None until VMs are profiled.
    profiles: Option<Profiles>,
    /// What is asked of all homes together.
    wishes: Wishes,
    /// The kernel was told nothing yet, or pCPUs are others than when it was.
    fresh: bool,
    /// What was said of the plan in force, not to be said again.
    said: HashSet<String>,
    begun: Instant,
}

impl Reconciler {
    /// Reads what is configured and what was saved.
    ///
    /// # Errors
    /// When one of them has a fault, in one line.
    pub fn open(
        config: &Path,
        state: &Path,
        online: CpuList,
        (delays, domains): (Delays, Domains),
    ) -> Result<Self> {
        let (file, read) = ConfigFile::open(config).map_err(anyhow::Error::msg)?;
        let (store, mut saved) = Store::open(state)?;
        for orphan in saved.adopt_orphans(read.pools().map(|(spec, _)| spec)) {
            tracing::warn!("{orphan}");
        }
        fit_together(&read, &saved, &online).with_context(|| {
            format!("{} and what is saved in {}", config.display(), state.display())
        })?;
        let host_permille = Some(read.host_permille());
        Ok(Self {
            file,
            config: read,
            config_looked: None,
            config_waits: false,
            config_fault: None,
            store,
            saved,
            registry: VmRegistry::default(),
            meter: Meter::default(),
            history: Kept::default(),
            delays,
            thread_sets: ThreadSets::default(),
            capacity: Capacity {
                known: online.clone(),
                online,
                siblings: Siblings::new(),
                host_permille,
            },
            plan: Plan::default(),
            applied: Applied::new(domains),
            allotting: Allotting::default(),
            arranging: Arranging::default(),
            containers: None,
            numa: None,
            profiles: None,
            wishes: Wishes::default(),
            fresh: true,
            said: HashSet::new(),
            begun: Instant::now(),
        })
    }

    /// Looks at everything settings follow from, and brings changes into force.
    pub fn look(&mut self, kernel: &dyn Kernel, online: &CpuList, now: Instant) {
        let mut changed = self.look_at_config(now) | std::mem::take(&mut self.fresh);
        changed |= self.look_at_pcpus(online);
        self.look_at_vms(kernel, now, changed);
        self.keep_history();
        let vms = self.registry.vms().iter().filter(|vm| !vm.is_container());
        self.thread_sets.look(Path::new("/proc"), vms.map(|vm| &vm.kernel));
        self.look_at_homes(kernel, online, now);
        self.look_at_profiles(now);
        self.look_at_arrangement(kernel, now);
    }

    /// Reads the configuration again, whether it looks changed or not.
    pub fn reload(&mut self) {
        self.file.offer_again();
    }

    /// The scheduler is in charge from now on.
    pub fn begin(&mut self) {
        self.begun = Instant::now();
    }

    /// Orders are to be kept by that one.
    pub fn save_by(&mut self, writer: Arc<Writer>) {
        self.store.write_by(writer);
    }

    /// Cgroups are to have a say.
    pub fn follow(&mut self, containers: Containers) {
        self.containers = Some(containers);
    }

    /// Who VMs say that they are is to be read by that one.
    pub(crate) fn ask_names_of(&mut self, helper: Arc<Helper>) {
        self.registry.read_by(helper);
    }

    /// VMs are to have homes.
    pub fn keep_homes(&mut self, numa: Option<Numa>) {
        self.numa = numa;
    }

    /// VMs are to be profiled.
    pub fn profile_by(&mut self, profiles: Profiles) {
        self.profiles = Some(profiles);
    }

    /// Looks at pCPUs that may have come for the first time.
    pub fn see(&mut self, kernel: &dyn Kernel, topology: &Topology) {
        self.applied.see(kernel, topology);
        self.delays.set_domains(self.applied.domains().of());
        self.capacity.siblings.extend(topology.siblings());
        self.fresh = true;
    }

    /// Follows an order or answers a question.
    pub fn answer(&mut self, kernel: &dyn Kernel, request: Request, now: Instant) -> Answer {
        self.look_at_vms(kernel, now, false);
        let done = match request {
            Request::Status => {
                return Answer::Status { status: Box::new(self.host_status(kernel, now)) };
            }
            Request::ListVms { brief } => {
                return Answer::Vms { vms: self.vm_statuses(kernel, brief) };
            }
            Request::ListOrders => return Answer::Orders { orders: self.order_statuses() },
            Request::ListPools => return Answer::Pools { pools: self.pool_statuses() },
            Request::ListPartitions => {
                return Answer::Partitions { partitions: self.partition_statuses(kernel) };
            }
            Request::PlanPartitions => {
                let is_on = self.saved.auto_partitions;
                return Answer::Arrangement { is_on, arrangement: self.arrangement() };
            }
            Request::ListSets => return Answer::Sets { sets: self.set_statuses() },
            Request::ListNodes => return Answer::Nodes { nodes: self.node_statuses(now) },
            Request::PlanHomes => return Answer::Moves { moves: self.planned_moves(now) },
            Request::AdviseVm { name } => {
                return self.advise(&name).map_or_else(refused, |advice| Answer::Advice { advice });
            }
            Request::ExplainWaits { .. } | Request::ListIo => {
                return refused(anyhow::anyhow!(
                    "`drover observe` knows that; start it beside this"
                ));
            }
            Request::ListHistory { seconds, step_s } => {
                let history = Box::new(self.history.tell(seconds, step_s, now));
                return Answer::History { history };
            }
            Request::ExportConfig => {
                return self.export().map_or_else(refused, |text| Answer::Config { text });
            }
            Request::Undo => {
                let done = self.undo(kernel);
                return done
                    .map_or_else(refused, |(whose, changes)| Answer::Undone { whose, changes });
            }
            Request::DryRun { order } => {
                let changes = self.rehearse(kernel, &order);
                return changes.map_or_else(refused, |changes| Answer::Changes { changes });
            }
            #[cfg(feature = "fault-injection")]
            Request::Break => kernel.break_on_purpose(),
            order => self.obey(kernel, &order),
        };
        match done {
            Ok(()) => Answer::Done,
            Err(err) => refused(err),
        }
    }

    /// What is ordered when that order has been followed, and what would be in force then.
    fn weigh(&mut self, kernel: &dyn Kernel, order: &Request) -> Result<(Saved, Plan)> {
        if let Some((name, ..)) = order.of_vm() {
            self.registry.look_at_affinity_of(name, &|vm| kernel.vcpus(vm));
        }
        let saved = self.ground().order(order)?;
        let plan = self.admitted(&saved, order)?;
        Ok((saved, plan))
    }

    /// What an order is measured by.
    fn ground(&self) -> Ground<'_> {
        let room = self.room();
        let Self { saved, config, plan, registry, .. } = self;
        Ground { saved, config, plan, registry, online: &self.capacity.online, room }
    }

    /// What would be in force with that, if the order that brings it can be followed.
    fn admitted(&self, saved: &Saved, order: &Request) -> Result<Plan> {
        let plan = self.planned(&self.config, saved)?;
        self.check(&plan, order)?;
        self.check_absent(&plan, saved, order)?;
        self.applied.check(&plan)?;
        Ok(plan)
    }

    /// What an order would change.
    fn rehearse(&mut self, kernel: &dyn Kernel, order: &Request) -> Result<Vec<Change>> {
        let (saved, plan) = self.weigh(kernel, order)?;
        Ok(changes((&self.saved, &self.plan), (&saved, &plan)))
    }

    /// Follows an order that somebody gave, who may take it back.
    fn obey(&mut self, kernel: &dyn Kernel, order: &Request) -> Result<()> {
        let (mut saved, plan) = self.weigh(kernel, order)?;
        let before = Before::of(order, &self.saved);
        before.into_iter().for_each(|before| saved.remember(before));
        self.bring(kernel, saved, plan)
    }

    /// Follows an order of the daemon's own.
    fn obey_own(&mut self, kernel: &dyn Kernel, order: &Request) -> Result<()> {
        let (saved, plan) = self.weigh(kernel, order)?;
        self.bring(kernel, saved, plan)
    }

    /// Takes the last order back: of whom it was, and what is another now.
    fn undo(&mut self, kernel: &dyn Kernel) -> Result<(String, Vec<Change>)> {
        let Some(before) = self.saved.history.last().cloned() else {
            bail!("there is no order to take back");
        };
        let mut saved = self.ground().bring_back(&before)?;
        saved.history.pop();
        let plan = self.admitted(&saved, &before.as_order())?;
        let changes = changes((&self.saved, &self.plan), (&saved, &plan));
        self.bring(kernel, saved, plan)?;
        Ok((before.whose(), changes))
    }

    /// Brings into force and keeps what was ordered, or neither.
    fn bring(&mut self, kernel: &dyn Kernel, saved: Saved, plan: Plan) -> Result<()> {
        let kept =
            self.applied.apply(kernel, &plan, self.registry.vms()).and_then(|()| self.save(&saved));
        if let Err(error) = kept {
            // What the kernel took of it is taken back.
            let _ = self.applied.apply(kernel, &self.plan, self.registry.vms());
            return Err(error);
        }
        self.saved = saved;
        self.enter(plan);
        if self.config_waits {
            self.file.offer_again();
        }
        Ok(())
    }

    /// Keeps what is ordered, or what was before.
    fn save(&self, saved: &Saved) -> Result<()> {
        self.store.save(saved).inspect_err(|_| {
            // The disk may have failed after it took the new ones.
            let _ = self.store.save(&self.saved);
        })
    }

    /// Whether an order makes nothing impossible that was possible before, and asks nothing impossible itself.
    fn check(&self, plan: &Plan, order: &Request) -> Result<()> {
        // VMs of one name have the same troubles.
        let mut before: HashMap<_, HashSet<String>> = HashMap::new();
        for trouble in self.plan.troubles() {
            before.entry(trouble.what()).or_default().insert(trouble.text);
        }
        let target = whose_bounds(order);
        for trouble in plan.troubles() {
            if is_left_to_others(order, &trouble) {
                continue;
            }
            let stood = before.get(&trouble.what());
            let is_asked = target.as_ref() == Some(&trouble.whose);
            let stays = stood.is_some_and(|texts| !is_asked || texts.contains(&trouble.text));
            match &target {
                Some(target) if !stays && *target != trouble.whose => {
                    let Trouble { whose, text, .. } = &trouble;
                    bail!("{target}: nothing was changed, for then {whose}: {text}")
                }
                _ => ensure!(stays, "{}", trouble.refusal()),
            }
        }
        let moves = matches!(order, Request::AddPartition { .. } | Request::SetPartition { .. });
        let promised = |plan: &Plan| plan.room(None).map_or(0, |room| room.promised_mcpu);
        let grows = |short: &&Shortage| match short.cpus {
            _ if moves => !self.plan.shortages.contains(short),
            None => promised(plan) > promised(&self.plan),
            Some(_) => members(plan, short).any(|vm| {
                let before = self.plan.vm(vm.id).map_or(0, |before| before.promised_mcpu);
                vm.promised_mcpu > before
            }),
        };
        match plan.shortages.iter().find(grows) {
            None => Ok(()),
            Some(short) => {
                let [promised, size] = [short.promised_mcpu, short.size_mcpu].map(percent::text64);
                let place = short
                    .cpus
                    .as_ref()
                    .map_or(String::new(), |cpus| format!(" on {}", cpus_text(cpus)));
                bail!(
                    "{promised} would be promised{place} and {size} can be kept; bring pCPUs back or \
                     reserve less"
                )
            }
        }
    }

    /// Whether what is ordered for a VM that does not run could be if it came.
    fn check_absent(&self, plan: &Plan, saved: &Saved, order: &Request) -> Result<()> {
        let Request::SetVm { name, .. } = order else { return Ok(()) };
        let leaves_all = matches!(order, Request::SetVm { set, .. } if set.is_empty());
        if leaves_all
            || whose_bounds(order).is_none()
            || self.registry.vms().iter().any(|vm| vm.name == *name)
        {
            return Ok(());
        }
        let mut layers = self.config.layers(name);
        layers.extend(ordered(saved, name));
        match Plan::trouble_alone((&plan.tree, &plan.partitions), name, &layers, &self.capacity) {
            Some(trouble) => bail!("{}", trouble.refusal()),
            None => Ok(()),
        }
    }

    fn planned(&self, config: &Config, saved: &Saved) -> Result<Plan> {
        let mut tree = merged(config.pools().map(|(spec, _)| spec), saved)?;
        if let Some(containers) = &self.containers {
            tree.add_cgroups(&containers.tree().pools);
        }
        let layers = |vm: &Vm| layers(config, saved, vm);
        let partitions = merged_partitions(config.partitions().map(|(spec, _)| spec), saved)?;
        Ok(Plan::new(
            (tree, partitions),
            self.registry.vms(),
            layers,
            &self.plan.holders(),
            &self.capacity,
        ))
    }

    fn look_at_config(&mut self, now: Instant) -> bool {
        // Orders wake the daemon, and must not make a file that is being written look settled.
        if self.config_looked.is_some_and(|looked| now - looked < CONFIG_INTERVAL) {
            return false;
        }
        self.config_looked = Some(now);
        let Some(config) = self.file.look() else { return false };
        let parsed = config.is_ok();
        let fits = config.and_then(|config| {
            let fits = fit_together(&config, &self.saved, &self.capacity.online);
            fits.map(|()| config).map_err(|error| error.to_string())
        });
        match fits {
            Ok(config) => {
                tracing::info!("the configuration changed");
                self.capacity.host_permille = Some(config.host_permille());
                self.config = config;
                (self.config_waits, self.config_fault) = (false, None);
                self.tell_ordered_pools();
                true
            }
            Err(fault) => {
                tracing::warn!("{fault}; the configuration before it still counts");
                (self.config_waits, self.config_fault) = (parsed, Some(fault));
                false
            }
        }
    }

    /// Pools that are as they were ordered, whatever the file says of them now.
    fn tell_ordered_pools(&self) {
        for (spec, place) in self.config.pools() {
            if self.saved.pools.iter().any(|pool| pool.name == spec.name && pool != spec) {
                tracing::warn!(
                    "pool {0}: it is as `drover pool` has it, not as {place} says; \
                     `drover pool remove {0}` takes what the file says",
                    spec.name
                );
            }
        }
    }

    fn look_at_pcpus(&mut self, online: &CpuList) -> bool {
        if *online == self.capacity.online {
            return false;
        }
        let all = self.capacity.known.cpus().iter().chain(online.cpus()).copied();
        let known = CpuList::of(all).expect("a host has a pCPU");
        self.capacity.online = online.clone();
        self.capacity.known = known;
        true
    }

    fn look_at_vms(&mut self, kernel: &dyn Kernel, now: Instant, changed: bool) {
        let mut seen = kernel.vms();
        let mut changed = changed;
        if let Some(containers) = &mut self.containers {
            containers.leave_places(self.config.pools().count() + self.saved.pools.len());
            if containers.look(kernel, &seen, now) {
                self.registry.look_at_cgroups(containers.tree());
                changed = true;
                seen = kernel.vms();
            }
        }
        let none = CgroupTree::default();
        let tree = self.containers.as_ref().map_or(&none, Containers::tree);
        // A limit makes a cgroup a container in the kernel at once: what it is called is read later, or that it is none.
        seen.retain(|vm| vm.cgroup == 0 || tree.containers.contains_key(&vm.cgroup));
        self.meter.look(&seen, now);
        let vcpus_of = |vm: &KernelVm| kernel.vcpus(vm);
        if !self.registry.look(&seen, &vcpus_of, tree, now) && !changed {
            return;
        }
        let names = self.registry.names();
        self.saved.forget_gone(|name| names.contains_key(name));
        let plan = match self.planned(&self.config, &self.saved) {
            Ok(plan) => plan,
            Err(error) => return tracing::error!("{error:#}; nothing is changed"),
        };
        if let Err(error) = self.applied.apply(kernel, &plan, self.registry.vms()) {
            // A VM may go at any moment; what else there is comes up again with the next change.
            tracing::debug!("{error:#}");
        }
        self.enter(plan);
    }

    fn look_at_profiles(&mut self, now: Instant) {
        let Some(profiles) = &mut self.profiles else { return };
        let vms = self.registry.vms().iter().filter(|vm| !vm.is_container());
        let memory = |id: u64| self.numa.as_ref()?.pressure(id)?.memory_mib_s;
        profiles.look(vms.map(|vm| Process::of(&vm.kernel)), memory, now);
    }

    /// The plan is in force: says what of it is not as was asked.
    fn enter(&mut self, plan: Plan) {
        let mut troubles: Vec<String> = plan.troubles().iter().map(ToString::to_string).collect();
        troubles.extend(plan.shortages.iter().map(|short| shortfall(&plan, short)));
        troubles.extend(deserted(&plan, &self.capacity.online));
        self.wishes = wishes(&self.config, &self.saved);
        troubles.extend(self.set_troubles().into_iter().map(|(_, text)| text));
        let mut said = HashSet::new();
        for trouble in troubles {
            if !self.said.contains(&trouble) && !said.contains(&trouble) {
                tracing::warn!("{trouble}");
            }
            said.insert(trouble);
        }
        let was_short = is_short(&self.plan);
        self.said = said;
        self.plan = plan;
        self.allotting.look_anew();
        self.delays.set_domains(self.applied.domains().of());
        if was_short && !is_short(&self.plan) {
            tracing::info!("every promise is kept again");
        }
    }
}

/// Whether what is configured can be beside what was ordered.
fn fit_together(config: &Config, saved: &Saved, online: &CpuList) -> Result<()> {
    merged(config.pools().map(|(spec, _)| spec), saved)?;
    let partitions = merged_partitions(config.partitions().map(|(spec, _)| spec), saved)?;
    // One whose pCPUs are offline now is kept, and said.
    ensure!(
        saved.partitions.len() == partitions.specs().len()
            || partitions.cpus_of(None, online).is_some(),
        "the partitions have all pCPUs that are online ({online}); leave one for partition \"default\""
    );
    merged_sets(config.sets().map(|(set, _)| set), saved)?;
    Ok(())
}

/// What is asked of all homes together; that it can be was found out before.
fn wishes(config: &Config, saved: &Saved) -> Wishes {
    let sets = merged_sets(config.sets().map(|(set, _)| set), saved).unwrap_or_default();
    Wishes { heuristic: config.placement(), sets }
}

#[allow(clippy::needless_pass_by_value, reason = "it is for map_or_else")]
fn refused(error: anyhow::Error) -> Answer {
    Answer::Refused { reason: format!("{error:#}") }
}

/// Which promises cannot be kept where there are too few pCPUs for them.
fn shortfall(plan: &Plan, short: &Shortage) -> String {
    let each = |vm: &PlannedVm| {
        let [promised, kept] = [vm.promised_mcpu, vm.reservation_mcpu].map(percent::text);
        format!("{} {promised} -> {kept}", vm.name)
    };
    let vms: Vec<String> = members(plan, short).map(each).collect();
    let [promised, size] = [short.promised_mcpu, short.size_mcpu].map(percent::text64);
    let place = match &short.cpus {
        None => format!("{promised} are promised and {size} can be kept; everyone"),
        Some(cpus) => {
            let place = cpus_text(cpus);
            format!("{promised} are promised on {place} and {size} can be kept; everyone there")
        }
    };
    format!("PROMISES CANNOT BE KEPT: {place} is given the same part: {}", vms.join(", "))
}

/// Partitions whose last pCPU is offline.
fn deserted(plan: &Plan, online: &CpuList) -> Vec<String> {
    let gone = plan
        .partitions
        .all()
        .filter(|partition| plan.partitions.cpus_of(*partition, online).is_none());
    let line = |partition: Option<usize>| {
        let vms = plan.vms.iter().filter(|vm| vm.resolved.partition == partition);
        let vms: Vec<&str> = vms.map(|vm| vm.name.as_str()).collect();
        let who = if vms.is_empty() { "who is in it".to_owned() } else { vms.join(", ") };
        let name = plan.partitions.name(partition);
        format!(
            "partition {name:?}: its last pCPU is offline; until one is back, {who} run where they may"
        )
    };
    gone.map(line).collect()
}

/// Those with a promise that share what is there.
fn members<'a>(plan: &'a Plan, short: &'a Shortage) -> impl Iterator<Item = &'a PlannedVm> {
    let each = plan.vms.iter().zip(&short.members);
    each.filter(|(vm, member)| **member && vm.promised_mcpu > 0).map(|(vm, _)| vm)
}

/// Whether somebody is given less than was promised.
fn is_short(plan: &Plan) -> bool {
    plan.vms.iter().any(|vm| vm.reservation_mcpu < vm.promised_mcpu)
}

/// What everyone asks for a VM, the last one first in rank.
fn layers(config: &Config, saved: &Saved, vm: &Vm) -> Vec<Layer> {
    let (cgroup, libvirt) = vm.layers();
    let mut layers = cgroup.to_vec();
    // A container has what its cgroup says.
    if vm.is_container() {
        return layers;
    }
    // Of what is asked for a name that another one has, a limit holds.
    let only_limit = |mut layer: Layer| {
        layer.asked = Asked { limit: layer.asked.limit, ..Asked::default() };
        layer
    };
    let alone = |layer| Layer { of_name: vm.has_its_name(), ..layer };
    let shared = vm.limited_as();
    layers.extend(config.layers(&vm.name).into_iter().map(alone));
    layers.extend(shared.into_iter().flat_map(|name| config.layers(name)).map(only_limit));
    layers.extend(libvirt.cloned());
    layers.extend(shared.and_then(|name| ordered(saved, name)).map(only_limit));
    layers.extend(ordered(saved, &vm.name).map(alone));
    layers.extend(shared.and_then(|name| ordered_live(saved, name)).map(only_limit));
    layers.extend(ordered_live(saved, &vm.name).map(alone));
    layers
}

/// What was ordered for a VM.
fn ordered(saved: &Saved, name: &str) -> Option<Layer> {
    let asked = saved.vms.get(name)?.clone();
    Some(Layer { origin: VM_ORIGIN.to_owned(), of_name: true, asked })
}

/// What was ordered for a VM for as long as it runs.
fn ordered_live(saved: &Saved, name: &str) -> Option<Layer> {
    let asked = saved.live.get(name)?.clone();
    Some(Layer { origin: LIVE_ORIGIN.to_owned(), of_name: true, asked })
}

/// Whether it is about a value that an order takes back: what other sources say of it counts again, even if that
/// cannot be, or nobody could take back an order.
fn is_left_to_others(order: &Request, trouble: &Trouble) -> bool {
    let (name, reset) = match order {
        Request::SetVm { name, reset, .. } | Request::SetVmLive { name, reset, .. } => {
            (name, Some(reset))
        }
        Request::ForgetVm { name } => (name, None),
        _ => return false,
    };
    trouble.whose == format!("VM {name}") && reset.is_none_or(|keys| keys.contains(&trouble.key))
}

/// Of whom an order changes what can be impossible: all of a VM but its shares, or a pool.
fn whose_bounds(order: &Request) -> Option<String> {
    match order {
        Request::SetVm { name, set, reset } | Request::SetVmLive { name, set, reset } => {
            let changes = |key: &Key| reset.contains(key) || set.text(*key).is_some();
            Key::ALL
                .iter()
                .filter(|key| **key != Key::Shares)
                .any(changes)
                .then(|| format!("VM {name}"))
        }
        Request::AddPool { name, .. } | Request::SetPool { name, .. } => {
            Some(format!("pool {name}"))
        }
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests;
