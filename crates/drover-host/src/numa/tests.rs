// SPDX-License-Identifier: GPL-2.0-only
use super::*;
use crate::domains::DomainLevel;
use crate::topology::tests::Host;
use drover_core::asked::Consolidate;
use drover_core::place::{HomeNumber, Kind, Within};
use drover_core::sets::SetSpec;
use guest::{Guest, VirtualNode};
use maps::Maps;
use mover::tests::Fake;
use std::sync::LazyLock;
use std::time::Duration;

/// The pCPUs of the host.
static ALL: LazyLock<CpuList> = LazyLock::new(|| CpuList::all(4));
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
        let kernel = KernelVm { nr_vcpus, tgid: id as u32, ..KernelVm::for_test(id) };
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

fn seen(ones: &[One]) -> Vec<Seen<'_>> {
    ones.iter()
        .map(|one| Seen {
            kernel: one.0,
            name: ["", "a", "b", "c", "d"][one.0.id as usize],
            affinity: &one.1,
            cpus: &ALL,
            wanted_pcpus: one.2,
            reserved_pcpus: 0.0,
            max_per_node: None,
            consolidate: Consolidate::Off,
        })
        .collect()
}

/// All of them in the one partition there is.
fn division(ones: &[One]) -> Division<'_> {
    Division { name: "default", cpus: &ALL, vms: seen(ones) }
}

fn domains(numa: &Numa) -> Domains {
    Domains::new(&numa.topology, DomainLevel::Node)
}

/// VMs that have no memory at all, with homes.
fn at_home(ones: &[One]) -> (Numa, Instant) {
    let (mut numa, begun) = (two_nodes(), Instant::now());
    for one in ones {
        let maps = Maps::of("10000000-10001000 rw-p 0", "10000000 default anon=1");
        told(&numa, one.0.id, Report { maps, ..Report::default() });
    }
    decide(&mut numa, ones, begun);
    decide(&mut numa, ones, begun + SETTLES);
    (numa, begun + SETTLES)
}

fn decide_as(
    numa: &mut Numa,
    ones: &[One],
    wishes: &Wishes,
    now: Instant,
) -> Vec<(u64, Vec<HomeNumber>)> {
    let (division, domains) = (division(ones), domains(numa));
    let host = host::of(&numa.topology, &domains, &ALL, &|_| 1000);
    let changes = numa.decide(&division, host, wishes, &|_| None, now);
    numa.tell_mover(&division.vms.iter().collect::<Vec<_>>());
    changes.into_iter().map(|id| (id, numa.told(id))).collect()
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
    assert_eq!((&targets[&1].to.nodes[..], &targets[&2].to.nodes[..]), (&[][..], &[1][..]));
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
    assert_eq!(numa.shared.lock().targets[&1].to.nodes.len(), 2);
    assert_eq!(
        numa.counters(&ones[0].0).local_pct.map(f64::round),
        Some(53.0),
        "half of it, and a chunk"
    );
}

/// Two equal mappings, both on node 0, and some memory of the process itself.
fn report_of_two(vcpus: [u32; 2]) -> Report {
    let maps = "10000000-14000000 rw-p 0\n20000000-24000000 rw-p 0\n30000000-30400000 rw-p 0";
    let numa = "10000000 default anon=1 N0=16384\n20000000 default anon=1 N0=8192 N1=8192\n\
        30000000 default anon=1 N0=1024";
    let node = |vcpus, start| VirtualNode { vcpus, start, end: start + (64 << 20) };
    let nodes = vec![node(vcpus[0], 0x1000_0000), node(vcpus[1], 0x2000_0000)];
    let guest = Guest { nodes, ..Guest::default() };
    Report { maps: Maps::of(maps, numa), guest, ..Report::default() }
}

