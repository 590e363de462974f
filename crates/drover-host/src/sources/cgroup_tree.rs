// SPDX-License-Identifier: GPL-2.0-only
//! What is made of the host's cgroups: who is a container, which stand as pools, what each asks. Pure.
//!
//! Who is scheduled is a VM, or a *container*: a cgroup with CPU settings of its own and no VM in it. A cgroup
//! with settings in which several of these are is a pool of them, and so is one below which somebody has
//! set weights. Weights count as the kernel counts them: among siblings. So in a cgroup where somebody set the
//! weight of any, all are units with the weight they have, 100 being 1000 shares; only where nobody did,
//! size decides: 1000 for each vCPU, 1000 for a container, the sum of both for a pool. What a user sets below
//! a cgroup that was delegated to him therefore divides what that cgroup has, and lifts nobody above it.
//!
//! Worked example. `/system.slice` and `/machine.slice` were left alone. In the first, *web* has weight 400 and
//! *batch* and *log* have none; in the second is a VM of 4 vCPUs. `/system.slice` is a pool of three
//! containers of 4000, 1000 and 1000 shares, and stands with 3000 beside the VM with 4000.
//!
//! VMs that are in one cgroup, or in none, stand beside each other as their nice values say (`nice.rs`). As soon as one
//! of them is not at nice 0 their cgroup is a pool: how nice a VM is matters to those in its cgroup only, and to nobody
//! if it has one of its own.
//!
//! A cgroup with one unit in it, and nobody else, is that unit: a libvirt scope is its VM, with the lower of the
//! limits on the way.
//!
//! The number of pools is limited. If cgroups would need more, the places are divided equally among the users who own
//! delegated cgroups and root's top-level cgroups; places that one of them does not use go to the others (`places.rs`).
//! VMs and containers of a pool without a place join the nearest pool around it that has one, each with the shares it
//! would have had and an equal part of the missing pool's limit: nobody has more for want of places.

use super::cgroup::{self, Cgroup, Quota, WEIGHT_NORMAL};
use super::nice::Nice;
use super::places::{Wanted, divide};
use drover_core::asked::{Asked, Limit};
use drover_core::percent;
use drover_core::resolve::Layer;
use drover_core::settings::VcpuLimit;
use drover_core::shares::{SHARES_MAX, Shares};
use drover_core::tree::{DEPTH_MAX, PoolSpec};
use std::collections::{HashMap, HashSet};

/// Shares of a vCPU, of a container, and of a unit with the normal weight.
const SHARES_NORMAL: u64 = 1000;
/// Shares of an idle cgroup: the kernel has it weigh 3 where others weigh 1024.
const SHARES_IDLE: u64 = 3;

/// Whose limit that is which the cgroups of a VM's vCPUs make together.
const OF_VCPUS: &str = "/vcpu*";

/// A VM, as far as cgroups care.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its process.
    pub tgid: u32,
    /// The cgroup of that.
    pub path: String,
    /// How many of its vCPUs count.
    pub size: u32,
    /// How nice these are; none: not at all.
    pub nice: Option<Nice>,
}

/// What is made of the cgroups.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CgroupTree {
    /// The pools, parents before their children, called as their cgroups.
    pub pools: Vec<PoolSpec>,
    /// What is asked for each VM, by its process.
    pub vms: HashMap<u32, Vec<Layer>>,
    /// The containers by the numbers of their cgroups.
    pub containers: HashMap<u64, Container>,
    /// So many pools have no place.
    pub unplaced: usize,
}

/// A container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// What it is called: the path of its cgroup.
    pub path: String,
    /// The user in whose subtree that is; 0: root's.
    pub user: u32,
    /// What is asked for it.
    pub layers: Vec<Layer>,
}

impl CgroupTree {
    /// Of these cgroups with these VMs in them, where there are so many places for pools.
    pub fn of(root: &Cgroup, vms: &[Place], places: usize) -> Self {
        let (units, _) = inside(root, &Vms::of(root, vms));
        let mut wanted = Vec::new();
        units.iter().for_each(|unit| unit.want_places(&mut wanted, 1));
        let placed = divide(&wanted, places);
        let mut tree = Self { unplaced: wanted.len() - placed.len(), ..Self::default() };
        tree.enter(units, &placed, None, 1);
        tree
    }

