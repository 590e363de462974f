// SPDX-License-Identifier: GPL-2.0-only
//! The memory of a VM: parts of 2 MiB, which node each lies on, and what of it its vCPUs cannot reach without a fault.
//!
//! A part is a huge page until it is moved: then its 512 pages come back one fault each, for the kernels of 2012
//! moved huge pages by splitting them. It is whole again when it is taken away the next time.

use drover_sim::rng::Rng;

/// Pages of 4 KiB in a part.
pub(super) const PAGES: u32 = 512;
/// A part that nobody has used yet, or that nobody has faulted on.
pub(super) const NOWHERE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    /// The node it lies on.
    pub(super) node: u32,
    /// The node of the last fault on it.
    pub(super) last: u32,
    /// Pages that are out of reach.
    away: u32,
    /// It was moved: each page is out of reach by itself.
    split: bool,
}

/// What a fault brought back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    /// Pages of it.
    pub(super) pages: u32,
    /// The node on which they lie now.
    pub(super) node: u32,
    /// The part was moved there.
    pub(super) moved: bool,
}

/// The memory of one VM.
#[derive(Debug, Default)]
pub(super) struct Memory {
    parts: Vec<Part>,
    /// Those of which pages are out of reach.
    open: Vec<u32>,
    /// All these pages.
    away: u64,
    /// Parts on each node.
    lies: Vec<u32>,
}

impl Memory {
    /// Of nobody's use yet.
    pub(super) fn new(parts: u32, nodes: usize) -> Self {
        let part = Part { node: NOWHERE, last: NOWHERE, away: PAGES, split: false };
        Self {
            parts: vec![part; parts as usize],
            open: (0..parts).collect(),
            away: u64::from(parts * PAGES),
            lies: vec![0; nodes],
        }
    }

    /// How many parts it has.
    pub(super) fn len(&self) -> u32 {
        self.parts.len() as u32
    }

    /// The part of all pages that is out of reach.
    pub(super) fn away(&self) -> f64 {
        self.away as f64 / f64::from(self.len().max(1) * PAGES)
    }

    /// The node with most of it, and the part of it there, %.
    pub(super) fn most(&self) -> Option<(u32, f64)> {
        let all: u32 = self.lies.iter().sum();
        let most = (0u32..).zip(&self.lies).max_by_key(|(node, parts)| (**parts, u32::MAX - node));
        most.filter(|_| all > 0)
            .map(|(node, parts)| (node, 100.0 * f64::from(*parts) / f64::from(all)))
    }

    /// Takes a part away: the next use of it is a fault. The node it lies on, if anybody has used it.
    pub(super) fn take_away(&mut self, at: u32) -> Option<u32> {
        let part = &mut self.parts[at as usize];
        if part.node == NOWHERE {
            return None;
        }
        if part.away == 0 {
            self.open.push(at);
        }
        self.away += u64::from(PAGES - part.away);
        (part.away, part.split) = (PAGES, false);
        Some(part.node)
    }

    /// A vCPU on that node uses something that is out of reach. New memory goes to `fresh`; `moves` says whether a part
    /// goes to that node, and takes note of who faulted.
    pub(super) fn fault(
        &mut self,
        rng: &mut Rng,
        fresh: u32,
        moves: impl Fn(&mut Part) -> Option<u32>,
    ) -> Option<Fault> {
        let (at, number) = self.pick(rng)?;
        let part = &mut self.parts[number as usize];
        let mut moved = false;
        let whole = part.away == PAGES && !part.split;
        if part.node == NOWHERE {
            part.node = fresh;
            self.lies[fresh as usize] += 1;
        } else if whole && let Some(to) = moves(part).filter(|&to| to != part.node) {
            self.lies[part.node as usize] -= 1;
            self.lies[to as usize] += 1;
            (part.node, part.split, moved) = (to, true, true);
        }
        let pages = if part.split { 1 } else { part.away };
        part.away -= pages;
        self.away -= u64::from(pages);
        let fault = Fault { pages, node: part.node, moved };
        if part.away == 0 {
            self.open.swap_remove(at);
        }
        Some(fault)
    }

    /// One of the parts out of reach, by how many of its pages are.
    fn pick(&self, rng: &mut Rng) -> Option<(usize, u32)> {
        if self.open.is_empty() {
            return None;
        }
        loop {
            let at = rng.below(self.open.len() as u64) as usize;
            let number = self.open[at];
            if rng.below(PAGES.into()) < u64::from(self.parts[number as usize].away) {
                return Some((at, number));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All is used once, from that node.
    fn used(memory: &mut Memory, rng: &mut Rng, node: u32) {
        while memory.fault(rng, node, |_| None).is_some() {}
    }

    #[test]
    fn new_memory_lies_where_it_is_used_and_a_part_comes_back_at_once() {
        let (mut memory, mut rng) = (Memory::new(4, 2), Rng::new(1));
        assert_eq!(memory.away(), 1.0);
        used(&mut memory, &mut rng, 1);
        assert_eq!((memory.most(), memory.away()), (Some((1, 100.0)), 0.0));
        assert_eq!(memory.take_away(2), Some(1));
        assert_eq!(memory.away(), 0.25);
        let fault = memory.fault(&mut rng, 0, |_| None);
        assert_eq!(fault, Some(Fault { pages: PAGES, node: 1, moved: false }));
        assert_eq!(memory.away(), 0.0);
    }

    #[test]
    fn a_part_that_was_moved_comes_back_page_by_page() {
        let (mut memory, mut rng) = (Memory::new(1, 2), Rng::new(1));
        used(&mut memory, &mut rng, 0);
        memory.take_away(0);
        let fault = memory.fault(&mut rng, 1, |_| Some(1));
        assert_eq!(fault, Some(Fault { pages: 1, node: 1, moved: true }));
        let mut faults = 1;
        while let Some(fault) = memory.fault(&mut rng, 0, |_| Some(0)) {
            assert_eq!(fault, Fault { pages: 1, node: 1, moved: false });
            faults += 1;
        }
        assert_eq!((faults, memory.most()), (PAGES, Some((1, 100.0))));
        memory.take_away(0);
        assert_eq!(memory.fault(&mut rng, 0, |_| None).unwrap().pages, PAGES, "it is whole again");
    }
}
