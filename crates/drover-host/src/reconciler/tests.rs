// SPDX-License-Identifier: GPL-2.0-only
//! The reconciler before a scheduler that only notes what it is told.

use super::*;
use crate::domains::{DomainLevel, Placed};
use crate::kernel::{KernelVcpu, KernelVm, Slots};
use crate::status::{Change, HostStatus, PartitionStatus, SetStatus, VcpuState, VmStatus};
use crate::topology::tests::Host as Sysfs;
use anyhow::ensure;
use drover_core::allot::{AllotmentOf, Measured};
use drover_core::asked::Consolidate;
use drover_core::asked::{Asked, Key, Limit};
use drover_core::counters::Counters;
use drover_core::params::Params;
use drover_core::partition::{PartitionChange, PartitionPolicy, PartitionSettings};
use drover_core::place::{HomeNumber, Kind as SetKind, Within};
use drover_core::profile::Counted;
use drover_core::sets::SetSpec;
use drover_core::settings::{Cosched, PartitionId, PoolId, PoolSettings, VmSettings};
use drover_core::shares::Shares;
use drover_core::tree::{Affinity, PoolChange};
use nix::time::{ClockId, clock_gettime};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// What a kernel would have.
#[derive(Default)]
pub(crate) struct FakeKernel {
    live: RefCell<Vec<KernelVm>>,
    vms: RefCell<BTreeMap<u64, VmSettings>>,
    pools: RefCell<BTreeMap<u32, PoolSettings>>,
    partitions: RefCell<BTreeMap<u32, PartitionSettings>>,
    /// The domain and the partition of each pCPU it was told of.
    pcpus: RefCell<BTreeMap<u32, (u32, u32)>>,
    pub containers: RefCell<BTreeSet<u64>>,
    pub cgroup_changes: Cell<u32>,
    /// What it was told of weights, message by message; none within: nothing is allotted any more.
    allotted: RefCell<Vec<Option<Vec<AllotmentOf>>>>,
    allot_lapses: Cell<u32>,
    /// Refuses orders for this VM.
    refuses: Cell<Option<u64>>,
}

impl Kernel for FakeKernel {
    fn vms(&self) -> Vec<KernelVm> {
        self.live.borrow().clone()
    }

    fn vcpus(&self, vm: &KernelVm) -> Vec<KernelVcpu> {
        let vcpu = |number: u32| KernelVcpu {
            number,
            tid: vm.tgid,
            state: VcpuState::Ready,
            counters: Counters {
                progressed_s: Some(0.5 * f64::from(number + 1)),
                hazard_s: Some(0.0),
                costop_s: 0.25,
                costops: 9,
                costarts: 8,
                skew_max_ms: Some(4.5),
                ..Counters::default()
            },
        };
        (0..vm.nr_vcpus).map(vcpu).collect()
    }

    fn set_vm(&self, vm: &KernelVm, settings: &VmSettings) -> Result<()> {
        ensure!(self.refuses.get() != Some(vm.id), "the VM is gone");
        let known =
            settings.pool == PoolId::ROOT || self.pools.borrow().contains_key(&settings.pool.0);
        assert!(known, "a VM in a pool that is not there");
        self.vms.borrow_mut().insert(vm.id, settings.clone());
        Ok(())
    }

    fn set_pool(&self, pool: PoolId, settings: Option<&PoolSettings>) -> Result<()> {
        let mut pools = self.pools.borrow_mut();
        match settings {
            Some(settings) => {
                let parent = settings.parent;
                assert!(parent == PoolId::ROOT || pools.contains_key(&parent.0), "children first");
                pools.insert(pool.0, settings.clone());
            }
            None => {
                assert!(pools.values().all(|other| other.parent != pool), "parents first");
                assert!(self.vms.borrow().values().all(|vm| vm.pool != pool), "somebody is in it");
                pools.remove(&pool.0);
            }
        }
        Ok(())
    }

    fn cgroup_changes(&self) -> u32 {
        self.cgroup_changes.get()
    }

    fn slots(&self) -> Slots {
        Slots::default()
    }

    fn set_container(&self, cgroup: u64, _: u32, live: bool) -> Result<()> {
        let mut containers = self.containers.borrow_mut();
        let changed = if live { containers.insert(cgroup) } else { containers.remove(&cgroup) };
        ensure!(changed, "it is so already");
        let mut all = self.live.borrow_mut();
        all.retain(|vm| vm.cgroup != cgroup);
        if live {
            let id = 1000 + cgroup;
            all.push(KernelVm {
                slot: 9,
                id,
                tgid: 0,
                cgroup,
                nr_vcpus: 0,
                ..KernelVm::for_test(1)
            });
        }
        Ok(())
    }

    fn set_home(&self, _: &KernelVm, _: &[HomeNumber]) -> Result<()> {
        Ok(())
    }
    fn set_partition(&self, id: PartitionId, settings: PartitionSettings) -> Result<()> {
        assert!((1..PartitionId::COUNT_MAX).contains(&id.0) && settings.slice_ns > 0);
        self.partitions.borrow_mut().insert(id.0, settings);
        Ok(())
    }

    fn place(&self, placed: Placed) -> Result<()> {
        let Placed { pcpu, domain, partition: PartitionId(partition), .. } = placed;
        assert!(partition == 0 || self.partitions.borrow().contains_key(&partition));
        self.pcpus.borrow_mut().insert(pcpu, (domain, partition));
        Ok(())
    }

    /// The host's own tasks, then VMs: one thread of each never sleeps.
    fn measure(&self) -> Result<Vec<Measured>> {
        let one = |(vm_id, shares)| Measured { vm_id, used_ns: 0, waited_ns: 0, awake: 1, shares };
        let live = self.live.borrow();
        let vms = live.iter().map(|vm| (vm.id, vm.shares));
        Ok(std::iter::once((u64::MAX, 4000)).chain(vms).map(one).collect())
    }

    fn allot(&self, allotted: Option<&[AllotmentOf]>) -> Result<()> {
        self.allotted.borrow_mut().push(allotted.map(<[_]>::to_vec));
        Ok(())
    }

    fn allot_lapses(&self) -> u32 {
        self.allot_lapses.get()
    }

    #[cfg(feature = "fault-injection")]
    fn break_on_purpose(&self) -> Result<()> {
        Ok(())
    }
}

impl FakeKernel {
    /// Settings of a VM; the defaults where it was told none.
    fn vm(&self, id: u64) -> VmSettings {
        self.vms.borrow().get(&id).cloned().unwrap_or_default()
    }

    /// VMs of two vCPUs, called vm-N after their process.
    fn with(count: u64) -> Self {
        let vm = |id: u64| KernelVm { tgid: u32::MAX - id as u32, ..KernelVm::for_test(id) };
        Self { live: RefCell::new((1..=count).map(vm).collect()), ..Self::default() }
    }
}

fn name(id: u64) -> String {
    format!("vm-{}", u32::MAX - id as u32)
}

/// A host of four pCPUs with its directories.
struct Host {
    dir: tempfile::TempDir,
    kernel: FakeKernel,
    reconciler: Reconciler,
    now: Instant,
}

impl Host {
    fn new(vms: u64, config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("drover.toml"), config).unwrap();
        let (kernel, now) = (FakeKernel::with(vms), Instant::now());
        let mut reconciler = open(dir.path());
        reconciler.look(&kernel, &CpuList::all(4), now);
        Self { dir, kernel, reconciler, now }
    }

    /// As after the daemon, and the kernel's memory of it, were gone.
    fn restarted(self) -> Self {
        let kernel = FakeKernel { live: self.kernel.live, ..FakeKernel::default() };
        let mut reconciler = open(self.dir.path());
        reconciler.look(&kernel, &CpuList::all(4), self.now);
        Self { dir: self.dir, kernel, reconciler, now: self.now }
    }

    fn ask(&mut self, request: Request) -> Result<(), String> {
        match self.reconciler.answer(&self.kernel, request, self.now) {
            Answer::Refused { reason } => Err(reason),
            _ => Ok(()),
        }
    }

    fn set(&mut self, id: u64, values: &[(Key, &str)]) -> Result<(), String> {
        let mut set = Asked::default();
        values.iter().for_each(|(key, text)| set.read(*key, text).unwrap());
        self.ask(Request::SetVm { name: name(id), set, reset: Vec::new() })
    }

    fn add_pool(&mut self, name: &str, reservation_mcpu: u32) -> Result<(), String> {
        let reservation_mcpu = Some(reservation_mcpu);
        let change = PoolChange { reservation_mcpu, ..PoolChange::default() };
        self.ask(Request::AddPool { name: name.to_owned(), change })
    }

    fn statuses(&mut self) -> Vec<VmStatus> {
        match self.reconciler.answer(&self.kernel, Request::ListVms { brief: false }, self.now) {
            Answer::Vms { vms } => vms,
            other => panic!("{other:?}"),
        }
    }

    fn partition(&mut self, add: bool, name: &str, cpus: &str) -> Result<(), String> {
        let (cpus, policy) = (Some(cpus.parse().unwrap()), Some(PartitionPolicy::Credit));
        let (name, change) = (name.to_owned(), PartitionChange { cpus, policy, slice_ns: None });
        self.ask(match add {
            true => Request::AddPartition { name, change },
            false => Request::SetPartition { name, change },
        })
    }

    fn partitions(&mut self) -> Vec<PartitionStatus> {
        match self.reconciler.answer(&self.kernel, Request::ListPartitions, self.now) {
            Answer::Partitions { partitions } => partitions,
            other => panic!("{other:?}"),
        }
    }

    fn sets(&mut self) -> Vec<SetStatus> {
        match self.reconciler.answer(&self.kernel, Request::ListSets, self.now) {
            Answer::Sets { sets } => sets,
            other => panic!("{other:?}"),
        }
    }

    fn add_set(
        &mut self,
        name: &str,
        kind: SetKind,
        hard: bool,
        vms: &[&str],
    ) -> Result<(), String> {
        self.ask(Request::AddSet { set: set(name, kind, hard, vms) })
    }

    /// Two nodes of two pCPUs.
    fn two_nodes(&mut self) {
        let sysfs = Sysfs::new("0-3", "0-3", "0-3");
        sysfs.node(0, "0-1", 4 << 20, "10 20").node(1, "2-3", 4 << 20, "20 10");
        self.reconciler.keep_homes(Some(Numa::new(sysfs.read())));
    }

    fn configure(&mut self, text: &str) {
        fs::write(self.dir.path().join("drover.toml"), text).unwrap();
        for _ in 0..3 {
            self.now += CONFIG_INTERVAL;
            self.reconciler.look(&self.kernel, &CpuList::all(4), self.now);
        }
    }
}

