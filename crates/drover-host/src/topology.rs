// SPDX-License-Identifier: GPL-2.0-only
//! The host's pCPUs and how they are grouped into domains, read from sysfs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// What shares one run queue of VMs. See policy/queue/waiting.h for why an LLC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DomainLevel {
    /// One domain for every pCPU.
    Pcpu,
    /// One domain for every last-level cache.
    #[default]
    Llc,
    /// One domain for every NUMA node.
    Node,
    /// One domain for the whole host.
    Host,
}

impl std::str::FromStr for DomainLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "pcpu" => Ok(Self::Pcpu),
            "llc" => Ok(Self::Llc),
            "node" => Ok(Self::Node),
            "host" => Ok(Self::Host),
            _ => Err(format!("unknown domain level {text:?}; use pcpu, llc, node or host")),
        }
    }
}

/// The pCPUs of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// For every possible pCPU: its domain. pCPUs that are offline belong to domain 0 until seen.
    pub domain_of: Vec<u32>,
    /// For every possible pCPU: is it online now?
    pub online: Vec<bool>,
}

impl Topology {
    /// Read the topology of the running host.
    ///
    /// # Errors
    /// When sysfs is not there or does not read as expected.
    pub fn read(level: DomainLevel) -> Result<Self> {
        Self::read_from(Path::new("/sys/devices/system"), level)
    }

    fn read_from(system: &Path, level: DomainLevel) -> Result<Self> {
        let cpu_dir = system.join("cpu");
        let possible = read_cpu_list(&cpu_dir.join("possible"))?;
        let online_list = read_cpu_list(&cpu_dir.join("online"))?;
        let nr_pcpus = possible.iter().max().map_or(0, |last| last + 1);
        if nr_pcpus == 0 {
            bail!("{}: no pCPU is possible", cpu_dir.join("possible").display());
        }
        let mut online = vec![false; nr_pcpus];
        let mut groups: BTreeMap<usize, u32> = BTreeMap::new();
        let mut domain_of = vec![0; nr_pcpus];
        for cpu in online_list {
            online[cpu] = true;
            let group = first_of_group(system, cpu, level);
            let next = u32::try_from(groups.len())?;
            domain_of[cpu] = *groups.entry(group).or_insert(next);
        }
        Ok(Self { domain_of, online })
    }

    /// The number of domains.
    pub fn nr_domains(&self) -> u32 {
        self.domain_of.iter().max().map_or(1, |last| last + 1)
    }
}

/// The lowest pCPU of the group `cpu` belongs to: it stands for the group.
fn first_of_group(system: &Path, cpu: usize, level: DomainLevel) -> usize {
    let cpu_dir = system.join(format!("cpu/cpu{cpu}"));
    match level {
        DomainLevel::Host => 0,
        DomainLevel::Pcpu => cpu,
        DomainLevel::Llc => first_of_llc(&cpu_dir).unwrap_or(0),
        DomainLevel::Node => first_of_node(system, cpu).unwrap_or(0),
    }
}

/// The cache of the highest level; machines that tell of none count as one.
fn first_of_llc(cpu_dir: &Path) -> Option<usize> {
    let mut best: Option<(u32, usize)> = None;
    for index in fs::read_dir(cpu_dir.join("cache")).ok()?.flatten() {
        let dir = index.path();
        let Some(level) = read_number(&dir.join("level")) else { continue };
        let Ok(shared) = read_cpu_list(&dir.join("shared_cpu_list")) else { continue };
        if let Some(&first) = shared.first() {
            if best.is_none_or(|(highest, _)| level > highest) {
                best = Some((level, first));
            }
        }
    }
    best.map(|(_, first)| first)
}

fn first_of_node(system: &Path, cpu: usize) -> Option<usize> {
    for node in fs::read_dir(system.join("node")).ok()?.flatten() {
        let Ok(cpus) = read_cpu_list(&node.path().join("cpulist")) else { continue };
        if cpus.contains(&cpu) {
            return cpus.first().copied();
        }
    }
    None
}

fn read_number(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The pCPUs that are online now.
///
/// # Errors
/// When sysfs does not say.
pub fn online_cpus() -> Result<Vec<usize>> {
    read_cpu_list(Path::new("/sys/devices/system/cpu/online"))
}

/// The pCPUs a thread may run on; `thread` is its directory in /proc.
///
/// # Errors
/// When it is gone.
pub fn cpus_of_thread(thread: &Path) -> Result<Vec<usize>> {
    let status = fs::read_to_string(thread.join("status"))?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    parse_cpu_list(list.context("no list of CPUs")?.trim())
}

fn read_cpu_list(path: &Path) -> Result<Vec<usize>> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Four possible pCPUs, the last offline; 0 and 1 share an L3, 2 has its own.
    fn small_host(dir: &Path) {
        write(&dir.join("cpu/possible"), "0-3\n");
        write(&dir.join("cpu/online"), "0-2\n");
        for (cpu, shared) in [(0, "0-1"), (1, "0-1"), (2, "2-3")] {
            let cache = dir.join(format!("cpu/cpu{cpu}/cache"));
            write(&cache.join("index0/level"), "1\n");
            write(&cache.join("index0/shared_cpu_list"), &format!("{cpu}\n"));
            write(&cache.join("index3/level"), "3\n");
            write(&cache.join("index3/shared_cpu_list"), &format!("{shared}\n"));
        }
        write(&dir.join("node/node0/cpulist"), "0-3\n");
    }

    #[test]
    fn lists_are_parsed() {
        assert_eq!(parse_cpu_list("0-2,5,7-8").unwrap(), [0, 1, 2, 5, 7, 8]);
        assert!(parse_cpu_list("").unwrap().is_empty());
        assert!(parse_cpu_list("3-1").is_err());
        assert!(parse_cpu_list("a").is_err());
    }

    #[test]
    fn domains_follow_the_level() {
        let dir = tempfile::tempdir().unwrap();
        small_host(dir.path());
        let domains = |level| Topology::read_from(dir.path(), level).unwrap().domain_of;
        assert_eq!(domains(DomainLevel::Llc), [0, 0, 1, 0]);
        assert_eq!(domains(DomainLevel::Pcpu), [0, 1, 2, 0]);
        assert_eq!(domains(DomainLevel::Node), [0, 0, 0, 0]);
        assert_eq!(domains(DomainLevel::Host), [0, 0, 0, 0]);
    }

    #[test]
    fn offline_pcpus_are_known_but_not_online() {
        let dir = tempfile::tempdir().unwrap();
        small_host(dir.path());
        let topology = Topology::read_from(dir.path(), DomainLevel::Llc).unwrap();
        assert_eq!(topology.online, [true, true, true, false]);
        assert_eq!(topology.nr_domains(), 2);
    }

    #[test]
    fn a_host_without_cache_information_is_one_domain() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("cpu/possible"), "0-1");
        write(&dir.path().join("cpu/online"), "0-1");
        let topology = Topology::read_from(dir.path(), DomainLevel::Llc).unwrap();
        assert_eq!(topology.nr_domains(), 1);
    }

    #[test]
    fn a_missing_sysfs_is_named() {
        let err = Topology::read_from(Path::new("/nonexistent"), DomainLevel::Llc).unwrap_err();
        assert!(format!("{err:#}").contains("/nonexistent/cpu/possible"), "{err:#}");
    }
}
