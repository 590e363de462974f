// SPDX-License-Identifier: GPL-2.0-only
//! A channel that cache lines go through one after the other: a node's memory, or a link between two nodes.
//!
//! A line takes 64 bytes / bandwidth. Who finds the channel busy waits: with a part `r` of its time busy,
//! `service / 2 * r / (1 - r)` on average (a queue of type M/D/1). Who waits longer asks less often, so `r`
//! follows from what all would ask if nobody waited:
//!
//! `r * (1 - w + w * (1 + q * r / (1 - r))) = asked / bandwidth`
//!
//! with `w` the part of their time that those who ask spend waiting for memory, and `q` half the service
//! time over the latency of memory. That has one solution below 1, however much is asked: a channel saturates.
//! Worked example: 10,000 MB/s, memory of 100 ns, all waiting half of their time. Asked 5,000 MB/s, the channel
//! is half busy and adds 3 ns. Asked 20,000 MB/s, it is 0.97 busy, adds 108 ns, and gives nearly all it has.

use drover_scenario::Pace;

/// How long one waits is told apart in steps of this part of the latency of memory: others are concerned only
/// now and then, and all stays a function of who runs now.
const STEPS: f64 = 64.0;

/// What a thread asks of a channel, if nobody is in its way. In whole numbers: what is added and taken away
/// again leaves nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Load {
    asks_kb_s: u64,
    /// That, times the part of its time that the thread waits for memory.
    waits_kb_s: u64,
}

impl Load {
    /// Of a thread that asks so much, and waits for memory that part of its time.
    pub(super) fn new(asks_mb_s: f64, waits: f64) -> Self {
        let asks_kb_s = asks_mb_s * 1e3;
        Self { asks_kb_s: asks_kb_s as u64, waits_kb_s: (asks_kb_s * waits) as u64 }
    }

    /// One of so many equal parts of it.
    pub(super) fn part(self, of: usize) -> Self {
        if of == 1 {
            return self;
        }
        let of = of as u64;
        Self { asks_kb_s: self.asks_kb_s / of, waits_kb_s: self.waits_kb_s / of }
    }
}

/// A channel, and what it is asked.
#[derive(Debug, Clone)]
pub(super) struct Channel {
    mb_s: f64,
    /// Latency of memory, which all who ask wait for besides.
    memory_ns: f64,
    load: Load,
    /// What was asked when the wait was last worked out.
    counted: Load,
    wait_ns: f64,
}

impl Channel {
    /// One that nobody uses.
    pub(super) fn new(mb_s: u32, memory_ns: u32) -> Self {
        let (load, counted) = (Load::default(), Load::default());
        Self { mb_s: mb_s.into(), memory_ns: memory_ns.into(), load, counted, wait_ns: 0.0 }
    }

    pub(super) fn add(&mut self, load: Load) {
        self.load.asks_kb_s += load.asks_kb_s;
        self.load.waits_kb_s += load.waits_kb_s;
    }

    pub(super) fn remove(&mut self, load: Load) {
        self.load.asks_kb_s -= load.asks_kb_s;
        self.load.waits_kb_s -= load.waits_kb_s;
    }

    /// How long one waits for it, as of the last [`Channel::recount`], ns.
    pub(super) fn wait_ns(&self) -> f64 {
        self.wait_ns
    }

    /// What it is asked may have changed. Does one wait for another time now?
    pub(super) fn recount(&mut self) -> bool {
        if self.counted == self.load {
            return false;
        }
        self.counted = self.load;
        let wait_ns = self.wait_with_ns(self.load);
        std::mem::replace(&mut self.wait_ns, wait_ns) != wait_ns
    }

    /// How long one waits for it where it is asked so much, ns.
    pub(super) fn wait_with_ns(&self, load: Load) -> f64 {
        if load.asks_kb_s == 0 {
            return 0.0;
        }
        let asked = load.asks_kb_s as f64 / 1e3 / self.mb_s;
        let waits = load.waits_kb_s as f64 / load.asks_kb_s as f64;
        let service_ns = f64::from(Pace::LINE_BYTES) * 1e3 / self.mb_s;
        let queue = service_ns / 2.0 / self.memory_ns;
        // (1 - wq) r^2 - (1 + a) r + a = 0
        let square = 1.0 - waits * queue;
        let linear = 1.0 + asked;
        let busy = (linear - (linear * linear - 4.0 * square * asked).sqrt()) / (2.0 * square);
        (queue * busy / (1.0 - busy) * STEPS).round() / STEPS * self.memory_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_gives_no_more_than_it_has_and_nearly_that() {
        let channel = Channel::new(10_000, 100);
        let wait_ns = |asked_mb_s| channel.wait_with_ns(Load::new(asked_mb_s, 0.5));
        assert_eq!(wait_ns(100.0), 0.0);
        assert!((2.0..5.0).contains(&wait_ns(5_000.0)), "{}", wait_ns(5_000.0));
        let mut before = 0.0;
        for asked_mb_s in (0..200).map(|step| f64::from(step) * 1_000.0) {
            let wait_ns = wait_ns(asked_mb_s);
            assert!(wait_ns >= before, "{asked_mb_s}");
            before = wait_ns;
            let given_mb_s = asked_mb_s / (0.5 + 0.5 * (1.0 + wait_ns / 100.0));
            // But for the steps it is told apart in.
            assert!(given_mb_s <= 10_000.0 * 1.01, "{asked_mb_s}: {given_mb_s}");
            assert!(asked_mb_s < 20_000.0 || given_mb_s > 9_500.0, "{asked_mb_s}: {given_mb_s}");
        }
    }

    #[test]
    fn what_goes_leaves_nothing() {
        let mut channel = Channel::new(10_000, 100);
        let load = Load::new(14_321.7, 0.37);
        channel.add(load);
        assert!(channel.recount() && channel.wait_ns() > 40.0);
        channel.add(load.part(3));
        channel.remove(load);
        channel.remove(load.part(3));
        assert!(channel.recount() && !channel.recount());
        assert_eq!((channel.load, channel.wait_ns()), (Load::default(), 0.0));
    }
}
