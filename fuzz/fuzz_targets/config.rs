// SPDX-License-Identifier: GPL-2.0-only
//! The configuration file: taken, or refused in one line that names it.
#![no_main]

use drover_core::config::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Config::parse(text, "drover.toml") {
        Ok(config) => {
            for vm in ["web", "", "web-1\u{fffd}"] {
                config.layers(vm);
            }
        }
        Err(fault) => assert!(fault.to_string().starts_with("drover.toml"), "{fault}"),
    }
});
