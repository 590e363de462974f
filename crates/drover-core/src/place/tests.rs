use super::*;
use crate::asked::Consolidate;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::time::{Duration, Instant};

/// A node of so many pCPUs, a core each, and one LLC.
fn node(number: u32, pcpus: u32) -> Node {
    let llcs = vec![Llc { number, pcpus, cache_mib: 0.0 }];
    let (memory_mib, free_mib) = (8192, 8192);
    Node { number, pcpus, cores: pcpus, llcs, memory_mib, free_mib, ..Node::default() }
}

fn host(nodes: u32, pcpus: u32) -> Host {
    Host { nodes: (0..nodes).map(|number| node(number, pcpus)).collect(), ..Host::default() }
}

/// A VM that wants so much and has 1 GiB, on these nodes.
fn vm(vm: u64, wanted_pcpus: f64, lies_mib: &[u64]) -> Client {
    let memory_mib = lies_mib.iter().sum::<u64>().max(1024);
    Client {
        vm,
        wanted_pcpus,
        memory_mib,
        lies_mib: lies_mib.to_vec(),
        may_leave: true,
        ..Client::default()
    }
}

fn at(client: Client, node: usize) -> Client {
    Client { home: Some(Home { node, llc: None }), ..client }
}

fn nodes_of(homes: &[Option<Home>]) -> Vec<Option<usize>> {
    homes.iter().map(|home| home.map(|home| home.node)).collect()
}

fn auto(host: &Host, clients: &[Client], sets: &[Set]) -> Vec<Option<usize>> {
    nodes_of(&place(host, clients, sets, Heuristic::Auto, 2).0)
}

#[test]
fn the_worked_example() {
    let host = host(2, 4);
    let mut clients = vec![
        at(vm(1, 3.0, &[1024, 0]), 0),
        at(vm(2, 3.0, &[1024, 0]), 0),
        at(vm(3, 1.0, &[0, 1024]), 1),
    ];
    let (homes, moves) = place(&host, &clients, &[], Heuristic::Auto, 2);
    let moved: Vec<usize> = moves.iter().map(|it| it.client).collect();
    assert!(moved == [0] || moved == [1], "one of the two: {moves:?}");
    assert!(moves[0].why.starts_with("it wants 3.0 pCPUs, 3.0 are left there"), "{}", moves[0].why);
    assert_eq!(homes[2], Some(Home { node: 1, llc: None }));
    // One more on node 1: a swap.
    clients.push(at(vm(4, 1.0, &[0, 1024]), 1));
    let (homes, moves) = place(&host, &clients, &[], Heuristic::Auto, 2);
    assert_eq!(moves.len(), 2, "{moves:?}");
    let wanted = |node| {
        let there = (0..4).filter(|&it| homes[it].unwrap().node == node);
        there.map(|it| clients[it].wanted_pcpus).sum::<f64>()
    };
    assert_eq!((wanted(0), wanted(1)), (4.0, 4.0));
}

#[test]
fn home_is_where_the_memory_lies_unless_there_is_no_pcpu() {
    let busy = |wanted: f64| {
        let mut host = host(2, 2);
        host.nodes[0].wanted_pcpus = wanted;
        host
    };
    let on_0 = vm(1, 1.0, &[1024, 0]);
    assert_eq!(auto(&busy(0.0), std::slice::from_ref(&on_0), &[]), [Some(0)]);
    assert_eq!(
        auto(&busy(1.0), std::slice::from_ref(&on_0), &[]),
        [Some(0)],
        "there is one for it"
    );
    assert_eq!(auto(&busy(2.0), &[on_0], &[]), [Some(1)]);
    let sleeps = vm(1, 0.0, &[1024, 0]);
    assert_eq!(auto(&busy(2.0), &[sleeps], &[]), [Some(0)]);
    let mut both = busy(2.0);
    both.nodes[1].wanted_pcpus = 2.0;
    assert_eq!(auto(&both, &[vm(1, 1.0, &[1024, 0])], &[]), [Some(0)], "it is no better elsewhere");
}

