// SPDX-License-Identifier: GPL-2.0-only
//! `drover sweep`: what is killed in the middle goes on where it was, and what is not of one sweep is not mixed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const SCENARIO: &str = r#"name = "s"
duration_s = 0.1
warmup_s = 0
schedulers = ["drover"]
[host]
cores = 2
[[vm]]
name = "a"
vcpus = 2
workload = { kind = "program", steps = ["compute 100 us to 900 us", "sleep 1 ms", "count"] }
[[vm]]
name = "b"
vcpus = 2
workload = { kind = "cpu" }
"#;

const PLAN: &str = "file = \"s.toml\"\nseed = \"1..20\"\nseeds_per_shard = 2\n\
                    [vary]\nvm.b.shares = [1000, 4000]\nslice_ms = [2, 7]\n";

struct Sweep {
    dir: tempfile::TempDir,
}

impl Sweep {
    fn new() -> Self {
        let sweep = Self { dir: tempfile::tempdir().unwrap() };
        sweep.write("s.toml", SCENARIO);
        sweep.write("plan.toml", PLAN);
        sweep
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
        command.arg("sweep").arg(self.path("plan.toml")).args(more);
        command
    }

    fn done(&self) -> usize {
        let listing = fs::read_dir(self.path("plan.sweep/shards")).into_iter().flatten().flatten();
        listing.filter(|it| it.path().extension().is_some_and(|it| it == "json")).count()
    }

