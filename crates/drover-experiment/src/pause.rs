// SPDX-License-Identifier: GPL-2.0-only
//! Waiting that Ctrl-C ends.

use anyhow::{Result, bail};
use nix::poll::ppoll;
use nix::sys::time::TimeSpec;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often things that come up are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Sleeps until `moment`. A signal ends the sleep, so `stop` is seen at once.
///
/// # Errors
/// When `stop` is set.
pub(crate) fn until(moment: Instant, stop: &AtomicBool) -> Result<()> {
    loop {
        if stop.load(Ordering::Relaxed) {
            bail!("interrupted; everything was taken down again");
        }
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        // Fails only when a signal comes, and then the loop looks at `stop`.
        let _ = ppoll(&mut [], Some(TimeSpec::from_duration(left)), None);
    }
}

/// Looks again and again until `look` has found something; none when it did not within `patience`.
///
/// # Errors
/// What `look` fails with, or when `stop` is set.
pub(crate) fn look_until<T, E: From<anyhow::Error>>(
    patience: Duration,
    stop: &AtomicBool,
    mut look: impl FnMut() -> Result<Option<T>, E>,
) -> Result<Option<T>, E> {
    let begun = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(Some(found));
        }
        if begun.elapsed() > patience {
            return Ok(None);
        }
        until(Instant::now() + LOOK_INTERVAL, stop)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_waited_for() {
        let stop = AtomicBool::new(false);
        let begun = Instant::now();
        until(begun + Duration::from_millis(30), &stop).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(30));
        until(begun, &stop).unwrap();
    }

    #[test]
    fn a_stop_ends_every_wait() {
        let stop = AtomicBool::new(true);
        let begun = Instant::now();
        assert!(until(begun + Duration::from_secs(60), &stop).is_err());
        let look = || Ok::<Option<()>, anyhow::Error>(None);
        assert!(look_until(Duration::from_secs(60), &stop, look).is_err());
        assert!(begun.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn looking_ends_with_what_is_found_or_with_patience() {
        let stop = AtomicBool::new(false);
        let mut looks = 0;
        let found = look_until(Duration::from_secs(60), &stop, || {
            looks += 1;
            Ok::<_, anyhow::Error>((looks == 3).then_some("it"))
        });
        assert_eq!(found.unwrap(), Some("it"));
        let nothing = || Ok::<Option<()>, anyhow::Error>(None);
        assert_eq!(look_until(Duration::ZERO, &stop, nothing).unwrap(), None);
    }
}
