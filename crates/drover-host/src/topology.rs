// SPDX-License-Identifier: GPL-2.0-only
//! The host's pCPUs as sysfs tells of them: cores, last-level caches, NUMA nodes and their distances.
//!
//! Three sets: *possible* pCPUs have a number, *present* ones are plugged in, *online* ones run. Of a
//! pCPU that is offline the kernel tells its node, if it is present, and neither core nor cache: their
//! directories come with the pCPU. So what is read here is true of one moment, and read again when a pCPU
//! comes (`domains`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};
use drover_core::cpu_list::CpuList;
use drover_core::tree::pcpus::Siblings;

use crate::files::{self, ENTRIES_MAX};

/// One pCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pcpu {
    /// It is plugged in.
    pub present: bool,
    /// It runs.
    pub online: bool,
    /// Its core: the lowest pCPU of it that is online.
    pub core: Option<usize>,
    /// Its last-level cache, likewise; none where no cache is shared by cores.
    pub llc: Option<usize>,
    /// How large that is; 0: not known.
    pub llc_kib: u32,
    /// Its NUMA node.
    pub node: Option<usize>,
}

/// One NUMA node; it may be without pCPUs or without memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its memory.
    pub memory_kib: u64,
    /// How far it is to each node, 10 to itself.
    pub distances: BTreeMap<usize, u32>,
}

/// The pCPUs of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// All possible pCPUs, by their number.
    pub pcpus: Vec<Pcpu>,
    /// The NUMA nodes, by their number. None where the kernel knows of none.
    pub nodes: BTreeMap<usize, Node>,
    /// Threads of cores are kept offline on purpose: what is offline belongs to cores that are online.
    pub smt_off: bool,
}

impl Topology {
    /// Read the topology of the running host.
    ///
    /// # Errors
    /// When sysfs is not there or does not read as expected.
    pub fn read() -> Result<Self> {
        Self::read_from(Path::new("/sys/devices/system"))
    }

    /// The same of another sysfs, for tests.
    pub(crate) fn read_from(system: &Path) -> Result<Self> {
        let cpu_dir = system.join("cpu");
        let possible = read_cpu_list(&cpu_dir.join("possible"))?;
        let online = read_cpu_list(&cpu_dir.join("online"))?;
        // Older kernels, and some containers, do not tell: then those are that are online.
        let present = read_cpu_list(&cpu_dir.join("present")).unwrap_or_else(|_| online.clone());
        let Some(last) = possible.iter().chain(&online).max() else {
            bail!("{}: no pCPU is possible", cpu_dir.join("possible").display());
        };
        let mut pcpus = vec![Pcpu::default(); last + 1];
        for (number, pcpu) in pcpus.iter_mut().enumerate() {
            let dir = cpu_dir.join(format!("cpu{number}"));
            pcpu.online = online.contains(&number);
            pcpu.present = pcpu.online || present.contains(&number);
            if pcpu.online {
                pcpu.core = Some(first_of_core(&dir).unwrap_or(number));
                let llc = llc_of(&dir);
                (pcpu.llc, pcpu.llc_kib) = (llc.map(|it| it.0), llc.map_or(0, |it| it.1));
            }
            pcpu.node = node_of(&dir);
        }
        let nodes = read_nodes(&system.join("node"));
        forget_private_caches(&mut pcpus);
        let smt = files::kernel(&cpu_dir.join("smt/control")).unwrap_or_default();
        Ok(Self { pcpus, nodes, smt_off: matches!(smt.trim(), "off" | "forceoff") })
    }

    /// How many of the pCPUs are so.
    pub fn count(&self, is_so: impl Fn(&Pcpu) -> bool) -> usize {
        self.pcpus.iter().filter(|pcpu| is_so(pcpu)).count()
    }

    /// The other hardware thread of its core, as things stand. None too where a core has more than two:
    /// each then counts as a core.
    pub fn sibling(&self, pcpu: usize) -> Option<usize> {
        let core = self.pcpus[pcpu].core?;
        let on_core = |&other: &usize| other != pcpu && self.pcpus[other].core == Some(core);
        let mut others = (0..self.pcpus.len()).filter(on_core);
        others.next().filter(|_| others.next().is_none())
    }

