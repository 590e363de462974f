// SPDX-License-Identifier: GPL-2.0-only
//! How far long work is.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar on a terminal, with what it counts, a message, the time so far and the time left; elsewhere nothing.
pub fn bar(length: u64, counts: &str) -> ProgressBar {
    let bar = ProgressBar::new(length.max(1));
    let template = format!("{{bar:24}} {counts}  {{msg}}  {{elapsed}} so far, {{eta}} left");
    // The template is right; without it the bar would only look plainer.
    bar.set_style(
        ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_is_right() {
        for counts in ["{pos}/{len}", "{percent} %", "{pos}/{len} s"] {
            let template =
                format!("{{bar:24}} {counts}  {{msg}}  {{elapsed}} so far, {{eta}} left");
            assert!(ProgressStyle::with_template(&template).is_ok(), "{counts}");
        }
        assert_eq!(bar(0, "{pos}/{len}").length(), Some(1), "of nothing there is no part");
    }
}
