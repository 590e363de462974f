// SPDX-License-Identifier: GPL-2.0-only
//! `make mutants`: are the tests of the policy any good?
//!
//! A mutant is the policy with one small fault: `<` for `<=`, a statement left out (site.rs has
//! them all). Each must be noticed by the policy's own tests or, failing these, by the fault rig
//! of the simulator. One that is not is either a hole in the tests or makes no difference;
//! docs/mutants.md lists them and says which.
//!
//! A mutant that does not compile does not count. Nor does one that compiles to the same machine code as
//! the policy. The others are compiled and run without sanitizers, the cheapest test
//! first, until one fails. A test that takes too long has failed, too.

mod bench;
mod mechanism;
mod report;
mod site;
mod token;
mod without;

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bench::{Bench, Check, Checks, Fate, Net, Proven, Words};
use clap::Parser;
use drover_sim::rng::Rng;
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use report::{Outcome, Source};

/// Seeds of the rig that a mutant must come through, after all trials that once failed. The policy itself does: of the
/// first 100 it breaks one (docs/simulator.md, "Open").
const RIG_SEEDS: Range<u64> = 100..600;
const WORKERS: usize = 2;
const REPORT: &str = "docs/mutants.md";
/// How the policy's tests are compiled: without sanitizers.
const POLICY_CFLAGS: &str = "-std=gnu11 -I.. -O1 -w";
/// What is built from: the tests find their compiler in script/clang.mk, one policy in the document, and parameters
/// where daemon and simulator have them.
const COPIED: [&str; 4] =
    ["policy", "script/clang.mk", "docs/write-a-policy.md", "crates/drover-core/src/params.rs"];

