// SPDX-License-Identifier: GPL-2.0-only
//! What happens next: an indexed 4-ary heap with one entry for each source of events.
//!
//! A source (a pCPU's running program, a vCPU's timer ...) has at most one event ahead of it, so
//! moving or cancelling an event is a move in the heap and nothing stale is ever popped. Events of
//! the same moment come in the order they were set: that is what makes runs repeat exactly.
//!
//! Worked example: sources 0 and 1 are both set to 5 ns, then 0 is moved to 4 ns and back to 5 ns.
//! Source 1 now comes first: source 0 was set again after it.

const NOWHERE: u32 = u32::MAX;
const ARITY: usize = 4;

#[derive(Debug, Clone, Copy)]
struct Entry {
    at_ns: u64,
    sequence: u64,
    source: u32,
}

impl Entry {
    /// As one number: two words compared without a branch, which would be guessed wrong half the time.
    fn rank(&self) -> u128 {
        u128::from(self.at_ns) << 64 | u128::from(self.sequence)
    }

    fn comes_before(&self, other: &Self) -> bool {
        self.rank() < other.rank()
    }
}

/// The events ahead, at most one for each source.
#[derive(Debug)]
pub struct Events {
    heap: Vec<Entry>,
    position: Vec<u32>,
    sequence: u64,
}

impl Events {
    /// No events, for sources `0..sources`.
    pub fn new(sources: usize) -> Self {
        let heap = Vec::with_capacity(sources.min(1 << 16));
        Self { heap, position: vec![NOWHERE; sources], sequence: 0 }
    }

    /// Sets the source's event to that moment, whether it had one or not.
    pub fn set(&mut self, source: u32, at_ns: u64) {
        let entry = Entry { at_ns, sequence: self.sequence, source };
        self.sequence += 1;
        match self.position[source as usize] {
            NOWHERE => {
                self.heap.push(entry);
                self.sift_up(self.heap.len() - 1, entry);
            }
            at => {
                let earlier = entry.comes_before(&self.heap[at as usize]);
                if earlier {
                    self.sift_up(at as usize, entry);
                } else {
                    self.sift_down(at as usize, entry);
                }
            }
        }
    }

    /// [`Events::set`], unless the source has an event no later than that.
    pub fn set_if_sooner(&mut self, source: u32, at_ns: u64) {
        if self.when(source).is_none_or(|set_ns| at_ns < set_ns) {
            self.set(source, at_ns);
        }
    }

    /// Puts off the source's event, if it has one.
    pub fn delay(&mut self, source: u32, by_ns: u64) {
        if let Some(at_ns) = self.when(source) {
            self.set(source, at_ns + by_ns);
        }
    }

    /// Takes back the source's event, if it has one.
    pub fn cancel(&mut self, source: u32) {
        let at = self.position[source as usize];
        if at != NOWHERE {
            self.remove(at as usize);
        }
    }

    /// When the source's event comes.
    pub fn when(&self, source: u32) -> Option<u64> {
        let at = self.position[source as usize];
        (at != NOWHERE).then(|| self.heap[at as usize].at_ns)
    }

    /// When the next event comes.
    pub fn next_ns(&self) -> Option<u64> {
        self.heap.first().map(|entry| entry.at_ns)
    }

    /// Takes the next event: its moment and its source.
    pub fn pop(&mut self) -> Option<(u64, u32)> {
        let first = *self.heap.first()?;
        self.remove(0);
        Some((first.at_ns, first.source))
    }

    fn remove(&mut self, at: usize) {
        let gone = self.heap[at];
        self.position[gone.source as usize] = NOWHERE;
        let last = self.heap.pop().expect("an entry was found");
        if at == self.heap.len() {
            return;
        }
        if last.comes_before(&gone) {
            self.sift_up(at, last);
        } else {
            self.sift_down(at, last);
        }
    }

    fn put(&mut self, at: usize, entry: Entry) {
        self.heap[at] = entry;
        self.position[entry.source as usize] = at as u32;
    }

    fn sift_up(&mut self, mut at: usize, entry: Entry) {
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if self.heap[parent].comes_before(&entry) {
                break;
            }
            self.put(at, self.heap[parent]);
            at = parent;
        }
        self.put(at, entry);
    }

    fn sift_down(&mut self, mut at: usize, entry: Entry) {
        loop {
            let first = at * ARITY + 1;
            let Some(least) = self.least_of(first) else { break };
            if entry.comes_before(&self.heap[least]) {
                break;
            }
            self.put(at, self.heap[least]);
            at = least;
        }
        self.put(at, entry);
    }

    /// The child that comes first, of those from `first` on.
    fn least_of(&self, first: usize) -> Option<usize> {
        if let Some(children) = self.heap.get(first..first + ARITY) {
            let pick = |a: usize, b: usize| {
                if children[b].rank() < children[a].rank() { b } else { a }
            };
            return Some(first + pick(pick(0, 1), pick(2, 3)));
        }
        (first..self.heap.len()).min_by_key(|&child| self.heap[child].rank())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equal_moments_come_in_the_order_they_were_set() {
        let mut events = Events::new(3);
        for source in [2, 0, 1] {
            events.set(source, 7);
        }
        events.set(2, 4);
        events.set(2, 7);
        let order: Vec<_> = std::iter::from_fn(|| events.pop()).collect();
        assert_eq!(order, [(7, 0), (7, 1), (7, 2)]);
    }

    #[test]
    fn events_are_moved_and_taken_back() {
        let mut events = Events::new(2);
        events.set(0, 10);
        events.set_if_sooner(0, 12);
        assert_eq!(events.when(0), Some(10));
        events.delay(0, 5);
        assert_eq!((events.when(0), events.next_ns()), (Some(15), Some(15)));
        events.delay(1, 5);
        events.cancel(0);
        events.cancel(0);
        assert_eq!(events.pop(), None);
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_sorted_list(
            steps in prop::collection::vec((0u32..12, 0u64..50, 0u8..4), 1..300)
        ) {
            let mut events = Events::new(12);
            let mut model: Vec<(u64, usize, u32)> = Vec::new();
            for (number, &(source, at_ns, action)) in steps.iter().enumerate() {
                if action == 3 {
                    let next = model.iter().copied().min();
                    model.retain(|entry| Some(*entry) != next);
                    prop_assert_eq!(events.pop(), next.map(|(at_ns, _, source)| (at_ns, source)));
                    continue;
                }
                model.retain(|entry| entry.2 != source);
                if action == 2 {
                    events.cancel(source);
                } else {
                    events.set(source, at_ns);
                    model.push((at_ns, number, source));
                }
                prop_assert_eq!(events.next_ns(), model.iter().min().map(|entry| entry.0));
            }
        }
    }
}
