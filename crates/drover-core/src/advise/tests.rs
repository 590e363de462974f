// SPDX-License-Identifier: GPL-2.0-only
//! Faults that are planted are found first or second, and on sound hosts nothing is.

use super::*;
use crate::cpu_list::CpuList;
use crate::profile::Evidence;
use crate::recording::{Class, Event, What};
use crate::recording_file::{Head, PcpuSetup, Recording, Setup, Thread, VmSetup};
use crate::why::Who;
use std::collections::BTreeMap;

/// A host of so many pCPUs on so many nodes of 16 GiB, which are busy for that part.
fn host(pcpus: u32, nodes: u32, busy: f64) -> Facts {
    let node = |pcpu: u32| pcpu * nodes / pcpus;
    Facts {
        window_s: 10.0,
        pcpus: (0..pcpus)
            .map(|pcpu| PcpuFacts { pcpu, core: pcpu, node: node(pcpu), busy })
            .collect(),
        nodes_mib: (0..nodes).map(|node| (node, 16 << 10)).collect(),
        pause_exits: Some(true),
        huge_pages: Some("madvise".to_owned()),
        ..Facts::default()
    }
}

/// A VM of QEMU whose vCPUs ran and were ready for these parts of the time; its memory is where they run.
fn vm(name: &str, vcpus: usize, ran: f64, ready: f64) -> VmFacts {
    let one = VcpuFacts { ran, ready, ..VcpuFacts::default() };
    let all = ran * vcpus as f64;
    VmFacts {
        name: name.to_owned(),
        pid: 4711,
        cgroup: format!("/{name}.scope"),
        vcpus: (0..vcpus).map(|at| VcpuFacts { thread: 4712 + at as u32, ..one.clone() }).collect(),
        at_once: vcpus as u32,
        helpers: vec![4711],
        helpers_ran: 0.001,
        ran_on: BTreeMap::from([(0, all)]),
        memory_mib: BTreeMap::from([(0, 2048)]),
        huge_mib: Some(2000),
        knows_nodes: Some(false),
        evidence: Evidence { wanted_pcpus: all, vcpus_pcpus: all, ..Evidence::default() },
        ..VmFacts::default()
    }
}

fn list(text: &str) -> CpuList {
    text.parse().unwrap()
}

fn pinned(mut vm: VmFacts, pins: &[&str]) -> VmFacts {
    for (at, vcpu) in vm.vcpus.iter_mut().enumerate() {
        vcpu.pin = Some(list(pins[at % pins.len()]));
    }
    vm
}

fn rules(facts: &Facts) -> Vec<&'static str> {
    advise(facts).iter().map(|finding| finding.rule).collect()
}

/// Five hosts on which nothing is wrong, a busy one and a full one among them.
fn sound() -> Vec<(&'static str, Facts)> {
    let quiet =
        Facts { vms: vec![vm("a", 2, 0.01, 0.0), vm("b", 8, 0.005, 0.0)], ..host(8, 1, 0.02) };
    let busy =
        Facts { vms: vec![vm("a", 2, 0.9, 0.001), vm("b", 4, 0.5, 0.01)], ..host(8, 1, 0.5) };
    let full = Facts { vms: vec![vm("a", 4, 0.5, 0.5), vm("b", 4, 0.5, 0.5)], ..host(4, 1, 1.0) };
    let own = |name, pins: &[&str], node| {
        let mut vm = pinned(vm(name, 2, 0.9, 0.0), pins);
        vm.helper_pins = Some(list("6-7"));
        vm.ran_on = BTreeMap::from([(node, 1.8)]);
        vm.memory_mib = BTreeMap::from([(node, 4096)]);
        vm.huge_mib = Some(4096);
        vm
    };
    let apart =
        Facts { vms: vec![own("a", &["0", "1"], 0), own("b", &["4", "5"], 1)], ..host(8, 2, 0.5) };
    let mut capped = vm("a", 2, 0.3, 0.0);
    capped.limit_mcpu = Some(1000);
    capped.shares = Some(2000);
    let mut heavy = vm("b", 2, 0.8, 0.0);
    (heavy.shares, heavy.reservation_mcpu) = (Some(4000), Some(1000));
    let settings =
        Facts { vms: vec![capped, heavy], scheduler: Some("drover".to_owned()), ..host(4, 1, 0.6) };
    vec![("quiet", quiet), ("busy", busy), ("full", full), ("apart", apart), ("set", settings)]
}

#[test]
fn on_sound_hosts_nothing_is_found() {
    for (name, facts) in sound() {
        assert_eq!(rules(&facts), Vec::<&str>::new(), "{name}: {:#?}", advise(&facts));
    }
}

type Plant = fn(&mut Facts);