    /// The siblings of all pCPUs that have one.
    pub fn siblings(&self) -> Siblings {
        let number = |pcpu: usize| u32::try_from(pcpu).expect("there are not so many");
        let of_one = |pcpu| Some((number(pcpu), number(self.sibling(pcpu)?)));
        (0..self.pcpus.len()).filter_map(of_one).collect()
    }

    /// In one line, for people.
    pub fn summary(&self) -> String {
        let different = |of: fn(&Pcpu) -> Option<usize>| {
            self.pcpus.iter().filter_map(of).collect::<BTreeSet<_>>().len()
        };
        let mut text = format!(
            "{} pCPUs online ({} present, {} possible) on {} core(s), {} last-level cache(s), {} node(s)",
            self.count(|pcpu| pcpu.online),
            self.count(|pcpu| pcpu.present),
            self.pcpus.len(),
            different(|pcpu| pcpu.core),
            different(|pcpu| pcpu.llc),
            self.nodes.len().max(1)
        );
        let far = self.nodes.values().flat_map(|node| node.distances.values().copied()).max();
        if let Some(far) = far.filter(|_| self.nodes.len() > 1) {
            text += &format!(", distance {far} at most");
        }
        let bare = |node: &Node| node.memory_kib == 0;
        if self.nodes.values().any(bare) {
            text +=
                &format!(", {} without memory", self.nodes.values().filter(|&n| bare(n)).count());
        }
        text
    }
}

/// A cache that only one core has is nothing to share a run queue by. Where all are so, and some core
/// has company in its node, caches say nothing of who is near whom.
fn forget_private_caches(pcpus: &mut [Pcpu]) {
    let mut cores: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for pcpu in pcpus.iter() {
        if let (Some(llc), Some(core)) = (pcpu.llc, pcpu.core) {
            cores.entry(llc).or_default().insert(core);
        }
    }
    if cores.values().all(|cores| cores.len() < 2) {
        pcpus.iter_mut().for_each(|pcpu| (pcpu.llc, pcpu.llc_kib) = (None, 0));
    }
}

fn first_of_core(cpu_dir: &Path) -> Option<usize> {
    let names = ["core_cpus_list", "thread_siblings_list"];
    let lists = names.iter().map(|name| read_cpu_list(&cpu_dir.join("topology").join(name)));
    lists.flatten().find_map(|list| list.first().copied())
}

/// The cache of the highest level: the first pCPU that has it, and its size in KiB, 0 where the kernel does not tell.
fn llc_of(cpu_dir: &Path) -> Option<(usize, u32)> {
    let mut best: Option<(u32, (usize, u32))> = None;
    for index in files::entries(&cpu_dir.join("cache"), ENTRIES_MAX) {
        let dir = index.path();
        let Some(level) = read_number(&dir.join("level")) else { continue };
        let Ok(shared) = read_cpu_list(&dir.join("shared_cpu_list")) else { continue };
        if let Some(&first) = shared.first() {
            if best.is_none_or(|(highest, _)| level > highest) {
                let size = files::kernel(&dir.join("size")).unwrap_or_default();
                let kib = size.trim().strip_suffix('K').and_then(|kib| kib.parse().ok());
                best = Some((level, (first, kib.unwrap_or(0))));
            }
        }
    }
    best.map(|(_, llc)| llc)
}

/// A present pCPU has a link to its node, offline too.
fn node_of(cpu_dir: &Path) -> Option<usize> {
    files::entries(cpu_dir, ENTRIES_MAX)
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok())
        .next()
}

fn read_nodes(dir: &Path) -> BTreeMap<usize, Node> {
    let numbers: BTreeSet<usize> = files::entries(dir, ENTRIES_MAX)
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok())
        .collect();
    let node = |number: &usize| {
        let dir = dir.join(format!("node{number}"));
        let told = files::kernel(&dir.join("distance")).unwrap_or_default();
        let told = told.split_whitespace().filter_map(|word| word.parse().ok());
        // One figure for each node, the lowest number first.
        let distances = numbers.iter().copied().zip(told).collect();
        (*number, Node { memory_kib: memory_kib(&dir), distances })
    };
    numbers.iter().map(node).collect()
}