fn set(name: &str, kind: SetKind, hard: bool, vms: &[&str]) -> SetSpec {
    let vms = vms.iter().map(|&vm| vm.to_owned()).collect();
    SetSpec { name: name.to_owned(), vms, kind, within: Within::Node, hard }
}

fn open(dir: &Path) -> Reconciler {
    let domains = Domains::new(&Sysfs::new("0-3", "0-3", "0-3").read(), DomainLevel::Llc);
    let delays = Delays::new(&Params::default(), domains.of()).unwrap();
    let (config, state) = (dir.join("drover.toml"), dir.join("state"));
    Reconciler::open(&config, &state, CpuList::all(4), (delays, domains)).unwrap()
}

const POOLS: &str = "[[pool]]\nname = \"prod\"\nreservation = \"100%\"\nexpandable = false\n\
                     [[vm]]\nname = \"vm-*\"\nshares = \"high\"\n";

#[test]
fn a_container_is_told_of_once_its_cgroup_was_read() {
    let mut host = Host::new(1, "");
    let cgroups = tempfile::tempdir().unwrap();
    let web = cgroups.path().join("web");
    host.reconciler.follow(Containers::below(cgroups.path()));
    let names = |host: &mut Host| -> Vec<String> {
        host.statuses().into_iter().map(|vm| vm.name).collect()
    };
    assert_eq!(names(&mut host), [name(1)]);
    // The kernel makes it one as its limit is written, just after all were read.
    fs::create_dir(&web).unwrap();
    fs::write(web.join("cpu.weight"), "100").unwrap();
    fs::write(web.join("cpu.max"), "20000 100000").unwrap();
    host.kernel.set_container(web.metadata().unwrap().ino(), 0, true).unwrap();
    host.kernel.cgroup_changes.set(1);
    assert_eq!(names(&mut host), [name(1)]);
    host.now += Duration::from_secs(1);
    assert_eq!(names(&mut host), [name(1), "/web".to_owned()]);
}

#[test]
fn an_order_is_in_force_at_once_and_outlives_the_daemon() {
    let mut host = Host::new(2, "");
    assert!(host.kernel.vms.borrow().is_empty(), "nothing is asked, nothing is told");
    host.add_pool("prod", 1000).unwrap();
    host.set(1, &[(Key::Reservation, "50%"), (Key::Limit, "200%"), (Key::Pool, "prod")]).unwrap();
    let in_force = host.kernel.vm(1);
    assert_eq!((in_force.reservation_mcpu, in_force.limit_mcpu), (500, Some(2000)));
    assert_eq!((in_force.pool, in_force.shares), (PoolId(1), Shares::NORMAL));
    let mut host = host.restarted();
    assert_eq!(host.kernel.vm(1), in_force);
    assert_eq!(host.kernel.pools.borrow()[&1].reservation_mcpu, 1000);
    let reset = Key::ALL.to_vec();
    host.ask(Request::SetVm { name: name(1), set: Asked::default(), reset }).unwrap();
    assert_eq!(host.kernel.vm(1), VmSettings::default());
    assert!(host.reconciler.saved.vms.is_empty());
}

#[test]
fn weights_are_allotted_while_plain_shares_are_not_enough() {
    let mut host = Host::new(2, "");
    let allot = |host: &mut Host, ms: u64| {
        host.now += Duration::from_millis(ms);
        host.reconciler.allot(&host.kernel, host.now)
    };
    // Nothing is asked: that is said once, and then there is nothing to come back for.
    allot(&mut host, 0);
    assert_eq!(allot(&mut host, 1000), None);
    assert_eq!(host.kernel.allotted.take(), [None]);
    host.set(1, &[(Key::Reservation, "50%")]).unwrap();
    let next = allot(&mut host, 0).unwrap();
    assert!(next >= host.now + Duration::from_millis(50));
    assert_eq!(allot(&mut host, 1), Some(next), "not before it is due");
    allot(&mut host, 1000);
    let messages = host.kernel.allotted.take();
    assert_eq!(messages.len(), 2);
    let message = messages[1].as_ref().unwrap();
    let ids: Vec<u64> = message.iter().map(|of| of.vm_id).collect();
    assert_eq!(ids, [u64::MAX, 1, 2]);
    assert!(message[1].allotment.promised_mcpu >= 500);
    assert_eq!(message[0].allotment.promised_mcpu, 0, "nothing is promised to the host's tasks");
    host.kernel.live.borrow_mut().remove(0);
    host.reconciler.look(&host.kernel, &CpuList::all(4), host.now);
    allot(&mut host, 1000);
    assert_eq!(allot(&mut host, 1000), None);
    assert_eq!(host.kernel.allotted.take(), [None], "who was promised something has gone");
}

#[test]
fn a_refused_order_changes_nothing_anywhere() {
    let mut host = Host::new(2, POOLS);
    host.set(1, &[(Key::Reservation, "260%")]).unwrap();
    let (before, saved) = (host.kernel.vms.borrow().clone(), host.reconciler.saved.clone());
    for (values, said) in [
        (
            &[(Key::Reservation, "101%")][..],
            "101% cannot be reserved: this host has 0% left of 400%",
        ),
        (&[(Key::Reservation, "101%"), (Key::Pool, "prod")], "pool \"prod\" has 100% left of 100%"),
        (&[(Key::Reservation, "50%"), (Key::Limit, "40%")], "more than its limit of 40%"),
        (&[(Key::Pool, "pord")], "there is no pool \"pord\"; did you mean \"prod\"?"),
    ] {
        let reason = host.set(2, values).unwrap_err();
        assert!(reason.contains(said), "{reason}");
        assert_eq!((&*host.kernel.vms.borrow(), &host.reconciler.saved), (&before, &saved));
    }
}

#[test]
fn an_order_can_be_taken_back_whatever_the_file_says() {
    let mut host = Host::new(2, "");
    host.add_pool("prod", 0).unwrap();
    host.set(1, &[(Key::Pool, "prod"), (Key::Reservation, "50%")]).unwrap();
    host.configure(&format!(
        "[[vm]]\nname = {:?}\npool = \"gone\"\nreservation = \"900%\"\n",
        name(1)
    ));
    for reset in [Key::Pool, Key::Reservation] {
        let (name, set) = (name(1), Asked::default());
        host.ask(Request::SetVm { name, set, reset: vec![reset] }).unwrap();
    }
    let troubles = host.statuses().swap_remove(0).troubles;
    assert!(troubles.iter().any(|it| it.contains("\"gone\"")), "{troubles:?}");
    host.set(1, &[(Key::Pool, "prod")]).unwrap();
    host.ask(Request::ForgetVm { name: name(1) }).unwrap();
    assert!(host.set(1, &[(Key::Pool, "none-such")]).is_err());
}

#[test]
fn the_host_says_what_is_promised_and_free_and_what_is_not_kept() {
    let mut host = Host::new(2, "");
    host.set(1, &[(Key::Reservation, "150%")]).unwrap();
    host.configure(&format!("[[vm]]\nname = {:?}\nreservation = \"900%\"\n", name(2)));
    let Answer::Status { status } = host.reconciler.answer(&host.kernel, Request::Status, host.now)
    else {
        panic!("a status was asked for")
    };
    let default = &status.partitions[0];
    assert_eq!((status.vms, status.promised_mcpu), (2, 1500));
    assert_eq!((default.host_mcpu, default.free_mcpu), (Some(400), Some(2100)));
    assert!(
        status.troubles[0].contains(&format!("VM {}: 900% cannot be", name(2))),
        "{:?}",
        status.troubles
    );
    let why = &host.statuses()[1].why;
    let reservation = why.iter().find(|why| why.key == Key::Reservation).unwrap();
    assert_eq!(reservation.value, "0%");
    assert!(reservation.origin.ends_with("where 900% is asked"), "{}", reservation.origin);
}

/// Once it stood by its text: each order that changed a number in it was refused with the others' trouble.
#[test]
fn who_was_refused_before_does_not_stand_in_the_way_of_others() {
    let rule = format!("[[vm]]\nname = \"{}\"\nreservation = \"200%\"\n", name(2));
    let mut host = Host::new(2, "");
    host.set(1, &[(Key::Reservation, "250%")]).unwrap();
    host.configure(&rule);
    let told = host.statuses()[1].troubles.clone();
    assert!(told[0].contains("this host has 110% left"), "{told:?}");
    host.set(1, &[(Key::Reservation, "180%")]).unwrap();
    host.set(2, &[(Key::Shares, "high")]).unwrap();
    let reason = host.set(2, &[(Key::Reservation, "190%")]).unwrap_err();
    assert!(reason.contains("190% cannot be reserved: this host has 180% left"), "{reason}");
    host.set(2, &[(Key::Reservation, "180%")]).unwrap();
    let reason = host.set(1, &[(Key::Reservation, "230%")]).unwrap_err();
    assert!(
        reason.starts_with(&format!("VM {}: nothing was changed: 230% cannot", name(1))),
        "{reason}"
    );
}

