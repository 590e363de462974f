// SPDX-License-Identifier: GPL-2.0-only
//! A line on the control socket: understood or refused, and said again as it was understood.
#![no_main]

use drover_host::control::Request;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &str| {
    if let Ok(request) = serde_json::from_str::<Request>(line) {
        let again = serde_json::to_string(&request).expect("a request can be written");
        assert_eq!(serde_json::from_str::<Request>(&again).ok(), Some(request), "{again}");
    }
});
