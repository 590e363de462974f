// SPDX-License-Identifier: GPL-2.0-only
//! A sweep on this machine: so many processes at the same time.

use std::collections::VecDeque;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

use super::Watch;
use super::plan::Plan;
use super::state::State;

/// How often a shard begins whose process is killed.
const TRIES: u32 = 3;

/// Runs those shards. Returns why some of them could not be, if so; a shard whose process is killed begins again.
pub fn run(
    state: &State,
    plan: &Plan,
    missing: &[usize],
    workers: usize,
    watch: &Mutex<Watch>,
    stop: &AtomicBool,
) -> Result<Option<String>> {
    let program = std::env::current_exe().context("cannot find the program")?;
    let queue: Mutex<VecDeque<(usize, u32)>> =
        Mutex::new(missing.iter().map(|&shard| (shard, 1)).collect());
    let failed: Mutex<Option<String>> = Mutex::new(None);
    let take = || queue.lock().expect("nobody panics with it held").pop_front();
    let work = || {
        while let Some((shard, tries)) = take().filter(|_| !stop.load(Ordering::Relaxed)) {
            let mut command = Command::new(&program);
            command.args(state.arguments(plan, shard)).stdin(Stdio::null()).stdout(Stdio::null());
            let why = match command.stderr(Stdio::piped()).output() {
                Ok(output) if output.status.success() => {
                    watch.lock().expect("nobody panics with it held").one_more();
                    continue;
                }
                Ok(output) if output.status.signal().is_some() && tries < TRIES => {
                    queue.lock().expect("nobody panics with it held").push_back((shard, tries + 1));
                    continue;
                }
                Ok(output) => {
                    last_line(&output.stderr).unwrap_or_else(|| output.status.to_string())
                }
                Err(error) => error.to_string(),
            };
            let why = format!("shard {shard}: {why}");
            failed.lock().expect("nobody panics with it held").get_or_insert(why);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..workers.min(missing.len()) {
            scope.spawn(work);
        }
        work();
    });
    Ok(failed.into_inner().expect("nobody panicked"))
}

/// The last line that says something.
pub fn last_line(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?.trim();
    Some(line.strip_prefix("drover: ").unwrap_or(line).to_owned())
}
