// SPDX-License-Identifier: GPL-2.0-only
//! Files of TOML that people write: read by tables, with what is laid over them, each fault in one line.

mod setting;
mod table;

pub use setting::{Setting, fault};
pub use table::{FileError, Keys, Numbers, Ranges, Read, ReadFile, Source, Table, number, whole};
