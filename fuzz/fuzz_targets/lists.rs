// SPDX-License-Identifier: GPL-2.0-only
//! The small words of which files of cgroups, command lines and orders are made: lists of pCPUs, shares,
//! limits, slices.
#![no_main]

use drover_core::asked::{Asked, Key};
use drover_core::partition::parse_slice;
use drover_core::cpu_list::CpuList;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(list) = text.parse::<CpuList>() {
        let again = list.to_string();
        assert_eq!(again.parse::<CpuList>().ok(), Some(list), "{again}");
    }
    let _ = parse_slice(text);
    for key in Key::ALL {
        let mut asked = Asked::default();
        if asked.read(key, text).is_ok() {
            let said = asked.text(key).expect("it was read");
            let mut again = Asked::default();
            again.read(key, &said).expect("what is said can be read");
            assert_eq!(again, asked, "{said}");
        }
    }
});
