// SPDX-License-Identifier: GPL-2.0-only
//! What is known of a VM's waits in the last seconds. What follows of it is in drover-core (`why`).

use std::collections::HashMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use drover_core::recording::{History, Wait, replay, who_ran_meanwhile};
use drover_core::why::{Facts, Meanwhile, Who};
use drover_host::status::VmStatus;
use drover_host::topology::{Topology, cpus_of_thread};

use crate::observer::VcpuTimes;
use crate::ring::{Read, Rings};
use crate::sample::{Sample, Samples, VmSample, now_ns};
use crate::statuses::{cgroups, seconds};
use crate::threads::{Thread, Threads};

/// Who is told of beside a VM, at most.
const MEANWHILE_MAX: usize = 20;
/// Of less than that nothing is concluded.
const WINDOW_LEAST_NS: u64 = 500_000_000;
/// A vCPU of which nothing happened was ready all the time if its books say so of that part.
const READY_ALL: f64 = 0.9;

/// What is known of that VM in the last so many seconds. `statuses` are those of all VMs.
///
/// # Errors
/// When nothing was observed yet, or the kernel does not tell.
pub fn explain(
    (samples, rings): (&Samples, &Rings),
    pid: u32,
    window_s: u32,
    statuses: &[VmStatus],
) -> Result<Facts> {
    let to_ns = now_ns()?;
    let from_ns = to_ns.saturating_sub(u64::from(window_s) * 1_000_000_000);
    let last = samples.last().context("nothing was observed yet")?;
    let first = samples.before_on_same_terms(from_ns, pid).context("it was not observed yet")?;
    let (before, now) = (first.vms.get(&pid), last.vms.get(&pid));
    let (before, now) = before.zip(now).context("it has ended")?;
    if last.at_ns < first.at_ns + WINDOW_LEAST_NS {
        anyhow::bail!("it was found, or its settings changed, just now; ask again in a second");
    }
    let window = (first.at_ns, last.at_ns);
    let read = rings.since(window.0);
    let threads = Threads::of(last);
    let history = history_of(&read, window, now, before, &threads);
    let own: Vec<Wait> =
        history.waits.iter().filter(|wait| is_of(now, wait.thread)).copied().collect();
    let mut facts = times(window, (before, now));
    let whole_ns = read.whole_from_ns.clamp(window.0, window.1);
    facts.events_s = seconds(window.1 - whole_ns);
    facts.scheduler = last.scheduler.clone();
    settings(&mut facts, pid, statuses);
    limits(&mut facts, pid, (first, last));
    facts.meanwhile = meanwhile(&history, &own, pid, &threads, statuses);
    places(&mut facts, pid, now, &history)?;
    Ok(facts)
}

fn is_of(vm: &VmSample, thread: u32) -> bool {
    vm.vcpus.iter().any(|vcpu| vcpu.thread == thread)
}

/// Who ran and waited; vCPUs of the VM that were ready all the time, and of which so nothing was told, too.
fn history_of(
    read: &Read,
    window: (u64, u64),
    now: &VmSample,
    before: &VmSample,
    threads: &Threads,
) -> History {
    let mut history = replay(&read.events, window, |thread| threads.is_vcpu(thread));
    for vcpu in &now.vcpus {
        let is_told = history.waits.iter().any(|wait| wait.thread == vcpu.thread)
            || history.ran.iter().any(|ran| ran.thread == vcpu.thread);
        let then = before.vcpus.iter().find(|then| then.thread == vcpu.thread);
        let ready_ns = vcpu.ready_ns.saturating_sub(then.map_or(0, |then| then.ready_ns));
        if !is_told && seconds(ready_ns) > READY_ALL * seconds(window.1 - window.0) {
            let pcpu = only_pcpu(vcpu);
            let (from_ns, to_ns) = window;
            history.waits.push(Wait { thread: vcpu.thread, pcpu, from_ns, to_ns });
        }
    }
    history
}

/// The pCPU it is pinned to.
fn only_pcpu(vcpu: &VcpuTimes) -> Option<u32> {
    match &allowed(vcpu)[..] {
        [one] => Some(*one),
        _ => None,
    }
}

