// SPDX-License-Identifier: GPL-2.0-only
//! Who falls short of what it has under the rival, or of its fair part: the judging.
//!
//! The law, for who sets nothing:
//! - who is light does at least 0.99 of its work under the rival, and 99 % of its wake-ups are served within
//!   1.1 times what they are there, or 1 ms;
//! - who is heavy has at least 0.98 of what its fair part is good for. The rival may give it more: it is not
//!   owed that. Where the rival gives it less, that is what counts: what a fair part is good for is worked
//!   out from the VM alone, and vCPUs that wait for each other may not reach it under any scheduler;
//! - all VMs together do at least 0.99 of their work under the rival, where what a heavy one did beyond its
//!   fair part counts neither here nor there. Beside disks that are read, each read a wake-up and a switch, a
//!   rival that keeps the readers waiting for a busy VM does more work in all, and not what is asked.
//!
//! A trial may have run with several seeds: what counts is the median of the ratios, for in one run of some
//! seconds the rival gives one VM more and another less by chance. One piece of work may be under way when
//! the measured time ends, done under the one and not under the other: it is not held against anybody.

use super::part::Part;
use std::fmt;

/// A light one does so much of its work under the rival.
pub const LIGHT_WORK: f64 = 0.99;
/// Its wake-ups wait so many times as long.
pub const LIGHT_P99: f64 = 1.1;
/// ... or so long, us.
pub const LIGHT_P99_US: f64 = 1000.0;
/// A heavy one does so much of what its fair part is good for.
pub const HEAVY_WORK: f64 = 0.98;
/// All VMs do so much of what they do under the rival.
pub const TOTAL_WORK: f64 = 0.99;

/// Of fewer wake-ups 99 % say little.
const WAKES_MIN: u64 = 200;
/// Less work than this, s, is not judged.
const WORK_MIN_S: f64 = 0.005;

/// What a vCPU, or all of a VM, did in a run.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Did {
    /// Work, s at full speed.
    pub work_s: f64,
    /// Wake-ups.
    pub wakes: u64,
    /// 99 % of these waited no longer than this until they ran, us.
    pub p99_us: f64,
}

/// What a VM did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct VmDid {
    /// All its vCPUs.
    pub all: Did,
    /// Each of them.
    pub vcpus: Vec<Did>,
}

/// What all VMs did with one seed: under Drover and under the rival.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Both {
    /// Under Drover.
    pub drover: Vec<VmDid>,
    /// Under the rival.
    pub rival: Vec<VmDid>,
}

/// In what somebody falls short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The work of a light VM.
    LightVmWork,
    /// How long its wake-ups wait.
    LightVmP99,
    /// The work of a light vCPU.
    LightVcpuWork,
    /// How long its wake-ups wait.
    LightVcpuP99,
    /// What a heavy VM has of its part.
    HeavyVmPart,
    /// The work of all.
    Total,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::LightVmWork,
        Self::LightVmP99,
        Self::LightVcpuWork,
        Self::LightVcpuP99,
        Self::HeavyVmPart,
        Self::Total,
    ];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::LightVmWork => "light VM's work",
            Self::LightVmP99 => "light VM's p99",
            Self::LightVcpuWork => "light vCPU's work",
            Self::LightVcpuP99 => "light vCPU's p99",
            Self::HeavyVmPart => "heavy VM's part",
            Self::Total => "total",
        }
    }

    /// What is asked of the ratio.
    pub fn asked(self) -> &'static str {
        match self {
            Self::LightVmWork | Self::LightVcpuWork => "0.99 at least",
            Self::LightVmP99 | Self::LightVcpuP99 => "1.1 at most, or 1 ms",
            Self::HeavyVmPart => "0.98 at least",
            Self::Total => "0.99 at least",
        }
    }

    /// Is that of waiting, which is worse the longer it is?
    pub fn is_of_waiting(self) -> bool {
        matches!(self, Self::LightVmP99 | Self::LightVcpuP99)
    }

    /// Is the first ratio worse?
    pub fn is_worse(self, ratio: f64, other: f64) -> bool {
        if self.is_of_waiting() { ratio > other } else { ratio < other }
    }
}

