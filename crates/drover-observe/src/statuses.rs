// SPDX-License-Identifier: GPL-2.0-only
//! VMs as `drover vm list` shows them, from what was observed. What each is to have is what the kernel's own scheduler
//! goes by: the weights and limits of cgroups, and nice values. Nothing is reserved, and nobody is owed anything.

use std::collections::HashMap;
use std::path::Path;

use drover_core::asked::{Asked, DEFAULT, Key};
use drover_core::counters::Counters;
use drover_core::profile::Profile;
use drover_core::resolve::{Layer, Why};
use drover_core::shares::Shares;
use drover_host::names::Identity;
use drover_host::sources::cgroup::{self, CGROUPS, Cgroup};
use drover_host::sources::cgroup_tree::{CgroupTree, Place};
use drover_host::sources::nice;
use drover_host::status::{Kind, VcpuStatus, VmStatus};

use crate::sample::{Sample, VmSample};

/// What cgroups ask for the VMs of that sample.
pub fn cgroups(sample: &Sample) -> CgroupTree {
    let place = |(tgid, vm): (&u32, &VmSample)| Place {
        tgid: *tgid,
        path: cgroup::path_of(*tgid),
        size: vcpus(vm),
        nice: nice::of_vcpus(Path::new("/proc"), *tgid, vm.vcpus.iter().map(|vcpu| vcpu.thread)),
    };
    let places: Vec<Place> = sample.vms.iter().map(place).collect();
    CgroupTree::of(&Cgroup::read(Path::new(CGROUPS), &mut |_| {}), &places, usize::MAX)
}

/// What is known of a VM beside the last sample.
#[derive(Debug)]
pub struct Known<'a> {
    /// Who it is.
    pub identity: &'a Identity,
    /// Whose it is.
    pub user: u32,
    /// What it was as it was found.
    pub first: &'a VmSample,
    /// What it was a second ago or so, and how long ago, s.
    pub before: Option<(&'a VmSample, f64)>,
    /// What kind of work it does; none: too little is known yet.
    pub profile: Option<Profile>,
}

/// All VMs of a sample; of those of which nothing else is known there is nothing to say.
pub fn statuses(sample: &Sample, known: &HashMap<u32, Known<'_>>) -> Vec<VmStatus> {
    let tree = cgroups(sample);
    let one = |(pid, vm): (&u32, &VmSample)| {
        let layers = tree.vms.get(pid).map_or(&[][..], Vec::as_slice);
        Some(status(*pid, vm, known.get(pid)?, layers))
    };
    sample.vms.iter().filter_map(one).collect()
}

fn vcpus(vm: &VmSample) -> u32 {
    u32::try_from(vm.vcpus.len()).unwrap_or(u32::MAX)
}

#[allow(clippy::cast_precision_loss, reason = "exact up to 104 days")]
pub fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// CPU time of threads that are no vCPUs since it was found, s.
fn helper_cpu_s(vm: &VmSample, first: &VmSample) -> f64 {
    let used = |vm: &VmSample| vm.sum(|times| times.used_ns);
    let all = vm.cpu_ns.saturating_sub(first.cpu_ns);
    seconds(all.saturating_sub(used(vm).saturating_sub(used(first))))
}