#[test]
fn whole_cores_come_before_second_threads() {
    let mut host = host(2, 8);
    host.nodes.iter_mut().for_each(|node| node.cores = 4);
    // 4-vCPU VMs, all memory on node 0: the first stays, the second has a core for each vCPU elsewhere.
    let clients = [at(vm(1, 4.0, &[1024, 0]), 0), vm(2, 4.0, &[1024, 0])];
    assert_eq!(auto(&host, &clients, &[]), [Some(0), Some(1)]);
}

#[test]
fn promised_memory_is_not_free() {
    let mut host = host(2, 4);
    host.nodes.iter_mut().for_each(|node| node.free_mib = 4096);
    let big = |id| Client { memory_mib: 3000, ..vm(id, 0.1, &[]) };
    let homes = auto(&host, &[big(1), big(2), big(3)], &[]);
    assert_eq!(homes.iter().flatten().collect::<HashSet<_>>().len(), 2);
    assert_eq!(homes.iter().filter(|home| home.is_none()).count(), 1, "the third fits nowhere");
}

#[test]
fn nodes_without_pcpus_or_without_memory_are_nobodys_home() {
    let mut host = host(3, 2);
    host.nodes[0].pcpus = 0;
    (host.nodes[1].memory_mib, host.nodes[1].free_mib) = (0, 0);
    assert_eq!(auto(&host, &[vm(1, 1.0, &[1024, 0, 0])], &[]), [Some(2)]);
    let stays = at(Client { may_leave: false, ..vm(1, 1.0, &[1024, 0, 0]) }, 0);
    let (homes, moves) = place(&host, &[stays], &[], Heuristic::Auto, 2);
    assert_eq!(homes[0].unwrap().node, 2, "a node without pCPUs is left at once");
    assert!(moves[0].why.contains("no pCPUs or no memory"), "{}", moves[0].why);
    host.nodes.truncate(2);
    assert_eq!(auto(&host, &[vm(1, 1.0, &[])], &[]), [None]);
}

#[test]
fn the_heuristics_of_seed_003() {
    let mut host = host(3, 4);
    for (node, free_mib) in host.nodes.iter_mut().zip([5000, 6000, 4000]) {
        node.free_mib = free_mib;
    }
    let clients: Vec<Client> = (0..3).map(|id| vm(id, 4.0, &[])).collect();
    let by = |heuristic| nodes_of(&place(&host, &clients, &[], heuristic, 2).0);
    assert_eq!(by(Heuristic::Greedy), [Some(0), Some(0), Some(0)]);
    assert_eq!(by(Heuristic::Packed), [Some(2), Some(2), Some(2)]);
    assert_eq!(by(Heuristic::Spread), [Some(1), Some(0), Some(1)]);
}

#[test]
fn vms_wider_than_a_node_are_split_over_the_fewest_nodes_nearest_together() {
    let shape = |vcpus, max_per_node| Shape { vcpus, max_per_node, ..Shape::default() };
    let parts = |host: &Host, shape: &Shape| vcpus_of(&parts(host, shape));
    // Seed 000, 3.4: host 3 has two cores a node, host 4 four.
    assert_eq!(parts(&host(4, 2), &shape(4, None)), [0..2, 2..4]);
    assert_eq!(parts(&host(4, 4), &shape(8, None)), [0..4, 4..8]);
    assert_eq!(parts(&host(4, 4), &shape(4, None)).len(), 1);
    assert_eq!(parts(&host(4, 4), &shape(8, Some(2))), [0..2, 2..4, 4..6, 6..8]);
    assert_eq!(parts(&host(4, 4), &shape(32, None)).len(), 4, "wider than the host");
    let mut threads = host(2, 8);
    threads.nodes.iter_mut().for_each(|node| node.cores = 4);
    assert_eq!(parts(&threads, &shape(8, None)).len(), 2, "hardware threads do not count");
    let large = Shape { memory_mib: 10_000, ..shape(2, None) };
    assert_eq!(parts(&host(4, 4), &large).len(), 2, "by memory");

    // 0 and 1 are near each other, 2 and 3 are.
    let mut host = host(4, 4);
    host.distances = vec![
        vec![10, 16, 32, 32],
        vec![16, 10, 32, 32],
        vec![32, 32, 10, 16],
        vec![32, 32, 16, 10],
    ];
    host.nodes[0].wanted_pcpus = 1.0;
    let part = |_| vm(1, 4.0, &[]);
    let homes = auto(&host, &[0, 1].map(part), &[]);
    let together: HashSet<usize> = homes.into_iter().flatten().collect();
    assert_eq!(together, HashSet::from([2, 3]));
}