/// Somebody falls short.
#[derive(Debug, Clone, PartialEq)]
pub struct Short {
    /// In what.
    pub kind: Kind,
    /// Which VM; none: all together.
    pub vm: Option<usize>,
    /// Which vCPU of it; none: all of it.
    pub vcpu: Option<usize>,
    /// What it has of what it is measured by.
    pub ratio: f64,
    /// What it has: work in s, or a wait in us. Of several seeds, with the one of the median.
    pub has: f64,
    /// What it is measured by, likewise.
    pub of: f64,
}

/// What came of the judging.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Judged {
    /// Who falls short.
    pub short: Vec<Short>,
    /// Heavy VMs with less than 0.98 of what their part is good for, which have as much as under the rival.
    pub heavy_as_rival: usize,
}

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, ratio, has, of, .. } = self;
        let (has, of, unit) = match kind.is_of_waiting() {
            true => (has / 1000.0, of / 1000.0, "ms"),
            false => (*has, *of, "s"),
        };
        write!(
            f,
            "{}: {ratio:.3} ({has:.3} of {of:.3} {unit}; {} is asked)",
            kind.name(),
            kind.asked()
        )
    }
}

/// Judges what all did, with one seed or with several. `own_work` says of which vCPUs the work is their own:
/// who takes pieces from a queue does more or less of them as its siblings do.
pub fn judge(parts: &[Part], own_work: &[Vec<bool>], runs: &[Both]) -> Judged {
    let mut judged = Judged::default();
    for (vm, part) in parts.iter().enumerate() {
        let pairs = || runs.iter().map(move |run| (&run.drover[vm], &run.rival[vm]));
        let before = judged.short.len();
        if part.light {
            let pairs: Vec<_> = pairs().map(|(drover, rival)| (drover.all, rival.all)).collect();
            judged.short.extend(less_work(Kind::LightVmWork, &pairs));
            judged.short.extend(waits_longer(Kind::LightVmP99, &pairs));
        }
        judged.short[before..].iter_mut().for_each(|short| short.vm = Some(vm));
        let of_vm = |kind| judged.short[before..].iter().any(|short| short.kind == kind);
        let (less, longer) = (of_vm(Kind::LightVmWork), of_vm(Kind::LightVmP99));
        for vcpu in (0..part.light_vcpus.len()).filter(|&vcpu| part.light_vcpus[vcpu]) {
            let pairs: Vec<_> =
                pairs().map(|(drover, rival)| (drover.vcpus[vcpu], rival.vcpus[vcpu])).collect();
            // What its VM as a whole falls short in is said once.
            let work =
                (!less && own_work[vm][vcpu]).then(|| less_work(Kind::LightVcpuWork, &pairs));
            let waits = (!longer).then(|| waits_longer(Kind::LightVcpuP99, &pairs));
            let found = [work, waits].into_iter().flatten().flatten();
            judged.short.extend(found.map(|it| Short { vm: Some(vm), vcpu: Some(vcpu), ..it }));
        }
        if let Some(fair_s) = part.fair_work_s {
            let works: Vec<_> =
                pairs().map(|(drover, rival)| (drover.all.work_s, rival.all.work_s)).collect();
            heavy(&mut judged, vm, fair_s, &works);
        }
    }
    judged.short.extend(total(parts, runs));
    judged
}

/// The pair whose ratio is the median.
fn median(mut pairs: Vec<(f64, f64)>) -> (f64, f64) {
    pairs.sort_by(|(has, of), (other, of_other)| (has / of).total_cmp(&(other / of_other)));
    pairs[(pairs.len() - 1) / 2]
}

fn short(kind: Kind, (has, of): (f64, f64)) -> Short {
    Short { kind, vm: None, vcpu: None, ratio: has / of, has, of }
}

fn less_work(kind: Kind, pairs: &[(Did, Did)]) -> Option<Short> {
    if pairs.iter().any(|(_, rival)| rival.work_s < WORK_MIN_S) {
        return None;
    }
    let works = pairs.iter().map(|(drover, rival)| (drover.work_s, rival.work_s)).collect();
    let least_wakes = pairs.iter().map(|(_, rival)| rival.wakes).min().unwrap_or(0);
    let piece = if least_wakes > 0 { 1.0 / least_wakes as f64 } else { 0.0 };
    let found = short(kind, median(works));
    (found.ratio < LIGHT_WORK - piece).then_some(found)
}

