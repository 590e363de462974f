// SPDX-License-Identifier: GPL-2.0-only
//! pCPUs as promises count them: a core holds 100 %, however many of its hardware threads are online.
//!
//! Time beside a busy sibling thread is charged at 62.5 %, and reservations are paid with what is charged. Two
//! busy threads of a core can each be given 50 % for certain, not 100. So each of two threads that are online
//! holds 50 %, and one whose sibling is offline 100.
//!
//! Worked example: two cores of two threads, pCPUs 0-1 and 2-3, hold 200 %. One VM may reserve 100 % on 0-1, or
//! two VMs 50 % each; one that is pinned to pCPU 0 may reserve 50 %. When pCPU 1 goes offline, 100.
//!
//! The host's own tasks keep a part of each for themselves ([`HOST_PERMILLE`] by default), a tenth of a pCPU at least:
//! commands, the daemon and the network get on beside VMs that use all that is reserved for them. It is theirs on all
//! pCPUs together, not on each: a VM may still reserve all of one pCPU.
//!
//! Limitations: a vCPU that reserves more than 62.5 % is admitted, although it has no more where all
//! threads are busy. And two busy threads together do more than one, and the rest, 25 % of a core, is never
//! promised. It goes by shares.

use std::collections::{BTreeMap, BTreeSet};

use crate::cpu_list::CpuList;

/// What the host's own tasks keep of each pCPU unless the configuration says otherwise, in thousandths.
pub const HOST_PERMILLE: u32 = 100;
/// They keep that much in all, whatever the configuration says, thousandths of a pCPU.
const HOST_LEAST_MCPU: u64 = 100;

/// The other hardware thread of each pCPU's core, where there is one.
pub type Siblings = BTreeMap<u32, u32>;

/// pCPUs that are online, or part of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pcpus {
    all: CpuList,
    /// Those whose sibling is online.
    halves: BTreeSet<u32>,
    /// What the host's own tasks keep of each, in thousandths; none: nothing at all.
    host_permille: Option<u32>,
}

impl Pcpus {
    /// Each is a core.
    pub fn cores(all: CpuList) -> Self {
        Self { all, halves: BTreeSet::new(), host_permille: None }
    }

    /// These of a host whose pCPUs `online` are online.
    pub fn of(all: CpuList, online: &CpuList, siblings: &Siblings) -> Self {
        let shares = |cpu: &u32| siblings.get(cpu).is_some_and(|sibling| online.contains(*sibling));
        let halves = all.cpus().iter().copied().filter(shares).collect();
        Self { all, halves, host_permille: None }
    }

    /// The same pCPUs, with that many thousandths of each reserved for the host's own tasks.
    pub fn kept_for_host(self, permille: u32) -> Self {
        Self { host_permille: Some(permille), ..self }
    }

    /// Their numbers.
    pub fn all(&self) -> &CpuList {
        &self.all
    }

    /// Whether some of them have half of a core only.
    pub fn share_cores(&self) -> bool {
        !self.halves.is_empty()
    }

    /// What these of them hold, thousandths of a core.
    pub fn holds_mcpu(&self, cpus: &CpuList) -> u64 {
        cpus.cpus().iter().map(|cpu| if self.halves.contains(cpu) { 500 } else { 1000 }).sum()
    }

    /// What all hold, thousandths of a core.
    pub fn capacity_mcpu(&self) -> u64 {
        self.holds_mcpu(&self.all)
    }

    /// What the host's own tasks keep, thousandths of a core.
    pub fn host_mcpu(&self) -> u64 {
        let of_all = |permille| self.capacity_mcpu() * u64::from(permille) / 1000;
        self.host_permille.map_or(0, |permille| of_all(permille).max(HOST_LEAST_MCPU))
    }

    /// What can be promised, thousandths of a core.
    pub fn promisable_mcpu(&self) -> u64 {
        self.capacity_mcpu() - self.host_mcpu()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worked_example_of_the_header_holds() {
        let siblings = Siblings::from([(0, 1), (1, 0), (2, 3), (3, 2)]);
        let on = |online: &str| {
            let online: CpuList = online.parse().unwrap();
            Pcpus::of(online.clone(), &online, &siblings)
        };
        let holds = |pcpus: &Pcpus, cpus: &str| pcpus.holds_mcpu(&cpus.parse().unwrap());
        assert_eq!(on("0-3").capacity_mcpu(), 2000);
        assert_eq!((holds(&on("0-3"), "0-1"), holds(&on("0-3"), "0")), (1000, 500));
        assert_eq!((on("0,2-3").capacity_mcpu(), holds(&on("0,2-3"), "0")), (2000, 1000));
        assert_eq!(Pcpus::cores(CpuList::all(4)).capacity_mcpu(), 4000);
    }

    #[test]
    fn the_host_keeps_a_part_of_each_pcpu_and_a_tenth_of_one_at_least() {
        let kept = |pcpus, permille| {
            let pcpus = Pcpus::cores(CpuList::all(pcpus)).kept_for_host(permille);
            (pcpus.host_mcpu(), pcpus.promisable_mcpu())
        };
        assert_eq!((kept(4, HOST_PERMILLE), kept(1, HOST_PERMILLE)), ((400, 3600), (100, 900)));
        assert_eq!((kept(4, 0), kept(4, 250)), ((100, 3900), (1000, 3000)));
    }
}
