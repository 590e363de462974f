// SPDX-License-Identifier: GPL-2.0-only
//! The rings of events that the observer keeps in the kernel, one for each pCPU (bpf/events.bpf.h).

use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use drover_core::recording::{Class, Event, What};
use libbpf_rs::MapHandle;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

/// Events in the ring of a pCPU: RING_EVENTS.
pub const RING_EVENTS: usize = 1 << 18;
/// What is being written while we read is not to be read: the events that a pCPU may begin meanwhile.
const MARGIN: u64 = 64;

const WOKEN: u8 = 1;
const LEFT_READY: u8 = 2;
const KERNEL: u8 = 4;

/// As the kernel writes it: `struct event`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Raw {
    at_ns: u64,
    thread: u32,
    priority: u8,
    flags: u8,
    unused: u16,
}

/// A cache line: `struct ring`.
#[repr(C)]
#[derive(Debug)]
struct Count {
    count: AtomicU64,
    unused: [u64; 7],
}

/// The kernel's memory of an array, to be read.
#[derive(Debug)]
struct Mapped<T> {
    start: NonNull<T>,
    bytes: NonZeroUsize,
}

impl<T> Mapped<T> {
    fn new(map: &MapHandle, items: usize) -> Result<Self> {
        let bytes = NonZeroUsize::new(items * size_of::<T>()).context("an empty map")?;
        // SAFETY: a new mapping, which nothing else refers to; the kernel's array is as long.
        let start = unsafe {
            mmap(None, bytes, ProtFlags::PROT_READ, MapFlags::MAP_SHARED, map.as_fd(), 0)
        };
        Ok(Self { start: start.context("cannot map the kernel's events")?.cast(), bytes })
    }

    fn at(&self, index: usize) -> *const T {
        assert!(index < self.bytes.get() / size_of::<T>());
        // SAFETY: it is within the mapping.
        unsafe { self.start.as_ptr().add(index) }
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: it was mapped by us, and goes with the only one who knows it.
        let _ = unsafe { munmap(self.start.cast(), self.bytes.get()) };
    }
}

/// The rings of all pCPUs.
#[derive(Debug)]
pub struct Rings {
    counts: Mapped<Count>,
    events: Mapped<Raw>,
    pcpus: u32,
}

/// What was read of the rings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Read {
    /// In the order of time.
    pub events: Vec<Event>,
    /// Events that were written over before they were read.
    pub lost: u64,
    /// From when on everything is in it, on the monotonic clock; 0: from the beginning.
    pub whole_from_ns: u64,
}

/// Up to where the rings were read: by pCPU.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Position(Vec<u64>);

impl Rings {
    /// Bytes of a count and of an event.
    pub const SIZES: (u32, u32) = (size_of::<Count>() as u32, size_of::<Raw>() as u32);

    /// Those in these maps.
    ///
    /// # Errors
    /// When the kernel does not let them be read.
    pub fn new(counts: &MapHandle, events: &MapHandle, pcpus: u32) -> Result<Self> {
        let of_all = pcpus as usize;
        let (counts, events) =
            (Mapped::new(counts, of_all)?, Mapped::new(events, of_all * RING_EVENTS)?);
        Ok(Self { counts, events, pcpus })
    }

    /// Now.
    pub fn position(&self) -> Position {
        Position((0..self.pcpus).map(|pcpu| self.count(pcpu)).collect())
    }

    /// What has come since that position, which moves on.
    pub fn after(&self, position: &mut Position) -> Read {
        position.0.resize(self.pcpus as usize, 0);
        let mut read = Read::default();
        for (pcpu, seen) in (0..self.pcpus).zip(&mut position.0) {
            let count = self.count(pcpu);
            let first = self.oldest(count).max(*seen);
            read.lost += first - *seen;
            let events: Vec<Event> = (first..count).map(|index| self.event(pcpu, index)).collect();
            self.keep_whole(pcpu, first, &events, &mut read);
            *seen = count;
        }
        read.events.sort_by_key(|event| event.at_ns);
        read
    }