fn status(pid: u32, vm: &VmSample, known: &Known<'_>, layers: &[Layer]) -> VmStatus {
    let asked = layers.iter().fold(Asked::default(), |below, layer| layer.asked.over(&below));
    let identity = known.identity;
    let got = |(before, passed_s): (&VmSample, f64)| {
        seconds(vm.cpu_ns.saturating_sub(before.cpu_ns)) / passed_s
    };
    let ready_ns = |vm: &VmSample| vm.sum(|times| times.ready_ns);
    let ready = |(before, passed_s): (&VmSample, f64)| {
        100.0 * seconds(ready_ns(vm).saturating_sub(ready_ns(before))) / passed_s
    };
    let used_s = Some(seconds(vm.cpu_ns.saturating_sub(known.first.cpu_ns)));
    let vcpu = vm.vcpus.iter().map(|times| {
        let used_s = Some(seconds(times.used_ns));
        VcpuStatus {
            tid: Some(times.thread),
            counters: Counters { used_s, ..Counters::default() },
            ..VcpuStatus::numbered(times.number)
        }
    });
    VmStatus {
        kind: Kind::Vm,
        name: identity.name.clone(),
        named_by: identity.by,
        label: identity.label.clone(),
        uuid: identity.uuid.clone(),
        pid,
        user: known.user,
        vcpus: vcpus(vm),
        shares: asked.shares.unwrap_or(Shares::NORMAL).of_vm(vcpus(vm)),
        shares_by_default: asked.shares.is_none(),
        reservation_mcpu: 0,
        promised_mcpu: 0,
        limit_mcpu: asked.limit.and_then(drover_core::asked::Limit::mcpu),
        pool: asked.pool.clone(),
        partition: DEFAULT.to_owned(),
        owed_pcpus: None,
        got_pcpus: known.before.map(got),
        vcpu_cpu_s: seconds(vm.sum(|times| times.used_ns)),
        helper_cpu_s: helper_cpu_s(vm, known.first),
        ready_s: seconds(ready_ns(vm)),
        ready_pct: known.before.map(ready),
        guaranteed_delay_why: "only observed: nothing is guaranteed".to_owned(),
        counters: Counters { used_s, ..Counters::default() },
        numa: None,
        home_why: None,
        profile: known.profile,
        io: None,
        vcpu: vcpu.collect(),
        why: layers.iter().flat_map(whys).collect(),
        troubles: Vec::new(),
    }
}

/// What a layer asks, value by value.
fn whys(layer: &Layer) -> Vec<Why> {
    let why =
        |key: Key| Some(Why { key, value: layer.asked.text(key)?, origin: layer.origin.clone() });
    Key::ALL.into_iter().filter_map(why).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::observer::VcpuTimes;
    use drover_core::asked::Limit;
    use drover_host::names::Source;

    const S: u64 = 1_000_000_000;

    fn web() -> Identity {
        let (by, name) = (Source::Libvirt, "web".to_owned());
        Identity { name, by, uuid: None, label: None, domain: None }
    }

    /// A VM that somebody tells of.
    pub(crate) fn told() -> VmStatus {
        let identity = web();
        let known =
            Known { identity: &identity, user: 0, first: &vm(0, 0), before: None, profile: None };
        status(7, &vm(S, S), &known, &[])
    }

    fn vm(cpu_ns: u64, used_ns: u64) -> VmSample {
        let vcpu = VcpuTimes { used_ns, ready_ns: S / 2, ..VcpuTimes::default() };
        VmSample { vcpus: vec![vcpu], cpu_ns, ..VmSample::default() }
    }

    #[test]
    fn what_the_kernel_goes_by_and_what_was_counted_is_told() {
        let identity = web();
        let (first, mut before) = (vm(9 * S, 0), vm(10 * S, S / 2));
        before.vcpus[0].ready_ns = S / 10;
        let known = Known {
            user: 0,
            identity: &identity,
            first: &first,
            before: Some((&before, 2.0)),
            profile: None,
        };
        let asked = Asked {
            shares: Some(Shares::Exact(4000)),
            limit: Some(Limit::At(500)),
            ..Asked::default()
        };
        let layer = Layer { origin: "cgroup /web".to_owned(), of_name: false, asked };
        let status = status(7, &vm(11 * S, S), &known, &[layer]);
        assert_eq!((status.name.as_str(), status.pid, status.vcpus), ("web", 7, 1));
        assert_eq!((status.shares, status.limit_mcpu), (4000, Some(500)));
        assert_eq!((status.got_pcpus, status.owed_pcpus), (Some(0.5), None));
        assert_eq!((status.vcpu_cpu_s, status.helper_cpu_s, status.ready_s), (1.0, 1.0, 0.5));
        assert_eq!(status.ready_pct, Some(20.0), "0.4 s of 2 s");
        let why: Vec<_> = status.why.iter().map(|why| (why.key, why.origin.as_str())).collect();
        assert_eq!(why, [(Key::Shares, "cgroup /web"), (Key::Limit, "cgroup /web")]);
    }
}