    /// Puts units into that pool, which is so deep that they would be at `depth`.
    fn enter(
        &mut self,
        units: Vec<Unit>,
        placed: &HashSet<String>,
        pool: Option<&str>,
        depth: usize,
    ) {
        for unit in units {
            let shares = unit.shares();
            let layers = || unit.layers(shares, pool);
            match unit.kind {
                Kind::Vm { tgid, .. } => {
                    self.vms.insert(tgid, layers());
                }
                Kind::Container { id, user } => {
                    let (path, layers) = (unit.path.clone(), layers());
                    self.containers.insert(id, Container { path, user, layers });
                }
                // Deeper than pools go: those in it stand beside it.
                Kind::Pool { inside, .. } if depth > DEPTH_MAX => {
                    self.enter(inside, placed, pool, depth);
                }
                Kind::Pool { inside, .. } if !placed.contains(&unit.path) => {
                    let parts = parts_of(shares, unit.limit.as_ref(), inside);
                    self.enter(parts, placed, pool, depth);
                }
                Kind::Pool { inside, .. } => {
                    self.pools.push(PoolSpec {
                        parent: pool.map(str::to_owned),
                        shares: Shares::Exact(shares),
                        limit_mcpu: unit.limit.as_ref().map(|(quota, _)| quota.mcpu),
                        burst_us: unit.limit.as_ref().map_or(0, |(quota, _)| quota.burst_us),
                        ..PoolSpec::named(&unit.path)
                    });
                    self.enter(inside, placed, Some(&unit.path), depth + 1);
                }
            }
        }
    }
}

/// All VMs, by where they are.
struct Vms<'a> {
    /// Those in each cgroup that are in none of those in it.
    inside: HashMap<&'a str, Vec<&'a Place>>,
    /// Their processes.
    tgids: HashSet<u32>,
}

impl<'a> Vms<'a> {
    fn of(root: &'a Cgroup, vms: &'a [Place]) -> Self {
        let mut all: Vec<&Cgroup> = vec![root];
        let mut at = 0;
        while let Some(cgroup) = all.get(at) {
            all.extend(&cgroup.inside);
            at += 1;
        }
        let mut inside: HashMap<&str, Vec<&Place>> =
            all.iter().map(|cgroup| (cgroup.path.as_str(), Vec::new())).collect();
        for vm in vms {
            // Cgroups are known to some depth only, and a path may be as long as its user likes.
            let ends = vm.path.match_indices('/').map(|(at, _)| at).skip(1).take(cgroup::DEPTH_MAX);
            let above = ends.chain([vm.path.len()]).map(|end| &vm.path[..end]);
            let nearest = above.filter(|path| inside.contains_key(path)).last().unwrap_or("");
            inside.entry(nearest).or_default().push(vm);
        }
        Self { inside, tgids: vms.iter().map(|vm| vm.tgid).collect() }
    }
}

/// The units of a pool that has no place, as they stand beside it: each with its part.
fn parts_of(shares: u32, limit: Option<&(Quota, String)>, mut inside: Vec<Unit>) -> Vec<Unit> {
    let all: u64 = inside.iter().map(|unit| u64::from(unit.shares())).sum();
    let count = u32::try_from(inside.len().max(1)).unwrap_or(u32::MAX);
    for unit in &mut inside {
        unit.part = Some((u64::from(shares) * u64::from(unit.shares()) / all.max(1)).max(1));
        let of_limit = limit.map(|(quota, path)| {
            let part =
                Quota { mcpu: (quota.mcpu / count).max(1), burst_us: quota.burst_us / count };
            (part, path.clone())
        });
        unit.limit = unit.limit.take().into_iter().chain(of_limit).min();
    }
    inside
}

/// What stands beside others, with what it may have among them.
#[derive(Debug)]
struct Unit {
    kind: Kind,
    /// The cgroup that speaks for it.
    path: String,
    /// Its weight, where somebody set any among its siblings.
    weight: Option<u64>,
    /// Its part of the shares of the pool that it is in, which has no place.
    part: Option<u64>,
    /// How nice a VM is to those beside it.
    nice: Option<Nice>,
    /// The least it may have on the way, and which cgroup says so.
    limit: Option<(Quota, String)>,
    /// The least that each vCPU of a VM may have on the way.
    vcpu_limit: Option<Quota>,
}

#[derive(Debug)]
enum Kind {
    Vm { tgid: u32, size: u32 },
    Container { id: u64, user: u32 },
    Pool { inside: Vec<Unit>, user: u32 },
}

