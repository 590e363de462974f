// SPDX-License-Identifier: GPL-2.0-only
//! Sets of pCPUs, as bits.

/// A set of pCPU numbers below a size given at birth.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CpuSet {
    words: Box<[u64]>,
}

impl CpuSet {
    /// No pCPU of `pcpus`.
    pub fn none(pcpus: u32) -> Self {
        Self { words: vec![0; pcpus.div_ceil(64) as usize].into() }
    }

    /// All pCPUs of `pcpus`.
    pub fn all(pcpus: u32) -> Self {
        let mut set = Self::none(pcpus);
        (0..pcpus).for_each(|cpu| set.insert(cpu));
        set
    }

    /// Those of a list that exist among `pcpus`.
    pub fn of(pcpus: u32, list: impl IntoIterator<Item = u32>) -> Self {
        let mut set = Self::none(pcpus);
        list.into_iter().filter(|&cpu| cpu < pcpus).for_each(|cpu| set.insert(cpu));
        set
    }

    /// Adds a pCPU.
    pub fn insert(&mut self, cpu: u32) {
        self.words[cpu as usize / 64] |= 1 << (cpu % 64);
    }

    /// Takes a pCPU out.
    pub fn remove(&mut self, cpu: u32) {
        self.words[cpu as usize / 64] &= !(1 << (cpu % 64));
    }

    /// Takes a pCPU out; was it in it?
    pub fn take(&mut self, cpu: u32) -> bool {
        let was = self.contains(cpu);
        self.remove(cpu);
        was
    }

    /// Is the pCPU in it?
    pub fn contains(&self, cpu: u32) -> bool {
        self.words[cpu as usize / 64] >> (cpu % 64) & 1 == 1
    }

    /// Number of pCPUs in it.
    pub fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// Number of pCPUs in both sets.
    pub fn count_common(&self, other: &CpuSet) -> u32 {
        self.words.iter().zip(&other.words).map(|(a, b)| (a & b).count_ones()).sum()
    }

    /// The lowest pCPU from `from` up, if any.
    pub fn next_from(&self, from: u32) -> Option<u32> {
        self.scan(from, |_| u64::MAX)
    }

    /// The lowest pCPU from `from` up that is in both sets.
    pub fn next_common(&self, other: &CpuSet, from: u32) -> Option<u32> {
        self.scan(from, |index| other.words[index])
    }

    /// The lowest pCPU in both sets from `from` up, else from 0 up.
    pub fn any_common(&self, other: &CpuSet, from: u32) -> Option<u32> {
        self.next_common(other, from).or_else(|| self.next_common(other, 0))
    }

    /// The pCPUs in it, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let mut from = 0;
        std::iter::from_fn(move || {
            let found = self.next_from(from)?;
            from = found + 1;
            Some(found)
        })
    }

    fn scan(&self, from: u32, mask: impl Fn(usize) -> u64) -> Option<u32> {
        let first = from as usize / 64;
        for index in first..self.words.len() {
            let mut word = self.words[index] & mask(index);
            if index == first {
                word &= u64::MAX << (from % 64);
            }
            if word != 0 {
                return Some(index as u32 * 64 + word.trailing_zeros());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn sets_of_other_sizes_end_where_they_should() {
        let set = CpuSet::all(130);
        assert_eq!((set.count(), set.next_from(129), set.next_from(130)), (130, Some(129), None));
        assert_eq!(CpuSet::of(4, [1, 3, 9]).iter().collect::<Vec<_>>(), [1, 3]);
    }

    proptest! {
        #[test]
        fn they_agree_with_sorted_sets(
            a in prop::collection::btree_set(0u32..200, 0..60),
            b in prop::collection::btree_set(0u32..200, 0..60),
            from in 0u32..200,
        ) {
            let (sa, sb) = (CpuSet::of(200, a.clone()), CpuSet::of(200, b.clone()));
            let common: BTreeSet<u32> = a.intersection(&b).copied().collect();
            prop_assert_eq!(sa.iter().collect::<BTreeSet<_>>(), a.clone());
            prop_assert_eq!(sa.next_common(&sb, from), common.range(from..).next().copied());
            prop_assert_eq!(sa.any_common(&sb, from).is_some(), !common.is_empty());
            prop_assert_eq!(sa.count_common(&sb) as usize, common.len());
        }
    }
}
