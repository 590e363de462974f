// SPDX-License-Identifier: GPL-2.0-only
//! Models of other schedulers, to compare Drover with in the simulator.
//!
//! To add one: a module here whose type answers [`Class`](drover_sim::class::Class), as the
//! simulated kernel calls it, and [`Rival`](drover_sim::scenario::rival::Rival), by which scenarios
//! find it; a line in [`RIVALS`].

pub mod cfs36;
pub mod credit;
pub mod eevdf;
pub mod esx35;
pub mod esx4;
pub mod priority;

use drover_sim::scenario::rival::Entry;

/// All of them.
pub const RIVALS: &[Entry] = &[
    Entry::of::<eevdf::Eevdf>(),
    Entry::of::<cfs36::Cfs36>(),
    Entry::of::<cfs36::CheaperYield>(),
    Entry::of::<cfs36::ThrottledYield>(),
    Entry::of::<cfs36::AutoNuma>(),
    Entry::of::<cfs36::AutoNumaSlowly>(),
    Entry::of::<cfs36::SchedNuma>(),
    Entry::of::<credit::Credit>(),
    Entry::of::<esx35::Esx35>(),
    Entry::of::<esx35::FineLocks>(),
    Entry::of::<esx4::Esx4>(),
    Entry::of::<priority::Priority>(),
];