impl Unit {
    fn size(&self) -> u64 {
        match &self.kind {
            Kind::Vm { size, .. } => SHARES_NORMAL * u64::from((*size).max(1)),
            Kind::Container { .. } => SHARES_NORMAL,
            Kind::Pool { inside, .. } => inside.iter().map(Unit::size).sum(),
        }
    }

    /// Adds the pools that it is, or has, which is at that depth.
    fn want_places(&self, wanted: &mut Vec<Wanted>, depth: usize) {
        let Kind::Pool { inside, user } = &self.kind else { return };
        if depth > DEPTH_MAX {
            return;
        }
        let (path, is_limited) = (self.path.clone(), self.limit.is_some());
        wanted.push(Wanted { path, user: *user, depth, is_limited });
        inside.iter().for_each(|unit| unit.want_places(wanted, depth + 1));
    }

    fn shares(&self) -> u32 {
        let shares = match (self.part, self.weight) {
            (Some(part), _) => part,
            (_, None) => self.size(),
            (_, Some(0)) => SHARES_IDLE,
            (_, Some(weight)) => weight * SHARES_NORMAL / WEIGHT_NORMAL,
        };
        u32::try_from(shares).unwrap_or(SHARES_MAX).clamp(1, SHARES_MAX)
    }

    /// What is asked for a VM or a container.
    fn layers(&self, shares: u32, pool: Option<&str>) -> Vec<Layer> {
        let layer = |origin: String, asked: Asked| Layer { origin, of_name: false, asked };
        let is_vm = matches!(self.kind, Kind::Vm { .. });
        let mut layers = Vec::new();
        // A VM's shares follow its size while it grows.
        if self.part.is_some() || self.weight.is_some() || !is_vm {
            let asked = Asked { shares: Some(Shares::Exact(shares)), ..Asked::default() };
            layers.push(layer(format!("cgroup {}/cpu.weight", self.path), asked));
        } else if let Some(nice) = &self.nice {
            let shares = Some(Shares::PerVcpu(nice.shares()));
            let asked = Asked { shares, ..Asked::default() };
            layers.push(layer(nice.said.clone(), asked));
        }
        if let Some((quota, path)) = &self.limit {
            let limit = Some(Limit::At(quota.mcpu));
            let mut asked = Asked { limit, burst_us: quota.burst_us, ..Asked::default() };
            let mut origin = format!("cgroup {path}/cpu.max");
            if let Some(Quota { mcpu, burst_us }) = self.vcpu_limit.filter(|_| is_vm) {
                asked.vcpu_limit = VcpuLimit { mcpu, burst_us };
                let by = if path.ends_with(OF_VCPUS) { "" } else { " by vcpu*/cpu.max" };
                origin += &format!(", {} for each vCPU{by}", percent::text(mcpu));
            }
            layers.push(layer(origin, asked));
        }
        if let Some(pool) = pool {
            let asked = Asked { pool: Some(pool.to_owned()), ..Asked::default() };
            layers.push(layer(format!("cgroup {pool}"), asked));
        }
        layers
    }
}

/// The units in a cgroup, and whether somebody set weights there.
fn inside(cgroup: &Cgroup, vms: &Vms) -> (Vec<Unit>, bool) {
    let weighed = cgroup.inside.iter().any(|one| one.weight != WEIGHT_NORMAL);
    let mut units: Vec<Unit> = Vec::new();
    for vm in vms.inside.get(cgroup.path.as_str()).into_iter().flatten() {
        let kind = Kind::Vm { tgid: vm.tgid, size: vm.size };
        let (path, nice) = (cgroup.path.clone(), vm.nice.clone());
        units.push(Unit {
            kind,
            path,
            weight: None,
            part: None,
            nice,
            limit: None,
            vcpu_limit: None,
        });
    }
    units.extend(cgroup.inside.iter().flat_map(|one| units_of(one, vms, weighed)));
    (units, weighed)
}