    fn run(&self, more: &[&str]) -> String {
        let output = self.command(more).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{more:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The last line that it fails with.
    fn refusal(&self, more: &[&str]) -> String {
        last_line(&self.command(more).output().unwrap())
    }

    fn table(&self) -> String {
        fs::read_to_string(self.path("plan.sweep/results.csv")).unwrap()
    }

    /// Begins and waits until some shards are done.
    fn begin(&self, more: &[&str]) -> Child {
        let child = self.command(more).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        while self.done() < 3 {
            sleep(Duration::from_millis(1));
        }
        child
    }
}

fn last_line(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned()
}

fn program(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn the_table_has_each_value_with_each_other_and_each_seed_as_run_by_hand() {
    let sweep = Sweep::new();
    let said = sweep.run(&[]);
    assert!(said.starts_with("80 runs in 40 shards\n"), "{said}");
    let table = sweep.table();
    let mut lines = table.lines();
    assert!(lines.next().unwrap().starts_with("\"vm.b.shares\",\"slice_ms\",scenario,file,"));
    assert_eq!(lines.count(), 2 * 80);
    let shard: Value =
        serde_json::from_slice(&fs::read(sweep.path("plan.sweep/shards/000012.json")).unwrap())
            .unwrap();
    // Of ten for each point, the third of the second.
    assert_eq!(shard["set"], serde_json::json!(["vm.b.shares=1000", "slice_ms=7"]));
    let run = &shard["runs"][1];
    assert_eq!(run["seed"], 6);
    let by_hand = sweep.path("hand.json");
    let (file, json) = (sweep.path("s.toml"), by_hand.to_str().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
    command.arg("run").arg(file).args(["--on", "sim", "--seed", "6", "--set", "slice_ms=7"]);
    let status = command.args(["--set", "vm.b.shares=1000", "--json", json]).output().unwrap();
    assert!(status.status.success());
    let by_hand: Value = serde_json::from_slice(&fs::read(by_hand).unwrap()).unwrap();
    assert_eq!(by_hand["runs"][0]["vms"], run["vms"]);
    // A line of `commands` is the same again.
    let commands = fs::read_to_string(sweep.path("plan.sweep/commands")).unwrap();
    let line = commands.lines().nth(12).unwrap();
    fs::remove_file(sweep.path("plan.sweep/shards/000012.json")).unwrap();
    assert!(Command::new("sh").args(["-c", line]).status().unwrap().success());
    assert_eq!(sweep.done(), 40);
}

#[test]
fn a_sweep_that_is_killed_goes_on_where_it_was() {
    let whole = Sweep::new();
    whole.run(&[]);
    let sweep = Sweep::new();
    let mut child = sweep.begin(&["--workers", "1"]);
    child.kill().unwrap();
    child.wait().unwrap();
    let done = sweep.done();
    assert!((3..40).contains(&done), "{done}");
    let line = sweep.refusal(&[]);
    assert!(line.contains("of 40 shards already: add --resume"), "{line}");
    // As a machine that loses power leaves it.
    sweep.write("plan.sweep/shards/000000.json", "");
    sweep.run(&["--resume"]);
    let without_paths = |it: &Sweep| it.table().replace(it.dir.path().to_str().unwrap(), "");
    assert_eq!(without_paths(&sweep), without_paths(&whole));
    let left = fs::read_dir(sweep.path("plan.sweep/shards")).unwrap().count();
    assert_eq!(left, 40, "nothing is left of what was killed");
}

#[test]
fn a_worker_that_is_killed_loses_nothing() {
    let sweep = Sweep::new();
    let mut child = sweep.begin(&["--workers", "2"]);
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let mut killed = 0;
    while killed < 3 && child.try_wait().unwrap().is_none() {
        // Threads begin processes: each has children of its own.
        let tasks =
            fs::read_dir(format!("/proc/{}/task", child.id())).into_iter().flatten().flatten();
        let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        for pid in lists.collect::<String>().split_whitespace() {
            killed += u32::from(kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGKILL).is_ok());
        }
    }
    assert!(killed > 0, "{children}");
    assert!(child.wait().unwrap().success());
    assert_eq!((sweep.done(), sweep.table().lines().count()), (40, 161));
}

#[test]
fn shards_of_two_sweeps_are_not_mixed() {
    let sweep = Sweep::new();
    sweep.run(&[]);
    sweep.write("plan.toml", &PLAN.replace("1..20", "1..18"));
    assert!(sweep.refusal(&["--resume"]).contains("shards of another plan"));
    sweep.write("plan.toml", PLAN);
    sweep.write("s.toml", &SCENARIO.replace("cores = 2", "cores = 3"));
    let line = sweep.refusal(&["--resume"]);
    assert!(line.contains("shards of another text of") && line.contains("s.toml"), "{line}");
    sweep.write("s.toml", SCENARIO);
    let shard = sweep.path("plan.sweep/shards/000007.json");
    let text = fs::read_to_string(&shard).unwrap();
    let results: Value = serde_json::from_str(&text).unwrap();
    let program = results["program"].as_str().unwrap();
    fs::write(&shard, text.replace(program, "00")).unwrap();
    let line = sweep.refusal(&["--resume"]);
    assert!(line.contains("000007.json is of another build of Drover"), "{line}");
    fs::write(&shard, &text[..text.len() / 2]).unwrap();
    assert!(sweep.refusal(&["--resume"]).contains("000007.json is no shard"));
    fs::write(&shard, text).unwrap();
    sweep.run(&["--resume"]);
    let manifest = sweep.path("plan.sweep/sweep.json");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace(program, "00")).unwrap();
    assert!(sweep.refusal(&["--resume"]).contains("shards of another build of Drover"));
}

#[test]
fn what_is_not_of_a_sweep_is_left_alone() {
    let sweep = Sweep::new();
    let dir = sweep.dir.path().to_str().unwrap().to_owned();
    let line = sweep.refusal(&["--out", &dir]);
    assert!(line.contains("is no sweep's, and not empty: give another --out"), "{line}");
    assert!(!sweep.path("shards").exists() && !sweep.path("sweep.json").exists());
    // Killed as it began.
    fs::create_dir_all(sweep.path("plan.sweep/shards")).unwrap();
    sweep.run(&["--resume"]);
}

#[test]
fn two_sweeps_do_not_work_in_one_folder() {
    let sweep = Sweep::new();
    let mut child = sweep.begin(&["--workers", "1"]);
    let line = sweep.refusal(&["--resume"]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(line.contains("another `drover sweep` is at work"), "{line}");
}

#[test]
fn trials_of_the_rig_are_a_sweep_too() {
    let sweep = Sweep::new();
    sweep.write("plan.toml", "soak = { from = 6199, trials = 6, trials_per_shard = 2 }\n");
    let said = sweep.run(&[]);
    assert!(said.starts_with("6 trials, ") && said.contains(" 0 broken\n"), "{said}");
    let table = sweep.table();
    let froms: Vec<_> = table.lines().skip(1).filter_map(|line| line.split(',').next()).collect();
    assert_eq!(froms, ["6199", "6201", "6203"]);
}

/// What stands for Slurm: jobs run at once, and squeue knows none of them any more.
const SBATCH: &str = "#!/bin/sh\nlog=${2#--output=}\nn=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\).*/\\1/p' \"$3\")\n\
    for k in $(seq 0 \"$n\"); do SLURM_ARRAY_TASK_ID=$k sh \"$3\" >\"${log%\\%a.log}$k.log\" 2>&1; done\necho '7;one'\n";

#[test]
fn an_array_of_slurm_does_what_is_missing() {
    let sweep = Sweep::new();
    sweep.run(&[]);
    let before = sweep.table();
    for shard in ["000003", "000021", "000039"] {
        fs::remove_file(sweep.path(&format!("plan.sweep/shards/{shard}.json"))).unwrap();
    }
    let bin = sweep.path("bin");
    fs::create_dir(&bin).unwrap();
    program(&bin.join("sbatch"), SBATCH);
    program(
        &bin.join("squeue"),
        "#!/bin/sh\necho 'slurm_load_jobs error: Invalid job id specified' >&2\nexit 1\n",
    );
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let arguments = ["--resume", "--engine", "slurm", "--workers", "2"];
    let output = sweep.command(&arguments).env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(sweep.table(), before);
    let script = fs::read_to_string(sweep.path("plan.sweep/slurm/array.sh")).unwrap();
    assert!(script.contains("#SBATCH --array=0-2%2\n"), "{script}");
}

#[test]
fn a_cluster_that_is_not_there_is_one_line() {
    let sweep = Sweep::new();
    let empty = sweep.path("empty");
    fs::create_dir(&empty).unwrap();
    let refused = |engine: &str, path: &Path| {
        let more = ["--resume", "--engine", engine];
        last_line(&sweep.command(&more).env("PATH", path).output().unwrap())
    };
    assert!(refused("slurm", &empty).contains("there is no sbatch here: "));
    assert!(refused("ray", &empty).contains("cannot run python3"));
    let down = "#!/bin/sh\necho 'sbatch: error: Batch job submission failed: Unable to contact slurm controller' >&2\nexit 1\n";
    program(&empty.join("sbatch"), down);
    let line = refused("slurm", &empty);
    assert!(line.contains("Unable to contact slurm controller"), "{line}");
    program(&empty.join("python3"), "#!/bin/sh\necho 'No module named drover' >&2\nexit 1\n");
    let line = refused("ray", &empty);
    assert!(
        line.contains("40 of 40 shards are missing") && line.contains("No module named drover"),
        "{line}"
    );
}
