// SPDX-License-Identifier: GPL-2.0-only
//! Where the memory of a process lies, by /proc/PID/maps and /proc/PID/numa_maps.
//!
//! Only what somebody has written to counts: code and libraries are files that others share. To read it
//! the kernel walks all page tables of the process, so it is read rarely.

use std::collections::{BTreeMap, HashMap};
use std::slice;

/// A mapping that is looked at as a VM's memory only if it is so large, where nothing is in it yet.
const RAM_BYTES_LEAST: u64 = 64 << 20;
/// Memory on several nodes changes between them so often: a huge page stays whole.
const CHUNK_BYTES: u64 = 2 << 20;
const MIB: u64 = 1 << 20;

/// A part of the address space.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Range {
    /// Its first address.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
    /// Size of its pages.
    pub page_bytes: u64,
    /// Bytes of it that lie on each node.
    on: BTreeMap<usize, u64>,
    /// Somebody has written to it.
    written: bool,
    /// A memory policy says where it must lie.
    bound: bool,
}

/// A mapping that is to lie on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Own {
    /// Its first address.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
    /// That node.
    pub node: usize,
}

/// Where the memory of a process is to lie.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout {
    /// Spread over these nodes, [`CHUNK_BYTES`] here and the next there; none: where it is.
    pub nodes: Vec<usize>,
    /// But for these, which have nodes of their own.
    pub own: Vec<Own>,
}

impl Layout {
    /// All of it on these nodes.
    pub fn over(nodes: Vec<usize>) -> Self {
        Self { nodes, own: Vec::new() }
    }

    fn own(&self, address: u64) -> Option<&Own> {
        self.own.iter().find(|own| (own.start..own.end).contains(&address))
    }

    /// The node of that page.
    pub fn node_of(&self, page: u64) -> usize {
        let chunk = usize::try_from(page / CHUNK_BYTES).unwrap_or(0);
        self.own(page).map_or_else(|| self.nodes[chunk % self.nodes.len()], |own| own.node)
    }

    /// Whether some of that range may lie elsewhere than it should, and may be moved.
    pub fn moves(&self, range: &Range) -> bool {
        let nodes = self.own(range.start).map_or(&self.nodes[..], |own| slice::from_ref(&own.node));
        range.written && !range.bound && range.on.keys().any(|&on| nodes != [on])
    }
}

/// All of a process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Maps {
    /// Its parts, by address.
    pub ranges: Vec<Range>,
    /// Memory it may come to have.
    mapped_bytes: u64,
}

impl Maps {
    /// From the texts of the two files. Mappings that came or went between them are left out.
    pub fn of(maps: &str, numa_maps: &str) -> Self {
        let mut placed: HashMap<u64, Range> =
            numa_maps.lines().filter_map(range_of).map(|range| (range.start, range)).collect();
        let mut all = Self::default();
        for line in maps.lines() {
            let Some((start, end, writable)) = bounds_of(line) else { continue };
            if writable && end - start >= RAM_BYTES_LEAST {
                all.mapped_bytes += end - start;
            }
            if let Some(range) = placed.remove(&start) {
                all.ranges.push(Range { end, ..range });
            }
        }
        all
    }

    fn written(&self) -> impl Iterator<Item = &Range> {
        self.ranges.iter().filter(|range| range.written)
    }

    /// MiB on each node.
    pub fn lies_mib(&self) -> BTreeMap<usize, u64> {
        mib(bytes_on(self.written()))
    }

    /// The same of the mapping that begins there.
    pub fn lies_mib_of(&self, start: u64) -> BTreeMap<usize, u64> {
        mib(bytes_on(self.written().filter(|range| range.start == start)))
    }

    /// The part that lies where it should, %, where none of the nodes over which memory is spread should have more than
    /// its even part; none where there is nothing.
    #[allow(clippy::cast_precision_loss, reason = "parts need no more than 52 bits")]
    pub fn local_pct(&self, layout: &Layout) -> Option<f64> {
        let of_node = |range: &Range, node| range.on.get(&node).copied().unwrap_or(0);
        let own = |range: &&Range| Some(of_node(range, layout.own(range.start)?.node));
        let own_here: u64 = self.written().filter_map(|range| own(&range)).sum();
        let spread = bytes_on(self.written().filter(|range| own(range).is_none()));
        // Chunks of 2 MiB do not divide evenly.
        let most =
            spread.values().sum::<u64>().div_ceil(layout.nodes.len().max(1) as u64) + 2 * MIB;
        let on = |node| spread.get(node).copied().unwrap_or(0).min(most);
        let here = own_here + layout.nodes.iter().map(on).sum::<u64>();
        let all: u64 = bytes_on(self.written()).values().sum();
        (all > 0 && !layout.nodes.is_empty()).then(|| 100.0 * here as f64 / all as f64)
    }

    /// The node where nine tenths of it lie or more.
    pub fn main_node(&self) -> Option<usize> {
        let most = |node: &usize| {
            self.local_pct(&Layout::over(vec![*node])).is_some_and(|pct| pct >= 90.0)
        };
        self.lies_mib().into_keys().find(most)
    }

    /// Memory it has or may come to have, MiB.
    pub fn expected_mib(&self) -> u64 {
        self.lies_mib().values().sum::<u64>().max(self.mapped_bytes / MIB)
    }

