// SPDX-License-Identifier: GPL-2.0-only
//! Runs QEMU to its end: passes the lab's output on while it comes, stops it when it takes too long, and
//! never leaves it behind.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use crate::pinning::Pinning;
use crate::qemu::Qemu;

/// How QEMU ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself.
    Finished,
    /// It was stopped, because the time was over.
    TimedOut,
}

/// How long QEMU may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// In all.
    pub whole: Duration,
    /// From one line of output to the next.
    pub silence: Duration,
}

/// How often output is looked for.
const POLL: Duration = Duration::from_millis(20);

/// Runs QEMU, its pCPUs pinned where that is asked for, tells `on_start` its process, and hands each line of
/// `output` to `on_line`, with its line end.
///
/// The kernel kills QEMU when the calling thread ends, however it ends (`PR_SET_PDEATHSIG`).
///
/// # Errors
/// When QEMU cannot be started or says that its command line is wrong.
pub fn run(
    qemu: &Qemu,
    arguments: &[String],
    dir: &Path,
    patience: Patience,
    mut pinning: Option<Pinning>,
    on_start: &dyn Fn(u32),
    on_line: &mut dyn FnMut(&str),
) -> Result<End> {
    let complaints = File::create(dir.join("complaints"))?;
    let mut command = Command::new(&qemu.program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(complaints);
    let parent = std::process::id();
    // SAFETY: between fork and exec only async-signal-safe calls are made: prctl, getppid, _exit.
    unsafe {
        command.pre_exec(move || {
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
            if std::os::unix::process::parent_id() != parent {
                libc::_exit(1); // the parent died before it could be watched
            }
            Ok(())
        });
    }
    let child =
        command.spawn().with_context(|| format!("cannot run {}", qemu.program.display()))?;
    let mut guard = KillOnDrop(child);
    on_start(guard.0.id());
    let mut lines = Lines::open(&dir.join("output"));
    let started = Instant::now();
    let mut heard = started;
    loop {
        let ended = guard.0.try_wait()?;
        if let Some(pinning) = &mut pinning {
            pinning.look(guard.0.id());
        }
        if lines.pass_on(on_line) > 0 {
            heard = Instant::now();
        }
        if let Some(status) = ended {
            lines.pass_on_rest(on_line);
            let complaints = std::fs::read_to_string(dir.join("complaints")).unwrap_or_default();
            anyhow::ensure!(status.success(), "QEMU failed ({status}): {}", complaints.trim());
            return Ok(End::Finished);
        }
        if started.elapsed() > patience.whole || heard.elapsed() > patience.silence {
            return Ok(End::TimedOut);
        }
        std::thread::sleep(POLL);
    }
}

/// Whatever way the supervision ends, an error in the caller's callback included, QEMU goes too.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // Fails only when it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A growing file, taken line by line.
struct Lines {
    file: Option<File>,
    path: std::path::PathBuf,
    pending: Vec<u8>,
}

impl Lines {
    fn open(path: &Path) -> Self {
        Self { file: None, path: path.to_owned(), pending: Vec::new() }
    }

    /// Passes on the lines that are complete; how many these were.
    fn pass_on(&mut self, on_line: &mut dyn FnMut(&str)) -> usize {
        let mut passed = 0;
        if self.file.is_none() {
            // QEMU makes the file a little after it starts.
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else { return passed };
        // What cannot be read now is read at the next turn.
        let _ = file.read_to_end(&mut self.pending);
        while let Some(end) = self.pending.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.pending.drain(..=end).collect();
            on_line(&String::from_utf8_lossy(&line));
            passed += 1;
        }
        passed
    }

    fn pass_on_rest(&mut self, on_line: &mut dyn FnMut(&str)) {
        self.pass_on(on_line);
        if !self.pending.is_empty() {
            on_line(&String::from_utf8_lossy(&std::mem::take(&mut self.pending)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A shell in QEMU's place.
    fn supervise(script: &str, silence_ms: u64) -> (Result<End>, String, Duration) {
        let dir = tempfile::tempdir().unwrap();
        let qemu = Qemu::for_test("/bin/sh");
        let script = script.replace("DIR", &dir.path().to_string_lossy());
        let mut text = String::new();
        let started = Instant::now();
        let end = run(
            &qemu,
            &["-c".to_owned(), script],
            dir.path(),
            Patience { whole: Duration::from_secs(2), silence: Duration::from_millis(silence_ms) },
            None,
            &|_| (),
            &mut |line| text.push_str(&format!("[{line}]")),
        );
        (end, text, started.elapsed())
    }

    #[test]
    fn lines_come_whole_and_the_rest_at_the_end() {
        let (end, text, _) =
            supervise("printf 'a\\nb' > DIR/output; sleep 0.1; printf 'c\\nd' >> DIR/output", 5000);
        assert_eq!(end.unwrap(), End::Finished);
        assert_eq!(text, "[a\n][bc\n][d]");
    }

    #[test]
    fn a_hanging_qemu_is_stopped() {
        let (end, _, took) = supervise("exec sleep 100", 100);
        assert_eq!(end.unwrap(), End::TimedOut);
        assert!(took < Duration::from_secs(5));
    }

    #[test]
    fn one_that_speaks_is_stopped_when_the_whole_time_is_over() {
        let (end, text, took) =
            supervise("while :; do echo a >> DIR/output; sleep 0.05; done", 1000);
        assert_eq!(end.unwrap(), End::TimedOut);
        assert!(text.len() > 10 && took >= Duration::from_secs(2), "{took:?}");
    }

    #[test]
    fn what_qemu_complains_of_is_passed_on() {
        let (end, _, _) = supervise("echo 'bad option' >&2; exit 1", 5000);
        assert!(end.unwrap_err().to_string().ends_with("bad option"));
    }

    #[test]
    fn lines_of_a_missing_file_are_none() {
        let mut lines = Lines::open(Path::new("/no/such/file"));
        lines.pass_on_rest(&mut |_| panic!("nothing to pass on"));
        assert!(fs::metadata("/no/such/file").is_err());
    }
}