fn vcpus_of(parts: &[Part]) -> Vec<Range<u32>> {
    parts.iter().map(|part| part.vcpus.clone()).collect()
}

fn virtual_node(vcpus: u32, memory_mib: u64) -> VirtualNode {
    VirtualNode { vcpus, memory_mib, ..VirtualNode::default() }
}

#[test]
fn virtual_nodes_stay_whole_and_split_no_vm_that_fits_a_node() {
    let of = |host: &Host, nodes: &[(u32, u64)]| {
        let virtual_nodes: Vec<_> = nodes.iter().map(|it| virtual_node(it.0, it.1)).collect();
        let vcpus = nodes.iter().map(|it| it.0).sum();
        let memory_mib = nodes.iter().map(|it| it.1).sum();
        let parts = parts(host, &Shape { vcpus, memory_mib, virtual_nodes, ..Shape::default() });
        let nodes = parts.iter().map(|part| part.virtual_nodes.clone()).collect::<Vec<_>>();
        (vcpus_of(&parts), nodes)
    };
    let two = host(2, 4);
    assert_eq!(of(&two, &[(2, 64), (2, 64)]).0.len(), 1, "it fits a node");
    assert_eq!(of(&two, &[(1, 64), (4, 64)]), (vec![0..1, 1..5], vec![0..1, 1..2]));
    assert_eq!(of(&two, &[(2, 64); 4]), (vec![0..4, 4..8], vec![0..2, 2..4]));
    assert_eq!(of(&host(4, 4), &[(2, 64), (4, 64), (2, 64)]).0, [0..2, 2..6, 6..8]);
    let large_mib = two.nodes[0].memory_mib - 64;
    assert_eq!(of(&two, &[(1, large_mib), (1, large_mib)]).0, [0..1, 1..2], "by memory");
    assert_eq!(of(&two, &[(6, 64), (2, 64)]), (vec![0..4, 4..8], vec![0..0, 0..0]), "too large");
    assert_eq!(of(&two, &[(8, 64), (8, 64)]).1, [0..1, 1..2], "but the host is too small, too");
    let shape = Shape { vcpus: 8, virtual_nodes: vec![virtual_node(2, 64)], ..Shape::default() };
    assert_eq!(vcpus_of(&parts(&two, &shape)), [0..4, 4..8], "nodes of other vCPUs");
}