/// What a cgroup is to those beside it, where somebody set weights or nobody did.
fn units_of(cgroup: &Cgroup, vms: &Vms, weighed: bool) -> Vec<Unit> {
    let (mut units, inner) = inside(cgroup, vms);
    let weight = weighed.then_some(cgroup.weight);
    let whose = if cgroup.is_of_vcpus { OF_VCPUS } else { "" };
    let limit = cgroup.limit.map(|quota| (quota, cgroup.path.clone() + whose));
    let counts = weighed || limit.is_some();
    let container = |weight, limit| Unit {
        kind: Kind::Container { id: cgroup.id, user: cgroup.user },
        path: cgroup.path.clone(),
        weight,
        part: None,
        nice: None,
        limit,
        vcpu_limit: None,
    };
    if units.is_empty() {
        return if counts { vec![container(weight, limit)] } else { Vec::new() };
    }
    let is_whole = |unit: &&Unit| !matches!(unit.kind, Kind::Vm { .. });
    let whole = units.iter().filter(is_whole).map(|unit| unit.path.as_str()).collect();
    let others = has_others(cgroup, vms, &whole);
    if units.len() == 1 && !others {
        let one = &mut units[0];
        one.weight = weight;
        one.nice = None;
        one.limit = one.limit.take().into_iter().chain(limit).min();
        one.vcpu_limit = one.vcpu_limit.into_iter().chain(cgroup.vcpu_limit).min();
        if weight.is_some() {
            one.path.clone_from(&cgroup.path);
        }
        return units;
    }
    let differ = units.iter().any(|unit| unit.nice.is_some());
    if !counts && !inner && !differ {
        return units;
    }
    if others {
        // The rest of it: tasks of its own, and of those in it that nothing was set for.
        units.push(container(inner.then_some(WEIGHT_NORMAL), None));
    }
    let kind = Kind::Pool { inside: units, user: cgroup.user };
    let path = cgroup.path.clone();
    vec![Unit { kind, path, weight, part: None, nice: None, limit, vcpu_limit: None }]
}

/// Is anybody in the cgroup, or below, who is no VM and in none of the cgroups that are units as a whole?
fn has_others(cgroup: &Cgroup, vms: &Vms, whole: &HashSet<&str>) -> bool {
    let of_vm = |pid: &u32| vms.tgids.contains(pid);
    let others = || cgroup.inside.iter().any(|one| has_others(one, vms, whole));
    !whole.contains(cgroup.path.as_str()) && (!cgroup.pids.iter().all(of_vm) || others())
}

#[cfg(test)]
mod tests {
    use super::*;

    impl CgroupTree {
        /// With places for all.
        fn of_all(root: &Cgroup, vms: &[Place]) -> Self {
            Self::of(root, vms, usize::MAX)
        }
    }

    fn group(name: &str, weight: u64, inside: Vec<Cgroup>) -> Cgroup {
        Cgroup { path: name.to_owned(), weight, inside, ..Cgroup::default() }
    }

    /// Paths and numbers as the kernel would give them.
    fn host(inside: Vec<Cgroup>) -> Cgroup {
        fn number(cgroup: &mut Cgroup, above: &str, next: &mut u64) {
            cgroup.path = if cgroup.path.is_empty() {
                String::new()
            } else {
                format!("{above}/{}", cgroup.path)
            };
            cgroup.id = *next;
            *next += 1;
            let path = cgroup.path.clone();
            cgroup.inside.iter_mut().for_each(|one| number(one, &path, next));
        }
        let mut root = group("", 100, inside);
        number(&mut root, "", &mut 1);
        root
    }

    fn limited(name: &str, limit_mcpu: u32, inside: Vec<Cgroup>) -> Cgroup {
        let limit = Some(Quota { mcpu: limit_mcpu, burst_us: 0 });
        Cgroup { limit, ..group(name, 100, inside) }
    }

    fn vm(tgid: u32, size: u32, path: &str) -> Place {
        Place { tgid, size, path: path.to_owned(), nice: None }
    }

    fn nice_vm(tgid: u32, size: u32, path: &str, weight: u32) -> Place {
        let said = format!("weight {weight}");
        Place { nice: Some(Nice { weight, said }), ..vm(tgid, size, path) }
    }

    /// Shares, limit and pool; 0 where nothing is asked.
    fn asked(layers: &[Layer]) -> (u32, u32, String) {
        let all = layers.iter().fold(Asked::default(), |below, it| it.asked.over(&below));
        let shares = all.shares.map_or(0, |shares| shares.of_vm(9));
        let limit = all.limit.and_then(Limit::mcpu).unwrap_or(0);
        (shares, limit, all.pool.unwrap_or_default())
    }

