// SPDX-License-Identifier: GPL-2.0-only
//! Where the time of VMs goes, whichever scheduler is in charge: `drover top`.
//!
//! `observer` keeps the books of vCPUs in the kernel, on its tracepoints, and is the only module that
//! touches BPF but for `running`, which finds another process' observer; `ring` reads what happened lately. For `drover top`, `snapshot` gathers what is known at one moment;
//! `figures` says what happened between two, `delays` how long I/O waited. `csv` and `screen` show it.
//!
//! `daemon` is `drover observe`: it takes a `sample` each second, answers as the daemon that schedules does
//! (`statuses`, `io_books`), and explains waits (`explain`, with `threads` for who is who). `record` writes what happens to a file.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod cost;
pub mod csv;
pub mod daemon;
pub mod delays;
mod explain;
pub mod figures;
mod forward;
mod io_books;
pub mod meter;
pub mod observer;
pub mod pcpus;
pub mod record;
pub mod ring;
pub mod running;
mod sample;
pub mod screen;
mod setup;
pub mod snapshot;
mod statuses;
mod threads;

#[allow(
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks,
    missing_docs,
    unsafe_op_in_unsafe_fn,
    reason = "generated"
)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/observe.skel.rs"));
}
