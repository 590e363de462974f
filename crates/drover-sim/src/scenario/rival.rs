// SPDX-License-Identifier: GPL-2.0-only
//! The other schedulers a scenario may name beside `drover`, and how it finds them.
//!
//! The simulator knows none of them: whoever runs a scenario hands in a list of [`Entry`]
//! (`drover_rivals::RIVALS`).

use super::one_run::{Job, run_rival};
use super::{Options, Ran};
use crate::class::Class;
use crate::costs::Costs;
use crate::machine::Machine;
use drover_scenario::Scenario;

/// A scheduler that Drover is compared with, or a variant of one.
pub trait Rival {
    /// The scheduler's type: itself, but for variants.
    type Class: Class;

    /// What scenarios call it.
    const NAME: &'static str;

    /// The scheduler, before anything runs on that host.
    fn new(m: &Machine) -> Self::Class;

    /// Changes what is different on a host of its own from one of Linux 6.18. Pause-loop exits are set
    /// where the case asks for them.
    fn set_host(_: &mut Costs) {}
}

/// A rival in a list of them.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// What scenarios call it.
    pub name: &'static str,
    pub(super) run: fn(&Scenario, &Options, &Job) -> Result<Ran, String>,
}

impl Entry {
    /// The entry of that scheduler.
    pub const fn of<R: Rival>() -> Self {
        Self { name: R::NAME, run: run_rival::<R> }
    }
}
