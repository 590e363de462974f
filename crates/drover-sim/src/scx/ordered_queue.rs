// SPDX-License-Identifier: GPL-2.0-only
//! A queue of tasks in the order of a `u64` that may wrap; equal ones in order of arrival.
//!
//! Most queues hold a handful: a sorted vector, its first task last, beats anything with pointers.
//! A queue that grows beyond [`NEAR_MAX`] moves into a B-tree and back when it has shrunk, so the
//! cost stays logarithmic for ten thousand tasks in one queue.

use std::cmp::Ordering;
use std::collections::BTreeMap;

const NEAR_MAX: usize = 64;
const NEAR_AGAIN: usize = 16;

/// Where a task stands: compared by signed difference, as the kernel does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// What the policy ordered it by.
    pub order: u64,
    /// When it came: decides among equals.
    pub arrival: u64,
}

impl Ord for Place {
    fn cmp(&self, other: &Self) -> Ordering {
        let apart = self.order.wrapping_sub(other.order) as i64;
        apart.cmp(&0).then(self.arrival.cmp(&other.arrival))
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The queue.
#[derive(Debug, Default)]
pub struct OrderedQueue {
    /// The first task last.
    near: Vec<(Place, u32)>,
    far: Option<BTreeMap<Place, u32>>,
}

impl OrderedQueue {
    /// Puts a task at its place.
    pub fn insert(&mut self, place: Place, task: u32) {
        if let Some(far) = &mut self.far {
            far.insert(place, task);
            return;
        }
        let at = self.near.partition_point(|(other, _)| *other > place);
        self.near.insert(at, (place, task));
        if self.near.len() > NEAR_MAX {
            self.far = Some(self.near.drain(..).collect());
        }
    }

    /// The first task that passes, in order.
    pub fn first_that(&self, passes: impl Fn(u32) -> bool) -> Option<(Place, u32)> {
        self.iter().find(|(_, task)| passes(*task))
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Place, u32)> {
        let far = self.far.iter().flatten().map(|(place, task)| (*place, *task));
        self.near.iter().rev().copied().chain(far)
    }

    /// Takes the task at that place out. False if nobody stands there.
    pub fn remove(&mut self, place: Place) -> bool {
        let Some(far) = &mut self.far else {
            let at = self.near.partition_point(|(other, _)| *other > place);
            let found = self.near.get(at).is_some_and(|(other, _)| *other == place);
            if found {
                self.near.remove(at);
            }
            return found;
        };
        let found = far.remove(&place).is_some();
        if far.len() <= NEAR_AGAIN {
            let far = self.far.take().expect("it was there a line ago");
            self.near.extend(far.into_iter().rev());
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place(order: u64, arrival: u64) -> Place {
        Place { order, arrival }
    }

    #[test]
    fn order_goes_on_where_the_numbers_wrap() {
        let mut queue = OrderedQueue::default();
        queue.insert(place(3, 0), 30);
        queue.insert(place(u64::MAX - 2, 1), 10);
        queue.insert(place(3, 2), 31);
        assert_eq!(queue.first_that(|_| true), Some((place(u64::MAX - 2, 1), 10)));
        assert_eq!(queue.first_that(|task| task >= 30), Some((place(3, 0), 30)));
        assert!(queue.remove(place(3, 0)) && !queue.remove(place(3, 0)));
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_sorted_list(
            steps in prop::collection::vec((0u64..100, any::<bool>()), 1..400),
            base in prop::sample::select(vec![0u64, u64::MAX - 50, 1 << 63])
        ) {
            let mut queue = OrderedQueue::default();
            let mut model: Vec<(u64, u64)> = Vec::new();
            for (arrival, &(order, insert)) in steps.iter().enumerate() {
                let arrival = arrival as u64;
                if insert || model.is_empty() {
                    queue.insert(place(base.wrapping_add(order), arrival), arrival as u32);
                    model.push((order, arrival));
                } else if order % 3 == 0 {
                    let (order, arrival) = model.swap_remove(order as usize % model.len());
                    prop_assert!(queue.remove(place(base.wrapping_add(order), arrival)));
                }
                model.sort_unstable();
                let first = model.first().map(|&(order, arrival)| {
                    (place(base.wrapping_add(order), arrival), arrival as u32)
                });
                prop_assert_eq!(queue.first_that(|_| true), first);
            }
        }
    }
}
