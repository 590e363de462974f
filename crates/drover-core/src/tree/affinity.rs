// SPDX-License-Identifier: GPL-2.0-only
//! The pCPUs a VM may run on: all of them, a set, or a set for each of its vCPUs.

use crate::cpu_list::CpuList;
use std::collections::BTreeMap;

/// Where the vCPUs of a VM may run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Affinity {
    /// Different sets, each with the number of vCPUs that are confined to it; none: anywhere.
    sets: Vec<(CpuList, u32)>,
}

impl Affinity {
    /// Anywhere.
    pub const ANYWHERE: Self = Self { sets: Vec::new() };

    /// All vCPUs are confined to the same pCPUs.
    pub fn within(cpus: CpuList) -> Self {
        Self { sets: vec![(cpus, 1)] }
    }

    /// Each vCPU has a set of its own, which may be that of others.
    pub fn of_vcpus(each: impl IntoIterator<Item = CpuList>) -> Self {
        let mut counts: BTreeMap<CpuList, u32> = BTreeMap::new();
        each.into_iter().for_each(|cpus| *counts.entry(cpus).or_default() += 1);
        let mut sets: Vec<(CpuList, u32)> = counts.into_iter().collect();
        if let [(_, vcpus)] = sets.as_mut_slice() {
            // How many there are is of no meaning where all are alike.
            *vcpus = 1;
        }
        Self { sets }
    }

    /// The same on a host of these pCPUs: who may run on all of them runs anywhere.
    pub fn on(&self, host: &CpuList) -> Self {
        let is_all = |cpus: &CpuList| host.cpus().iter().all(|&cpu| cpus.contains(cpu));
        match self.sets.iter().all(|(cpus, _)| is_all(cpus)) {
            true => Self::ANYWHERE,
            false => self.clone(),
        }
    }

    /// The same where there are pCPUs that are to be used; a set that has none of them stays as it is.
    pub fn drawn_to(&self, cpus: &CpuList) -> Self {
        if self.is_anywhere() {
            return Self::within(cpus.clone());
        }
        let drawn = |set: &CpuList| set.common(cpus).unwrap_or_else(|| set.clone());
        let each = |(set, vcpus): &(CpuList, u32)| vec![drawn(set); *vcpus as usize];
        Self::of_vcpus(self.sets.iter().flat_map(each))
    }

    /// Does it confine to the same of these pCPUs? They are online, others may have gone or come since. A set that
    /// has none of them confines to nothing.
    pub fn is_same_on(&self, other: &Self, online: &CpuList) -> bool {
        let there = |affinity: &Self| {
            let there = |cpus: &CpuList| cpus.common(online).unwrap_or_else(|| online.clone());
            let each = |(cpus, vcpus): &(CpuList, u32)| vec![there(cpus); *vcpus as usize];
            Self::of_vcpus(affinity.sets.iter().flat_map(each)).on(online)
        };
        self == other || there(self) == there(other)
    }

    /// Does a vCPU of it run outside of these pCPUs only?
    pub fn leaves(&self, cpus: &CpuList) -> bool {
        self.sets.iter().any(|(set, _)| set.common(cpus).is_none())
    }

    /// May it run on all pCPUs?
    pub fn is_anywhere(&self) -> bool {
        self.sets.is_empty()
    }

    /// All pCPUs that any of its vCPUs is confined to.
    pub fn cpus(&self) -> impl Iterator<Item = u32> {
        self.sets.iter().flat_map(|(cpus, _)| cpus.cpus().iter().copied())
    }

    /// Have its vCPUs different sets?
    pub(crate) fn is_split(&self) -> bool {
        self.sets.len() > 1
    }

    /// The sets, each with the most that the vCPUs confined to it can use, when each can use so
    /// much. Where all vCPUs have the same set that bounds nothing: helper threads count as well.
    pub(crate) fn seats(&self, of_vcpu: f64) -> impl Iterator<Item = (&CpuList, f64)> {
        let split = self.is_split();
        self.sets.iter().map(move |(cpus, vcpus)| {
            (cpus, if split { f64::from(*vcpus) * of_vcpu } else { f64::INFINITY })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> CpuList {
        text.parse().unwrap()
    }

    #[test]
    fn vcpus_that_are_all_confined_alike_are_a_vm_that_is() {
        let alike = Affinity::of_vcpus([list("0-1"), list("0-1")]);
        assert_eq!(alike, Affinity::within(list("0-1")));
        assert!(!alike.is_split() && !alike.is_anywhere());
        assert!(Affinity::of_vcpus([]).is_anywhere());
    }

    #[test]
    fn who_may_run_on_all_pcpus_of_a_host_runs_anywhere() {
        let within = Affinity::within(list("0-3"));
        assert!(
            within.on(&CpuList::all(4)).is_anywhere() && within.on(&CpuList::all(2)).is_anywhere()
        );
        assert_eq!(within.on(&CpuList::all(5)), within);
    }

    #[test]
    fn who_is_confined_to_a_pcpu_that_goes_is_not_confined_anew() {
        let [both, first] = ["2-3", "2"].map(|cpus| Affinity::within(list(cpus)));
        assert!(both.is_same_on(&first, &list("0-2")) && !both.is_same_on(&first, &list("0-3")));
        assert!(
            both.is_same_on(&Affinity::ANYWHERE, &list("0-1")),
            "the kernel lets it run anywhere"
        );
        assert!(Affinity::within(list("0-1")).is_same_on(&Affinity::ANYWHERE, &list("0-1")));
        assert!(!first.is_same_on(&Affinity::within(list("1")), &list("0-3")));
    }

    #[test]
    fn vcpus_of_one_set_count_together() {
        let split = Affinity::of_vcpus([list("1"), list("0"), list("1")]);
        assert_eq!(split, Affinity::of_vcpus([list("0"), list("1"), list("1")]));
        let seats: Vec<(String, f64)> =
            split.seats(0.5).map(|(cpus, most)| (cpus.to_string(), most)).collect();
        assert_eq!(seats, [("0".to_owned(), 0.5), ("1".to_owned(), 1.0)]);
    }
}
