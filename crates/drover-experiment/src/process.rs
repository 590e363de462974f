// SPDX-License-Identifier: GPL-2.0-only
//! A child process with a log, that never outlives the experiment.

use anyhow::{Context, Result};
use drover_core::cpu_list::CpuList;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::process::{CommandExt, parent_id};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where a process is to run from its first instruction on.
#[derive(Debug, Default)]
pub(crate) struct Place {
    /// `cgroup.procs` of its cgroup.
    pub cgroup_procs: Option<PathBuf>,
    /// CPUs it is confined to.
    pub cpus: Option<CpuList>,
}

/// A running child. Killed when dropped, and by the kernel when this thread ends in any way.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

/// How often an ending process is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

impl Process {
    /// Starts a command in a process group of its own, so that Ctrl-C is for us alone, with its output
    /// in the file `log`.
    ///
    /// # Errors
    /// When it cannot be started, or not where it is to run.
    pub fn spawn(mut command: Command, log: &Path, place: &Place) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let out = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).process_group(0);
        let mut cgroup = match &place.cgroup_procs {
            Some(path) => Some(
                OpenOptions::new()
                    .write(true)
                    .open(path)
                    .with_context(|| format!("cannot open {}", path.display()))?,
            ),
            None => None,
        };
        let cpus = place.cpus.as_ref().map(cpu_set).transpose()?;
        let parent = std::process::id();
        // SAFETY: between fork and exec only async-signal-safe calls are made: prctl, getppid, _exit,
        // write, sched_setaffinity.
        unsafe {
            command.pre_exec(move || {
                nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
                if parent_id() != parent {
                    libc::_exit(1); // the parent died before it could be watched
                }
                if let Some(cgroup) = &mut cgroup {
                    cgroup.write_all(b"0")?;
                }
                if let Some(cpus) = &cpus {
                    sched_setaffinity(Pid::from_raw(0), cpus)?;
                }
                Ok(())
            });
        }
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        // A child that cannot be waited for is not there.
        self.child.try_wait().map_or(true, |status| status.is_some())
    }

    /// What its log holds so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Why it ended, in its own words.
    pub fn last_words(&self) -> String {
        last_words(&self.log())
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        if let Ok(pid) = i32::try_from(self.pid()) {
            // Not reaped yet, so the number is still its own; it may have ended, which is as well.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Asks it to end, waits, and kills it where it does not end.
    pub fn stop(mut self, patience: Duration) {
        self.signal(Signal::SIGTERM);
        let begun = Instant::now();
        while !self.has_ended() && begun.elapsed() < patience {
            std::thread::sleep(LOOK_INTERVAL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// CPUs as system calls take them.
///
/// # Errors
/// When there are more than these can name.
pub(crate) fn cpu_set(cpus: &CpuList) -> Result<CpuSet> {
    let mut set = CpuSet::new();
    for &cpu in cpus.cpus() {
        set.set(cpu as usize)
            .with_context(|| format!("cannot pin to CPU {cpu}: beyond the most"))?;
    }
    Ok(set)
}

/// The line of a log that says most: the last that tells of an ejected scheduler, else the last.
fn last_words(log: &str) -> String {
    let plain: Vec<String> = log.lines().map(without_decoration).collect();
    let mut lines = plain.iter().map(|line| without_time(line.trim())).rev();
    let exit = lines.clone().find(|line| line.contains("EXIT: "));
    let words = exit.or_else(|| lines.find(|line| !line.is_empty()));
    let words = words.unwrap_or("it said nothing");
    words.strip_prefix("drover: ").unwrap_or(words).to_owned()
}

/// A line without the time and the level that programs log with: `2026-01-31T12:00:00Z  WARN text`.
fn without_time(line: &str) -> &str {
    match line.split_once(char::is_whitespace) {
        Some((time, rest)) if time.contains('T') && time.ends_with('Z') => {
            let rest = rest.trim_start();
            ["ERROR ", "WARN ", "INFO "].iter().find_map(|it| rest.strip_prefix(it)).unwrap_or(rest)
        }
        _ => line,
    }
}

/// A line without the colours of a terminal.
fn without_decoration(line: &str) -> String {
    let mut plain = String::new();
    let mut rest = line.chars();
    while let Some(char) = rest.next() {
        if char == '\u{1b}' {
            // A colour is ESC [ numbers m.
            rest.by_ref().find(|&end| end == 'm');
        } else {
            plain.push(char);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, place: &Place) -> (tempfile::TempDir, Process) {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        let process = Process::spawn(command, &dir.path().join("log"), place).unwrap();
        (dir, process)
    }

    fn wait(process: &mut Process) {
        while !process.has_ended() {
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    #[test]
    fn the_last_line_counts_unless_one_tells_of_an_ejection() {
        assert_eq!(last_words("one\n\u{1b}[31mdrover: two\u{1b}[0m\n\n"), "two");
        assert_eq!(last_words("EXIT: runnable task stall\nbye\n"), "EXIT: runnable task stall");
        assert_eq!(last_words("2026-01-31T12:00:00.5Z  WARN it ended\n"), "it ended");
        assert_eq!(last_words(" \n"), "it said nothing");
    }

    #[test]
    fn a_child_that_ended_is_seen_with_its_words() {
        let (_dir, mut process) = shell("echo out; echo err >&2", &Place::default());
        wait(&mut process);
        assert_eq!(process.log(), "out\nerr\n");
        assert_eq!(process.last_words(), "err");
    }

    #[test]
    fn a_child_that_does_not_end_is_killed() {
        let (_dir, process) =
            shell("trap '' TERM; while :; do sleep 0.01; done", &Place::default());
        let proc = format!("/proc/{}", process.pid());
        process.stop(Duration::from_millis(50));
        assert!(!Path::new(&proc).exists());
    }

    #[test]
    fn a_child_begins_in_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let procs = dir.path().join("cgroup.procs");
        fs::write(&procs, "").unwrap();
        let cpus = Some("0".parse().unwrap());
        let place = Place { cgroup_procs: Some(procs.clone()), cpus };
        let (_dir, mut process) = shell("grep Cpus_allowed_list /proc/self/status", &place);
        wait(&mut process);
        assert_eq!(process.last_words(), "Cpus_allowed_list:\t0");
        assert_eq!(fs::read_to_string(&procs).unwrap(), "0");
    }

    #[test]
    fn what_cannot_be_started_is_named() {
        let log = tempfile::tempdir().unwrap();
        let command = Command::new("/no/such/program");
        let error = Process::spawn(command, &log.path().join("log"), &Place::default());
        assert!(error.unwrap_err().to_string().contains("/no/such/program"));
    }
}
