// SPDX-License-Identifier: GPL-2.0-only
//! What systemd is told of the daemon where systemd started it; elsewhere nothing happens.

use std::time::{Duration, Instant};

use sd_notify::{NotifyState, notify};

/// The service manager.
#[derive(Debug)]
pub struct Manager {
    status: String,
    /// How often it wants to hear that the daemon lives.
    interval: Option<Duration>,
    heard: Instant,
}

impl Manager {
    /// The daemon serves.
    pub fn ready(status: &str) -> Self {
        tell(&[NotifyState::Ready, NotifyState::Status(status)]);
        // Twice in the time after which it would be killed.
        let interval = sd_notify::watchdog_enabled().map(|after| after / 2);
        Self { status: status.to_owned(), interval, heard: Instant::now() }
    }

    /// The daemon has gone round once more.
    pub fn alive(&mut self, now: Instant) {
        if self.interval.is_some_and(|interval| now.duration_since(self.heard) >= interval) {
            self.heard = now;
            tell(&[NotifyState::Watchdog]);
        }
    }

    /// The configuration was read again.
    pub fn reloaded(&self) {
        let now = NotifyState::monotonic_usec_now();
        if let Ok(now) = now {
            tell(&[NotifyState::Reloading, now]);
        }
        tell(&[NotifyState::Ready, NotifyState::Status(&self.status)]);
    }

    /// The daemon ends because it was asked to.
    pub fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }
}

/// One that does not listen is no reason to end.
fn tell(state: &[NotifyState<'_>]) {
    if let Err(err) = notify(state) {
        tracing::debug!("the service manager cannot be told: {err}");
    }
}