/// The pCPUs that vCPU may run on; none: it is gone.
pub(crate) fn allowed(vcpu: &VcpuTimes) -> Vec<u32> {
    allowed_of(vcpu.process, vcpu.thread)
}

/// The same of any thread.
pub(crate) fn allowed_of(process: u32, thread: u32) -> Vec<u32> {
    let dir = PathBuf::from(format!("/proc/{process}/task/{thread}"));
    let list = cpus_of_thread(&dir).unwrap_or_default();
    list.into_iter().filter_map(|pcpu| u32::try_from(pcpu).ok()).collect()
}

/// Where its vCPUs' time went.
fn times((from_ns, to_ns): (u64, u64), (before, now): (&VmSample, &VmSample)) -> Facts {
    let since = |of: fn(&VcpuTimes) -> u64| seconds(now.sum(of).saturating_sub(before.sum(of)));
    Facts {
        window_s: seconds(to_ns - from_ns),
        vcpus: u32::try_from(now.vcpus.len()).unwrap_or(u32::MAX),
        run_s: since(|times| times.running_ns),
        ready_s: since(|times| times.ready_ns),
        ..Facts::default()
    }
}

/// What it is to have.
fn settings(facts: &mut Facts, pid: u32, statuses: &[VmStatus]) {
    let Some(status) = statuses.iter().find(|status| status.pid == pid) else { return };
    facts.name.clone_from(&status.name);
    facts.shares = Some(status.shares);
    facts.shares_by_default = status.shares_by_default;
    facts.limit_mcpu = status.limit_mcpu;
    facts.pool.clone_from(&status.pool);
}

/// How long limits and co-stops held it, from who enforces them, and what came of its yields.
fn limits(facts: &mut Facts, pid: u32, (first, last): (&Sample, &Sample)) {
    if let (Some(then), Some(now)) = (first.told.get(&pid), last.told.get(&pid)) {
        let since = now.counters.since(&then.counters);
        facts.yields = since.yields;
        facts.limited_s = since.limited_s.unwrap_or(0.0);
        // The kernel knows a co-stopped vCPU as ready.
        facts.costop_s = since.costop_s.min(facts.ready_s);
        facts.ready_s -= facts.costop_s;
        return;
    }
    let tree = cgroups(last);
    let pool = facts.pool.clone().unwrap_or_default();
    let is_pool =
        |path: &str| !pool.is_empty() && (pool == path || pool.starts_with(&format!("{path}/")));
    let (mut own_s, mut pool_s) = (0.0, 0.0);
    let then: HashMap<&str, u64> = first.vms.get(&pid).map_or_else(HashMap::new, |vm| {
        vm.throttled_us.iter().map(|(path, us)| (path.as_str(), *us)).collect()
    });
    for (path, us) in last.vms.get(&pid).map_or(&[][..], |vm| vm.throttled_us.as_slice()) {
        let since_us = us.saturating_sub(then.get(path.as_str()).copied().unwrap_or(0));
        *(if is_pool(path) { &mut pool_s } else { &mut own_s }) += seconds(since_us * 1000);
    }
    facts.limited_s = (own_s + pool_s).min(facts.ready_s);
    facts.pool_limited_s = Some(pool_s);
    facts.pool_limit_mcpu =
        tree.pools.iter().find(|spec| spec.name == pool).and_then(|spec| spec.limit_mcpu);
}

/// Who ran where it waited, the longest first; threads of one VM, or of one name, together.
fn meanwhile(
    history: &History,
    waits: &[Wait],
    own: u32,
    threads: &Threads,
    statuses: &[VmStatus],
) -> Vec<Meanwhile> {
    let mut all: HashMap<Thread, Meanwhile> = HashMap::new();
    for one in who_ran_meanwhile(history, waits).0 {
        let mut thread = threads.find(one.thread, one.class);
        if thread.vm == Some(own) {
            thread.who = if thread.who == Who::Vm { Who::Sibling } else { Who::OwnHelper };
        }
        let found = all.entry(thread).or_insert_with_key(|thread| told(thread, statuses));
        found.seconds += seconds(one.ns);
        found.pcpus.extend(one.pcpus);
    }
    let mut all: Vec<Meanwhile> = all.into_values().collect();
    all.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then_with(|| a.name.cmp(&b.name)));
    all.truncate(MEANWHILE_MAX);
    for one in &mut all {
        one.pcpus.sort_unstable();
        one.pcpus.dedup();
    }
    all
}