#[test]
fn what_a_vm_that_does_not_run_could_never_have_is_refused_too() {
    let mut host = Host::new(1, POOLS);
    host.set(1, &[(Key::Limit, "50%")]).unwrap();
    host.kernel.live.borrow_mut().clear();
    for (asked, said) in [("60%", "more than its limit of 50%"), ("9000%", "more than its limit")] {
        let reason = host.set(1, &[(Key::Reservation, asked)]).unwrap_err();
        assert!(reason.contains(said), "{reason}");
    }
    let much = &[(Key::Limit, "none"), (Key::Reservation, "261%")];
    assert!(host.set(1, much).unwrap_err().contains("this host has 260% left of 400%"));
    host.set(1, &[(Key::Limit, "none"), (Key::Reservation, "260%")]).unwrap();
}

#[test]
fn a_saved_pool_whose_parent_is_gone_does_not_keep_the_daemon_from_starting() {
    let mut host = Host::new(1, POOLS);
    host.add_pool("web", 0).unwrap();
    let inside =
        |parent: &str| PoolChange { parent: Some(parent.to_owned()), ..Default::default() };
    let set = |change| Request::SetPool { name: "web".to_owned(), change };
    host.ask(set(inside("prod"))).unwrap();
    fs::write(host.dir.path().join("drover.toml"), "").unwrap();
    let host = host.restarted();
    assert_eq!(host.kernel.pools.borrow().len(), 1);
    assert_eq!(host.kernel.pools.borrow()[&1].parent, PoolId::ROOT);
}

#[test]
fn a_configuration_that_did_not_fit_is_taken_when_an_order_makes_it_fit() {
    let mut host = Host::new(1, POOLS);
    host.add_pool("web", 0).unwrap();
    let into = |parent: &str| {
        let change = PoolChange { parent: Some(parent.to_owned()), ..Default::default() };
        Request::SetPool { name: "web".to_owned(), change }
    };
    host.ask(into("prod")).unwrap();
    let without_prod = "[[vm]]\nname = \"vm-*\"\nshares = \"low\"\n";
    host.configure(without_prod);
    assert_eq!(host.kernel.vm(1).shares, Shares::HIGH, "the one before it counts");
    host.ask(into("host")).unwrap();
    host.configure(without_prod);
    assert_eq!(host.kernel.vm(1).shares, Shares::LOW);
    assert_eq!(host.kernel.pools.borrow().len(), 1);
}

#[test]
fn a_file_that_becomes_empty_is_no_wish_and_orders_do_not_make_it_settle() {
    let mut host = Host::new(1, POOLS);
    host.configure("");
    assert_eq!(host.kernel.vm(1).shares, Shares::HIGH);
    fs::write(host.dir.path().join("drover.toml"), "# half of a file\n").unwrap();
    for _ in 0..9 {
        host.set(1, &[(Key::Limit, "50%")]).unwrap();
        host.reconciler.look(&host.kernel, &CpuList::all(4), host.now);
    }
    assert_eq!(host.kernel.vm(1).shares, Shares::HIGH);
    host.configure("# a whole one\n");
    assert_eq!(host.kernel.vm(1).shares, Shares::NORMAL);
}

#[test]
fn all_pools_may_be_renamed_at_once() {
    let pools = |letter: char| -> String {
        (0..600).map(|i| format!("[[pool]]\nname = \"{letter}{i}\"\n")).collect()
    };
    let mut host = Host::new(1, &pools('a'));
    host.configure(&pools('b'));
    assert_eq!(host.kernel.pools.borrow().len(), 600);
    host.set(1, &[(Key::Pool, "b599")]).unwrap();
}

#[test]
fn an_order_the_kernel_or_the_disk_does_not_take_is_taken_back() {
    let mut host = Host::new(2, "");
    host.kernel.refuses.set(Some(1));
    assert!(host.set(1, &[(Key::Shares, "5")]).unwrap_err().contains("gone"));
    host.kernel.refuses.set(None);
    fs::write(host.dir.path().join("state"), "a file where the directory should be").unwrap();
    let reason = host.set(2, &[(Key::Shares, "5")]).unwrap_err();
    assert!(reason.contains("cannot save settings"), "{reason}");
    assert_eq!(host.kernel.vm(2), VmSettings::default());
    assert!(host.reconciler.saved.vms.is_empty());
}

#[test]
fn orders_wait_for_a_vm_that_comes_and_are_forgotten() {
    let mut host = Host::new(0, "");
    host.set(1, &[(Key::Shares, "5000")]).unwrap();
    assert!(host.set(1, &[(Key::Reservation, "900%")]).is_err(), "it is held to what the host has");
    let orders =
        |host: &mut Host| match host.reconciler.answer(&host.kernel, Request::ListOrders, host.now)
        {
            Answer::Orders { orders } => orders,
            other => panic!("{other:?}"),
        };
    let listed = orders(&mut host);
    assert_eq!((listed.len(), listed[0].name.as_str(), listed[0].here), (1, &*name(1), false));
    assert_eq!(listed[0].ordered.text(Key::Shares).as_deref(), Some("5000"));
    host = host.restarted();
    host.kernel.live.borrow_mut().extend(FakeKernel::with(1).live.take());
    host.configure("");
    assert_eq!(host.kernel.vm(1).shares, Shares::Exact(5000), "in force as it comes");
    assert!(orders(&mut host)[0].here);
    let forget = || Request::ForgetVm { name: name(1) };
    host.ask(forget()).unwrap();
    assert_eq!(host.kernel.vm(1), VmSettings::default());
    assert!(orders(&mut host).is_empty() && host.reconciler.saved.vms.is_empty());
    assert!(host.ask(forget()).unwrap_err().contains("drover vm orders"));
    let set = Asked { shares: Some(Shares::HIGH), ..Asked::default() };
    for bad in ["", "a\u{1b}[2J"] {
        let order = Request::SetVm { name: bad.to_owned(), set: set.clone(), reset: Vec::new() };
        assert!(host.ask(order).unwrap_err().contains("no name"), "{bad:?}");
    }
}

#[test]
fn pools_come_change_and_go_when_they_are_empty() {
    let mut host = Host::new(1, POOLS);
    assert!(host.add_pool("prod", 0).unwrap_err().contains("drover pool set prod"));
    assert!(host.add_pool("host", 0).unwrap_err().contains("no pool"));
    assert!(host.add_pool("default", 0).unwrap_err().contains("no order"));
    assert!(host.add_pool("much", 4000).unwrap_err().contains("this host has 260% left"));
    host.add_pool("web", 0).unwrap();
    let inside =
        |parent: &str| PoolChange { parent: Some(parent.to_owned()), ..Default::default() };
    let set = |name: &str, change| Request::SetPool { name: name.to_owned(), change };
    host.ask(set("web", inside("prod"))).unwrap();
    let circle = host.ask(set("prod", inside("web"))).unwrap_err();
    assert!(circle.contains("inside itself"), "{circle}");
    host.set(1, &[(Key::Pool, "web")]).unwrap();
    let remove = |name: &str| Request::RemovePool { name: name.to_owned() };
    let reason = host.ask(remove("web")).unwrap_err();
    assert!(reason.contains(&format!("not empty (VM {})", name(1))), "{reason}");
    assert!(host.ask(remove("prod")).unwrap_err().contains("drover.toml:1; remove it there"));
    host.kernel.live.borrow_mut().clear();
    let reason = host.ask(remove("web")).unwrap_err();
    assert!(reason.contains("which does not run"), "{reason}");
    host.ask(Request::SetVm { name: name(1), set: Asked::default(), reset: vec![Key::Pool] })
        .unwrap();
    host.kernel.vms.borrow_mut().clear();
    host.ask(remove("web")).unwrap();
    assert_eq!(host.kernel.pools.borrow().len(), 1);
}

#[test]
fn the_configuration_is_followed_and_a_bad_one_is_not() {
    let mut host = Host::new(1, "");
    host.configure(POOLS);
    assert_eq!((host.kernel.vm(1).shares, host.kernel.pools.borrow().len()), (Shares::HIGH, 1));
    host.configure("[[pool]]\nname = ");
    assert_eq!((host.kernel.vm(1).shares, host.kernel.pools.borrow().len()), (Shares::HIGH, 1));
    host.set(1, &[(Key::Shares, "7"), (Key::Pool, "prod")]).unwrap();
    assert_eq!(host.kernel.vm(1).shares, Shares::Exact(7), "the order has the last word");
    host.configure("# nothing\n");
    assert_eq!((host.kernel.vm(1).pool, host.kernel.pools.borrow().len()), (PoolId::ROOT, 0));
    let status = host.statuses().remove(0);
    assert!(
        status.troubles[0].contains("pool \"prod\" of drover vm set is not there"),
        "{status:?}"
    );
}

fn host_status(host: &mut Host) -> HostStatus {
    match host.reconciler.answer(&host.kernel, Request::Status, host.now) {
        Answer::Status { status } => *status,
        answer => panic!("a status was asked for: {answer:?}"),
    }
}

