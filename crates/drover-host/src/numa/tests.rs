// SPDX-License-Identifier: GPL-2.0-only
use super::*;
use crate::domains::DomainLevel;
use crate::topology::tests::Host;
use drover_core::place::{Kind, NamedSet, Set, Within};
use maps::Maps;
use std::time::Duration;

const SETTLES: Duration = Duration::from_secs(1);

/// Two nodes of two pCPUs; others as sysfs has them.
fn numa(nodes: &[(&str, u64)]) -> Numa {
    let host = Host::new("0-3", "0-3", "0-3");
    for (number, (cpus, memory_kib)) in nodes.iter().enumerate() {
        host.node(number, cpus, *memory_kib, "10 20");
    }
    Numa::new(host.read())
}

fn two_nodes() -> Numa {
    numa(&[("0-1", 4 << 20), ("2-3", 4 << 20)])
}

/// A VM of so many vCPUs with that memory.
struct One(KernelVm, Affinity, Option<f64>);

impl One {
    fn new(id: u64, nr_vcpus: u32) -> Self {
        let kernel = KernelVm { nr_vcpus, ..KernelVm::for_test(id) };
        Self(kernel, Affinity::ANYWHERE, None)
    }

    fn pinned(id: u64, nr_vcpus: u32, cpus: &str) -> Self {
        Self(One::new(id, nr_vcpus).0, Affinity::within(cpus.parse().unwrap()), None)
    }
}

fn report(policy: &str, mib: [u64; 2]) -> Report {
    let maps = "10000000-20000000 rw-p 0";
    let [a, b] = mib.map(|mib| mib * 256);
    let numa = format!("10000000 {policy} anon=1 N0={a} N1={b}");
    Report { maps: Maps::of(maps, &numa), ..Report::default() }
}

fn decide_as(
    numa: &mut Numa,
    ones: &[One],
    wishes: &Wishes,
    now: Instant,
) -> Vec<(u64, Vec<HomeNumber>)> {
    let seen: Vec<Seen> = ones
        .iter()
        .map(|One(kernel, affinity, wanted_pcpus)| Seen {
            kernel: *kernel,
            name: ["", "a", "b", "c", "d"][kernel.id as usize],
            affinity,
            wanted_pcpus: *wanted_pcpus,
            reserved_pcpus: 0.0,
            max_per_node: None,
            one_llc: false,
        })
        .collect();
    let domains = Domains::new(&numa.topology, DomainLevel::Node);
    let host = host::of(&numa.topology, &domains, &|_| 1000);
    let changes = numa.decide(host, &seen, wishes, &|_| None, now);
    numa.tell_mover(&seen);
    changes.into_iter().map(|id| (id, numa.keeper.told(id))).collect()
}

/// The same of VMs that have one home each, by node.
fn decide(numa: &mut Numa, ones: &[One], now: Instant) -> Vec<(u64, Option<usize>)> {
    let changes = decide_as(numa, ones, &Wishes::default(), now);
    let node = |homes: Vec<HomeNumber>| homes.first().map(|home| home.node as usize);
    changes.into_iter().map(|(id, homes)| (id, node(homes))).collect()
}

fn told(numa: &Numa, id: u64, report: Report) {
    numa.shared.lock().reports.insert(id, report);
}

#[test]
fn a_vm_on_a_full_node_is_given_the_other_and_its_memory_goes_there() {
    let (mut numa, begun) = (two_nodes(), Instant::now());
    let ones = [One::pinned(1, 2, "0-1"), One::new(2, 1)];
    told(&numa, 1, report("default", [100, 0]));
    told(&numa, 2, report("prefer:0", [64, 0]));
    assert!(decide(&mut numa, &ones, begun).is_empty(), "they have just begun");
    let changes = decide(&mut numa, &ones, begun + SETTLES);
    assert_eq!(changes, [(1, None), (2, Some(1))], "who is pinned is left alone");
    let targets = numa.shared.lock().targets.clone();
    assert_eq!((&targets[&1].to[..], &targets[&2].to[..]), (&[][..], &[1][..]));
    assert_eq!(numa.counters(&ones[0].0).home, [0], "and its home is told");
    assert!(decide(&mut numa, &ones, begun + 2 * SETTLES).is_empty());
}

#[test]
fn what_others_have_decided_stays() {
    let (mut numa, begun) = (two_nodes(), Instant::now());
    let ones = [One::new(1, 1), One::new(2, 1), One::pinned(3, 2, "1-2")];
    told(&numa, 1, report("bind:1", [0, 64]));
    told(&numa, 2, report("interleave:0-1", [64, 64]));
    told(&numa, 3, report("default", [64, 0]));
    decide(&mut numa, &ones, begun);
    let changes = decide(&mut numa, &ones, begun + SETTLES);
    assert_eq!(changes, [(1, None), (2, None), (3, None)]);
    let homes = ones.map(|one| numa.counters(&one.0).home);
    assert_eq!(homes, [vec![1], vec![], vec![]]);
}

