// SPDX-License-Identifier: GPL-2.0-only
//! A scenario file, and files it names: taken, or refused with a place.
#![no_main]

use drover_scenario::Scenario;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = Scenario::parse_with(text, "s.toml", &|_| Ok(text.to_owned()));
});