    /// What has come since that time, and of each pCPU the last before: it says who ran then.
    pub fn since(&self, from_ns: u64) -> Read {
        let mut read = Read::default();
        for pcpu in 0..self.pcpus {
            let count = self.count(pcpu);
            let oldest = self.oldest(count);
            let mut first = count;
            let mut events = Vec::new();
            while first > oldest {
                first -= 1;
                let event = self.event(pcpu, first);
                events.push(event);
                if event.at_ns < from_ns && event.what != What::Woken {
                    break;
                }
            }
            events.reverse();
            let reaches = oldest == 0 || events.first().is_some_and(|event| event.at_ns < from_ns);
            if !reaches {
                let whole_from_ns = events.first().map_or(from_ns, |event| event.at_ns);
                read.whole_from_ns = read.whole_from_ns.max(whole_from_ns);
            }
            self.keep_whole(pcpu, first, &events, &mut read);
        }
        read.events.sort_by_key(|event| event.at_ns);
        read
    }

    /// Keeps what was not written over while it was read.
    fn keep_whole(&self, pcpu: u32, first: u64, events: &[Event], read: &mut Read) {
        let oldest = self.oldest(self.count(pcpu));
        let torn = usize::try_from(oldest.saturating_sub(first)).unwrap_or(usize::MAX);
        let torn = torn.min(events.len());
        read.lost += torn as u64;
        let mut last_ns = 0;
        for event in &events[torn..] {
            // One that was not written in this round.
            if event.at_ns >= last_ns {
                last_ns = event.at_ns;
                read.events.push(*event);
            } else {
                read.lost += 1;
            }
        }
    }

    fn count(&self, pcpu: u32) -> u64 {
        // SAFETY: it is within the mapping, and atomic on both sides.
        unsafe { (*self.counts.at(pcpu as usize)).count.load(Ordering::Acquire) }
    }

    /// The oldest event that is there still, where there were so many.
    fn oldest(&self, count: u64) -> u64 {
        match count > RING_EVENTS as u64 - MARGIN {
            true => (count + MARGIN).saturating_sub(RING_EVENTS as u64),
            false => 0,
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "it is the place in a ring")]
    fn event(&self, pcpu: u32, index: u64) -> Event {
        let place = pcpu as usize * RING_EVENTS + (index as usize & (RING_EVENTS - 1));
        // SAFETY: it is within the mapping; any bits are a `Raw`, and one that is written meanwhile is left out.
        let raw = unsafe { self.events.at(place).read_volatile() };
        event(pcpu, raw)
    }
}

fn event(pcpu: u32, raw: Raw) -> Event {
    let class = match raw.priority {
        0..100 | 255 if raw.thread != 0 => Class::RealTime,
        _ if raw.flags & KERNEL != 0 => Class::Kernel,
        _ => Class::Normal,
    };
    let what = match raw.flags & WOKEN != 0 {
        true => What::Woken,
        false => What::Ran { left_ready: raw.flags & LEFT_READY != 0, class },
    };
    Event { at_ns: raw.at_ns, pcpu, thread: raw.thread, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_read_as_the_kernel_writes_it() {
        assert_eq!(Rings::SIZES, (64, 16));
        let raw = |priority, flags, thread| Raw { at_ns: 5, thread, priority, flags, unused: 0 };
        let ran = |raw| match event(3, raw).what {
            What::Ran { left_ready, class } => (left_ready, class),
            What::Woken => panic!("it ran"),
        };
        assert_eq!(ran(raw(120, LEFT_READY, 7)), (true, Class::Normal));
        assert_eq!(ran(raw(120, KERNEL, 7)), (false, Class::Kernel));
        assert_eq!(ran(raw(49, KERNEL, 7)), (false, Class::RealTime));
        assert_eq!(ran(raw(255, 0, 7)), (false, Class::RealTime), "a deadline");
        assert_eq!(ran(raw(0, KERNEL, 0)).1, Class::Kernel, "idle");
        assert_eq!(event(3, raw(120, WOKEN, 7)).what, What::Woken);
    }
}