/// Each fault, on each sound host where it can be: what is changed.
const PLANTS: [(&str, Plant); 14] = [
    ("pins", |facts| {
        facts.vms[0] = pinned(vm("a", 2, 0.5, 0.5), &["0"]);
        facts.pcpus.iter_mut().for_each(|it| it.busy = if it.pcpu == 0 { 1.0 } else { 0.1 });
    }),
    ("limit", |facts| {
        facts.vms[0] = VmFacts { limit_mcpu: Some(500), ..vm("a", 2, 0.25, 0.75) };
    }),
    ("quota", |facts| {
        let held = vm("a", 2, 0.97, 0.03);
        facts.vms[0] = VmFacts { quota_mcpu: Some(2000), helpers_ran: 0.06, ..held };
    }),
    ("emulator", |facts| {
        let own = pinned(vm("a", 2, 0.9, 0.05), &["0", "1"]);
        let helper_pins = Some(list("0-7"));
        facts.vms[0] = VmFacts { helper_pins, kept_by_helpers: 0.05, helpers_ran: 0.1, ..own };
    }),
    ("promise", |facts| {
        facts.vms[0].troubles = vec!["VM a: 900% cannot be reserved".to_owned()];
    }),
    ("promise", |facts| facts.vms[0].reservation_mcpu = Some(9000)),
    ("partition", |facts| {
        *facts = Facts { scheduler: Some("drover".to_owned()), ..host(4, 1, 1.0) };
        let mut io = vm("a", 1, 0.1, 0.2);
        io.evidence = Evidence {
            run_ms: Some(0.1),
            sleeps_per_s: 1000.0,
            helper_sleeps_per_s: 2000.0,
            wanted_pcpus: 0.3,
            vcpus_pcpus: 0.1,
            ..Evidence::default()
        };
        let mut computes = vm("b", 8, 0.5, 0.5);
        computes.evidence.wanted_pcpus = 8.0;
        facts.vms = vec![io, computes];
    }),
    ("wide", |facts| facts.vms[0] = VmFacts { at_once: 2, ..vm("a", 8, 0.2, 0.0) }),
    ("wide", |facts| facts.vms[0] = pinned(vm("a", 4, 0.45, 0.0), &["0-1"])),
    ("memory-node", |facts| {
        facts.vms[0].memory_mib = BTreeMap::from([(1, 4096)]);
        facts.vms[0].huge_mib = Some(4096);
        facts.vms[0].ran_on = BTreeMap::from([(0, 0.9)]);
        facts.vms[0].vcpus[0].ran = 0.9;
    }),
    ("vnuma", |facts| {
        *facts = host(8, 2, 0.5);
        let wide = vm("a", 6, 0.5, 0.0);
        let memory_mib = BTreeMap::from([(0, 1024), (1, 1024)]);
        let ran_on = BTreeMap::from([(0, 1.5), (1, 1.5)]);
        facts.vms = vec![VmFacts { memory_mib, ran_on, ..wide }];
    }),
    ("huge-pages", |facts| {
        facts.huge_pages = Some("never".to_owned());
        facts.vms[0].huge_mib = Some(0);
    }),
    ("pause", |facts| {
        *facts = Facts { pause_exits: Some(false), ..host(4, 1, 1.0) };
        facts.vms = vec![vm("a", 4, 0.5, 0.5), vm("b", 4, 0.5, 0.5)];
    }),
    ("cookies", |facts| {
        facts.pcpus.iter_mut().for_each(|it| it.core = it.pcpu / 2 * 2);
        facts.vms[0].cookies = 2;
    }),
];

#[test]
fn a_fault_that_is_planted_is_found_first_or_second() {
    for (rule, plant) in PLANTS {
        for (name, mut facts) in sound() {
            // Where all pCPUs are full no pins hurt.
            if rule == "pins" && name == "full" {
                continue;
            }
            plant(&mut facts);
            let found = rules(&facts);
            assert!(found.iter().take(2).any(|it| *it == rule), "{rule} on {name}: {found:?}");
        }
    }
}

#[test]
fn weights_that_say_nothing_are_found() {
    let of = |shares: [Option<u32>; 2]| {
        let (_, mut facts) = sound().swap_remove(1);
        for (vm, shares) in facts.vms.iter_mut().zip(shares) {
            vm.shares = shares;
        }
        facts
    };
    assert_eq!(rules(&of([Some(2000), Some(2000)])), ["weights"]);
    assert_eq!(rules(&of([Some(2000), Some(4000)])), [""; 0]);
    assert_eq!(rules(&of([Some(2000), None])), [""; 0]);
    assert_eq!(rules(&of([Some(1000), Some(1000)])), [""; 0], "as beside other cgroups");
    let mut alone = of([Some(2000), None]);
    alone.vms.truncate(1);
    assert_eq!(rules(&alone), ["weights"]);
    // By Drover's defaults twice the vCPUs are twice the shares.
    let drover = |shares| Facts { scheduler: Some("drover".to_owned()), ..of(shares) };
    assert_eq!(rules(&drover([Some(2000), Some(4000)])), ["weights"]);
    assert_eq!(rules(&drover([Some(2000), Some(2000)])), [""; 0]);
}

