// SPDX-License-Identifier: GPL-2.0-only
//! The last warnings of this process, for `drover status`.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Instant;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// So many are kept.
const KEPT_MAX: usize = 5;

static KEPT: Mutex<VecDeque<(Instant, String)>> = Mutex::new(VecDeque::new());

/// A warning of the daemon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Warning {
    /// How long ago it was given, s.
    pub ago_s: f64,
    /// What it said.
    pub text: String,
}

/// Keeps a warning; the oldest goes.
pub fn keep(text: String) {
    let Ok(mut kept) = KEPT.lock() else { return };
    while kept.len() >= KEPT_MAX {
        kept.pop_front();
    }
    kept.push_back((Instant::now(), text));
}

/// Those that are kept, the newest first.
pub fn warnings(now: Instant) -> Vec<Warning> {
    let Ok(kept) = KEPT.lock() else { return Vec::new() };
    let of = |(at, text): &(Instant, String)| Warning {
        ago_s: now.saturating_duration_since(*at).as_secs_f64(),
        text: text.clone(),
    };
    kept.iter().rev().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_stay() {
        (0..2 * KEPT_MAX).for_each(|number| keep(number.to_string()));
        let texts: Vec<String> = warnings(Instant::now()).into_iter().map(|it| it.text).collect();
        assert_eq!(texts, ["9", "8", "7", "6", "5"]);
    }
}
