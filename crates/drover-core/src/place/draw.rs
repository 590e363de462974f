// SPDX-License-Identifier: GPL-2.0-only
//! Who is drawn to one LLC because its threads wake each other, or because another VM wakes it.
//!
//! Idea. Threads that wake each other often hand over data, and get it soonest from a cache that both share. The
//! kernel counts who wakes each VM mostly, and how often the two shared an LLC then (policy/account/waker.h). A VM
//! that is woken [`OFTEN`] times or more for each second of CPU time, and mostly by its own vCPUs, is tried in one
//! LLC; one that another VM wakes is tried in that VM's. After a trial of [`WINDOW`] it stays only if at most half as
//! many wake-ups went from one LLC to another as before, and it did not wait longer; else it is not tried again for
//! [`RESTS`]. Who is together and no longer woken so often goes back.
//!
//! Worked example. A database of 2 vCPUs on a node of two LLCs of four pCPUs: its vCPUs wake each other 20,000
//! times a second, half of that within an LLC. It uses 2 pCPUs: 10,000 for each, often enough. It is given a home of
//! one LLC; 10 s later 99 % of its wake-ups are served within it and it waits no longer: it stays. Had the LLC been
//! crowded and its vCPUs waited 5 us longer after each wake-up, it had been taken back.
//!
//! Limitations. What a smaller part of the node's caches costs a VM is not measured, so who needs the cache of
//! several LLCs and wakes itself often has to be told `consolidate = "off"`.
//!
//! After seed 000, 3.3.2.2 (transparent detection of VMs that communicate).

use std::time::Duration;

/// So often a VM is woken for each second of its CPU time.
const OFTEN: f64 = 1000.0;
/// The kernel looks at one wake-up in so many.
const SAMPLED: f64 = 8.0;
/// So many votes of 256 the waker has at least (policy/account/waker.h).
const VOTES: u32 = 128;
/// What is compared is counted for so long.
const WINDOW: Duration = Duration::from_secs(10);
/// Who could not be brought together within so long is not waited for.
const GIVES_UP: Duration = Duration::from_secs(30);
/// One that did not pay is not tried again for so long.
const RESTS: Duration = Duration::from_secs(600);
/// Of all wake-ups, %, so many at least go from one LLC to another before it is tried,
const FAR_PCT: f64 = 20.0;
/// that part of these at most when it was,
const STILL_FAR: f64 = 0.5;
/// and after each wake-up it waits no longer for a pCPU than so many us more.
const WAITS_US: f64 = 2.5;

/// Who wakes a VM, as the kernel counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Woken {
    /// The VM that mostly does; it may be the same.
    pub by: u64,
    /// How sure that is, of 256.
    pub votes: u32,
    /// Wake-ups by VMs that were looked at, since its birth.
    pub wakes: u32,
    /// Of these, within an LLC.
    pub near: u32,
    /// How long its threads waited for a pCPU since its birth, ms.
    pub waited_ms: u64,
}

/// What was counted in a window.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Rates {
    /// Wake-ups a second.
    wakes: f64,
    /// Of these, from one LLC to another, %.
    far_pct: f64,
    /// How long its threads wait for a pCPU for each wake-up, us.
    waits_us: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
enum State {
    #[default]
    Apart,
    /// It did not pay, or could not be had.
    Rests(Duration),
    /// Together from now on, as soon as homes allow; it was like this before.
    Begins(Duration, Rates),
    Tried(Rates),
    Together,
}

/// What is known of one VM.
#[derive(Debug, Default)]
pub(super) struct Draw {
    state: State,
    /// The VM whose LLC it shares, or is to share.
    with: u64,
    window: Option<(Duration, Woken)>,
}

impl Draw {
    /// The VM whose LLC it is to share, itself perhaps.
    pub(super) fn with(&self) -> Option<u64> {
        matches!(self.state, State::Begins(..) | State::Tried(_) | State::Together)
            .then_some(self.with)
    }

    /// Nobody is to draw it any more.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    /// Takes note of what was counted. `is_together`: it shares an LLC with that VM now; `fits`: it could;
    /// `used_pcpus`: its CPU time lately.
    pub(super) fn look(
        &mut self,
        now: Duration,
        woken: Woken,
        used_pcpus: f64,
        fits: impl Fn(u64) -> bool,
        is_together: impl Fn(u64) -> bool,
    ) {
        if let State::Begins(since, before) = self.state {
            if is_together(self.with) {
                (self.state, self.window) = (State::Tried(before), Some((now, woken)));
            } else if now - since >= GIVES_UP {
                self.state = State::Rests(now);
            }
            return;
        }
        let Some((from, before)) = self.window else {
            self.window = Some((now, woken));
            return;
        };
        if now - from < WINDOW {
            return;
        }
        self.window = Some((now, woken));
        let rates = Rates::between(&before, &woken, now - from);
        let is_often = rates.wakes >= OFTEN * used_pcpus.max(0.1) && woken.votes >= VOTES;
        self.state = match self.state {
            State::Apart if is_often && fits(woken.by) && rates.far_pct >= FAR_PCT => {
                self.with = woken.by;
                State::Begins(now, rates)
            }
            State::Tried(was) if rates.pays_beside(&was) => State::Together,
            State::Tried(_) => State::Rests(now),
            State::Together if woken.by != self.with || rates.wakes < OFTEN / 4.0 * used_pcpus => {
                State::Apart
            }
            State::Rests(since) if now - since >= RESTS => State::Apart,
            same => same,
        };
    }
}