#[test]
fn each_virtual_node_of_a_wide_vm_goes_to_one_node_with_its_memory() {
    let (mut numa, begun) = (two_nodes(), Instant::now());
    let ones = [One::new(1, 3), One::new(2, 2)];
    told(&numa, 1, report_of_two([1, 2]));
    told(&numa, 2, report_of_two([1, 1]));
    decide_as(&mut numa, &ones, &Wishes::default(), begun);
    let changes = decide_as(&mut numa, &ones, &Wishes::default(), begun + SETTLES);
    let [a, b] = [0, 1].map(|part| numa.counters(&ones[0].0).home[part]);
    assert_ne!(a, b);
    assert_eq!(changes[0], (1, [a, b, b].map(HomeNumber::node).to_vec()), "by vCPUs");
    let to = |id| numa.shared.lock().targets[&id].to.clone();
    let page = |address| to(1).node_of(address) as u32;
    for offset in [0, 2 << 20, 63 << 20] {
        assert_eq!((page(0x1000_0000 + offset), page(0x2000_0000 + offset)), (a, b), "{offset}");
    }
    assert_ne!(page(0x3000_0000), page(0x3020_0000), "what is no guest's is spread");
    // Of 132 MiB, 64 + 32 or 0 + 32 are where they should be, and 2 and a chunk of the rest.
    let here = if a == 0 { 64.0 + 32.0 } else { 0.0 + 32.0 };
    let local_pct = numa.counters(&ones[0].0).local_pct.unwrap();
    assert!((local_pct - 100.0 * (here + 4.0) / 132.0).abs() < 1e-9, "{a}: {local_pct}");
    assert_eq!((to(2).nodes.len(), to(2).own.len()), (1, 0), "it fits a node");
}

#[test]
fn a_vm_with_a_device_lives_beside_it() {
    let (mut numa, begun) = (two_nodes(), Instant::now());
    let ones = [One::new(1, 1)];
    let guest = Guest { device: Some(1), ..Guest::default() };
    told(&numa, 1, Report { guest, ..report("default", [1, 1]) });
    decide(&mut numa, &ones, begun);
    assert_eq!(decide(&mut numa, &ones, begun + SETTLES), [(1, Some(1))]);
    assert!(numa.why(&ones[0].0).unwrap().contains("its device is there"));
}

#[test]
fn a_vm_whose_node_fills_is_given_another_and_the_fault_is_said_once() {
    let (mut numa, begun) = (two_nodes(), Instant::now());
    let ones = [One::new(1, 1)];
    told(&numa, 1, report("default", [64, 8]));
    decide(&mut numa, &ones, begun);
    assert_eq!(decide(&mut numa, &ones, begun + SETTLES), [(1, Some(0))]);
    let full = Some("that node has no memory left".to_owned());
    told(&numa, 1, Report { refused: full, ..report("default", [64, 8]) });
    let (division, domains) = (division(&ones), domains(&numa));
    let mut moved = Vec::new();
    for tick in 1..200 {
        let free_mib = |node| if node == 0 { 4 } else { 1000 };
        let host = host::of(&numa.topology, &domains, &ALL, &free_mib);
        let now = begun + SETTLES + INTERVAL * tick;
        if !numa.decide(&division, host, &Wishes::default(), &|_| None, now).is_empty() {
            moved.push((now - begun, numa.counters(&ones[0].0).home));
        }
    }
    assert_eq!(moved.len(), 1, "{moved:?}");
    assert!(moved[0].0 >= Duration::from_secs(30) && moved[0].1 == [1], "{moved:?}");
    assert!(numa.why(&ones[0].0).unwrap().contains("does not fit on node 0 any more"));
    numa.say(&division.vms.iter().collect::<Vec<_>>());
    assert_eq!(numa.said[&1].len(), 1);
}

#[test]
fn a_cpuset_that_comes_and_goes_is_followed() {
    let (mut numa, begun) = (two_nodes(), Instant::now());
    let ones = [One::new(1, 1)];
    told(&numa, 1, report("default", [64, 0]));
    let (division, domains) = (division(&ones), domains(&numa));
    let look = |numa: &mut Numa, seconds, mems: Option<Vec<usize>>| {
        let host = host::of(&numa.topology, &domains, &ALL, &|_| 1000);
        let now = begun + Duration::from_secs(seconds);
        let wishes = Wishes::default();
        let changed = numa.decide(&division, host, &wishes, &|_| mems.clone(), now);
        numa.tell_mover(&division.vms.iter().collect::<Vec<_>>());
        let to = numa.shared.lock().targets[&1].to.nodes.clone();
        (changed, numa.told(1).len(), numa.counters(&ones[0].0).home, to)
    };
    look(&mut numa, 0, Some(vec![0, 1]));
    assert_eq!(look(&mut numa, 1, Some(vec![0, 1])), (vec![1], 1, vec![0], vec![0]));
    // libvirt has confined its memory to node 1, and the kernel has moved it there.
    told(&numa, 1, report("default", [0, 64]));
    assert_eq!(look(&mut numa, 2, Some(vec![1])), (vec![1], 0, vec![1], vec![]));
    assert_eq!(look(&mut numa, 60, Some(vec![1])), (vec![], 0, vec![1], vec![]));
    assert_eq!(look(&mut numa, 61, Some(vec![0, 1])), (vec![1], 1, vec![1], vec![1]));
}