#[test]
fn each_virtual_node_has_its_memory_where_its_vcpus_are_at_home() {
    let (host, mut keeper) = (host(2, 4), Keeper::default());
    let on = |node: u32, mib| BTreeMap::from([(node, mib)]);
    let vm = Seen {
        id: 7,
        vcpus: 6,
        virtual_nodes: vec![
            VirtualNode { lies_mib: on(1, 64), ..virtual_node(2, 64) },
            VirtualNode { lies_mib: on(0, 96), ..virtual_node(4, 96) },
        ],
        memory: Some(Memory { expected_mib: 160, ..Memory::default() }),
        ..Seen::default()
    };
    let look = |keeper: &mut Keeper, vm: &Seen, seconds| {
        let vms = std::slice::from_ref(vm);
        keeper.look(host.clone(), vms, &Wishes::default(), Duration::from_secs(seconds)).1
    };
    look(&mut keeper, &vm, 0);
    assert_eq!(look(&mut keeper, &vm, 1), [7]);
    assert_eq!(keeper.memory_nodes(7), [1, 0], "each is where its memory is already");
    assert_eq!(keeper.nodes_of_virtual(7), [1, 0]);
    // 2 and 4 vCPUs are one and two of three.
    assert_eq!(keeper.told(7), [1, 0, 0].map(HomeNumber::node));
    // Where virtual nodes are not known any more, it has even parts, with homes of their own.
    let blind = Seen { virtual_nodes: Vec::new(), ..vm };
    assert_eq!(look(&mut keeper, &blind, 2), [7]);
    assert!(keeper.nodes_of_virtual(7).is_empty());
    assert_eq!(keeper.told(7).len(), 2);
    // A vCPU more is no reason to leave home.
    let told = keeper.told(7);
    assert_eq!(look(&mut keeper, &Seen { vcpus: 7, ..blind }, 3), [7]);
    assert_eq!(keeper.told(7), [vec![told[0]; 3], vec![told[1]; 4]].concat());
}

fn set(kind: Kind, within: Within, hard: bool, vms: &[u64]) -> Set {
    Set { name: "web".to_owned(), vms: vms.to_vec(), kind, within, hard }
}

#[test]
fn sets_keep_vms_together_and_apart() {
    let host = host(2, 4);
    let clients = [at(vm(1, 1.0, &[1024, 0]), 0), at(vm(2, 1.0, &[0, 1024]), 1)];
    let affine = set(Kind::Affine, Within::Node, true, &[1, 2]);
    let (homes, moves) = place(&host, &clients, &[affine], Heuristic::Auto, 2);
    assert_eq!(homes[0].unwrap().node, homes[1].unwrap().node);
    assert!(moves[0].why.contains("set web"), "{}", moves[0].why);

    let apart = set(Kind::AntiAffine, Within::Node, false, &[1, 2]);
    let young = |id| at(Client { may_leave: false, ..vm(id, 1.0, &[1024, 0]) }, 0);
    let homes = auto(&host, &[young(1), young(2)], std::slice::from_ref(&apart));
    assert_ne!(homes[0], homes[1], "a set does not wait until they have been at home for long");
    let together = [at(vm(1, 1.0, &[1024, 0]), 0), at(vm(2, 1.0, &[1024, 0]), 0)];
    let homes = auto(&host, &together, std::slice::from_ref(&apart));
    assert_ne!(homes[0], homes[1]);
    // The other node is full: a soft set gives way, a hard one leaves a new VM without a home.
    let mut full = host.clone();
    full.nodes[1].free_mib = 10;
    let new = [at(vm(1, 1.0, &[1024, 0]), 0), vm(2, 1.0, &[])];
    assert_eq!(auto(&full, &new, std::slice::from_ref(&apart)), [Some(0), Some(0)]);
    assert_eq!(auto(&full, &new, &[Set { hard: true, ..apart }]), [Some(0), None]);
}

#[test]
fn an_llc_is_a_home_like_a_node() {
    let mut host = host(2, 4);
    for node in &mut host.nodes {
        node.llcs = [0, 1]
            .map(|llc| Llc { number: 2 * node.number + llc, pcpus: 2, cache_mib: 0.0 })
            .to_vec();
    }
    let near = set(Kind::Affine, Within::Llc, false, &[1, 2]);
    let clients = [vm(1, 1.0, &[]), vm(2, 1.0, &[])];
    let (homes, _) = place(&host, &clients, &[near], Heuristic::Auto, 2);
    assert!(homes[0].unwrap().llc.is_some() && homes[0] == homes[1], "{homes:?}");
    let consolidated = [Client { one_llc: true, ..vm(1, 2.0, &[]) }];
    let (homes, _) = place(&host, &consolidated, &[], Heuristic::Auto, 2);
    assert!(homes[0].unwrap().llc.is_some());
    let wide = [Client { one_llc: true, ..vm(1, 4.0, &[]) }];
    let (homes, _) = place(&host, &wide, &[], Heuristic::Auto, 2);
    assert_eq!(homes[0].unwrap().llc, None, "it does not fit");
}