fn waits_longer(kind: Kind, pairs: &[(Did, Did)]) -> Option<Short> {
    if pairs.iter().any(|(_, rival)| rival.wakes < WAKES_MIN) {
        return None;
    }
    // A wait of less than that is none to speak of.
    let of_us = |rival: &Did| rival.p99_us.max(LIGHT_P99_US / LIGHT_P99);
    let waits = pairs.iter().map(|(drover, rival)| (drover.p99_us, of_us(rival))).collect();
    let found = short(kind, median(waits));
    (found.ratio > LIGHT_P99).then_some(found)
}

fn heavy(judged: &mut Judged, vm: usize, fair_s: f64, works: &[(f64, f64)]) {
    if fair_s < WORK_MIN_S {
        return;
    }
    let of_fair = median(works.iter().map(|&(drover_s, _)| (drover_s, fair_s)).collect());
    let of_less =
        median(works.iter().map(|&(drover_s, rival_s)| (drover_s, rival_s.min(fair_s))).collect());
    let found = Short { vm: Some(vm), ..short(Kind::HeavyVmPart, of_less) };
    if found.ratio < HEAVY_WORK {
        judged.short.push(found);
    } else if of_fair.0 / of_fair.1 < HEAVY_WORK {
        judged.heavy_as_rival += 1;
    }
}