    /// Whether most of it lies where a memory policy has it.
    pub fn is_bound(&self) -> bool {
        let bytes = |range: &Range| range.on.values().sum::<u64>();
        let bound: u64 = self.written().filter(|range| range.bound).map(bytes).sum();
        2 * bound > self.written().map(bytes).sum()
    }
}

fn bytes_on<'a>(ranges: impl Iterator<Item = &'a Range>) -> BTreeMap<usize, u64> {
    let mut bytes = BTreeMap::new();
    for (&node, &on) in ranges.flat_map(|range| &range.on) {
        *bytes.entry(node).or_default() += on;
    }
    bytes
}

fn mib(bytes: BTreeMap<usize, u64>) -> BTreeMap<usize, u64> {
    bytes.into_iter().map(|(node, bytes)| (node, bytes.div_ceil(MIB))).collect()
}

/// `7f12a4000000-7f12b4000000 rw-p 00000000 00:00 0`: its bounds, and whether it may be written to.
pub fn bounds_of(line: &str) -> Option<(u64, u64, bool)> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let writable = words.next()?.starts_with("rw");
    let address = |text| u64::from_str_radix(text, 16).ok();
    Some((address(start)?, address(end)?, writable)).filter(|(start, end, _)| start < end)
}

/// `7f12a4000000 prefer:0 anon=512 dirty=512 N0=500 N1=12 kernelpagesize_kB=4`
fn range_of(line: &str) -> Option<Range> {
    let mut words = line.split_whitespace();
    let start = u64::from_str_radix(words.next()?, 16).ok()?;
    let policy = words.next()?;
    let mut range = Range { start, page_bytes: 4096, ..Range::default() };
    range.bound = ["bind", "interleave", "weighted"].iter().any(|it| policy.starts_with(it));
    let mut pages = BTreeMap::new();
    for (key, value) in words.filter_map(|word| word.split_once('=')) {
        let Ok(number) = value.parse::<u64>() else { continue };
        match key {
            "anon" | "dirty" => range.written = true,
            "kernelpagesize_kB" => range.page_bytes = number.max(4) << 10,
            _ => {
                if let Some(node) = key.strip_prefix('N').and_then(|node| node.parse().ok()) {
                    pages.insert(node, number);
                }
            }
        }
    }
    range.on = pages.into_iter().map(|(node, count)| (node, count * range.page_bytes)).collect();
    Some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
400000-600000 r-xp 00000000 00:02 17 /usr/bin/qemu
7f0000000000-7f0010000000 rw-p 00000000 00:00 0
7f0020000000-7f0020200000 rw-s 00000000 00:0f 9 /anon_hugepage (deleted)
7f0030000000-7f0030001000 rw-p 00000000 00:00 0 [stack]
";
    const NUMA_MAPS: &str = "\
400000 default file=/usr/bin/qemu mapped=300 mapmax=4 N0=300 kernelpagesize_kB=4
7f0000000000 prefer (many):0 anon=512 dirty=512 active=0 N0=256 N1=256 kernelpagesize_kB=4
7f0020000000 default file=/anon_hugepage\\040(deleted) huge dirty=1 N1=1 kernelpagesize_kB=2048
7f0030000000 default stack anon=0
7f0040000000 default anon=1 dirty=1 N0=1 kernelpagesize_kB=4
broken
";

    #[test]
    fn what_was_written_to_counts_by_the_size_of_its_pages() {
        let maps = Maps::of(MAPS, NUMA_MAPS);
        assert_eq!(maps.lies_mib(), BTreeMap::from([(0, 1), (1, 3)]));
        let local_pct = |node| maps.local_pct(&Layout::over(vec![node]));
        assert_eq!((local_pct(1), local_pct(7)), (Some(75.0), Some(0.0)));
        assert_eq!(maps.expected_mib(), 256, "its RAM is mapped, and hardly touched");
        let movable = |layout: &Layout| maps.ranges.iter().filter(|it| layout.moves(it)).count();
        let to = |node| movable(&Layout::over(vec![node]));
        assert_eq!((to(0), to(1)), (2, 1), "no code, no empty stack");
        assert!(!maps.is_bound());
        assert_eq!(Maps::default().local_pct(&Layout::over(vec![0])), None);
        // The huge page has a node of its own: one MiB of the 2 of the other mapping, and nothing of it.
        let own = Own { start: 0x7f00_2000_0000, end: 0x7f00_2020_0000, node: 0 };
        let apart = |node| Layout { nodes: vec![0, 1], own: vec![Own { node, ..own }] };
        assert_eq!(
            (maps.local_pct(&apart(0)), maps.local_pct(&apart(1))),
            (Some(50.0), Some(100.0))
        );
        assert_eq!((movable(&apart(0)), movable(&apart(1))), (2, 1));
        assert_eq!((apart(0).node_of(own.end - 4096), apart(0).node_of(own.end)), (0, 1));
        assert_eq!(maps.lies_mib_of(own.start), BTreeMap::from([(1, 2)]));
    }

    #[test]
    fn what_a_policy_binds_stays() {
        let maps = Maps::of(MAPS, &NUMA_MAPS.replace("prefer (many):0", "bind=static:0-1"));
        assert!(!maps.ranges.iter().any(|it| Layout::over(vec![1]).moves(it)));
        let bound = NUMA_MAPS.replace("prefer (many):0", "weighted interleave:0-1");
        let bound = bound.replace(" default ", " interleave:0-1 ");
        assert!(Maps::of(MAPS, &bound).is_bound());
        assert!(!maps.is_bound(), "half of it is not most of it");
    }
}
