// SPDX-License-Identifier: GPL-2.0-only
//! What a run recorded, read by the next command.
#![no_main]

use drover_scenario::results::Results;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = serde_json::from_str::<Results>(text);
});