impl Rates {
    fn between(before: &Woken, after: &Woken, passed: Duration) -> Self {
        let seconds = passed.as_secs_f64();
        let wakes = f64::from(after.wakes.wrapping_sub(before.wakes));
        let near = f64::from(after.near.wrapping_sub(before.near));
        let waited_ms = after.waited_ms.saturating_sub(before.waited_ms);
        Self {
            wakes: SAMPLED * wakes / seconds,
            far_pct: if wakes > 0.0 { 100.0 * (1.0 - near / wakes) } else { 0.0 },
            waits_us: waited_ms as f64 * 1e3 / (SAMPLED * wakes).max(1.0),
        }
    }

    fn pays_beside(&self, was: &Self) -> bool {
        self.far_pct <= STILL_FAR * was.far_pct && self.waits_us <= was.waits_us + WAITS_US
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A VM that its own vCPUs wake 20,000 times a second, and what comes of being in one LLC.
    struct Vm {
        draw: Draw,
        now: Duration,
        woken: Woken,
        near_pct: [u32; 2],
        waits_ms: [u64; 2],
        wakes_per_s: u32,
    }

    impl Vm {
        fn new(near_pct: [u32; 2], waits_ms: [u64; 2]) -> Self {
            let woken = Woken { by: 7, votes: 200, ..Woken::default() };
            let (draw, now) = (Draw::default(), Duration::ZERO);
            Self { draw, now, woken, near_pct, waits_ms, wakes_per_s: 20_000 }
        }

        fn lives(&mut self, seconds: u32) {
            for _ in 0..2 * seconds {
                self.now += Duration::from_millis(500);
                let is = usize::from(self.draw.with().is_some());
                let wakes = self.wakes_per_s / 16;
                self.woken.wakes = self.woken.wakes.wrapping_add(wakes);
                self.woken.near = self.woken.near.wrapping_add(wakes * self.near_pct[is] / 100);
                self.woken.waited_ms += self.waits_ms[is] / 2;
                self.draw.look(self.now, self.woken, 2.0, |_| true, |_| true);
            }
        }
    }

    #[test]
    fn who_gains_by_it_stays_together_as_in_the_example() {
        let mut vm = Vm::new([50, 99], [0, 0]);
        vm.woken.wakes = u32::MAX - 5;
        vm.lives(9);
        assert_eq!(vm.draw.with(), None, "it is watched first");
        vm.lives(2);
        assert_eq!(vm.draw.with(), Some(7));
        vm.lives(300);
        assert_eq!(vm.draw.with(), Some(7));
        vm.wakes_per_s = 400;
        vm.lives(20);
        assert_eq!(vm.draw.with(), None, "it is woken seldom now");
    }

    #[test]
    fn what_does_not_pay_is_taken_back_within_ten_seconds_and_rests() {
        for (near_pct, waits_ms) in [([50, 60], [0, 0]), ([50, 99], [0, 200])] {
            let mut vm = Vm::new(near_pct, waits_ms);
            vm.lives(11);
            assert_eq!(vm.draw.with(), Some(7));
            vm.lives(11);
            assert_eq!(vm.draw.with(), None, "{near_pct:?} {waits_ms:?}");
            vm.lives(500);
            assert_eq!(vm.draw.with(), None);
            vm.lives(115);
            assert_eq!(vm.draw.with(), Some(7), "it is tried again");
        }
    }

    #[test]
    fn who_is_woken_seldom_or_by_many_or_near_already_is_left_alone() {
        let mut seldom = Vm::new([50, 99], [0, 0]);
        seldom.wakes_per_s = 1000;
        let mut by_many = Vm::new([50, 99], [0, 0]);
        by_many.woken.votes = 100;
        let near = Vm::new([90, 99], [0, 0]);
        for mut vm in [seldom, by_many, near] {
            vm.lives(60);
            assert_eq!(vm.draw.with(), None);
        }
    }

    #[test]
    fn who_cannot_be_brought_together_is_given_up() {
        let mut draw = Draw::default();
        let look = |draw: &mut Draw, second: u32, fits: bool| {
            let woken = Woken { by: 7, votes: 200, wakes: 2500 * second, near: 0, waited_ms: 0 };
            draw.look(Duration::from_secs(second.into()), woken, 1.0, |_| fits, |_| false);
        };
        (0..60).for_each(|second| look(&mut draw, second, false));
        assert_eq!(draw.with(), None, "it does not fit");
        (60..72).for_each(|second| look(&mut draw, second, true));
        assert_eq!(draw.with(), Some(7));
        (72..110).for_each(|second| look(&mut draw, second, true));
        assert_eq!(draw.with(), None);
    }
}
