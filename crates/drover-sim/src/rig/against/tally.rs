// SPDX-License-Identifier: GPL-2.0-only
//! What many trials showed.

use super::runs::{Found, LookedAt};
use super::verdict::Kind;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The sum of trials.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tally {
    /// Trials done.
    pub trials: u64,
    /// Who was looked at.
    pub looked_at: LookedAt,
    /// VMs that fall short in something, and trials with such, or whose total does.
    pub short_vms: u64,
    /// Trials with anything short.
    pub short_trials: u64,
    /// Heavy VMs with less than their part, but as much as under the rival.
    pub heavy_as_rival: u64,
    /// By kind.
    pub kinds: BTreeMap<Kind, Row>,
    /// Trials that failed as such: the seed, and why.
    pub failed: Vec<(u64, String)>,
    /// Events simulated.
    pub events: u64,
}

/// What falls short in one way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// How often.
    pub count: u64,
    /// In how many trials.
    pub trials: u64,
    /// The worst of these.
    pub worst: f64,
    /// Its seed.
    pub seed: u64,
}

impl Tally {
    /// Counts a trial.
    pub fn count(&mut self, seed: u64, found: &Result<Vec<Found>, String>) {
        self.trials += 1;
        match found {
            Ok(cases) => cases.iter().for_each(|case| self.count_case(seed, case)),
            Err(why) => self.failed.push((seed, why.clone())),
        }
    }

    fn count_case(&mut self, seed: u64, found: &Found) {
        let (sum, more) = (&mut self.looked_at, found.looked_at);
        sum.vms += more.vms;
        sum.light += more.light;
        sum.heavy += more.heavy;
        sum.vcpus += more.vcpus;
        sum.light_vcpus += more.light_vcpus;
        self.events += found.events;
        self.heavy_as_rival += found.judged.heavy_as_rival as u64;
        let short = &found.judged.short;
        self.short_trials += u64::from(!short.is_empty());
        self.short_vms += short.iter().filter_map(|it| it.vm).collect::<BTreeSet<_>>().len() as u64;
        for kind in Kind::ALL {
            let of_kind: Vec<f64> =
                short.iter().filter(|it| it.kind == kind).map(|it| it.ratio).collect();
            let worse = |a: f64, b: f64| if kind.is_worse(b, a) { b } else { a };
            let Some(worst) = of_kind.iter().copied().reduce(worse) else { continue };
            let row = self.kinds.entry(kind).or_insert(Row { count: 0, trials: 0, worst, seed });
            row.count += of_kind.len() as u64;
            row.trials += 1;
            // Of those that are as bad the first seed, in whatever order they end.
            if kind.is_worse(worst, row.worst) || worst == row.worst && seed < row.seed {
                (row.worst, row.seed) = (worst, seed);
            }
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LookedAt { vms, light, heavy, vcpus, light_vcpus } = self.looked_at;
        writeln!(f, "{} trials, {} of them with somebody short", self.trials, self.short_trials)?;
        writeln!(
            f,
            "{vms} VMs ({light} light, {heavy} heavy), {} fall short; {vcpus} vCPUs ({light_vcpus} light)",
            self.short_vms
        )?;
        writeln!(
            f,
            "{:<20} {:>6} {:>7} {:>7} {:>9}  asked",
            "short in", "count", "trials", "worst", "seed"
        )?;
        for kind in Kind::ALL {
            let (count, trials, worst, seed) = match self.kinds.get(&kind) {
                Some(row) => {
                    (row.count, row.trials, format!("{:.3}", row.worst), row.seed.to_string())
                }
                None => (0, 0, "-".to_owned(), "-".to_owned()),
            };
            let (name, asked) = (kind.name(), kind.asked());
            writeln!(f, "{name:<20} {count:>6} {trials:>7} {worst:>7} {seed:>9}  {asked}")?;
        }
        let as_rival = self.heavy_as_rival;
        write!(
            f,
            "{as_rival} heavy VMs have less than their part, but as much as under the rival"
        )?;
        for (seed, why) in &self.failed {
            write!(f, "\nseed {seed} failed: {why}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::verdict::{Judged, Short};
    use super::*;

    fn found(shorts: &[(Kind, usize, f64)]) -> Result<Vec<Found>, String> {
        let short = |&(kind, vm, ratio): &(Kind, usize, f64)| Short {
            kind,
            vm: Some(vm),
            vcpu: None,
            ratio,
            has: ratio,
            of: 1.0,
        };
        let short = shorts.iter().map(short).collect();
        let looked_at = LookedAt { vms: 5, ..LookedAt::default() };
        let judged = Judged { short, heavy_as_rival: 0 };
        Ok(vec![Found { looked_at, judged, ..Found::default() }])
    }

    #[test]
    fn the_worst_of_each_kind_is_kept_with_its_seed_in_any_order() {
        let seven = found(&[(Kind::LightVmWork, 0, 0.9), (Kind::LightVmP99, 0, 3.0)]);
        let eight = found(&[(Kind::LightVmWork, 1, 0.8), (Kind::LightVmWork, 2, 0.95)]);
        let nine = found(&[(Kind::LightVmP99, 4, 2.0)]);
        let trials = [(7, &seven), (8, &eight), (9, &nine)];
        let mut tally = Tally::default();
        trials.iter().for_each(|(seed, found)| tally.count(*seed, found));
        let mut backwards = Tally::default();
        trials.iter().rev().for_each(|(seed, found)| backwards.count(*seed, found));
        assert_eq!(tally, backwards);
        assert_eq!((tally.trials, tally.looked_at.vms, tally.short_vms), (3, 15, 4));
        let row = |kind| tally.kinds[&kind];
        assert_eq!(row(Kind::LightVmWork), Row { count: 3, trials: 2, worst: 0.8, seed: 8 });
        assert_eq!(row(Kind::LightVmP99), Row { count: 2, trials: 2, worst: 3.0, seed: 7 });
        assert!(tally.to_string().contains("3 trials, 3 of them"), "{tally}");
    }
}