#[test]
fn devices_memory_that_cannot_move_and_crowding_count() {
    let host = host(2, 4);
    let nic = Client { device: Some(1), ..vm(1, 1.0, &[]) };
    assert_eq!(auto(&host, &[nic], &[]), [Some(1)]);
    let stuck = at(Client { is_stuck: true, ..vm(1, 2.0, &[0, 1024]) }, 0);
    assert_eq!(auto(&host, &[stuck], &[]), [Some(1)], "it goes to its memory");
    let mut busy = host.clone();
    busy.nodes.iter_mut().for_each(|node| node.memory_mib_s = 1000.0);
    let reader = |id| at(Client { memory_mib_s: 900.0, ..vm(id, 1.0, &[1024, 0]) }, 0);
    let homes = auto(&busy, &[reader(1), reader(2)], &[]);
    assert_ne!(homes[0], homes[1], "one node's memory cannot serve both");
}

/// Three VMs of four vCPUs on two nodes of four: who was crowded for longest comes to be alone.
#[test]
fn who_was_crowded_for_long_moves() {
    let host = host(2, 4);
    let vms = |crowded: f64| {
        let one = |id, node, crowded| {
            let lies = if node == 0 { [1024, 0] } else { [0, 1024] };
            at(Client { crowded, ..vm(id, 4.0, &lies) }, node)
        };
        [one(1, 0, crowded), one(2, 0, 0.5), one(3, 1, 0.0)]
    };
    assert!(place(&host, &vms(0.5), &[], Heuristic::Auto, 2).1.is_empty());
    let (_, moves) = place(&host, &vms(2.0), &[], Heuristic::Auto, 2);
    let moved: Vec<usize> = moves.iter().map(|it| it.client).collect();
    assert_eq!(moved, [1], "the first has the node to itself");
    assert!(moves[0].why.starts_with("for VMs that were crowded for long"), "{}", moves[0].why);
    // With idle pCPUs on both nodes: only where they miss their caches.
    let half =
        |mib_s: f64| vms(2.0).map(|it| Client { wanted_pcpus: 2.0, memory_mib_s: mib_s, ..it });
    assert!(place(&host, &half(50.0), &[], Heuristic::Auto, 2).1.is_empty());
    assert!(!place(&host, &half(500.0), &[], Heuristic::Auto, 2).1.is_empty());
}

/// What each of three VMs that want so many pCPUs each and move so much memory has of 20 minutes alone on one of two
/// nodes of four, s; memory follows in 5 s.
fn alone_s(wanted_pcpus: f64, mib_s: f64) -> [f64; 3] {
    let (host, wishes) = (host(2, 4), Wishes::default());
    let mut keeper = Keeper::default();
    let (mut alone_s, mut left, mut lies) = ([0.0; 3], [None; 3], [0, 0, 1]);
    for step in 0..2400 {
        let now = step * INTERVAL;
        let one = |id: usize| Seen {
            id: id as u64,
            vcpus: 4,
            wanted_pcpus: Some(wanted_pcpus),
            memory: Some(Memory {
                lies_mib: [(lies[id], 1024)].into(),
                local_pct: Some(100.0),
                expected_mib: 1024,
                ..Memory::default()
            }),
            pressure: Pressure { cache_mib: None, memory_mib_s: Some(mib_s) },
            ..Seen::default()
        };
        let (moves, _) = keeper.look(host.clone(), &[one(0), one(1), one(2)], &wishes, now);
        for step in moves.iter().filter(|step| step.from.is_some()) {
            let before = left[step.id as usize].replace(now);
            let kept = before.map_or(Duration::MAX, |before| now - before);
            assert!(kept >= Duration::from_secs(30), "{step:?} after {kept:?}");
        }
        let homes = [0, 1, 2].map(|id| keeper.homes(id).first().map(|home| home.node));
        for id in 0..3 {
            let others = homes.iter().filter(|&&home| home == homes[id]).count();
            alone_s[id] += if others == 1 { INTERVAL.as_secs_f64() } else { 0.0 };
            let arrived = left[id].is_none_or(|left| now - left >= Duration::from_secs(5));
            lies[id] = homes[id].filter(|_| arrived).unwrap_or(lies[id]);
        }
    }
    alone_s
}

