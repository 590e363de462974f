// SPDX-License-Identifier: GPL-2.0-only
//! Figures of the past: for each VM how long it was ready, what it was owed and what it got, second by second for an hour and
//! minute by minute for a day.
//!
//! Both daemons keep it, in memory alone and bounded: [`BYTES_A_VM`] for each VM at most. A VM that has gone is kept until its
//! last figures are a day old, or [`GONE_MAX`] others have gone since.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant, SystemTime};

use crate::status::{History, Peak, VmHistory};

/// So many seconds are kept one by one.
pub const SECONDS: u32 = 3600;
/// So many minutes are.
pub const MINUTES: u32 = 1440;
/// What is kept of a VM takes so many bytes at most, beside its name.
pub const BYTES_A_VM: usize = (SECONDS + MINUTES) as usize * size_of::<Point>();
/// VMs that have gone are kept up to so many.
pub const GONE_MAX: usize = 256;
/// An answer has so many points at most, all VMs together: steps are as long as that takes.
const POINTS_MAX: u32 = 400_000;
const MINUTE: u32 = 60;

/// A figure, thousandths of a pCPU: exact up to 32.767 pCPUs, in hundredths up to 327.66.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Packed(u16);

impl Packed {
    const UNKNOWN: Self = Self(u16::MAX);
    const COARSE: u16 = 1 << 15;

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    fn of(pcpus: Option<f64>) -> Self {
        let Some(pcpus) = pcpus.filter(|pcpus| pcpus.is_finite()) else { return Self::UNKNOWN };
        let mcpu = (pcpus * 1000.0).round().clamp(0.0, 327_660.0) as u32;
        match mcpu {
            0..0x8000 => Self(mcpu as u16),
            _ => Self(Self::COARSE | (mcpu / 10) as u16),
        }
    }

    fn mcpu(self) -> Option<u32> {
        match self {
            Self::UNKNOWN => None,
            Self(coarse) if coarse & Self::COARSE != 0 => {
                Some(u32::from(coarse & !Self::COARSE) * 10)
            }
            Self(fine) => Some(fine.into()),
        }
    }
}

/// Ready, owed and got.
type Point = [Packed; 3];

/// What is known of a VM since the last time.
#[derive(Debug, Clone, PartialEq)]
pub struct Now {
    /// Its name.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// Whose it is.
    pub user: u32,
    /// How long its threads were ready and did not run, summed, pCPUs.
    pub ready_pcpus: f64,
    /// What it was owed, pCPUs; none: not known.
    pub owed_pcpus: Option<f64>,
    /// What it got, pCPUs.
    pub got_pcpus: f64,
}

/// A VM's points, without a gap up to `last`.
#[derive(Debug, Default)]
struct Series {
    user: u32,
    /// The second of the last point.
    last: u32,
    seconds: VecDeque<Point>,
    /// Whole minutes, the last of them before or at that of `last`.
    minutes: VecDeque<Point>,
}

/// What is kept of all VMs.
#[derive(Debug, Default)]
pub struct Kept {
    /// Seconds count from here.
    begun: Option<Instant>,
    /// The second up to which everything is known.
    last: u32,
    series: HashMap<(String, u32), Series>,
}

impl Kept {
    /// Takes what is known of all VMs that are here. It stands for all the time since the last time.
    pub fn add(&mut self, vms: impl IntoIterator<Item = Now>, now: Instant) {
        let second = self.second(now);
        if second <= self.last {
            return;
        }
        for vm in vms {
            let point = [Some(vm.ready_pcpus), vm.owed_pcpus, Some(vm.got_pcpus)].map(Packed::of);
            let series = self.series.entry((vm.name, vm.pid)).or_default();
            series.user = vm.user;
            series.fill(point, self.last, second);
        }
        self.last = second;
        self.forget();
    }

    /// Whether a second has passed since the last time.
    pub fn is_due(&mut self, now: Instant) -> bool {
        self.second(now) > self.last
    }

    fn second(&mut self, now: Instant) -> u32 {
        let begun = *self.begun.get_or_insert(now);
        u32::try_from(now.saturating_duration_since(begun).as_secs()).unwrap_or(u32::MAX)
    }

    /// Forgets VMs of a day ago, and those beyond the most that may be kept.
    fn forget(&mut self) {
        let last = self.last;
        self.series.retain(|_, series| last - series.last < MINUTES * MINUTE);
        let mut gone: Vec<u32> =
            self.series.values().map(|it| it.last).filter(|second| *second < last).collect();
        if gone.len() > GONE_MAX {
            gone.sort_unstable();
            let oldest = gone[gone.len() - GONE_MAX];
            self.series.retain(|_, series| series.last >= oldest);
        }
    }