#[test]
fn sets_by_name_are_kept_and_may_name_who_is_not_there() {
    let (mut numa, begun) = (two_nodes(), Instant::now());
    let ones = [One::new(1, 1), One::new(2, 1)];
    [1, 2].iter().for_each(|&id| told(&numa, id, report("default", [8, 0])));
    let set = SetSpec {
        name: "web".to_owned(),
        vms: ["a", "b", "gone"].map(str::to_owned).to_vec(),
        kind: Kind::AntiAffine,
        within: Within::Node,
        hard: false,
    };
    let wishes = Wishes { sets: vec![set], ..Wishes::default() };
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

/// The daemon and its mover for so long, with memory of which the first `shared` pages of each VM, by its id, stay where they
/// are: when who was given which home.
fn live(ones: &[One], os: Fake, lasts: Duration) -> Vec<(Duration, u64, Option<usize>)> {
    let (mut numa, mut mover) = (two_nodes(), Mover::new(os));
    let (begun, mut next) = (Instant::now(), Instant::now());
    let mut homes = Vec::new();
    for tick in 0..(lasts.as_millis() / INTERVAL.as_millis()) as u32 {
        let now = begun + INTERVAL * tick;
        homes.extend(
            decide(&mut numa, ones, now).into_iter().map(|(id, node)| (now - begun, id, node)),
        );
        let targets = numa.shared.lock().targets.clone();
        while next < now + INTERVAL {
            let told = &mut |id, report| drop(numa.shared.lock().reports.insert(id, report));
            next += mover.step(&targets, 256, next.max(now), told).min(INTERVAL);
        }
    }
    homes
}

/// As with virtiofs and vhost-user: of each VM's memory a part lies on each node and stays there, and some of its VMM's
/// own does not. A VM has a first home, may leave that once for a better one, and goes back to most of its memory for good.
#[test]
fn homes_of_vms_whose_memory_others_share_settle() {
    let pages = |mib: [usize; 3]| {
        let on = |node: i32, mib: usize| vec![node; mib * 256];
        [on(0, mib[0]), on(1, mib[1]), on(0, mib[2])].concat()
    };
    for shared in [[100, 0], [90, 10], [60, 40], [50, 50], [30, 70]] {
        for (own, is_wide) in [(0, false), (20, false), (100, false), (20, true)] {
            let ones = match is_wide {
                true => vec![One::new(1, 4), One::new(2, 2)],
                false => vec![One::pinned(1, 2, "0-1"), One::new(2, 1), One::new(3, 2)],
            };
            let nodes = ones.iter().map(|one| (one.0.tgid, pages([shared[0], shared[1], own])));
            let (nodes, shared_pages) = (nodes.collect(), (shared[0] + shared[1]) * 256);
            let os = Fake { nodes, shared: shared_pages, ..Fake::default() };
            let homes = live(&ones, os, Duration::from_secs(120));
            for one in &ones {
                let its: Vec<_> = homes.iter().filter(|(_, id, _)| *id == one.0.id).collect();
                assert!(its.len() <= 3, "{shared:?}, {own} of its own: {its:?}");
            }
        }
    }
}

#[test]
fn nodes_without_pcpus_or_memory_are_nobodys_home() {
    let mut numa = numa(&[("0-3", 4 << 20), ("", 4 << 20)]);
    let begun = Instant::now();
    let ones = [One::new(1, 1)];
    told(&numa, 1, report("default", [0, 64]));
    decide(&mut numa, &ones, begun);
    assert_eq!(decide(&mut numa, &ones, begun + SETTLES), [(1, Some(0))]);
    // Memory without pCPUs (CXL): nobody is at home there.
    let large = One::new(1, 3);
    let mut numa = self::numa(&[("0-1", 4 << 20), ("2-3", 4 << 20), ("", 64 << 20)]);
    let begun = Instant::now();
    told(&numa, 1, report("default", [8, 8]));
    decide_as(&mut numa, std::slice::from_ref(&large), &Wishes::default(), begun);
    decide_as(&mut numa, std::slice::from_ref(&large), &Wishes::default(), begun + SETTLES);
    let mut homes = numa.counters(&large.0).home;
    homes.sort_unstable();
    assert_eq!(homes, [0, 1]);
    let host = Host::new("0-1", "0-1", "0-1");
    host.node(0, "0", 9 << 10, "10 20").node(1, "1", 0, "20 10");
    let helper = Helper::for_test();
    assert!(Numa::start(&host.read(), &helper).is_none(), "one node has memory");
}

#[test]
fn on_one_node_only_homes_of_one_cache_are_told_and_no_memory_is_looked_at() {
    let host = Host::new("0-3", "0-3", "0-3");
    host.node(0, "0-3", 9 << 10, "10");
    (0..4).for_each(|cpu| {
        host.core(cpu, &cpu.to_string()).llc(cpu, if cpu < 2 { "0-1" } else { "2-3" });
    });
    let helper = Helper::for_test();
    let mut numa = Numa::start(&host.read(), &helper).expect("it has two caches");
    assert!(numa.threads.is_empty(), "nobody moves memory, or measures");
    let (ones, begun) = ([One::new(1, 2), One::new(2, 2)], Instant::now());
    decide(&mut numa, &ones, begun);
    assert_eq!(decide(&mut numa, &ones, begun + SETTLES).len(), 2, "they have homes, to be shown");
    assert!(numa.told(1).is_empty() && numa.told(2).is_empty(), "but nobody is told");
}

#[test]
fn nodes_are_told_with_who_lives_there_and_how_crowded_they_are() {
    let ones = [One::new(1, 2), One::new(2, 2), One::pinned(3, 2, "2-3")];
    let (numa, now) = at_home(&ones);
    let nodes = numa.nodes(&[division(&ones)], &domains(&numa), now);
    let each: Vec<_> = nodes.iter().map(|it| (it.node, it.pcpus, it.cores, it.llcs)).collect();
    assert_eq!(each, [(0, 2, 2, 1), (1, 2, 2, 1)]);
    let lives_on = |name: &str| {
        let there = nodes.iter().filter(|node| node.vms.iter().any(|vm| vm == name));
        there.map(|node| node.node).collect::<Vec<_>>()
    };
    assert_eq!(lives_on("c"), [1], "it was put there");
    assert_eq!((lives_on("a").len(), lives_on("b").len()), (1, 1));
    // All three want 2 pCPUs of the 4.
    assert_eq!(nodes.iter().map(|node| node.wanted_pcpus).sum::<f64>(), 6.0);
    for node in &nodes {
        let part = (1.0 - 2.0 / node.wanted_pcpus).max(0.0);
        assert!((node.crowded - part).abs() < 1e-9, "{node:?}");
    }
    assert_eq!(numa.room(&domains(&numa), &ALL), Room { nodes: 2, llcs: 2 });
}

/// A host whose VMs miss their caches all the time.
struct Misses;

impl Gauge for Misses {
    fn source(&self) -> &'static str {
        "a test"
    }

    fn measure(&mut self, vms: &[(u64, u32)]) -> HashMap<u64, Pressure> {
        let pressure = Pressure { cache_mib: None, memory_mib_s: Some(1000.0) };
        vms.iter().map(|vm| (vm.0, pressure)).collect()
    }
}