/// Where two nodes cannot hold three VMs alike, they take turns, and nobody moves twice in 30 s.
#[test]
fn three_vms_on_two_nodes_take_turns() {
    // More than there is of pCPUs; or enough of them, and too little cache.
    for (wanted_pcpus, mib_s) in [(4.0, 0.0), (4.0, 1000.0), (2.0, 500.0)] {
        let alone_s = alone_s(wanted_pcpus, mib_s);
        assert!(
            alone_s.iter().all(|it| (200.0..600.0).contains(it)),
            "{wanted_pcpus}: {alone_s:?}"
        );
    }
    let fits = alone_s(2.0, 20.0);
    assert!(fits.contains(&0.0), "who has all it wants stays: {fits:?}");
}

/// A node of two LLCs of four pCPUs.
fn two_llcs() -> Host {
    let llc = |number| Llc { number, pcpus: 4, cache_mib: 0.0 };
    Host { nodes: vec![Node { llcs: vec![llc(0), llc(1)], ..node(0, 8) }], ..Host::default() }
}

/// VMs of so many vCPUs, each woken 20,000 times a second by the VM with that id; `near_pct` of that within an LLC while it
/// has no home there, all else. Returns the homes told after so many seconds.
fn woken_for(
    seconds: u32,
    vms: &[(u64, u32, u64)],
    consolidate: Consolidate,
) -> Vec<Vec<HomeNumber>> {
    let mut keeper = Keeper::default();
    let (mut wakes, mut near) = (0, vec![0; vms.len()]);
    for tick in 0..2 * seconds {
        wakes += 1250;
        let seen = vms.iter().zip(&mut near).map(|(&(id, vcpus, by), near)| {
            let told = [id, by].map(|it| keeper.told(it));
            let is_near = !told[0].is_empty() && told[0] == told[1];
            *near += if is_near { 1250 } else { 625 };
            let woken = Woken { by, votes: 250, wakes, near: *near, waited_ms: 0 };
            Seen {
                id,
                name: id.to_string(),
                vcpus,
                wanted_pcpus: Some(vcpus.into()),
                consolidate,
                woken: Some(woken),
                memory: Some(Memory::default()),
                ..Seen::default()
            }
        });
        let seen: Vec<Seen> = seen.collect();
        keeper.look(two_llcs(), &seen, &Wishes::default(), INTERVAL * tick);
    }
    vms.iter().map(|vm| keeper.told(vm.0)).collect()
}

#[test]
fn who_wakes_its_own_vcpus_often_lives_in_one_llc() {
    let homes = woken_for(60, &[(1, 2, 1)], Consolidate::Auto);
    assert!(homes[0][0].llc.is_some(), "{homes:?}");
    for consolidate in [Consolidate::Off, Consolidate::Auto] {
        let (vcpus, by) = if consolidate == Consolidate::Off { (2, 1) } else { (6, 1) };
        let homes = woken_for(60, &[(1, vcpus, by)], consolidate);
        assert!(homes[0].is_empty(), "unasked, or too wide: {homes:?}");
    }
}