    fn said(tree: &CgroupTree) -> Vec<String> {
        let pool = |it: &PoolSpec| {
            let parent = it.parent.as_deref().unwrap_or("host");
            let limit = it.limit_mcpu.map_or(String::new(), |mcpu| format!(" limit {mcpu}"));
            format!("pool {} {}{limit} in {parent}", it.name, it.shares.of_pool())
        };
        let one = |name: &str, layers: &[Layer]| {
            let (shares, limit, pool) = asked(layers);
            format!("{name} {shares} limit {limit} in {pool}")
        };
        let mut said: Vec<String> = tree.pools.iter().map(pool).collect();
        let mut each: Vec<String> =
            tree.containers.values().map(|it| one(&it.path, &it.layers)).collect();
        each.extend(tree.vms.iter().map(|(tgid, layers)| one(&format!("vm{tgid}"), layers)));
        each.sort();
        said.extend(each);
        said
    }

    #[test]
    fn the_worked_example_of_the_header_holds() {
        let services =
            vec![group("batch", 100, vec![]), group("log", 100, vec![]), group("web", 400, vec![])];
        let machines = group("machine.slice", 100, vec![group("a.scope", 100, vec![])]);
        let root = host(vec![machines, group("system.slice", 100, services)]);
        let tree = CgroupTree::of_all(&root, &[vm(1, 4, "/machine.slice/a.scope")]);
        assert_eq!(
            said(&tree),
            [
                "pool /system.slice 3000 in host",
                "/system.slice/batch 1000 limit 0 in /system.slice",
                "/system.slice/log 1000 limit 0 in /system.slice",
                "/system.slice/web 4000 limit 0 in /system.slice",
                "vm1 0 limit 0 in ",
            ]
        );
    }

    #[test]
    fn what_was_never_touched_asks_nothing() {
        let root = host(vec![group("qemu.slice", 100, vec![group("100.scope", 100, vec![])])]);
        let tree =
            CgroupTree::of_all(&root, &[vm(1, 2, "/qemu.slice/100.scope"), vm(2, 1, "/gone")]);
        assert!(tree.pools.is_empty() && tree.containers.is_empty());
        assert!(tree.vms.values().all(Vec::is_empty));
    }

    #[test]
    fn equal_weights_are_equal_whatever_the_vcpus() {
        let root =
            host(vec![group("m", 100, vec![group("a", 200, vec![]), group("b", 200, vec![])])]);
        let tree = CgroupTree::of_all(&root, &[vm(1, 2, "/m/a"), vm(2, 8, "/m/b")]);
        assert_eq!(
            said(&tree),
            ["pool /m 10000 in host", "vm1 2000 limit 0 in /m", "vm2 2000 limit 0 in /m"]
        );
    }

    #[test]
    fn a_user_divides_what_was_delegated_to_him_and_no_more() {
        let of_user = vec![group("a", 10_000, vec![]), group("b", 1, vec![])];
        let root = host(vec![group("user", 100, of_user), group("vm", 100, vec![])]);
        let tree =
            CgroupTree::of_all(&root, &[vm(1, 1, "/user/a"), vm(2, 1, "/user/b"), vm(3, 2, "/vm")]);
        assert_eq!(said(&tree)[0], "pool /user 2000 in host");
        // Nor does one VM alone.
        let root = host(vec![
            group("user", 100, vec![group("a", 10_000, vec![])]),
            group("vm", 100, vec![]),
        ]);
        let tree = CgroupTree::of_all(&root, &[vm(1, 1, "/user/a"), vm(3, 2, "/vm")]);
        assert_eq!(said(&tree), ["vm1 0 limit 0 in ", "vm3 0 limit 0 in "]);
        // Where the administrator set weights, theirs count.
        let root = host(vec![
            group("user", 50, vec![group("a", 10_000, vec![])]),
            group("vm", 100, vec![]),
        ]);
        let tree = CgroupTree::of_all(&root, &[vm(1, 1, "/user/a"), vm(3, 2, "/vm")]);
        assert_eq!(said(&tree), ["vm1 500 limit 0 in ", "vm3 1000 limit 0 in "]);
    }

