// SPDX-License-Identifier: GPL-2.0-only
//! Shows results to people: tables for a terminal, pictures for a page,
//! and a page that shows itself.

mod checks;
pub mod claims;
mod findings;
mod grid;
pub mod html;
mod kinds;
mod number;
pub mod perfetto;
pub mod picture;
#[cfg(test)]
mod sample;
mod summary;
mod table;

pub use checks::checks;
pub use findings::findings;
pub use table::table;