#[test]
fn a_configuration_with_a_fault_is_among_what_is_not_kept_until_it_is_mended() {
    let mut host = Host::new(1, POOLS);
    assert_eq!(
        (host_status(&mut host).config_fault, host_status(&mut host).troubles),
        (None, vec![])
    );
    host.configure("[[vm]]\nname = \"web\"\nshares = \"plenty\"\n");
    let status = host_status(&mut host);
    let fault = status.config_fault.expect("it is told");
    assert!(fault.contains("drover.toml:3: ") && fault.contains("shares"), "{fault}");
    assert_eq!(status.troubles, [format!("{fault}; the configuration before it still counts")]);
    host.configure(POOLS);
    assert_eq!(
        (host_status(&mut host).config_fault, host_status(&mut host).troubles),
        (None, vec![])
    );
}

#[test]
fn a_pool_of_an_order_needs_its_parent_to_stay_configured() {
    let mut host = Host::new(0, POOLS);
    host.add_pool("web", 0).unwrap();
    let change = PoolChange { parent: Some("prod".to_owned()), ..Default::default() };
    host.ask(Request::SetPool { name: "web".to_owned(), change }).unwrap();
    host.configure("# nothing\n");
    assert_eq!(host.kernel.pools.borrow().len(), 2, "the configuration before it still counts");
}

#[test]
fn a_refused_order_says_that_nothing_was_changed_and_how_to_mend_it() {
    let mut host = Host::new(1, "");
    host.set(1, &[(Key::Reservation, "120%")]).unwrap();
    for is_here in [true, false] {
        if !is_here {
            host.kernel.live.borrow_mut().clear();
            host.reconciler.look(&host.kernel, &CpuList::all(4), host.now);
        }
        let refused = host.set(1, &[(Key::Limit, "90%")]).unwrap_err();
        let begins = format!("VM {}: nothing was changed: 120% reserved", name(1));
        assert!(refused.starts_with(&begins), "{refused}");
        let says = ["its limit of 90%", "raise the limit to 120%", "--reservation 90%"];
        assert!(says.iter().all(|it| refused.contains(it)), "{refused}");
        assert!(!refused.contains("limit holds"), "{refused}");
    }
}

/// What is said of promises that cannot be kept; one thing at most.
fn told_of_shortages(host: &Host) -> String {
    let plan = &host.reconciler.plan;
    let told: Vec<String> = plan.shortages.iter().map(|short| shortfall(plan, short)).collect();
    assert!(told.len() <= 1, "{told:?}");
    told.concat()
}

#[test]
fn promises_on_a_set_shrink_with_it_and_come_back_with_it() {
    let mut host = Host::new(3, "");
    for (id, cpus) in [(1, "2-3"), (2, "2-3"), (3, "0-1")] {
        host.reconciler.registry.confine(id, Affinity::within(cpus.parse().unwrap()));
    }
    host.set(1, &[(Key::Reservation, "120%")]).unwrap();
    host.set(3, &[(Key::Reservation, "150%")]).unwrap();
    let refusal = host.set(2, &[(Key::Reservation, "90%")]).unwrap_err();
    assert!(refusal.contains("pCPUs 2-3 have 80% left of 200%"), "{refusal}");
    host.set(2, &[(Key::Reservation, "80%")]).unwrap();
    let kept = |host: &Host| [1, 2, 3].map(|id| host.kernel.vm(id).reservation_mcpu);
    assert_eq!(kept(&host), [1200, 800, 1500]);
    host.reconciler.look(&host.kernel, &CpuList::all(3), host.now);
    assert_eq!(kept(&host), [600, 400, 1500]);
    let told = told_of_shortages(&host);
    assert!(told.contains("200% are promised on pCPU 2 and 100% can be kept;"), "{told}");
    assert!(told.contains("80% -> 40%") && !told.contains("150%"), "{told}");
    let refusal = host.set(2, &[(Key::Reservation, "81%")]).unwrap_err();
    assert!(refusal.contains("81% cannot be reserved"), "{refusal}");
    host.set(1, &[(Key::Reservation, "110%")]).unwrap();
    let refusal = host.set(2, &[(Key::Reservation, "90%")]).unwrap_err();
    assert!(refusal.contains("200% would be promised on pCPU 2 and 100% can be kept"), "{refusal}");
    host.reconciler.look(&host.kernel, &CpuList::all(4), host.now);
    assert_eq!(kept(&host), [1100, 800, 1500]);
}

#[test]
fn promises_shrink_with_the_host_and_come_back_with_it() {
    let mut host = Host::new(2, "");
    host.set(1, &[(Key::Reservation, "200%")]).unwrap();
    host.set(2, &[(Key::Reservation, "100%")]).unwrap();
    host.reconciler.look(&host.kernel, &CpuList::all(2), host.now);
    let kept = |host: &Host| [1, 2].map(|id| host.kernel.vm(id).reservation_mcpu);
    assert_eq!(kept(&host), [1200, 600]);
    let told = told_of_shortages(&host);
    assert!(told.contains("300% are promised and 180% can be kept"), "{told}");
    assert!(told.contains("200% -> 120%"), "{told}");
    assert!(host.set(2, &[(Key::Reservation, "110%")]).unwrap_err().contains("can be kept"));
    host.set(2, &[(Key::Reservation, "50%")]).unwrap();
    host.reconciler.look(&host.kernel, &CpuList::all(4), host.now);
    assert_eq!(kept(&host), [2000, 500]);
}

#[test]
fn a_vm_that_comes_back_has_what_was_saved_for_its_name_and_a_renamed_one_has_not() {
    let mut host = Host::new(1, "");
    host.set(1, &[(Key::Shares, "7")]).unwrap();
    let mut vm = host.kernel.live.borrow()[0];
    vm.id = 5;
    host.kernel.live.replace(vec![vm]);
    host.reconciler.look(&host.kernel, &CpuList::all(4), host.now);
    assert_eq!(host.kernel.vm(5).shares, Shares::Exact(7), "restarted");
    (vm.id, vm.tgid) = (6, 77);
    host.kernel.live.replace(vec![vm]);
    host.reconciler.look(&host.kernel, &CpuList::all(4), host.now);
    assert_eq!(host.kernel.vm(6), VmSettings::default(), "called something else now");
}

#[test]
fn why_names_the_source_of_every_value() {
    let mut host = Host::new(1, POOLS);
    host.set(1, &[(Key::Limit, "150%")]).unwrap();
    let status = host.statuses().remove(0);
    let said: Vec<String> =
        status.why.iter().map(|why| format!("{} {}", why.value, why.origin)).collect();
    let file = host.dir.path().join("drover.toml");
    assert_eq!(said[0], format!("high {}:5 (vm-*)", file.display()));
    assert_eq!(said[1..3], ["0% default", "150% drover vm set"]);
    assert_eq!((status.shares, status.limit_mcpu), (4000, Some(1500)));
}

#[test]
fn what_is_owed_and_got_is_told_once_it_is_known() {
    let mut host = Host::new(2, "");
    assert_eq!(host.statuses()[0].owed_pcpus, None);
    for vm in host.kernel.live.borrow_mut().iter_mut() {
        (vm.vcpu_run_ns, vm.ready_ns) = (1_000_000_000, 1_000_000_000);
    }
    host.now += std::time::Duration::from_secs(1);
    let status = host.statuses().remove(0);
    assert_eq!(status.got_pcpus, Some(1.0));
    assert!((status.owed_pcpus.unwrap() - 2.0).abs() < 1e-9, "four pCPUs among two: {status:?}");
}

#[test]
fn the_past_of_a_vm_is_told_also_once_it_has_gone() {
    let mut host = Host::new(1, "");
    for second in 1..=3 {
        for vm in host.kernel.live.borrow_mut().iter_mut() {
            (vm.vcpu_run_ns, vm.ready_ns) = (second * 500_000_000, second * 1_000_000_000);
        }
        if second == 3 {
            host.kernel.live.borrow_mut().clear();
        }
        host.now += std::time::Duration::from_secs(1);
        host.reconciler.look(&host.kernel, &CpuList::all(4), host.now);
    }
    let past = Request::ListHistory { seconds: 10, step_s: 1 };
    let Answer::History { history } = host.reconciler.answer(&host.kernel, past, host.now) else {
        panic!("it is told")
    };
    let [vm] = &history.vms[..] else { panic!("{history:?}") };
    assert_eq!((&vm.name, vm.is_here), (&name(1), false));
    assert_eq!((&vm.ready_mcpu, &vm.got_mcpu), (&vec![Some(1000); 2], &vec![Some(500); 2]));
    assert_eq!(vm.owed_mcpu, [Some(1500); 2], "all it wanted");
}

#[test]
fn a_partition_is_in_force_at_once_and_outlives_the_daemon() {
    let mut host = Host::new(2, "");
    assert!(host.kernel.pcpus.borrow().is_empty(), "nothing is asked, nothing is told");
    host.partition(true, "io", "2-3").unwrap();
    host.set(1, &[(Key::Partition, "io"), (Key::Limit, "50%")]).unwrap();
    let in_force = BTreeMap::from([(2, (1, 1)), (3, (1, 1))]);
    assert_eq!(*host.kernel.pcpus.borrow(), in_force);
    let settings = host.kernel.partitions.borrow()[&1];
    assert_eq!((settings.policy, settings.slice_ns), (PartitionPolicy::Credit, 30_000_000));
    assert_eq!(host.kernel.vm(1).partition, PartitionId(1));
    assert_eq!(host.statuses()[0].partition, "io");
    let mut host = host.restarted();
    assert_eq!(*host.kernel.pcpus.borrow(), in_force);
    assert_eq!(host.kernel.vm(1).partition, PartitionId(1));
    let listed = host.partitions();
    assert_eq!((listed[0].name.as_str(), &listed[0].cpus), ("default", &"0-1".parse().ok()));
    assert_eq!((listed[1].slice_ms, &listed[1].vms), (30.0, &vec![name(1)]));
    host.partition(false, "io", "1-2").unwrap();
    let moved = BTreeMap::from([(1, (1, 1)), (2, (1, 1)), (3, (0, 0))]);
    assert_eq!(*host.kernel.pcpus.borrow(), moved);
    let order = Request::RemovePartition { name: "io".to_owned() };
    let reason = host.ask(order.clone()).unwrap_err();
    assert!(reason.contains(&format!("not empty (VM {})", name(1))), "{reason}");
    assert!(reason.contains("drover vm set NAME --partition default"), "{reason}");
    host.ask(Request::SetVm { name: name(1), set: Asked::default(), reset: vec![Key::Partition] })
        .unwrap();
    host.ask(order).unwrap();
    assert!(host.kernel.pcpus.borrow().values().all(|it| *it == (0, 0)));
    assert_eq!((host.partitions().len(), host.reconciler.saved.partitions.len()), (1, 0));
}

