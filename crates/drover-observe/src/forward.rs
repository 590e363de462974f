// SPDX-License-Identifier: GPL-2.0-only
//! Questions that the daemon that schedules answers. Who asks here does not wait for it when it is slow: it has a second, and
//! is left alone for some after that.

use anyhow::{Result, bail};
use drover_host::control::{Answer, Request, SOCKET_PATH, ask_within};
#[cfg(test)]
use std::path::Path;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// So long it may take.
const WITHIN: Duration = Duration::from_secs(1);
/// If it took longer it is asked again after so long.
const AGAIN: Duration = Duration::from_secs(5);

/// The way to that daemon.
#[derive(Debug)]
pub struct Forward {
    socket: PathBuf,
    /// When it was late last.
    late: Option<Instant>,
}

impl Default for Forward {
    fn default() -> Self {
        Self { socket: SOCKET_PATH.into(), late: None }
    }
}

impl Forward {
    /// Asks it.
    ///
    /// # Errors
    /// When it refuses, or is late.
    pub fn ask(&mut self, request: &Request) -> Result<Answer> {
        if self.late.is_some_and(|late| late.elapsed() < AGAIN) {
            bail!(
                "`drover serve` did not answer within {} s, and is asked again soon",
                WITHIN.as_secs()
            );
        }
        let begun = Instant::now();
        let answer = ask_within(&self.socket, request, WITHIN);
        self.late = (begun.elapsed() >= WITHIN).then(Instant::now);
        answer
    }

    /// To a daemon of a test's.
    #[cfg(test)]
    fn to(socket: &Path) -> Self {
        Self { socket: socket.to_owned(), late: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_daemon_that_is_silent_is_waited_for_once() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let _silent = UnixListener::bind(&socket).unwrap();
        let mut forward = Forward::to(&socket);
        let begun = Instant::now();
        for _ in 0..20 {
            forward.ask(&Request::ListVms { brief: false }).unwrap_err();
        }
        assert!((WITHIN..3 * WITHIN).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    }
}