/// `Node 0 MemTotal:       32664160 kB`
fn memory_kib(node_dir: &Path) -> u64 {
    meminfo_kib(node_dir, "MemTotal:").unwrap_or(0)
}

fn meminfo_kib(node_dir: &Path, what: &str) -> Option<u64> {
    let text = files::kernel(&node_dir.join("meminfo")).unwrap_or_default();
    let line = text.lines().find(|line| line.contains(what))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

fn read_number(path: &Path) -> Option<u32> {
    files::kernel(path).ok()?.trim().parse().ok()
}

/// The pCPUs that are online now.
///
/// # Errors
/// When sysfs does not say.
pub fn online_cpus() -> Result<Vec<usize>> {
    read_cpu_list(Path::new("/sys/devices/system/cpu/online"))
}

/// Memory of a node that is free, or holds no more than copies of files nobody has asked for lately, MiB.
pub fn free_mib(node: usize) -> Option<u64> {
    let dir = Path::new("/sys/devices/system/node").join(format!("node{node}"));
    Some((meminfo_kib(&dir, "MemFree:")? + meminfo_kib(&dir, "Inactive(file):")?) >> 10)
}

/// The nodes on which a process may have memory.
pub fn mems_of(pid: u32) -> Option<Vec<usize>> {
    let status = files::kernel(Path::new(&format!("/proc/{pid}/status"))).ok()?;
    let list = status.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:"))?;
    parse_cpu_list(list.trim()).ok()
}

/// The pCPUs a thread may run on; `thread` is its directory in /proc.
///
/// # Errors
/// When it is gone.
pub fn cpus_of_thread(thread: &Path) -> Result<Vec<usize>> {
    // sched_getaffinity is faster, but leaves out pCPUs that are offline.
    let status = files::kernel(&thread.join("status"))?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    parse_cpu_list(list.context("no list of CPUs")?.trim())
}

fn read_cpu_list(path: &Path) -> Result<Vec<usize>> {
    let text = files::kernel(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse_cpu_list(text.trim()).with_context(|| format!("{} is not a CPU list", path.display()))
}

/// Parse the kernel's list format: `0-3,8,10-11`.
fn parse_cpu_list(text: &str) -> Result<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse()?, last.parse()?);
        if last < first || last >= 1 << 16 {
            bail!("{part:?} is no range of CPUs");
        }
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

/// The pCPUs that are online now.
pub fn online_list() -> Result<CpuList> {
    let cpus = online_cpus()?.into_iter().map(u32::try_from);
    CpuList::of(cpus.collect::<Result<Vec<_>, _>>()?).context("no pCPU is online")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fs;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A sysfs to be filled.
    pub struct Host(pub tempfile::TempDir);

    impl Host {
        /// With these lists of pCPUs.
        pub fn new(possible: &str, present: &str, online: &str) -> Self {
            let host = Self(tempfile::tempdir().unwrap());
            for (name, list) in [("possible", possible), ("present", present), ("online", online)] {
                write(&host.0.path().join("cpu").join(name), list);
            }
            host
        }

        pub fn set_online(&self, list: &str) {
            write(&self.0.path().join("cpu/online"), list);
        }

        /// A pCPU's core, as the kernel tells while it is online.
        pub fn core(&self, cpu: usize, siblings: &str) -> &Self {
            write(&self.0.path().join(format!("cpu/cpu{cpu}/topology/core_cpus_list")), siblings);
            self
        }

        /// Its caches: the first level its own, the third shared.
        pub fn llc(&self, cpu: usize, shared: &str) -> &Self {
            let cache = self.0.path().join(format!("cpu/cpu{cpu}/cache"));
            for (index, level, list) in [("0", "1", &*cpu.to_string()), ("3", "3", shared)] {
                write(&cache.join(format!("index{index}/level")), level);
                write(&cache.join(format!("index{index}/shared_cpu_list")), list);
                write(&cache.join(format!("index{index}/size")), "32768K");
            }
            self
        }

        /// A node with these pCPUs.
        pub fn node(&self, node: usize, cpus: &str, memory_kib: u64, distance: &str) -> &Self {
            let dir = self.0.path().join(format!("node/node{node}"));
            write(&dir.join("cpulist"), cpus);
            write(&dir.join("distance"), distance);
            write(&dir.join("meminfo"), &format!("\nNode {node} MemTotal:   {memory_kib} kB\n"));
            for cpu in parse_cpu_list(cpus).unwrap() {
                write(&self.0.path().join(format!("cpu/cpu{cpu}/node{node}/cpulist")), cpus);
            }
            self
        }

        pub fn read(&self) -> Topology {
            Topology::read_from(self.0.path()).unwrap()
        }
    }

    #[test]
    fn lists_are_parsed() {
        assert_eq!(parse_cpu_list("0-2,5,7-8").unwrap(), [0, 1, 2, 5, 7, 8]);
        assert!(parse_cpu_list("").unwrap().is_empty());
        assert!(parse_cpu_list("3-1").is_err());
        assert!(parse_cpu_list("a").is_err());
    }

    #[test]
    fn cores_caches_nodes_and_distances_are_read() {
        let host = Host::new("0-7", "0-5", "0-3");
        for (cpu, core, llc) in
            [(0, "0,2", "0-3"), (1, "1,3", "0-3"), (2, "0,2", "0-3"), (3, "1,3", "0-3")]
        {
            host.core(cpu, core).llc(cpu, llc);
        }
        host.node(0, "0-3", 1000, "10 21").node(1, "4-5", 0, "21 10");
        let topology = host.read();
        assert_eq!(topology.pcpus.len(), 8);
        let of = |cpu: usize| topology.pcpus[cpu];
        assert_eq!((of(3).core, of(3).llc, of(3).node), (Some(1), Some(0), Some(0)));
        assert_eq!(of(3).llc_kib, 32_768);
        assert_eq!((topology.sibling(3), topology.sibling(4)), (Some(1), None));
        let offline = Pcpu { present: true, node: Some(1), ..Pcpu::default() };
        assert_eq!((of(4), of(6)), (offline, Pcpu::default()));
        assert_eq!(topology.nodes[&0].distances, BTreeMap::from([(0, 10), (1, 21)]));
        assert_eq!(topology.nodes[&1].memory_kib, 0);
        assert_eq!(
            topology.summary(),
            "4 pCPUs online (6 present, 8 possible) on 2 core(s), 1 last-level cache(s), 2 node(s), \
             distance 21 at most, 1 without memory"
        );
    }

    #[test]
    fn a_host_that_tells_little_is_read_all_the_same() {
        let host = Host::new("0-1", "0-1", "0-1");
        fs::remove_file(host.0.path().join("cpu/present")).unwrap();
        let topology = host.read();
        let bare = |cpu| Pcpu { present: true, online: true, core: Some(cpu), ..Pcpu::default() };
        assert_eq!(topology.pcpus, [bare(0), bare(1)]);
        assert!(topology.nodes.is_empty() && topology.summary().contains("1 node(s)"));
    }

    #[test]
    fn caches_that_only_cores_have_say_nothing() {
        let host = Host::new("0-3", "0-3", "0-3");
        for (cpu, core) in [(0, "0-1"), (1, "0-1"), (2, "2-3"), (3, "2-3")] {
            host.core(cpu, core).llc(cpu, core);
        }
        assert!(host.read().pcpus.iter().all(|pcpu| pcpu.llc.is_none()));
    }

    #[test]
    fn of_more_than_two_threads_each_counts_as_a_core() {
        let host = Host::new("0-5", "0-5", "0-5");
        for cpu in 0..6 {
            host.core(cpu, if cpu < 4 { "0-3" } else { "4-5" });
        }
        let topology = host.read();
        let siblings: Vec<_> = (0..6).map(|cpu| topology.sibling(cpu)).collect();
        assert_eq!(siblings, [None, None, None, None, Some(5), Some(4)]);
    }

    #[test]
    fn online_pcpus_beyond_the_possible_ones_are_pcpus() {
        assert_eq!(Host::new("0-1", "0-1", "0-2").read().pcpus.len(), 3);
    }

    #[test]
    fn a_missing_sysfs_is_named() {
        let err = Topology::read_from(Path::new("/nonexistent")).unwrap_err();
        assert!(format!("{err:#}").contains("/nonexistent/cpu/possible"), "{err:#}");
    }
}