#[test]
fn partitions_come_from_the_file_and_orders_go_over_them() {
    let mut host = Host::new(1, "[[partition]]\nname = \"io\"\ncpus = \"2-3\"\n");
    let cpus = |host: &mut Host| host.partitions()[1].cpus.clone().unwrap().to_string();
    assert_eq!((host.partitions().len(), cpus(&mut host)), (2, "2-3".to_owned()));
    assert!(host.partition(true, "io", "1").unwrap_err().contains("there is a partition"));
    host.partition(false, "io", "3").unwrap();
    host.partition(true, "rt", "2").unwrap();
    let mut host = host.restarted();
    assert_eq!((host.partitions().len(), cpus(&mut host)), (3, "3".to_owned()));
    for name in ["rt", "io"] {
        host.ask(Request::RemovePartition { name: name.to_owned() }).unwrap();
    }
    assert_eq!(cpus(&mut host), "2-3");
    let told = host.ask(Request::RemovePartition { name: "io".to_owned() }).unwrap_err();
    assert!(told.contains("drover.toml:1; remove it there"), "{told}");
    host.configure("[[partition]]\nname = \"io\"\ncpus = \"0-3\"\n");
    assert_eq!(cpus(&mut host), "2-3", "the host's own tasks need a pCPU");
    host.configure("");
}

#[test]
fn partitions_that_cannot_be_are_refused_before_anything_is_told() {
    let mut host = Host::new(3, "");
    host.partition(true, "io", "3").unwrap();
    host.set(1, &[(Key::Reservation, "200%")]).unwrap();
    host.set(2, &[(Key::Partition, "io")]).unwrap();
    let (pcpus, saved) = (host.kernel.pcpus.borrow().clone(), host.reconciler.saved.clone());
    let refusals = [
        (host.partition(true, "io", "1"), "there is a partition \"io\"; change it with"),
        (host.partition(true, "rt", "2-3"), "has pCPU 3, and so has \"io\""),
        (host.partition(true, "rt", "4"), "pCPU 4, which is not online here; use some of 0-3"),
        (host.partition(true, "rt", "0-2"), "the last pCPU of partition \"default\""),
        (host.partition(true, "rt", "1-2"), "partition \"default\" has 90% left of 100%"),
        (host.partition(false, "oi", "1"), "no partition \"oi\"; known are io, default"),
        (host.partition(false, "default", "1"), "change those"),
        (host.set(1, &[(Key::Partition, "io")]), "reservation 200% of drover vm set is for"),
        (host.set(2, &[(Key::Cosched, "gang")]), "cosched gang of drover vm set is for"),
        (
            host.set(2, &[(Key::Reservation, "1%")]),
            "is for partitions of policy share, and it is to be in \"io\"",
        ),
        (host.set(3, &[(Key::Partition, "oi")]), "known are io, default"),
        (
            host.ask(Request::AddPartition {
                name: "rt".to_owned(),
                change: PartitionChange::default(),
            }),
            "no pCPUs; give it some",
        ),
    ];
    for (refusal, said) in refusals {
        let reason = refusal.unwrap_err();
        assert!(reason.contains(said) && reason.lines().count() == 1, "{reason}");
    }
    assert_eq!((&*host.kernel.pcpus.borrow(), &host.reconciler.saved), (&pcpus, &saved));
}

#[test]
fn a_partition_that_shares_promises_what_its_pcpus_hold() {
    let mut host = Host::new(3, "");
    let share = |cpus: &str| PartitionChange {
        cpus: Some(cpus.parse().unwrap()),
        policy: Some(PartitionPolicy::Share),
        slice_ns: None,
    };
    let add = Request::AddPartition { name: "batch".to_owned(), change: share("2-3") };
    host.ask(add).unwrap();
    host.set(1, &[(Key::Partition, "batch"), (Key::Reservation, "150%")]).unwrap();
    host.set(3, &[(Key::Reservation, "100%")]).unwrap();
    host.set(2, &[(Key::Partition, "batch"), (Key::Cosched, "gang")]).unwrap();
    let refusal = host.set(2, &[(Key::Reservation, "60%")]).unwrap_err();
    assert!(refusal.contains("partition \"batch\" has 50% left of 200%"), "{refusal}");
    host.set(2, &[(Key::Reservation, "50%")]).unwrap();
    let kept = |host: &Host| [1, 2, 3].map(|id| host.kernel.vm(id).reservation_mcpu);
    assert_eq!(kept(&host), [1500, 500, 1000]);
    assert_eq!(host.kernel.vm(2).cosched, Cosched::Gang);
    let rooms = |host: &mut Host| -> Vec<_> {
        host.partitions().iter().map(|it| (it.size_mcpu, it.promised_mcpu, it.free_mcpu)).collect()
    };
    let default = (Some(2000), Some(1000), Some(800));
    assert_eq!(rooms(&mut host), [default, (Some(2000), Some(2000), Some(0))]);
    let refusal = host
        .ask(Request::SetPartition { name: "batch".to_owned(), change: share("3") })
        .unwrap_err();
    assert!(refusal.contains("partition \"batch\" has"), "{refusal}");
    // Its pCPUs go one by one, and come back.
    host.reconciler.look(&host.kernel, &CpuList::all(3), host.now);
    assert_eq!(kept(&host), [750, 250, 1000]);
    let told = told_of_shortages(&host);
    assert!(told.contains("200% are promised on pCPU 2 and 100% can be kept"), "{told}");
    host.reconciler.look(&host.kernel, &CpuList::all(2), host.now);
    assert_eq!(kept(&host), [0, 0, 1000]);
    host.reconciler.look(&host.kernel, &CpuList::all(4), host.now);
    assert_eq!(kept(&host), [1500, 500, 1000]);
}

#[test]
fn what_the_kernel_does_not_take_of_a_move_is_taken_back() {
    let mut host = Host::new(1, "");
    host.partition(true, "io", "3").unwrap();
    host.kernel.refuses.set(Some(1));
    assert!(host.set(1, &[(Key::Partition, "io")]).is_err());
    assert_eq!(
        (host.kernel.vm(1), host.statuses()[0].partition.as_str()),
        (VmSettings::default(), "default")
    );
}

#[test]
fn a_partition_that_loses_its_last_pcpu_is_said_and_its_vms_run_elsewhere() {
    let mut host = Host::new(1, "");
    host.partition(true, "io", "2-3").unwrap();
    host.set(1, &[(Key::Partition, "io")]).unwrap();
    let told = |host: &Host| {
        host.reconciler
            .said
            .iter()
            .filter(|line| line.contains("its last pCPU"))
            .cloned()
            .collect::<Vec<_>>()
    };
    host.reconciler.look(&host.kernel, &CpuList::all(3), host.now);
    assert!(told(&host).is_empty(), "it keeps the other");
    assert_eq!(host.partitions()[1].offline, "3".parse().ok());
    host.reconciler.look(&host.kernel, &CpuList::all(2), host.now);
    let line =
        "partition \"io\": its last pCPU is offline; until one is back, VM run where they may";
    assert_eq!(told(&host), [line.replace("VM", &name(1))]);
    host.reconciler.look(&host.kernel, &CpuList::all(4), host.now);
    assert!(told(&host).is_empty());
}

#[test]
fn an_order_for_a_name_is_for_the_first_and_its_limit_for_all_and_may_be_lowered() {
    let mut host = Host::new(1, "");
    // Processes of one memory have one command line.
    let same = |id| KernelVm { tgid: u32::MAX - 1, ..KernelVm::for_test(id) };
    host.kernel.live.replace((11..=16).map(same).collect());
    host.set(1, &[(Key::Limit, "50%"), (Key::Reservation, "30%")]).unwrap();
    let in_force = |host: &Host| -> Vec<(u32, u32)> {
        let of = |id| (host.kernel.vm(id).pool.0, host.kernel.vm(id).reservation_mcpu);
        (11..=16).map(of).collect()
    };
    assert_eq!(in_force(&host), [(1, 300), (1, 0), (1, 0), (1, 0), (1, 0), (1, 0)]);
    assert_eq!(host.kernel.pools.borrow()[&1].limit_mcpu, Some(500));
    host.set(1, &[(Key::Limit, "20%"), (Key::Reservation, "0%")]).unwrap();
    assert_eq!(host.kernel.pools.borrow()[&1].limit_mcpu, Some(200));
    let Answer::Orders { orders } =
        host.reconciler.answer(&host.kernel, Request::ListOrders, host.now)
    else {
        panic!("orders were asked for");
    };
    assert_eq!((orders[0].here, orders[0].vms), (true, 6));
    let why = &host.statuses()[0].why[2];
    assert_eq!(why.origin, "drover vm set, for all 6 VMs of that name together");
    // An order for one of the others alone goes over that.
    let other = host.statuses()[1].name.clone();
    assert_eq!(other, format!("{}-{}", name(1), u32::MAX - 1));
    let asked = Asked { limit: Some(Limit::At(700)), ..Asked::default() };
    host.ask(Request::SetVm { name: other, set: asked, reset: Vec::new() }).unwrap();
    assert_eq!((in_force(&host)[1].0, host.kernel.vm(12).limit_mcpu), (0, Some(700)));
    // One that comes after the first has gone has all that is asked for it, as one that is restarted.
    host.set(1, &[(Key::Reservation, "10%")]).unwrap();
    host.kernel.live.replace(vec![same(13)]);
    host.kernel.vms.borrow_mut().retain(|id, _| *id == 13);
    host.reconciler.look(&host.kernel, &CpuList::all(4), host.now);
    assert!(host.kernel.pools.borrow().is_empty());
    let vm = host.kernel.vm(13);
    assert_eq!((vm.limit_mcpu, vm.reservation_mcpu), (Some(200), 100));
    assert_eq!(host.statuses()[0].name, name(1));
}