#[test]
fn vms_that_wake_each_other_share_an_llc() {
    let homes = woken_for(60, &[(1, 2, 2), (2, 1, 1), (3, 4, 4)], Consolidate::Auto);
    assert!(homes[0][0].llc.is_some() && homes[0] == homes[1], "{homes:?}");
    assert_ne!(homes[2], homes[0], "it has the other one");
}

#[test]
fn sets_that_cannot_be_kept_are_found() {
    let (a, b) = (["x", "y"], ["y", "z"]);
    let apart = ["z", "x"];
    let of = |within| {
        [
            ("one", Kind::Affine, Within::Llc, &a[..]),
            ("two", Kind::Affine, within, &b[..]),
            ("three", Kind::AntiAffine, Within::Llc, &apart[..]),
        ]
    };
    assert_eq!(contradiction(of(Within::Llc)), Some(("two", "three", [&"z", &"x"])));
    assert_eq!(contradiction(of(Within::Node)), None, "on one node, in two LLCs");
    let node = [
        of(Within::Node)[0],
        of(Within::Node)[1],
        ("three", Kind::AntiAffine, Within::Node, &apart[..]),
    ];
    assert!(contradiction(node).is_some());
}

/// Not a timed test of the machine: a bound that only another order of growth would break.
#[test]
fn thousands_of_clients_are_placed_in_no_time() {
    let host = host(32, 64);
    let one = |id: u64| {
        let node = usize::try_from(id * 7 % 32).unwrap();
        let mut lies = vec![0; 32];
        lies[node] = 64;
        Client { memory_mib: 64, ..at(vm(id, (id % 5) as f64, &lies), node * 3 % 32) }
    };
    let clients: Vec<Client> = (0..2000).map(one).collect();
    let begun = Instant::now();
    let (homes, _) = place(&host, &clients, &[], Heuristic::Auto, 2);
    assert!(homes.iter().all(Option::is_some));
    println!("{:?}", begun.elapsed());
}

proptest! {
    /// With constant demand moves end, whatever VMs and nodes there are, and no hard set is ever broken.
    #[test]
    fn nobody_goes_back_and_forth(
        others in prop::collection::vec(0.0..4.0f64, 2..5),
        wants in prop::collection::vec((0.1..4.0f64, 0usize..4, 0usize..4), 1..8),
        pressures in prop::collection::vec((0.0..8.0f64, 0.0..2000.0f64, -2.0..2.0f64), 8),
    ) {
        let mut host = host(u32::try_from(others.len()).unwrap(), 4);
        let count = others.len();
        for (node, wanted_pcpus) in host.nodes.iter_mut().zip(others) {
            node.wanted_pcpus = wanted_pcpus;
            node.llcs[0].cache_mib = 8.0;
            node.memory_mib_s = 2000.0;
        }
        let apart = set(Kind::AntiAffine, Within::Node, true, &[0, 1]);
        let mut clients: Vec<Client> = wants.iter().enumerate().map(|(id, &(wanted, lies, home))| {
            let mut on = vec![0; count];
            on[lies % count] = 1024;
            let (cache_mib, memory_mib_s, crowded) = pressures[id];
            let pressed = Client { cache_mib, memory_mib_s, crowded, ..vm(id as u64, wanted, &on) };
            at(pressed, home % count)
        }).collect();
        let mut moves = 0;
        for _ in 0..40 {
            let (homes, done) = place(&host, &clients, std::slice::from_ref(&apart), Heuristic::Auto, 2);
            moves += done.len();
            for (client, home) in clients.iter_mut().zip(homes) {
                client.home = home;
            }
        }
        prop_assert!(moves <= 4 * clients.len(), "{moves} moves of {} VMs", clients.len());
        if clients.len() > 1 {
            prop_assert_ne!(clients[0].home, clients[1].home);
        }
    }
}
