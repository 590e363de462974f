// SPDX-License-Identifier: GPL-2.0-only
//! A sweep on a cluster that others run: Slurm, or Ray. The folder of the sweep is where all of its machines see it, at the
//! same path, and so is Drover's program. Each is told what to run, and how far it is follows from the folder.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use super::Watch;
use super::local::last_line;
use super::plan::Plan;
use super::state::State;
use crate::commands::whole::write_bytes_whole;

/// Tasks of an array of jobs, at most: Slurm takes 1001 unless it is set up for more (MaxArraySize).
const TASKS_MAX: usize = 1000;
/// How often it is asked how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often in a row Slurm may give no answer.
const SILENT_MAX: u32 = 120;

/// Runs those shards as an array of jobs of Slurm, or follows the job that was submitted for them before. Returns why some
/// could not be, if so.
pub fn slurm(
    state: &State,
    plan: &Plan,
    missing: &[usize],
    workers: Option<usize>,
    watch: &Mutex<Watch>,
    stop: &AtomicBool,
) -> Result<Option<String>> {
    let folder = state.dir.join("slurm");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let before = fs::read_to_string(folder.join("job")).unwrap_or_default();
    let job = match before.trim() {
        "" => submit(state, plan, missing, workers, &folder)?,
        job if is_over(job)? => submit(state, plan, missing, workers, &folder)?,
        job => job.to_owned(),
    };
    watch.lock().expect("nobody panics with it held").say(&format!("Slurm's job {job}"));
    let mut silent = 0;
    let over = || match is_over(&job) {
        Err(_) if silent < SILENT_MAX => {
            silent += 1;
            Ok(false)
        }
        answer => {
            silent = 0;
            answer
                .with_context(|| format!("job {job} goes on without this, and --resume follows it"))
        }
    };
    follow(state, watch, stop, over)?;
    Ok(Some(format!("the logs are {}/*.log", folder.display())))
}

/// Writes the script of the array and hands it in. Task k of n has each n-th of the shards that are missing, from the k-th on.
fn submit(
    state: &State,
    plan: &Plan,
    missing: &[usize],
    workers: Option<usize>,
    folder: &Path,
) -> Result<String> {
    write_todo(state, plan, missing)?;
    let tasks = missing.len().min(TASKS_MAX);
    let at_once = workers.map_or(String::new(), |workers| format!("%{workers}"));
    let quoted = |path: &Path| {
        Ok::<_, anyhow::Error>(shlex::try_quote(&path.display().to_string())?.into_owned())
    };
    let script = format!(
        "#!/bin/sh\n#SBATCH --job-name=drover-sweep\n#SBATCH --array=0-{}{at_once}\n#SBATCH --ntasks=1\n\
         #SBATCH --cpus-per-task=1\n\
         # A line of todo is a shard; this task has each {tasks}th of them.\n\
         status=0\n\
         lines=$(awk -v n={tasks} -v k=\"$SLURM_ARRAY_TASK_ID\" '(NR - 1) % n == k' {})\n\
         while IFS= read -r line; do\n\tsh -c \"$line\" </dev/null || status=1\ndone <<END\n$lines\nEND\n\
         exit \"$status\"\n",
        tasks - 1,
        quoted(&state.dir.join("todo"))?
    );
    let path = folder.join("array.sh");
    write_bytes_whole(&path, script.as_bytes())?;
    let log = format!("--output={}/%a.log", folder.display());
    let answer = ask("sbatch", &["--parsable", &log, &path.display().to_string()])?;
    ensure!(answer.status.success(), "sbatch: {}", why(&answer));
    let job = String::from_utf8_lossy(&answer.stdout);
    let job = job.trim().split(';').next().unwrap_or_default().to_owned();
    ensure!(!job.is_empty(), "sbatch took the job and does not say its number");
    write_bytes_whole(&folder.join("job"), job.as_bytes())?;
    Ok(job)
}

/// Whether Slurm knows that job no more.
fn is_over(job: &str) -> Result<bool> {
    let answer = ask("squeue", &["--noheader", "--jobs", job])?;
    let said = why(&answer);
    if !answer.status.success() && !said.contains("Invalid job id") {
        return Err(anyhow!("squeue: {said}"));
    }
    Ok(answer.stdout.trim_ascii().is_empty())
}

fn ask(program: &str, arguments: &[&str]) -> Result<Output> {
    let answer = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    answer.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => anyhow!(
            "there is no {program} here: run this where Slurm's commands are (Debian's package slurm-client), or with \
             --engine local"
        ),
        _ => anyhow!("cannot run {program}: {error}"),
    })
}

fn why(answer: &Output) -> String {
    last_line(&answer.stderr).unwrap_or_else(|| answer.status.to_string())
}

/// Runs those shards as tasks of Ray, which the Python package of Drover hands in.
pub fn ray(
    state: &State,
    plan: &Plan,
    missing: &[usize],
    workers: Option<usize>,
    watch: &Mutex<Watch>,
    stop: &AtomicBool,
) -> Result<Option<String>> {
    write_todo(state, plan, missing)?;
    let log = state.dir.join("ray.log");
    let out = fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new("python3");
    command.args(["-m", "drover.ray"]).arg(state.dir.join("todo"));
    command.args(workers.map(|workers| workers.to_string()));
    let child = command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).spawn();
    let mut child = Ended(child.context("cannot run python3, which Ray's engine needs")?);
    let mut status = None;
    follow(state, watch, stop, || {
        status = child.0.try_wait()?;
        Ok(status.is_some())
    })?;
    Ok(status.filter(|status| !status.success()).map(|status| {
        let said = fs::read(&log).ok().and_then(|text| last_line(&text));
        said.unwrap_or_else(|| format!("python3 -m drover.ray: {status}"))
    }))
}

/// A process that does not outlive the wait for it.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes the command lines of shards that are to be done.
fn write_todo(state: &State, plan: &Plan, missing: &[usize]) -> Result<()> {
    let lines: Result<Vec<String>> = missing.iter().map(|&shard| state.line(plan, shard)).collect();
    write_bytes_whole(&state.dir.join("todo"), (lines?.join("\n") + "\n").as_bytes())
}

/// Watches the folder until all is done, or the job has ended.
fn follow(
    state: &State,
    watch: &Mutex<Watch>,
    stop: &AtomicBool,
    mut is_over: impl FnMut() -> Result<bool>,
) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        let over = is_over()?;
        let done = state.done()?.len();
        watch.lock().expect("nobody panics with it held").so_many(done);
        if over || state.missing()?.is_empty() {
            break;
        }
        sleep(LOOK_EVERY);
    }
    Ok(())
}
