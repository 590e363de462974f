// SPDX-License-Identifier: GPL-2.0-only
//! The lab itself, and whole experiments in it, where nobody does any harm.
//!
//! They are tests of this program because cargo runs one test program after the other: at the end of each a CPU has
//! nothing to do. They are short, and by name the last.

mod experiments;
mod lab;