    /// The last so many seconds, in steps of `step_s` or as much longer as it takes.
    pub fn tell(&self, seconds: u32, step_s: u32, now: Instant) -> History {
        let seconds = seconds.clamp(1, MINUTES * MINUTE);
        let unit = if seconds > SECONDS { MINUTE } else { 1 };
        let vms = u32::try_from(self.series.len()).unwrap_or(u32::MAX);
        let least = u64::from(seconds) * u64::from(vms);
        let least = u32::try_from(least.div_ceil(POINTS_MAX.into())).unwrap_or(u32::MAX);
        let step_s = step_s.clamp(1, seconds).max(least).div_ceil(unit).saturating_mul(unit);
        // The step of the present is left to the next question, which then has all of it.
        let end = (self.last + 1) / step_s;
        let first = ((self.last + 1).saturating_sub(seconds) / step_s).min(end);
        let steps = Steps { first, end, step_s, unit, last: self.last };
        let mut vms: Vec<VmHistory> =
            self.series.iter().filter_map(|(whose, series)| steps.of(whose, series)).collect();
        vms.sort_unstable_by(|a, b| (&a.name, a.pid).cmp(&(&b.name, b.pid)));
        let begun = self.begun.map_or(Duration::ZERO, |begun| now.duration_since(begun));
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        History {
            begun_unix_s: unix.saturating_sub(begun).as_secs_f64().round(),
            kept_s: u32::try_from(begun.as_secs()).unwrap_or(u32::MAX).min(MINUTES * MINUTE),
            step_s,
            first_step: first,
            steps: end - first,
            vms,
        }
    }
}

impl Series {
    /// Has that point for each second after `from` up to `to`.
    fn fill(&mut self, point: Point, from: u32, to: u32) {
        // A daemon that was stopped for an hour begins anew.
        if self.seconds.is_empty() || to - self.last > SECONDS {
            (self.seconds, self.minutes) = Default::default();
            self.last = to - 1;
        }
        for second in self.last + 1..=to {
            // Of one that was not here for a while nothing is known of that.
            let is_known = second > from || second == to;
            self.push(second, if is_known { point } else { [Packed::UNKNOWN; 3] });
        }
        self.last = to;
    }

    fn push(&mut self, second: u32, point: Point) {
        keep(&mut self.seconds, point, SECONDS as usize);
        if (second + 1) % MINUTE == 0 {
            let minute = mean(self.seconds.iter().rev().take(MINUTE as usize));
            keep(&mut self.minutes, minute, MINUTES as usize);
        }
    }
}

fn keep(points: &mut VecDeque<Point>, point: Point, most: usize) {
    let len = points.len();
    if len == most {
        points.pop_front();
    } else if len == points.capacity() {
        // Never more than is needed in the end.
        points.reserve_exact(len.max(60).min(most - len));
    }
    points.push_back(point);
}

fn mean<'a>(points: impl Iterator<Item = &'a Point>) -> Point {
    let (mut sums, mut counts) = ([0_u64; 3], [0_u32; 3]);
    for point in points {
        for figure in 0..3 {
            if let Some(mcpu) = point[figure].mcpu() {
                sums[figure] += u64::from(mcpu);
                counts[figure] += 1;
            }
        }
    }
    #[allow(clippy::cast_precision_loss, reason = "a day of pCPUs fits")]
    let one = |figure: usize| {
        let count = Some(counts[figure]).filter(|count| *count > 0)?;
        Some(sums[figure] as f64 / 1000.0 / f64::from(count))
    };
    [0, 1, 2].map(|figure| Packed::of(one(figure)))
}

/// The steps that are asked for.
struct Steps {
    first: u32,
    end: u32,
    step_s: u32,
    /// Of seconds, or of minutes.
    unit: u32,
    last: u32,
}

impl Steps {
    /// A VM in them; none: it was not here.
    fn of(&self, (name, pid): &(String, u32), series: &Series) -> Option<VmHistory> {
        let (points, newest) = match self.unit {
            1 => (&series.seconds, series.last + 1),
            _ => (&series.minutes, (series.last + 1) / MINUTE),
        };
        let oldest = newest - u32::try_from(points.len()).ok()?;
        let a_step = self.step_s / self.unit;
        let first = self.first.max(oldest / a_step);
        let end = self.end.min(newest.div_ceil(a_step));
        if first >= end {
            return None;
        }
        let within = |from: u32, to: u32| {
            let [from, to] = [from, to].map(|at| at.clamp(oldest, newest) - oldest);
            points.range(from as usize..to as usize)
        };
        let peak = (first * a_step..end * a_step).filter(|at| (oldest..newest).contains(at));
        let ready = |at: u32| points[(at - oldest) as usize][0].mcpu();
        let peak = peak.filter_map(|at| Some((ready(at)?, at))).max_by_key(|(mcpu, _)| *mcpu);
        let mut told = VmHistory {
            name: name.clone(),
            pid: *pid,
            user: series.user,
            is_here: series.last == self.last,
            first_step: first,
            ready_mcpu: Vec::new(),
            owed_mcpu: Vec::new(),
            got_mcpu: Vec::new(),
            peak: peak.map(|(ready_mcpu, at)| Peak { ready_mcpu, at_s: at * self.unit }),
        };
        for step in first..end {
            let [ready, owed, got] = mean(within(step * a_step, (step + 1) * a_step));
            told.ready_mcpu.push(ready.mcpu());
            told.owed_mcpu.push(owed.mcpu());
            told.got_mcpu.push(got.mcpu());
        }
        Some(told)
    }
}

#[cfg(test)]
mod tests;