/// By hand: `cargo test --release -p drover-host vm_list_takes -- --ignored --nocapture`.
#[test]
#[ignore = "it is timed"]
fn vm_list_takes_less_than_100_ms_for_2000_vms() {
    let confined = |id: u64| match id % 3 {
        0 => Affinity::within((id % 4).to_string().parse().unwrap()),
        1 => Affinity::of_vcpus([0, 1].map(|vcpu| ((id + vcpu) % 4).to_string().parse().unwrap())),
        _ => Affinity::ANYWHERE,
    };
    for (what, confine) in [("anywhere", false), ("confined", true)] {
        for count in [500, 1000, 2000] {
            let mut host = Host::new(count, "[[vm]]\nname = \"vm-*\"\nlimit = \"50%\"\n");
            // Each has threads to be asked where they may run.
            host.kernel.live.borrow_mut().iter_mut().for_each(|vm| vm.tgid = std::process::id());
            for vm in host.kernel.live.borrow_mut().iter_mut() {
                (vm.vcpu_run_ns, vm.ready_ns) = (1_000_000_000, 1_000_000_000);
                if confine {
                    host.reconciler.registry.confine(vm.id, confined(vm.id));
                }
            }
            host.now += std::time::Duration::from_secs(1);
            assert_eq!(host.statuses().len(), count as usize);
            let used = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
            let (begun, before) = (Instant::now(), used());
            assert!(host.statuses().iter().all(|vm| vm.owed_pcpus.is_some()));
            let (took, cpu) = (begun.elapsed().as_millis(), (used() - before).as_millis());
            println!("{count} VMs, {what}: {took} ms, of which {cpu} ms of CPU time");
            assert!(cpu < 100 || count < 2000);
        }
    }
}

const SETS: &str = "[[set]]\nname = \"shop\"\nvms = [\"web\", \"db\"]\nkind = \"affine\"\nhard = true\n\
                    [numa]\nplacement = \"spread\"\n";

#[test]
fn sets_come_from_the_file_and_from_orders_and_outlive_the_daemon() {
    let mut host = Host::new(1, SETS);
    host.two_nodes();
    let vm = name(1);
    host.add_set("far", SetKind::AntiAffine, false, &[&vm, "gone"]).unwrap();
    let listed = host.sets();
    let origins: Vec<&str> = listed.iter().map(|it| it.origin.as_str()).collect();
    assert!(origins[0].ends_with("drover.toml:1") && origins[1] == "drover set", "{origins:?}");
    assert_eq!(
        (&listed[1].vms, &listed[1].absent),
        (&vec![vm, "gone".into()], &vec!["gone".into()])
    );
    assert!(listed.iter().all(|it| it.troubles.is_empty()), "{listed:?}");
    let wished = host.reconciler.wishes.clone();
    assert_eq!((wished.heuristic.name(), wished.sets.len()), ("spread", 2));
    let mut host = host.restarted();
    assert_eq!(host.reconciler.wishes.sets, wished.sets);
    let one_node = host.sets()[0].troubles.clone();
    assert!(one_node[0].contains("one last-level cache"), "{one_node:?}");
    host.ask(Request::RemoveSet { name: "far".to_owned() }).unwrap();
    host.configure("# nothing\n");
    assert_eq!((host.sets(), host.reconciler.saved.sets.len()), (Vec::new(), 0));
}

#[test]
fn sets_that_cannot_be_kept_are_refused_in_one_line_and_change_nothing() {
    let mut host = Host::new(1, SETS);
    let refused = host.add_set("far", SetKind::AntiAffine, true, &["a", "b"]).unwrap_err();
    assert!(refused.contains("each on a NUMA node of its own, and this host has 1"), "{refused}");
    host.two_nodes();
    host.add_set("far", SetKind::AntiAffine, true, &["a", "b"]).unwrap();
    let saved = host.reconciler.saved.clone();
    let remove = |name: &str| Request::RemoveSet { name: name.to_owned() };
    let refusals = [
        (
            host.add_set("x", SetKind::AntiAffine, true, &["web", "a", "db"]),
            "\"shop\" has VMs web and db together, \"x\" has them apart",
        ),
        (
            host.add_set("x", SetKind::Affine, true, &["b", "a"]),
            "\"x\" has VMs a and b together, \"far\" has them apart",
        ),
        (
            host.add_set("x", SetKind::AntiAffine, true, &["c", "d", "e"]),
            "keeps 3 VMs each on a NUMA node of its own, and this host has 2",
        ),
        (host.add_set("far", SetKind::Affine, false, &["c", "d"]), "`drover set remove far` first"),
        (
            host.add_set("shop", SetKind::Affine, false, &["c", "d"]),
            "drover.toml:1; change it there",
        ),
        (host.add_set("x", SetKind::Affine, false, &["c"]), "name two or more"),
        (host.ask(remove("shop")), "drover.toml:1; remove it there"),
        (host.ask(remove("fra")), "there is no set \"fra\"; known are far"),
    ];
    for (refusal, said) in refusals {
        let reason = refusal.unwrap_err();
        assert!(reason.contains(said) && reason.lines().count() == 1, "{said}: {reason}");
    }
    assert_eq!(host.reconciler.saved, saved);
    assert_eq!(host.reconciler.wishes.sets.len(), 2);
    // A file that does not fit what was ordered waits.
    host.configure(&SETS.replace("\"web\", \"db\"", "\"a\", \"b\""));
    assert_eq!(host.sets()[0].vms, ["web", "db"]);
    host.ask(remove("far")).unwrap();
    host.configure(&SETS.replace("\"web\", \"db\"", "\"a\", \"b\""));
    assert_eq!(host.sets()[0].vms, ["a", "b"]);
}

#[test]
fn soft_sets_that_contradict_each_other_are_taken_and_it_is_said_which_wins() {
    let mut host = Host::new(1, SETS);
    host.two_nodes();
    host.add_set("far", SetKind::AntiAffine, false, &["web", "db"]).unwrap();
    for set in host.sets() {
        assert_eq!(set.troubles.len(), 1);
        assert!(set.troubles[0].ends_with("\"shop\" wins, which is hard"), "{:?}", set.troubles);
    }
}

#[test]
fn what_is_asked_of_a_vms_homes_reaches_them() {
    let mut host = Host::new(2, "[[vm]]\nname = \"*\"\nmax_per_node = 3\n");
    let asked = [(Key::MaxPerNode, "2"), (Key::Consolidate, "on"), (Key::Reservation, "50%")];
    host.set(1, &asked).unwrap();
    let of = |host: &Host| -> Vec<_> {
        let cpus = host.reconciler.cpus_of_divisions();
        let divisions = host.reconciler.divisions(&cpus);
        let seen = divisions.iter().flat_map(|it| &it.vms);
        seen.map(|it| (it.max_per_node, it.consolidate, it.reserved_pcpus)).collect()
    };
    assert_eq!(of(&host), [(Some(2), Consolidate::On, 0.5), (Some(3), Consolidate::Auto, 0.0)]);
    host.set(1, &[(Key::MaxPerNode, "none"), (Key::Consolidate, "auto")]).unwrap();
    assert_eq!(of(&host)[0], (None, Consolidate::Auto, 0.5));
    let host = host.restarted();
    assert_eq!(of(&host)[0], (None, Consolidate::Auto, 0.5));
}

#[test]
fn who_asks_about_homes_on_a_host_of_one_node_is_told_so() {
    let mut host = Host::new(1, "");
    let mut ask = |request| host.reconciler.answer(&host.kernel, request, host.now);
    assert_eq!(ask(Request::ListNodes), Answer::Nodes { nodes: Vec::new() });
    assert_eq!(ask(Request::PlanHomes), Answer::Moves { moves: None });
    assert_eq!(ask(Request::AdviseVm { name: name(1) }), Answer::Advice { advice: None });
    let Answer::Refused { reason } = ask(Request::AdviseVm { name: "nobody".to_owned() }) else {
        panic!("there is no such VM");
    };
    assert!(reason.contains("there is no VM \"nobody\"; `drover vm list`"), "{reason}");
}

/// A host of 4 pCPUs with `back` (VM 1), which does both, a VM with I/O (2) and three that compute, as long as it is looked at.
struct Mixed {
    host: Host,
    begun: Instant,
    second: u64,
}

impl Mixed {
    fn new() -> Self {
        let mut host = Host::new(5, "");
        host.reconciler.profile_by(Profiles::for_test());
        let begun = host.now;
        Self { host, begun, second: 0 }
    }

