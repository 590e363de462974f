// SPDX-License-Identifier: GPL-2.0-only
//! Counts steps of work, so that tests see how it grows with the number of VMs. Elsewhere it is nothing.

/// So many steps are done.
#[cfg(not(test))]
pub(super) fn count(_: usize) {}

/// So many steps are done.
#[cfg(test)]
pub(super) fn count(steps: usize) {
    COUNTED.with(|counted| counted.set(counted.get() + steps));
}

#[cfg(test)]
thread_local! {
    static COUNTED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// How many steps that takes.
#[cfg(test)]
pub(super) fn of(work: impl FnOnce()) -> usize {
    let counted = || COUNTED.with(std::cell::Cell::get);
    let before = counted();
    work();
    counted() - before
}