#[test]
fn each_finding_has_evidence_in_figures_and_what_mends_it() {
    for (rule, plant) in PLANTS {
        let (_, mut facts) = sound().swap_remove(0);
        plant(&mut facts);
        let found = advise(&facts).into_iter().find(|it| it.rule == rule).unwrap();
        assert!(found.evidence.contains(|it: char| it.is_ascii_digit()) || rule == "weights");
        assert!(!found.mend.is_empty() && found.mend.iter().all(|it| !it.contains('\n')));
        let lines = [&found.what, &found.evidence];
        assert!(lines.iter().all(|it| !it.is_empty() && !it.contains('\n')), "{found:?}");
        assert!(found.trial.is_ok() || found.trial.is_err_and(|why| !why.is_empty()));
    }
}

#[test]
fn who_manages_a_vm_is_told_how() {
    let (_, mut facts) = sound().swap_remove(0);
    PLANTS[0].1(&mut facts);
    let mend = |facts: &Facts| advise(facts)[0].mend.clone();
    assert_eq!(mend(&facts), ["taskset -cp 0-7 4712", "taskset -cp 0-7 4713"]);
    facts.vms[0].domain = Some("a".to_owned());
    assert_eq!(mend(&facts)[1], "virsh vcpupin a 1 0-7 --live --config");
    PLANTS[1].1(&mut facts);
    assert_eq!(mend(&facts), ["echo max > /sys/fs/cgroup/a.scope/cpu.max"]);
    facts.scheduler = Some("drover".to_owned());
    assert_eq!(mend(&facts), ["drover vm set a --limit none"]);
    // Users choose names.
    facts.vms[0].name = "a$(x)'; b".to_owned();
    assert_eq!(mend(&facts), [r"drover vm set 'a$(x)'\''; b' --limit none"]);
}

#[test]
fn what_is_promised_owed_and_free_is_the_host() {
    let (_, facts) = sound().pop().unwrap();
    let it = facts.overview();
    assert_eq!((it.pcpus, it.vms, it.vcpus, it.overcommit), (4, 2, 4, 1.0));
    // A tenth is the host's. b wants 1.6 of which 1 is promised, a wants 0.6.
    let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
    assert!(near(it.capacity_pcpus, 3.6) && near(it.promised_pcpus, 1.0), "{it:?}");
    assert!(near(it.owed_pcpus, 1.2) && near(it.free_pcpus, 1.4), "{it:?}");
    let (_, mut facts) = sound().swap_remove(4);
    PLANTS[1].1(&mut facts);
    assert!(near(facts.overview().owed_pcpus, 1.1), "no more than its limit, 0.5, and 0.6 of b");
}

/// Two vCPUs of a VM take turns on pCPU 0 for a second, 10 ms each; a helper runs on pCPU 1 for every tenth of it.
#[test]
fn a_recording_is_read_into_facts() {
    let ms = 1_000_000;
    let ran = |at_ms: u64, pcpu, thread, left_ready| Event {
        at_ns: at_ms * ms,
        pcpu,
        thread,
        what: What::Ran { left_ready, class: Class::Normal },
    };
    let mut events = vec![ran(0, 0, 10, false)];
    for turn in 1..=100 {
        events.push(ran(10 * turn, 0, if turn % 2 == 0 { 10 } else { 11 }, true));
        events.push(ran(10 * turn, 1, 7, false));
        events.push(ran(10 * turn + 1, 1, 0, false));
    }
    let thread =
        |thread, who, vcpu| Thread { thread, who, name: "web".to_owned(), vm: Some(7), vcpu };
    let place = |pcpu| PcpuSetup { pcpu, core: pcpu, llc: 0, node: 0 };
    let set = VmSetup {
        vm: 7,
        pins: vec![Some(list("0")), Some(list("0"))],
        limit_mcpu: Some(3000),
        ..VmSetup::default()
    };
    let recording = Recording {
        head: Head { pcpus: 2, ..Head::default() },
        threads: vec![
            thread(10, Who::Vm, Some(0)),
            thread(11, Who::Vm, Some(1)),
            thread(7, Who::VmHelper, None),
        ],
        events,
        setup: Some(Setup { pcpus: vec![place(0), place(1)], vms: vec![set], ..Setup::default() }),
        ..Recording::default()
    };
    let facts = Facts::of(&recording).unwrap();
    let vm = &facts.vms[0];
    let near = |a: f64, b: f64| (a - b).abs() < 0.02;
    assert!(near(vm.vcpus[0].ran, 0.5) && near(vm.vcpus[0].ready, 0.5), "{vm:?}");
    assert!(near(vm.ready(), 1.0) && near(vm.helpers_ran, 0.1), "{vm:?}");
    assert_eq!((vm.at_once, vm.limit_mcpu, vm.helpers.as_slice()), (2, Some(3000), &[7][..]));
    assert!(near(facts.pcpus[0].busy, 1.0) && near(facts.pcpus[1].busy, 0.1), "{facts:?}");
    assert!((vm.evidence.helper_sleeps_per_s - 100.0).abs() < 1.0, "{:?}", vm.evidence);
    let found = advise(&facts);
    assert_eq!((found[0].rule, found[0].vm), ("pins", Some(0)));
    let short = Recording { events: Vec::new(), ..recording.clone() };
    assert!(Facts::of(&short).unwrap_err().contains("record for some seconds"));
    let bare = Recording { setup: None, ..recording };
    assert!(Facts::of(&bare).unwrap_err().contains("record it anew"));
}