    /// So many seconds pass, with these pCPUs online.
    fn pass(&mut self, seconds: u64, online: &str) {
        const MS: u64 = 1_000_000;
        let each = |vcpu_ms, sleeps| Counted {
            vcpu_ns: vcpu_ms * MS,
            vcpu_sleeps: sleeps,
            helper_sleeps: sleeps,
            ..Counted::default()
        };
        for _ in 0..seconds {
            self.second += 1;
            let seconds = self.second;
            let profiles = self.host.reconciler.profiles.as_mut().unwrap();
            for id in 1..=5 {
                let each = match id {
                    1 => each(900, 300),
                    2 => each(200, 2000),
                    _ => each(2000, 0),
                };
                let counted = Counted {
                    vcpu_ns: seconds * each.vcpu_ns,
                    vcpu_sleeps: seconds * each.vcpu_sleeps,
                    helper_sleeps: seconds * each.helper_sleeps,
                    ..each
                };
                profiles.note(id, counted, Duration::from_secs(seconds));
            }
            self.host.now = self.begun + Duration::from_secs(seconds);
            let (kernel, now) = (&self.host.kernel, self.host.now);
            self.host.reconciler.look(kernel, &online.parse().unwrap(), now);
        }
    }

    fn arranged(&mut self) -> Vec<(String, String, Vec<String>)> {
        let listed = self.host.partitions();
        let all = listed.into_iter().map(|it| (it.name, it.cpus.unwrap().to_string(), it.vms));
        all.collect()
    }
}

fn partition_of(name: &str, cpus: &str, vms: &[u64]) -> (String, String, Vec<String>) {
    (name.to_owned(), cpus.to_owned(), vms.iter().map(|id| self::name(*id)).collect())
}

#[test]
fn partitions_are_arranged_by_what_vms_do_only_if_asked() {
    let mut mixed = Mixed::new();
    // As the kernel says it of who may run anywhere.
    for id in 1..=5 {
        mixed.host.reconciler.registry.confine(id, Affinity::within(CpuList::all(4)));
    }
    mixed.pass(30, "0-3");
    assert_eq!(mixed.arranged().len(), 1, "off by default");
    let Answer::Arrangement { is_on: false, arrangement } =
        mixed.host.reconciler.answer(&mixed.host.kernel, Request::PlanPartitions, mixed.host.now)
    else {
        panic!("no plan");
    };
    assert_eq!(arrangement.steps.len(), 2 + 4, "{arrangement:?}");
    assert_eq!(mixed.arranged().len(), 1, "a plan does nothing");
    mixed.host.ask(Request::SetAutoPartitions { on: true }).unwrap();
    mixed.pass(12, "0-3");
    let as_planned = [
        partition_of("default", "0", &[1]),
        partition_of("auto-io", "1", &[2]),
        partition_of("auto-cpu", "2-3", &[3, 4, 5]),
    ];
    assert_eq!(mixed.arranged(), as_planned);
    mixed.pass(120, "0-3");
    assert_eq!(mixed.arranged(), as_planned, "it stays");
    mixed.host.ask(Request::SetAutoPartitions { on: false }).unwrap();
    mixed.pass(60, "0-3");
    assert_eq!(mixed.arranged(), as_planned, "what is there stays when it is off again");
}

#[test]
fn a_partition_emptied_by_hotplug_has_a_pcpu_again_within_a_second() {
    let mut mixed = Mixed::new();
    mixed.host.ask(Request::SetAutoPartitions { on: true }).unwrap();
    mixed.pass(20, "0-3");
    assert_eq!(mixed.arranged().len(), 3);
    // While it rests after what it did.
    mixed.pass(1, "0,2-3");
    let arranged = mixed.arranged();
    assert_eq!(arranged[1], partition_of("auto-io", "2", &[2]), "{arranged:?}");
    assert_eq!(arranged[2], partition_of("auto-cpu", "3", &[3, 4, 5]), "{arranged:?}");
    mixed.pass(1, "0,3");
    assert_eq!(mixed.arranged().len(), 1, "two pCPUs are too few to divide");
}

#[test]
fn partitions_go_though_a_vm_that_was_placed_there_has_ended() {
    let mut mixed = Mixed::new();
    mixed.host.ask(Request::SetAutoPartitions { on: true }).unwrap();
    mixed.host.set(2, &[(Key::Shares, "700")]).unwrap();
    mixed.pass(20, "0-3");
    assert_eq!(mixed.arranged()[1], partition_of("auto-io", "1", &[2]));
    let settings = mixed.host.kernel.vm(2);
    assert_eq!(settings.shares, Shares::Exact(700), "it left with what it had");
    mixed.host.kernel.live.borrow_mut().retain(|vm| vm.id != 2);
    mixed.host.kernel.vms.borrow_mut().remove(&2);
    mixed.pass(60, "0-3");
    assert_eq!(mixed.arranged(), [partition_of("default", "0-3", &[1, 3, 4, 5])]);
    let order = &mixed.host.reconciler.saved.vms[&name(2)];
    assert_eq!((order.shares, &order.partition), (Some(Shares::Exact(700)), &None));
}

/// What an order would change, as whose, value, from and to.
fn would_change(host: &mut Host, order: Request) -> Result<Vec<[String; 4]>, String> {
    let order = Box::new(order);
    match host.reconciler.answer(&host.kernel, Request::DryRun { order }, host.now) {
        Answer::Changes { changes } => Ok(changes.into_iter().map(cells).collect()),
        Answer::Refused { reason } => Err(reason),
        other => panic!("{other:?}"),
    }
}

fn cells(change: Change) -> [String; 4] {
    let key = change.key.map_or("", Key::name).to_owned();
    [change.whose, key, change.from.unwrap_or_default(), change.to.unwrap_or_default()]
}

fn vm_order(vm: String, values: &[(Key, &str)]) -> Request {
    let mut set = Asked::default();
    values.iter().for_each(|(key, text)| set.read(*key, text).unwrap());
    Request::SetVm { name: vm, set, reset: Vec::new() }
}

#[test]
fn a_dry_run_says_what_an_order_would_change_and_changes_nothing() {
    let mut host = Host::new(2, "[[vm]]\nname = \"*\"\nshares = 500\n");
    host.add_pool("prod", 1000).unwrap();
    let (saved, vms) = (host.reconciler.saved.clone(), host.kernel.vms.borrow().clone());
    let file = host.dir.path().join("state/settings.json");
    let kept = fs::read_to_string(&file).unwrap();
    let origin = format!("{}:1 (*)", host.dir.path().join("drover.toml").display());
    let order = vm_order(name(1), &[(Key::Shares, "high"), (Key::Reservation, "50%")]);
    let whose = format!("VM {}", name(1));
    assert_eq!(
        would_change(&mut host, order).unwrap(),
        [
            [whose.as_str(), "shares", &format!("500 ({origin})"), "high (drover vm set)"],
            [&whose, "reservation", "0% (default)", "50% (drover vm set)"],
        ]
        .map(|row| row.map(str::to_owned))
    );
    let absent = vm_order("shop".to_owned(), &[(Key::Limit, "100%")]);
    let told = would_change(&mut host, absent).unwrap();
    assert_eq!(told, [["VM shop, which does not run", "limit", "", "100%"].map(str::to_owned)]);
    let change = PoolChange { shares: Some(Shares::HIGH), ..PoolChange::default() };
    let order = Request::SetPool { name: "prod".to_owned(), change };
    let told = would_change(&mut host, order).unwrap();
    let [was, is] = ["normal", "high"].map(|word| format!("shares {word}, reservation 100%"));
    assert_eq!(told, [["pool prod", "", &was, &is].map(str::to_owned)]);
    let told = would_change(&mut host, Request::RemovePool { name: "prod".to_owned() }).unwrap();
    assert_eq!(told, [["pool prod", "", &was, ""].map(str::to_owned)]);
    // What would be refused is, in the same words.
    let too_much = || vm_order(name(2), &[(Key::Reservation, "390%")]);
    let said = would_change(&mut host, too_much()).unwrap_err();
    assert_eq!(Err(said), host.ask(too_much()));
    assert!(
        would_change(&mut host, Request::ListVms { brief: false })
            .unwrap_err()
            .contains("no order")
    );
    assert_eq!((&host.reconciler.saved, &*host.kernel.vms.borrow()), (&saved, &vms));
    assert_eq!(fs::read_to_string(&file).unwrap(), kept);
}

/// Takes the last order back: of whom it was, and what that changes.
fn undo(host: &mut Host) -> Result<(String, Vec<[String; 4]>), String> {
    match host.reconciler.answer(&host.kernel, Request::Undo, host.now) {
        Answer::Undone { whose, changes } => Ok((whose, changes.into_iter().map(cells).collect())),
        Answer::Refused { reason } => Err(reason),
        other => panic!("{other:?}"),
    }
}

/// What is ordered and what the kernel has for it, without what may be taken back.
fn all_of(host: &Host) -> (Saved, String) {
    let mut saved = host.reconciler.saved.clone();
    saved.history.clear();
    let kernel = &host.kernel;
    // Of a pCPU that it was told nothing of, `default` has it.
    let pcpus = kernel.pcpus.borrow();
    let pcpus: Vec<_> = pcpus.iter().filter(|(_, placed)| placed.1 != 0).collect();
    let told = format!("{:?} {:?} {pcpus:?}", kernel.vms.borrow(), kernel.pools.borrow());
    (saved, told)
}