#[test]
fn what_is_measured_of_vms_counts_where_they_live() {
    let ones = [One::new(1, 2)];
    let (mut numa, now) = at_home(&ones);
    let crowded = |numa: &Numa, now| {
        let nodes = numa.nodes(&[division(&ones)], &domains(numa), now);
        nodes.iter().map(|node| node.crowded).fold(0.0, f64::max)
    };
    assert_eq!(crowded(&numa, now), 0.0, "it has two pCPUs to itself");
    numa.start_thread("test-gauge", |shared| measure(shared, Box::new(Misses))).unwrap();
    let told = || numa.shared.lock().pressures.len() == 1;
    while !told() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let later = now + Duration::from_secs(60);
    decide(&mut numa, &ones, later);
    assert_eq!(crowded(&numa, later), 0.5, "and half of all wishes are beyond a node's part");
}

#[test]
fn a_plan_says_what_would_move_and_moves_nothing() {
    let ones = [One::new(1, 2), One::new(2, 2)];
    let (numa, now) = at_home(&ones);
    let (divisions, domains) = ([division(&ones)], domains(&numa));
    assert_eq!(numa.plan(&divisions, &domains, &Wishes::default(), now), []);
    let set = SetSpec {
        name: "shop".to_owned(),
        vms: ["a", "b"].map(str::to_owned).to_vec(),
        kind: Kind::Affine,
        within: Within::Node,
        hard: true,
    };
    let wishes = Wishes { sets: vec![set], ..Wishes::default() };
    let moves = numa.plan(&divisions, &domains, &wishes, now);
    assert_eq!(moves.len(), 1, "{moves:?}");
    let step = &moves[0];
    assert_eq!((step.part, step.parts), (1, 1));
    assert_ne!(step.from.map(|from| from.node), Some(step.to.node));
    assert!(step.why.contains("the hard set shop is broken"), "{}", step.why);
    assert_eq!(numa.plan(&divisions, &domains, &wishes, now), moves, "nothing was moved");
}

