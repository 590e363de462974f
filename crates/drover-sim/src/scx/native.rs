// SPDX-License-Identifier: GPL-2.0-only
//! The functions of native/policy.c, with the structs and constants of the policy.
//!
//! All are generated from the C sources (build.rs), under their names there.

pub use drover_policy::*;
pub use generated::*;

#[allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    missing_docs,
    non_camel_case_types,
    reason = "generated"
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/policy.rs"));
}

/// A scenario's hosts have no more pCPUs.
const _: () = assert!(drover_scenario::Host::PCPUS_MAX == DROVER_MAX_PCPUS);