#[test]
fn every_order_can_be_taken_back_and_leaves_what_was_before() {
    let mut host = Host::new(2, "[[pool]]\nname = \"filed\"\nshares = \"low\"\n");
    host.set(1, &[(Key::Shares, "high")]).unwrap();
    host.add_pool("prod", 500).unwrap();
    host.partition(true, "io", "3").unwrap();
    let named = |name: &str| name.to_owned();
    let cosched = PoolChange { cosched: Some(Cosched::Gang), ..PoolChange::default() };
    let slice = PartitionChange { slice_ns: Some(5_000_000), ..PartitionChange::default() };
    let set = |name: &str| SetSpec {
        name: named(name),
        vms: vec![named("a"), named("b")],
        kind: SetKind::Affine,
        within: Within::Llc,
        hard: false,
    };
    host.ask(Request::AddSet { set: set("shop") }).unwrap();
    let cpus = Some("1".parse().unwrap());
    let whose = format!("VM {}", name(1));
    for (order, whose) in [
        (vm_order(name(1), &[(Key::Shares, "low"), (Key::Reservation, "50%")]), whose.as_str()),
        (vm_order(named("absent"), &[(Key::Pool, "prod")]), "VM absent"),
        (Request::ForgetVm { name: name(1) }, &whose),
        (Request::AddPool { name: named("new"), change: cosched.clone() }, "pool new"),
        (Request::SetPool { name: named("prod"), change: cosched.clone() }, "pool prod"),
        (Request::SetPool { name: named("filed"), change: cosched }, "pool filed"),
        (Request::RemovePool { name: named("prod") }, "pool prod"),
        (Request::SetPartition { name: named("io"), change: slice }, "partition io"),
        (Request::RemovePartition { name: named("io") }, "partition io"),
        (
            Request::AddPartition {
                name: named("more"),
                change: PartitionChange { cpus, ..PartitionChange::default() },
            },
            "partition more",
        ),
        (Request::AddSet { set: set("more") }, "set more"),
        (Request::RemoveSet { name: named("shop") }, "set shop"),
        (Request::SetAutoPartitions { on: true }, "partition auto"),
    ] {
        let before = all_of(&host);
        let there = would_change(&mut host, order.clone()).unwrap();
        host.ask(order.clone()).unwrap();
        assert_ne!(all_of(&host).0, before.0, "{order:?}");
        let (of, back) = undo(&mut host).unwrap();
        assert_eq!(all_of(&host), before, "{order:?}");
        let turned = there.into_iter().map(|[whose, key, from, to]| [whose, key, to, from]);
        assert_eq!((of.as_str(), back), (whose, turned.collect::<Vec<_>>()), "{order:?}");
    }
}

#[test]
fn what_can_be_taken_back_outlives_the_daemon_and_ends() {
    let mut host = Host::new(2, "");
    for shares in 1..=20 {
        host.set(1, &[(Key::Shares, &shares.to_string())]).unwrap();
    }
    let mut host = host.restarted();
    let shares = |host: &Host| host.kernel.vm(1).shares;
    for left in (4..20).rev() {
        undo(&mut host).unwrap();
        assert_eq!(shares(&host), Shares::Exact(left));
    }
    assert_eq!(undo(&mut host), Err("there is no order to take back".to_owned()));
    // A refused order is none; nor is one that cannot be taken back any more lost.
    host.set(1, &[(Key::Reservation, "300%")]).unwrap();
    host.set(1, &[(Key::Reservation, "50%")]).unwrap();
    host.set(2, &[(Key::Reservation, "200%")]).unwrap();
    host.set(2, &[(Key::Reservation, "390%")]).unwrap_err();
    host.reconciler.saved.history.pop();
    let said = undo(&mut host).unwrap_err();
    assert!(said.contains("300% cannot be reserved"), "{said}");
    host.ask(Request::ForgetVm { name: name(2) }).unwrap();
    host.reconciler.saved.history.pop();
    undo(&mut host).unwrap();
    assert_eq!(host.kernel.vm(1).reservation_mcpu, 3000);
}

fn live_order(vm: String, values: &[(Key, &str)]) -> Request {
    match vm_order(vm, values) {
        Request::SetVm { name, set, reset } => Request::SetVmLive { name, set, reset },
        other => other,
    }
}

#[test]
fn what_is_ordered_for_a_run_goes_over_what_is_kept_and_ends_with_the_run_or_the_daemon() {
    let mut host = Host::new(2, "");
    host.set(1, &[(Key::Shares, "700"), (Key::Limit, "100%")]).unwrap();
    let live = |values: &[(Key, &str)]| live_order(name(1), values);
    host.ask(live(&[(Key::Shares, "900")])).unwrap();
    let limits = |host: &Host| (host.kernel.vm(1).shares, host.kernel.vm(1).limit_mcpu);
    assert_eq!(limits(&host), (Shares::Exact(900), Some(1000)));
    let why = host.statuses()[0].why[0].clone();
    assert_eq!((why.value.as_str(), why.origin.as_str()), ("900", "drover vm set --live"));
    let mut host = host.restarted();
    assert_eq!(limits(&host), (Shares::Exact(700), Some(1000)), "it ended with the daemon");
    // Taken back by itself, by undo, and by an order that is kept.
    host.ask(live(&[(Key::Shares, "900")])).unwrap();
    let (set, reset) = (Asked::default(), vec![Key::Shares]);
    host.ask(Request::SetVmLive { name: name(1), set, reset }).unwrap();
    assert_eq!(limits(&host).0, Shares::Exact(700));
    undo(&mut host).unwrap();
    assert_eq!(limits(&host).0, Shares::Exact(900));
    undo(&mut host).unwrap();
    assert_eq!(limits(&host).0, Shares::Exact(700));
    host.ask(live(&[(Key::Shares, "900")])).unwrap();
    host.set(1, &[(Key::Shares, "800")]).unwrap();
    assert_eq!(limits(&host).0, Shares::Exact(800));
    undo(&mut host).unwrap();
    assert_eq!(limits(&host).0, Shares::Exact(900), "both are as they were");
    // It goes with its VM, and what can be taken back of it, too.
    let gone = host.kernel.live.borrow_mut().remove(0);
    host.reconciler.look(&host.kernel, &CpuList::all(4), host.now);
    host.kernel.live.borrow_mut().insert(0, KernelVm { id: 7, ..gone });
    host.reconciler.look(&host.kernel, &CpuList::all(4), host.now);
    assert_eq!(host.kernel.vm(7).shares, Shares::Exact(700));
    let said = host.ask(live_order("shop".to_owned(), &[(Key::Shares, "5")])).unwrap_err();
    assert!(said.contains("no VM shop runs here, and --live is for one that does"), "{said}");
    let too_much = live_order(name(2), &[(Key::Reservation, "390%")]);
    let too_much = host.ask(too_much).unwrap_err();
    assert!(too_much.contains("cannot be reserved"), "{too_much}");
}

/// The configuration with all orders over it.
fn export(host: &mut Host) -> String {
    match host.reconciler.answer(&host.kernel, Request::ExportConfig, host.now) {
        Answer::Config { text } => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_exported_configuration_says_without_orders_what_was_in_force_with_them() {
    let below = "[[pool]]\nname = \"prod\"\nshares = \"low\"\n\n[[vm]]\nname = \"*\"\nshares = 500\n\n\
                 [numa]\nplacement = \"spread\"\n\n[host]\nreservation_per_pcpu = \"20%\"\n";
    let mut host = Host::new(3, below);
    host.partition(true, "io", "3").unwrap();
    let change = PoolChange {
        shares: Some(Shares::HIGH),
        reservation_mcpu: Some(1000),
        cosched: Some(Cosched::Gang),
        ..PoolChange::default()
    };
    host.ask(Request::SetPool { name: "prod".to_owned(), change }).unwrap();
    host.add_pool("more", 100).unwrap();
    host.set(1, &[(Key::Pool, "prod"), (Key::Reservation, "50%"), (Key::Limit, "150%")]).unwrap();
    host.set(2, &[(Key::Partition, "io"), (Key::Shares, "700")]).unwrap();
    host.ask(live_order(name(3), &[(Key::Shares, "9")])).unwrap();
    host.ask(Request::SetAutoPartitions { on: true }).unwrap();
    let text = export(&mut host);
    assert!(text.contains("# Not in it: `drover partition auto --on`.\n"), "{text}");
    assert!(text.contains(&format!("while they run: {}.\n", name(3))), "{text}");
    let (set, reset) = (Asked::default(), vec![Key::Shares]);
    host.ask(Request::SetVmLive { name: name(3), set, reset }).unwrap();
    let other = Host::new(3, &text);
    let told = |host: &Host| (all_of(host).1, format!("{:?}", host.reconciler.wishes));
    assert_eq!(told(&other), told(&host), "{text}");
    assert!(other.reconciler.saved == Saved::default());
    let free = |host: &Host| host.reconciler.plan.rooms.clone();
    assert_eq!(free(&other), free(&host));
}

#[test]
fn a_brief_list_is_the_list_without_vcpus_and_reasons() {
    let mut host = Host::new(2, "");
    let all = host.statuses();
    assert!(all.iter().all(|vm| vm.vcpu.len() == 2 && !vm.why.is_empty()));
    let brief = Request::ListVms { brief: true };
    let Answer::Vms { vms } = host.reconciler.answer(&host.kernel, brief, host.now) else {
        panic!("no list")
    };
    let without = |vm: VmStatus| VmStatus {
        vcpu: Vec::new(),
        why: Vec::new(),
        profile: None,
        guaranteed_delay_why: String::new(),
        ..vm
    };
    assert_eq!(vms, all.into_iter().map(without).collect::<Vec<_>>());
}