fn told(thread: &Thread, statuses: &[VmStatus]) -> Meanwhile {
    let vm = thread.vm.and_then(|pid| statuses.iter().find(|status| status.pid == pid));
    let name = match (vm, thread.vm) {
        (Some(vm), _) => vm.name.clone(),
        (None, Some(pid)) => format!("of process {pid}"),
        (None, None) => thread.name.clone(),
    };
    let vm = vm.filter(|_| thread.who == Who::Vm);
    Meanwhile {
        who: thread.who,
        name,
        shares: vm.map(|vm| vm.shares),
        shares_by_default: vm.is_some_and(|vm| vm.shares_by_default),
        seconds: 0.0,
        pcpus: Vec::new(),
    }
}

/// Where it may run, and how busy that was.
fn places(facts: &mut Facts, pid: u32, vm: &VmSample, history: &History) -> Result<()> {
    let topology = Topology::read()?;
    let numbers = (0u32..).zip(&topology.pcpus).filter(|(_, pcpu)| pcpu.online);
    let online: Vec<(u32, Option<usize>)> =
        numbers.map(|(number, pcpu)| (number, pcpu.node)).collect();
    let may: Vec<u32> = vm.vcpus.iter().flat_map(allowed).collect();
    let is_allowed = |pcpu: &u32| may.contains(pcpu);
    facts.allowed = online.iter().map(|(pcpu, _)| *pcpu).filter(is_allowed).collect();
    anyhow::ensure!(!facts.allowed.is_empty(), "process {pid} has ended");
    let nodes: Vec<Option<usize>> =
        online.iter().filter(|(pcpu, _)| is_allowed(pcpu)).map(|(_, node)| *node).collect();
    let of_nodes = online.iter().filter(|(_, node)| nodes.contains(node)).count();
    let others: Vec<u32> =
        online.iter().map(|(pcpu, _)| *pcpu).filter(|pcpu| !is_allowed(pcpu)).collect();
    facts.is_nodes = of_nodes == facts.allowed.len() && !others.is_empty();
    let window_s = facts.window_s;
    let busy_pct = |pcpus: &[u32]| {
        let ran = history.ran.iter().filter(|ran| ran.thread != 0 && pcpus.contains(&ran.pcpu));
        let ns: u64 = ran.map(|ran| ran.to_ns - ran.from_ns).sum();
        #[allow(clippy::cast_precision_loss, reason = "no host has so many")]
        let all_s = window_s * pcpus.len() as f64;
        (100.0 * seconds(ns) / all_s).min(100.0)
    };
    facts.allowed_busy_pct = busy_pct(&facts.allowed);
    facts.others_busy_pct = (!others.is_empty()).then(|| busy_pct(&others));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statuses::tests::told as status;

    #[test]
    fn whether_somebody_set_the_shares_is_told() {
        let thread = |who| Thread { who, name: String::new(), vm: Some(7) };
        let vm = status();
        let by_default = told(&thread(Who::Vm), std::slice::from_ref(&vm));
        assert_eq!((by_default.shares, by_default.shares_by_default), (Some(1000), true));
        let helper = told(&thread(Who::VmHelper), std::slice::from_ref(&vm));
        assert_eq!((helper.shares, helper.shares_by_default), (None, false));
        let set = VmStatus { shares_by_default: false, ..vm };
        assert!(!told(&thread(Who::Vm), std::slice::from_ref(&set)).shares_by_default);
        let mut facts = Facts { shares_by_default: true, ..Facts::default() };
        settings(&mut facts, 7, &[set]);
        assert_eq!((facts.shares, facts.shares_by_default), (Some(1000), false));
    }
}