/// Plants faults in the policy, one at a time, and sees whether its tests notice.
#[derive(Parser)]
struct Args {
    /// Mutants to plant.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    count: u64,
    /// Which of all that could be planted.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The C compiler.
    #[arg(long, default_value = "clang")]
    clang: String,
    /// Take out the mechanisms of the seed documents, one at a time, and plant nothing.
    #[arg(long)]
    mechanisms: bool,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("drover-mutate: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let project = std::env::current_dir()?;
    let begin = Instant::now();
    let summary = if args.mechanisms {
        without::report_on(&project, &progress_bar(0))?
    } else {
        report_on(args, &project, &checks(&project, &args.clang)?)?
    };
    println!("{summary}; {:.0} s", begin.elapsed().as_secs_f64());
    Ok(())
}

fn progress_bar(length: u64) -> ProgressBar {
    let bar = ProgressBar::new(length).with_finish(ProgressFinish::AndClear);
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len}  {wide_msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Plants the mutants and writes the report. Returns what it says in short.
fn report_on(args: &Args, project: &Path, checks: &Checks) -> Result<String> {
    let files = sources(project)?;
    let chosen = choose(&files, args.count, args.seed);
    let bar = progress_bar(chosen.len() as u64);
    let trees = (0..WORKERS).map(|number| project.join(format!("target/mutants/{number}")));
    let benches: Vec<Bench> =
        trees.map(|tree| Bench::new(tree, project, &COPIED)).collect::<Result<_>>()?;
    let proven = benches[0].prove(checks, &|command| {
        bar.set_message(format!("the policy as it is: {command}"));
    })?;
    let outcomes = judge(&benches, &proven, &files, &chosen, &bar)?;
    let old = fs::read_to_string(project.join(REPORT)).unwrap_or_default();
    let text = report::report(&intro(args), &files, &outcomes, &old);
    fs::write(project.join(REPORT), &text).with_context(|| format!("cannot write {REPORT}"))?;
    let unexplained = report::unexplained(&text);
    Ok(format!("{}; {unexplained} rows of {REPORT} have no reason", summary(&outcomes)))
}

/// The policy's tests and the rig. What is run natively is what the simulator runs.
fn checks(project: &Path, clang: &str) -> Result<Checks> {
    let sim = project.join("crates/drover-sim");
    let rig = std::env::current_exe()?.with_file_name("libdrover_trials.a");
    ensure!(rig.exists(), "{} is missing; use make mutants, which builds it", rig.display());
    let (rig, sim) = (rig.display().to_string(), sim.display());
    let mut checks = Vec::new();
    for test in tests(project)? {
        let program = format!("../../tests/{test}");
        let mut build = words(&["make", "-s", "-C", "policy/test", "OUT=../../tests", &program]);
        build.push(format!("CFLAGS={POLICY_CFLAGS}"));
        let commands = vec![build, vec![format!("tests/{test}")]];
        checks.push(Check { net: Net::Tests, commands });
    }
    let mut link = words(&[clang, "policy.o", &rig, "-Wl,-S", "-o", "trials"]);
    link.extend(words(&["-lpthread", "-ldl", "-lm"]));
    let Range { start, end } = RIG_SEEDS;
    let [start, end] = [start, end].map(|seed| seed.to_string());
    let trials = words(&["./trials", &format!("{sim}/regressions"), &start, &end]);
    checks.push(Check { net: Net::Rig, commands: vec![link, trials] });
    let mut compile =
        words(&[clang, "-std=gnu11", "-O2", "-fno-strict-aliasing", "-w", "-Ipolicy"]);
    compile.extend(words(&["-c", &format!("{sim}/native/policy.c"), "-o", "policy.o"]));
    Ok(Checks { compile, object: "policy.o".into(), checks })
}

fn words(words: &[&str]) -> Words {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// The names of the test programs.
fn tests(project: &Path) -> Result<Vec<String>> {
    let folder = project.join("policy/test");
    let files = fs::read_dir(&folder).with_context(|| {
        format!("cannot read {}; run this in the project's folder", folder.display())
    })?;
    let names = files.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let names: Vec<String> = names.collect::<Result<_>>()?;
    let tests = names.iter().filter_map(|name| name.strip_suffix(".c"));
    Ok(tests.filter(|name| name.ends_with("_test")).map(str::to_owned).collect())
}

/// The policy's headers, without its tests, by name.
fn sources(project: &Path) -> Result<Vec<Source>> {
    let policy = project.join("policy");
    let (mut folders, mut found) = (vec![policy.clone()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.strip_prefix(&policy)?.display().to_string();
            if path.is_dir() && name != "test" {
                folders.push(path);
            } else if name.ends_with(".h") {
                let text = fs::read_to_string(&path)?;
                found.push(Source { name, sites: site::sites(&text), text });
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// So many sites, by file and number: any of each file, and of each file its part.
fn choose(files: &[Source], count: u64, seed: u64) -> Vec<(usize, usize)> {
    let mut rng = Rng::new(seed);
    let mut all = Vec::new();
    for (number, file) in files.iter().enumerate() {
        let mut sites: Vec<(u64, usize)> =
            (0..file.sites.len()).map(|site| (rng.bits(), site)).collect();
        sites.sort_unstable();
        all.extend(sites.into_iter().map(|(_, site)| (number, site)));
    }
    let total = all.len() as u64;
    let count = count.min(total);
    let first = rng.below(total.max(1));
    (0..count).map(|step| all[((step * total + first) / count) as usize]).collect()
}

/// Checks the mutants, one on each bench at a time.
fn judge(
    benches: &[Bench],
    proven: &Proven,
    files: &[Source],
    chosen: &[(usize, usize)],
    bar: &ProgressBar,
) -> Result<Vec<Outcome>> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    let work = |bench: &Bench| -> Result<()> {
        while let Some(&(file, site)) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
            let source = &files[file];
            let mutated = source.sites[site].mutated(&source.text);
            let path = format!("policy/{}", source.name);
            let fate = bench.fate(proven, &path, &mutated, &source.text)?;
            let mut outcomes = outcomes.lock().expect("nobody panics with it held");
            outcomes.push(Outcome { file, site, fate });
            bar.set_message(summary(&outcomes));
            bar.inc(1);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            benches.iter().map(|bench| scope.spawn(move || work(bench))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
    })?;
    Ok(outcomes.into_inner().expect("nobody panicked"))
}

fn summary(outcomes: &[Outcome]) -> String {
    let count = |fate| outcomes.iter().filter(|outcome| outcome.fate == fate).count();
    let void = count(Fate::NotCompiled) + count(Fate::SameCode);
    format!(
        "{} mutants: {} killed by tests, {} by the rig, {} survived; {void} do not count",
        outcomes.len(),
        count(Fate::Killed(Net::Tests)),
        count(Fate::Killed(Net::Rig)),
        count(Fate::Survived),
    )
}

fn intro(args: &Args) -> String {
    format!(
        "Written by `make mutants COUNT={} SEED={}` (crates/drover-mutate): faults planted in the \
         policy, one at a time.\nEach must be noticed by the policy's tests or by the rig (all \
         trials in crates/drover-sim/regressions, and the seeds {RIG_SEEDS:?}).\n\"Same code\" \
         compiles to the policy's own machine code. Neither that nor what does not \
         compile counts.\n",
        args.count, args.seed
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(command: &str) -> Words {
        words(&["sh", "-c", command])
    }

    /// A project whose compiler wants a 7 and drops what is added to MAX, and whose tests are
    /// looks at the text.
    fn project() -> (tempfile::TempDir, Checks) {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        file("policy/a/f.h", POLICY);
        file("policy/test/t.h", "int t(void)\n{\n\treturn 1;\n}\n");
        file("script/clang.mk", "");
        file("docs/mutants.md", "");
        file("docs/write-a-policy.md", "");
        file("crates/drover-core/src/params.rs", "");
        let check = |net, command: &str| Check { net, commands: vec![shell(command)] };
        let checks = Checks {
            compile: shell("grep -q 7 policy/a/f.h && sed 's/MAX . .;/MAX;/' policy/a/f.h > o"),
            object: "o".into(),
            checks: vec![
                check(Net::Rig, "grep -q 'g();' policy/a/f.h"),
                check(Net::Tests, "grep -q 'a < b' policy/a/f.h"),
            ],
        };
        (folder, checks)
    }

    const POLICY: &str = "bool f(void)\n{\n\tif (a < b)\n\t\tg();\n\tu32 c = MAX + 4;\n\
                          \tu32 d = 7;\n\treturn c == d;\n}\n";

    #[test]
    fn from_a_policy_to_a_report() {
        let (folder, checks) = project();
        let args = Args { count: 100, seed: 3, clang: String::new(), mechanisms: false };
        let said = report_on(&args, folder.path(), &checks).unwrap();
        assert!(said.starts_with("7 mutants: 1 killed by tests, 1 by the rig, 2 surv"), "{said}");
        assert!(said.contains("; 3 do not count; 2 rows of docs/mutants.md have"), "{said}");
        let report = fs::read_to_string(folder.path().join(REPORT)).unwrap();
        for row in [
            "| `a` | 7 | 7 | 1 | 2 | 1 | 1 | 2 |\n",
            "| `a/f.h:7` | `return c == d;` | `return !(c == d);` |  |\n",
            "| `a/f.h:7` | `return c == d;` | `return c != d;` |  |\n",
        ] {
            assert!(report.contains(row), "{report}");
        }
        let policy = |root: &Path| fs::read_to_string(root.join("policy/a/f.h")).unwrap();
        assert_eq!(policy(folder.path()), POLICY);
        assert_eq!(policy(&folder.path().join("target/mutants/0")), POLICY);
    }

    #[test]
    fn each_file_has_its_part() {
        let file = |sites: usize| Source {
            name: String::new(),
            text: String::new(),
            sites: vec![site::sites("int f(void)\n{\n\treturn 7;\n}\n").remove(0); sites],
        };
        let files = [file(10), file(0), file(20), file(70)];
        for seed in 0..20 {
            let chosen = choose(&files, 10, seed);
            let of = |number| chosen.iter().filter(|one| one.0 == number).count();
            assert_eq!([of(0), of(1), of(2), of(3)], [1, 0, 2, 7]);
            assert_eq!(chosen, choose(&files, 10, seed));
        }
        assert_ne!(choose(&files, 10, 1), choose(&files, 10, 2));
        let mut all = choose(&files, 1000, 1);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 100);
    }
}