#[test]
fn two_that_start_at_once_are_not_promised_the_same_memory() {
    let (mut numa, begun) = (two_nodes(), Instant::now());
    let ones = [One::new(1, 1), One::new(2, 1)];
    // 700 MiB each will be theirs, and 1000 are free on each node.
    let large = |_| {
        let maps = format!("10000000-{:x} rw-p 0", 0x1000_0000 + (700u64 << 20));
        Report { maps: Maps::of(&maps, "10000000 default anon=1 N0=256"), ..Report::default() }
    };
    [1, 2].iter().for_each(|&id| told(&numa, id, large(id)));
    decide(&mut numa, &ones, begun);
    let changes = decide(&mut numa, &ones, begun + SETTLES);
    assert_eq!(changes, [(1, Some(0)), (2, Some(1))]);
}

/// Two VMs whose load swings every 3 s, to provoke two others, whose best homes depend on each other.
#[test]
fn nobody_moves_twice_in_30_s_however_demand_swings() {
    let (mut numa, begun) = (two_nodes(), Instant::now());
    let mut ones =
        [One::pinned(1, 2, "0-1"), One::pinned(2, 2, "2-3"), One::new(3, 1), One::new(4, 1)];
    (1..=4).for_each(|id| told(&numa, id, report("default", [8, 8])));
    let mut moved: HashMap<u64, Vec<Instant>> = HashMap::new();
    for tick in 0..600u32 {
        let now = begun + INTERVAL * tick;
        let swings = tick % 12 < 6;
        ones[0].2 = Some(if swings { 2.0 } else { 0.0 });
        ones[1].2 = Some(if swings { 0.0 } else { 2.0 });
        (ones[2].2, ones[3].2) = (Some(1.0), Some(1.0));
        for (id, _) in decide(&mut numa, &ones, now) {
            moved.entry(id).or_default().push(now);
        }
    }
    for (id, times) in moved.iter().filter(|(id, _)| **id > 2) {
        // The first is its first home, a second after it came.
        for pair in times.windows(2) {
            assert!(pair[1] - pair[0] >= Duration::from_secs(29), "{id}: {:?}", pair[1] - pair[0]);
        }
        assert!(times.len() <= 3, "300 s of the same swing: {} homes of {id}", times.len());
    }
}

#[test]
fn a_vm_wider_than_a_node_has_a_home_for_each_part_and_memory_on_all() {
    let (mut numa, begun) = (two_nodes(), Instant::now());
    let ones = [One::new(1, 4)];
    told(&numa, 1, report("default", [64, 0]));
    decide_as(&mut numa, &ones, &Wishes::default(), begun);
    let changes = decide_as(&mut numa, &ones, &Wishes::default(), begun + SETTLES);
    assert_eq!(changes.len(), 1);
    let mut nodes: Vec<u32> = changes[0].1.iter().map(|home| home.node).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, [0, 1]);
    assert_eq!(numa.shared.lock().targets[&1].to.len(), 2);
    assert_eq!(
        numa.counters(&ones[0].0).local_pct.map(f64::round),
        Some(53.0),
        "half of it, and a chunk"
    );
}

#[test]
fn sets_by_name_are_kept_and_may_name_who_is_not_there() {
    let (mut numa, begun) = (two_nodes(), Instant::now());
    let ones = [One::new(1, 1), One::new(2, 1)];
    [1, 2].iter().for_each(|&id| told(&numa, id, report("default", [8, 0])));
    let set = Set {
        name: "web".to_owned(),
        vms: Vec::new(),
        kind: Kind::AntiAffine,
        within: Within::Node,
        hard: false,
    };
    let names = ["a", "b", "gone"].map(str::to_owned).to_vec();
    let wishes = Wishes { sets: vec![NamedSet { set, names }], ..Wishes::default() };
    decide_as(&mut numa, &ones, &wishes, begun);
    let changes = decide_as(&mut numa, &ones, &wishes, begun + SETTLES);
    assert_ne!(changes[0].1, changes[1].1);
}

#[test]
fn with_memory_that_cannot_move_home_is_where_that_is() {
    let (mut numa, begun) = (two_nodes(), Instant::now());
    let ones = [One::pinned(1, 2, "0-1"), One::new(2, 1)];
    told(&numa, 1, report("default", [8, 0]));
    told(&numa, 2, report("default", [64, 0]));
    decide(&mut numa, &ones, begun);
    decide(&mut numa, &ones, begun + SETTLES);
    assert_eq!(numa.counters(&ones[1].0).home, [1]);
    told(&numa, 2, Report { is_stuck: true, ..report("default", [64, 0]) });
    assert_eq!(decide(&mut numa, &ones, begun + 2 * SETTLES), [(2, Some(0))]);

    assert!(decide(&mut numa, &ones, begun + 3 * SETTLES).is_empty());
}

#[test]
fn nodes_without_pcpus_or_memory_are_nobodys_home() {
    let mut numa = numa(&[("0-3", 4 << 20), ("", 4 << 20)]);
    let begun = Instant::now();
    let ones = [One::new(1, 1)];
    told(&numa, 1, report("default", [0, 64]));
    decide(&mut numa, &ones, begun);
    assert_eq!(decide(&mut numa, &ones, begun + SETTLES), [(1, Some(0))]);
    let host = Host::new("0-1", "0-1", "0-1");
    host.node(0, "0", 9 << 10, "10 20").node(1, "1", 0, "20 10");
    assert!(Numa::start(&host.read()).is_none(), "one node has memory");
}
