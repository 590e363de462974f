// SPDX-License-Identifier: GPL-2.0-only
//! Where the time of each VM of a timeline went, and how long its waits were.

use serde::Serialize;

use super::timeline::Timeline;

/// Bars of a VM across a timeline.
const BARS: usize = 240;
/// Waits by powers of two, from 1 us to more than a minute.
const BUCKETS: usize = 27;

/// Of each VM.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// Bar by bar the part of its vCPUs' time in which they ran, and in which they were ready, 0 to 1.
    pub bars: Vec<Vec<[f32; 2]>>,
    /// How many waits were less than 1, 2, 4 ... us long.
    pub waits: Vec<Vec<u32>>,
    /// The sums.
    pub sums: Vec<Sum>,
}

/// Where the time of a VM's vCPUs went.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Sum {
    /// Its vCPUs that were seen.
    pub vcpus: u32,
    /// They ran, in % of the time of one pCPU.
    pub run_pct: f64,
    /// They were ready, in the same.
    pub ready_pct: f64,
    /// The longest single wait, ms.
    pub longest_ms: f64,
}

impl Figures {
    /// Of that timeline.
    pub fn of(timeline: &Timeline) -> Self {
        let vms = timeline.vms.len();
        let mut bars = vec![vec![[0.0; 2]; BARS]; vms];
        let mut waits = vec![vec![0; BUCKETS]; vms];
        let mut sums = vec![Sum::default(); vms];
        for person in timeline.people.iter().filter(|person| person.vcpu.is_some()) {
            sums[person.vm.expect("a vCPU is of a VM")].vcpus += 1;
        }
        let pct = |ns: u64| 100.0 * ns as f64 / timeline.length_ns.max(1) as f64;
        let vm_of = |who: usize| {
            let person = &timeline.people[who];
            person.vm.filter(|_| person.vcpu.is_some())
        };
        for span in &timeline.spans {
            let Some(vm) = vm_of(span.who) else { continue };
            sums[vm].run_pct += pct(span.to_ns - span.from_ns);
            add(&mut bars[vm], 0, (span.from_ns, span.to_ns), timeline.length_ns);
        }
        for wait in &timeline.waits {
            let (Some(vm), ns) = (vm_of(wait.who), wait.to_ns - wait.from_ns) else { continue };
            let sum = &mut sums[vm];
            sum.ready_pct += pct(ns);
            sum.longest_ms = sum.longest_ms.max(ns as f64 / 1e6);
            add(&mut bars[vm], 1, (wait.from_ns, wait.to_ns), timeline.length_ns);
            let bucket = (u64::BITS - (ns / 1000).leading_zeros()) as usize;
            waits[vm][bucket.min(BUCKETS - 1)] += 1;
        }
        for (bars, sum) in bars.iter_mut().zip(&sums) {
            let vcpus = sum.vcpus.max(1) as f32;
            bars.iter_mut().flatten().for_each(|part| *part = (*part / vcpus).min(1.0));
        }
        Self { bars, waits, sums }
    }
}

/// Adds that time to the bars it is in.
fn add(bars: &mut [[f32; 2]], state: usize, (from_ns, to_ns): (u64, u64), length_ns: u64) {
    let bar_ns = length_ns.div_ceil(BARS as u64).max(1);
    for bar in from_ns / bar_ns..=to_ns.saturating_sub(1) / bar_ns {
        let Some(place) = bars.get_mut(bar as usize) else { return };
        let ns = to_ns.min((bar + 1) * bar_ns).saturating_sub(from_ns.max(bar * bar_ns));
        place[state] += ns as f32 / bar_ns as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::super::timeline::{Person, Stretch, Waited};
    use super::*;

    fn timeline(waits: Vec<Waited>) -> Timeline {
        let person = |vm, vcpu| Person { name: String::new(), vm, vcpu };
        Timeline {
            pcpus: 1,
            length_ns: 240_000_000,
            vms: vec!["web".to_owned()],
            people: vec![person(None, None), person(Some(0), None), person(Some(0), Some(0))],
            spans: vec![
                Stretch { pcpu: 0, from_ns: 0, to_ns: 60_000_000, who: 2 },
                Stretch { pcpu: 0, from_ns: 60_000_000, to_ns: 70_000_000, who: 1 },
            ],
            waits,
            ..Timeline::default()
        }
    }

    #[test]
    fn time_of_vcpus_is_summed_and_put_into_bars() {
        let wait = Waited { who: 2, from_ns: 60_500_000, to_ns: 63_000_000 };
        let Figures { bars, waits, sums } = Figures::of(&timeline(vec![wait]));
        assert_eq!((sums[0].vcpus, sums[0].run_pct), (1, 25.0));
        let ready_pct = sums[0].ready_pct;
        assert!((ready_pct - 2.5 / 2.4).abs() < 1e-9, "{ready_pct}");
        assert_eq!(sums[0].longest_ms, 2.5);
        assert_eq!((bars[0][59], bars[0][60], bars[0][61]), ([1.0, 0.0], [0.0, 0.5], [0.0, 1.0]));
        assert_eq!(waits[0][12], 1, "from 2048 to 4096 us");
    }
}