#[test]
fn homes_and_none_have_a_reason() {
    let ones = [One::new(1, 2), One::pinned(2, 2, "2-3"), One::new(3, 1), One::new(4, 1)];
    let (mut numa, begun) = (two_nodes(), Instant::now());
    assert_eq!(numa.why(&ones[0].0), None);
    [1, 2, 4].iter().for_each(|&id| told(&numa, id, report("default", [8, 0])));
    // More than any node has.
    let maps = Maps::of("10000000-1010000000 rw-p 0", "10000000 default anon=1 N0=256");
    told(&numa, 3, Report { maps, ..Report::default() });
    decide(&mut numa, &ones, begun);
    decide(&mut numa, &ones, begun + SETTLES);
    let why = |vm: usize| numa.why(&ones[vm].0).unwrap_or_default();
    assert!(!why(0).is_empty() && !why(0).contains('\n'), "{}", why(0));
    assert!(why(1).contains("affinity, cpuset or memory policy"), "{}", why(1));
    assert!(why(2).contains("no node has the memory for it"), "{}", why(2));
}

#[test]
fn a_vm_wider_than_a_node_is_advised_virtual_nodes() {
    let ones = [One::new(1, 4), One::new(2, 2), One::new(3, 2)];
    let numa = two_nodes();
    [1, 2].iter().for_each(|&id| told(&numa, id, report("default", [8, 0])));
    let (seen, domains) = (seen(&ones), domains(&numa));
    let advice = numa.advise(&seen[0], &domains).unwrap();
    assert_eq!((advice.vcpus, advice.memory_mib, advice.node_cores), (4, 256, 2));
    let guest = advice.guest.unwrap();
    assert_eq!((guest.nodes.len(), guest.nodes[1].memory_mib), (2, 128));
    assert_eq!(numa.advise(&seen[1], &domains).unwrap().guest, None);
    assert_eq!(numa.advise(&seen[2], &domains), None, "it was not looked at yet");
}

#[test]
fn homes_are_chosen_in_each_partition_among_its_own_pcpus() {
    let (mut numa, begun) = (two_nodes(), Instant::now());
    let ones = [One::new(1, 1), One::new(2, 1), One::new(3, 1)];
    ones.iter().for_each(|one| told(&numa, one.0.id, report("default", [64, 0])));
    let lists = ["0,2", "3"].map(|list| list.parse::<CpuList>().unwrap());
    let domains = domains(&numa);
    let look = |numa: &mut Numa, groups: [&[One]; 2], now| {
        let mut homes = Vec::new();
        for ((name, cpus), ones) in ["default", "far"].into_iter().zip(&lists).zip(groups) {
            let vms = seen(ones).into_iter().map(|vm| Seen { cpus, ..vm }).collect();
            let division = Division { name, cpus, vms };
            let host = host::of(&numa.topology, &domains, cpus, &|_| 1000);
            let changed = numa.decide(&division, host, &Wishes::default(), &|_| None, now);
            homes.extend(changed.into_iter().map(|id| (id, numa.told(id)[0].node)));
        }
        homes
    };
    look(&mut numa, [&ones[..2], &ones[2..]], begun);
    let homes = look(&mut numa, [&ones[..2], &ones[2..]], begun + SETTLES);
    assert_eq!(homes[2], (3, 1), "its partition has a pCPU on node 1 only");
    assert_eq!(homes[0].1 + homes[1].1, 1, "of the two others each has a node: {homes:?}");
    let later = begun + SETTLES * 2;
    look(&mut numa, [&ones[..1], &ones[1..]], later);
    let homes = look(&mut numa, [&ones[..1], &ones[1..]], later + SETTLES);
    assert_eq!(homes, [(2, 1)], "who is in another partition has its home there");
    assert!(numa.why(&ones[0].0).is_some());
}