fn total(parts: &[Part], runs: &[Both]) -> Option<Short> {
    let counts = |part: &Part, vm: &VmDid| part.fair_work_s.unwrap_or(f64::MAX).min(vm.all.work_s);
    let work_s = |vms: &[VmDid]| parts.iter().zip(vms).map(|(part, vm)| counts(part, vm)).sum();
    let works: Vec<_> = runs.iter().map(|run| (work_s(&run.drover), work_s(&run.rival))).collect();
    if works.is_empty() || works.iter().any(|&(_, rival_s)| rival_s < WORK_MIN_S) {
        return None;
    }
    let found = short(Kind::Total, median(works));
    (found.ratio < TOTAL_WORK).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A VM of one vCPU, light or heavy.
    fn part(fair_work_s: Option<f64>) -> Part {
        let light = fair_work_s.is_none();
        Part { light, fair_work_s, light_vcpus: vec![light] }
    }

    fn did(work_s: f64, p99_us: f64) -> VmDid {
        let all = Did { work_s, wakes: 1000, p99_us };
        VmDid { all, vcpus: vec![all] }
    }

    fn both(drover: VmDid, rival: VmDid) -> Both {
        // A big one beside, so that the total holds.
        Both { drover: vec![drover, did(90.0, 0.0)], rival: vec![rival, did(90.0, 0.0)] }
    }

    fn kinds(part: Part, runs: &[Both]) -> Vec<(Kind, Option<usize>)> {
        let beside = Part { light: false, fair_work_s: None, light_vcpus: vec![false] };
        let judged = judge(&[part, beside], &[vec![true], vec![true]], runs);
        judged.short.iter().map(|short| (short.kind, short.vcpu)).collect()
    }

    #[test]
    fn a_light_vm_that_does_less_is_found_and_its_vcpu_is_not_said_twice() {
        let less = both(did(0.98, 50.0), did(1.0, 50.0));
        assert_eq!(kinds(part(None), &[less]), [(Kind::LightVmWork, None)]);
        let as_much = both(did(0.99, 50.0), did(1.0, 50.0));
        assert_eq!(kinds(part(None), &[as_much]), []);
    }

    #[test]
    fn a_light_vm_that_waits_longer_is_found_beyond_a_ms() {
        let within_a_ms = both(did(1.0, 990.0), did(1.0, 50.0));
        assert_eq!(kinds(part(None), &[within_a_ms]), []);
        let longer = both(did(1.0, 2300.0), did(1.0, 2000.0));
        assert_eq!(kinds(part(None), &[longer]), [(Kind::LightVmP99, None)]);
        let hardly = both(did(1.0, 2190.0), did(1.0, 2000.0));
        assert_eq!(kinds(part(None), &[hardly]), []);
    }

    #[test]
    fn a_light_vcpu_of_a_vm_that_is_not_light_is_found() {
        let heavy = |work_s, p99_us| {
            let light = Did { work_s, wakes: 500, p99_us };
            VmDid { all: did(2.0, 50.0).all, vcpus: vec![did(1.9, 0.0).all, light] }
        };
        let part = Part { light: false, fair_work_s: None, light_vcpus: vec![false, true] };
        let run = both(heavy(0.05, 9000.0), heavy(0.1, 100.0));
        let beside = Part { light: false, fair_work_s: None, light_vcpus: vec![false] };
        let own = [vec![true, true], vec![true]];
        let judged = judge(&[part.clone(), beside.clone()], &own, std::slice::from_ref(&run));
        let found: Vec<_> = judged.short.iter().map(|it| (it.kind, it.vm, it.vcpu)).collect();
        let at = (Some(0), Some(1));
        assert_eq!(found, [(Kind::LightVcpuWork, at.0, at.1), (Kind::LightVcpuP99, at.0, at.1)]);
        assert!((judged.short[0].ratio - 0.5).abs() < 1e-9);
        assert!((judged.short[1].ratio - 9.9).abs() < 1e-9, "of 1 ms / 1.1");
        // What it does hangs on its siblings: only how long it waits is judged.
        let judged = judge(&[part, beside], &[vec![true, false], vec![true]], &[run]);
        assert_eq!(judged.short.len(), 1);
    }

    #[test]
    fn a_heavy_vm_has_its_part_or_what_the_rival_gives() {
        let run = |drover, rival| both(did(drover, 0.0), did(rival, 0.0));
        assert_eq!(kinds(part(Some(1.0)), &[run(0.97, 1.2)]), [(Kind::HeavyVmPart, None)]);
        assert_eq!(kinds(part(Some(1.0)), &[run(0.98, 1.2)]), [], "it is not owed all of that");
        let beside = Part { light: false, fair_work_s: None, light_vcpus: vec![false] };
        let judged = judge(&[part(Some(1.0)), beside], &[vec![true], vec![true]], &[run(0.7, 0.7)]);
        assert_eq!((judged.short.len(), judged.heavy_as_rival), (0, 1));
    }

    #[test]
    fn less_work_of_all_together_is_found() {
        let mut run = both(did(1.0, 0.0), did(1.0, 0.0));
        run.drover[1].all.work_s = 89.0;
        assert_eq!(kinds(part(None), &[run]), [(Kind::Total, None)]);
    }

    #[test]
    fn what_the_rival_gives_a_heavy_one_beyond_its_part_is_no_work_lost_by_all() {
        let beyond = both(did(1.0, 0.0), did(11.0, 0.0));
        assert_eq!(kinds(part(Some(1.0)), &[beyond]), []);
        let mut lost = both(did(1.0, 0.0), did(11.0, 0.0));
        lost.drover[1].all.work_s = 89.0;
        assert_eq!(kinds(part(Some(1.0)), &[lost]), [(Kind::Total, None)]);
    }

    #[test]
    fn of_several_seeds_the_median_counts() {
        let (good, bad) = (both(did(1.0, 0.0), did(1.0, 0.0)), both(did(0.5, 0.0), did(1.0, 0.0)));
        assert_eq!(kinds(part(None), &[bad.clone(), good.clone(), good.clone()]), []);
        let runs = [bad.clone(), good, bad];
        assert_eq!(kinds(part(None), &runs), [(Kind::LightVmWork, None)]);
    }

    #[test]
    fn what_is_too_little_to_tell_is_not_judged() {
        let (mut few, mut rival) = (did(1.0, 9000.0), did(1.0, 50.0));
        (few.all.wakes, rival.all.wakes) = (150, 150);
        (few.vcpus[0].wakes, rival.vcpus[0].wakes) = (150, 150);
        assert_eq!(kinds(part(None), &[both(few, rival)]), []);
        let piece = both(
            did(0.984, 0.0),
            VmDid { all: Did { wakes: 100, ..did(1.0, 0.0).all }, ..did(0.9, 0.0) },
        );
        assert_eq!(kinds(part(None), &[piece]), [], "one piece of a hundred was under way");
    }
}