    /// Shares of each VM of 9 vCPUs and who says so; 0 where it has what its size says.
    fn shares(tree: &CgroupTree) -> Vec<(u32, u32, &str)> {
        let each = tree.vms.iter().map(|(tgid, layers)| {
            let said = layers.iter().find(|it| it.asked.shares.is_some());
            (*tgid, asked(layers).0, said.map_or("", |it| it.origin.as_str()))
        });
        let mut all: Vec<_> = each.collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn nice_counts_among_those_of_a_cgroup_only() {
        let root = host(vec![]);
        let vms = [vm(1, 9, ""), nice_vm(2, 9, "", 110), nice_vm(3, 9, "/gone", 3)];
        let tree = CgroupTree::of_all(&root, &vms);
        assert!(tree.pools.is_empty(), "the root is none");
        assert_eq!(shares(&tree), [(1, 0, ""), (2, 107 * 9, "weight 110"), (3, 3 * 9, "weight 3")]);
        // Each in a cgroup of its own, as machine managers have it.
        let root = host(vec![group("a", 100, vec![]), group("b", 100, vec![])]);
        let tree = CgroupTree::of_all(&root, &[vm(1, 9, "/a"), nice_vm(2, 9, "/b", 110)]);
        assert_eq!(shares(&tree), [(1, 0, ""), (2, 0, "")]);
        // Two in one, beside a third in another: that is none of their affair.
        let both = [vm(1, 9, "/a"), nice_vm(2, 9, "/a", 110), vm(3, 9, "/b")];
        let tree = CgroupTree::of_all(&root, &both);
        assert_eq!(said(&tree)[0], "pool /a 18000 in host");
        assert_eq!(shares(&tree), [(1, 0, ""), (2, 963, "weight 110"), (3, 0, "")]);
        // A weight that was set for its cgroup outranks it.
        let root = host(vec![group("a", 100, vec![]), group("b", 400, vec![])]);
        let tree = CgroupTree::of_all(&root, &[vm(1, 9, "/a"), nice_vm(2, 9, "/b", 110)]);
        assert_eq!(shares(&tree)[1], (2, 4000, "cgroup /b/cpu.weight"));
    }

    #[test]
    fn pods_beside_vms_stand_as_the_kernel_has_them() {
        let with = |pids: &[u32], cgroup: Cgroup| Cgroup { pids: pids.to_vec(), ..cgroup };
        let launcher = with(&[1, 50], group("compute", 100, vec![]));
        let pods = vec![limited("launcher", 2000, vec![launcher]), limited("web", 500, vec![])];
        let root = host(vec![group("kubepods", 200, pods), group("system.slice", 100, vec![])]);
        let tree = CgroupTree::of_all(&root, &[vm(1, 2, "/kubepods/launcher/compute")]);
        assert_eq!(
            said(&tree),
            [
                "pool /kubepods 2000 in host",
                "pool /kubepods/launcher 3000 limit 2000 in /kubepods",
                "/kubepods/launcher 1000 limit 0 in /kubepods/launcher",
                "/kubepods/web 1000 limit 500 in /kubepods",
                "/system.slice 1000 limit 0 in ",
                "vm1 0 limit 0 in /kubepods/launcher",
            ]
        );
    }

    #[test]
    fn the_lowest_limit_on_the_way_to_a_vm_holds() {
        let inner = limited("c", 4000, vec![]);
        let root = host(vec![limited("a", 1500, vec![limited("b", 2000, vec![inner])])]);
        let tree = CgroupTree::of_all(&root, &[vm(1, 2, "/a/b/c")]);
        assert_eq!(said(&tree), ["vm1 0 limit 1500 in "]);
        assert_eq!(tree.vms[&1][0].origin, "cgroup /a/cpu.max");
    }

    #[test]
    fn what_each_vcpu_may_have_is_said_and_kept_beside_the_limit() {
        let each = Some(Quota { mcpu: 500, burst_us: 0 });
        let of = |outer: u32| {
            let libvirt = Cgroup { vcpu_limit: each, ..limited("libvirt", 1500, vec![]) };
            let root = host(vec![limited("scope", outer, vec![libvirt])]);
            CgroupTree::of_all(&root, &[vm(1, 3, "/scope/libvirt")]).vms[&1][0].clone()
        };
        let said = ", 50% for each vCPU by vcpu*/cpu.max";
        for (outer, by) in [(2000, "/scope/libvirt"), (1000, "/scope")] {
            let layer = of(outer);
            assert_eq!(layer.origin, format!("cgroup {by}/cpu.max{said}"));
            assert_eq!(layer.asked.vcpu_limit, VcpuLimit { mcpu: 500, burst_us: 0 });
        }
        let libvirt =
            Cgroup { vcpu_limit: each, is_of_vcpus: true, ..limited("libvirt", 1500, vec![]) };
        let tree = CgroupTree::of_all(&host(vec![libvirt]), &[vm(1, 3, "/libvirt")]);
        assert_eq!(tree.vms[&1][0].origin, "cgroup /libvirt/vcpu*/cpu.max, 50% for each vCPU");
    }

    #[test]
    fn a_burst_is_that_of_the_limit_that_holds() {
        let bursts = |name: &str, mcpu: u32, burst_us: u32, inside: Vec<Cgroup>| Cgroup {
            limit: Some(Quota { mcpu, burst_us }),
            ..group(name, 100, inside)
        };
        let of = |outer: u32| {
            let root = host(vec![bursts("a", outer, 7, vec![bursts("b", 1000, 5, vec![])])]);
            CgroupTree::of_all(&root, &[vm(1, 2, "/a/b")]).vms[&1][0].asked.burst_us
        };
        assert_eq!((of(500), of(2000)), (7, 5));
        let pods = vec![limited("x", 500, vec![]), limited("y", 500, vec![])];
        let root = host(vec![bursts("pods", 2000, 9, pods)]);
        assert_eq!(CgroupTree::of_all(&root, &[]).pools[0].burst_us, 9);
    }

    #[test]
    fn who_has_many_pools_takes_no_place_of_others_and_nobody_has_more_for_want_of_one() {
        let two = |name: &str, limit_mcpu| {
            limited(name, limit_mcpu, vec![group("a", 200, vec![]), group("b", 600, vec![])])
        };
        let many = (0..520)
            .map(|number| Cgroup { weight: 50, ..two(&format!("p{number:03}"), 1000) })
            .collect();
        let root = host(vec![group("aa", 100, many), two("zz", 200)]);
        let tree = CgroupTree::of(&root, &[], 511);
        assert_eq!((tree.pools.len(), tree.unplaced), (511, 11));
        let zz = tree.pools.iter().find(|pool| pool.name == "/zz").unwrap();
        assert_eq!(zz.limit_mcpu, Some(200));
        assert!(tree.pools.iter().any(|pool| pool.name == "/aa"), "the outermost goes first");
        // The last of the many has its part of shares and limit in the pool around it.
        let of = |path: &str| {
            let all = tree.containers.values();
            asked(&all.clone().find(|it| it.path == path).unwrap().layers)
        };
        assert_eq!(of("/zz/a"), (2000, 0, "/zz".to_owned()));
        assert_eq!(of("/aa/p519/a"), (125, 500, "/aa".to_owned()));
        assert_eq!(of("/aa/p519/b"), (375, 500, "/aa".to_owned()));
        // Each user has a part of his own.
        let of_user = |name: &str, user| Cgroup {
            user,
            inside: vec![Cgroup { user, ..two("x", 90) }, Cgroup { user, ..two("y", 90) }],
            ..group(name, 300, vec![])
        };
        let root = host(vec![group("user", 100, vec![of_user("one", 1), of_user("two", 2)])]);
        let tree = CgroupTree::of(&root, &[], 5);
        let mut placed: Vec<&str> = tree.pools.iter().map(|pool| pool.name.as_str()).collect();
        placed.sort_unstable();
        assert_eq!(placed, ["/user", "/user/one", "/user/one/x", "/user/two", "/user/two/x"]);
    }

    #[test]
    fn extremes_stay_in_range_and_deep_trees_within_the_depth_of_pools() {
        let root = host(vec![group("a", 10_000, vec![]), group("b", 0, vec![])]);
        assert_eq!(
            said(&CgroupTree::of_all(&root, &[])),
            ["/a 100000 limit 0 in ", "/b 3 limit 0 in "]
        );
        let deepest = vec![group("x", 1, vec![]), group("y", 2, vec![])];
        let nest = |inside: Vec<Cgroup>, depth: usize| {
            vec![group(&format!("n{depth}"), 200, inside), group("beside", 100, vec![])]
        };
        let root = host((0..12).fold(deepest, nest));
        let tree = CgroupTree::of_all(&root, &[]);
        assert_eq!((tree.pools.len(), tree.containers.len()), (DEPTH_MAX, 14));
        let depth = |pool: &PoolSpec| pool.name.matches('/').count();
        assert!(tree.pools.iter().all(|pool| depth(pool) <= DEPTH_MAX));
    }
}
