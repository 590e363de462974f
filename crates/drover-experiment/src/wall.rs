// SPDX-License-Identifier: GPL-2.0-only
//! Time on the wall clock, all of an exact experiment that differs from one to the next.

use drover_scenario::results::Wall;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Runs from the beginning of an experiment.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    started_s: u64,
    started: Instant,
}

impl Stopwatch {
    /// Starts it.
    pub fn start() -> Self {
        // A clock before 1970 is set wrong; any date does then.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started_s: since.as_secs(), started: Instant::now() }
    }

    /// When it was started and how long ago.
    pub fn wall(&self) -> Wall {
        Wall {
            started: Some(rfc3339(self.started_s)),
            elapsed_s: Some(self.started.elapsed().as_secs_f64()),
        }
    }
}

/// A moment in seconds since 1970 as RFC 3339 writes it.
fn rfc3339(unix_s: u64) -> String {
    let (mut days, second) = (unix_s / 86_400, unix_s % 86_400);
    let is_leap = |year: u64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_rfc_3339_has_them() {
        for (unix_s, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(unix_s), text);
        }
    }

    #[test]
    fn the_watch_runs() {
        let wall = Stopwatch::start().wall();
        assert!(wall.elapsed_s.unwrap() >= 0.0 && wall.started.as_deref() > Some("2024"));
    }
}
