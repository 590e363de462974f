// SPDX-License-Identifier: GPL-2.0-only
//! docs/scenarios.md, docs/results.md and docs/seeds/claims.json say what is, no more and no less.

use drover_core::counters::{Counters, Yields};
use drover_core::io::{DelayUs, Io, IoDelays, MsPerMb};
use drover_core::profile::{Class, Evidence, Profile};
use drover_core::settings::Cosched;
use drover_scenario::claims;
use drover_scenario::expect::Metric;
use drover_scenario::repeats::{Difference, Mean, OverRepeats, Repeats, Whose};
use drover_scenario::results::{
    FileSum, Ground, HostFigures, NumaFigures, Origin, Results, Run, Timeline, VcpuFigures,
    VmFigures, WakeupUs, Wall,
};
use drover_scenario::{Clock, Scenario};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;

const SCENARIOS: &str = include_str!("../../../docs/scenarios.md");
const RESULTS: &str = include_str!("../../../docs/results.md");

/// What stands in backticks in the first column of the table after `heading`.
fn first_column(section: &str) -> Vec<&str> {
    let rows = section.lines().skip_while(|line| !line.starts_with("| `"));
    let rows = rows.take_while(|line| line.starts_with("| `"));
    rows.map(|row| row["| `".len()..].split('`').next().unwrap()).collect()
}

fn blocks<'a>(document: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    let blocks = document.split(fence.as_str()).skip(1);
    blocks.map(|block| block.split("```").next().unwrap()).collect()
}

#[test]
fn every_metric_is_documented() {
    let body = SCENARIOS.split("### Metrics\n").nth(1).unwrap();
    assert_eq!(first_column(body), Metric::ALL.map(Metric::name));
    for metric in Metric::ALL {
        let of = if metric.is_of_vm() { "VM" } else { "host" };
        assert!(body.contains(&format!("| `{}` | {of} |", metric.name())), "{}", metric.name());
    }
}

#[test]
fn every_example_of_a_scenario_reads() {
    let examples = blocks(SCENARIOS, "toml");
    let starts = |with: &str| examples.iter().any(|example| example.starts_with(with));
    assert!(starts("name") && starts("workload") && starts("[[container]]"), "each kind is shown");
    for example in &examples {
        let head = "name = \"x\"\nhost = { cores = 2 }\n";
        let vm = "[[vm]]\nname = \"a\"\nvcpus = 2\n";
        let vmm = if example.contains("command") { "vmm = \"qemu\"\n" } else { "" };
        let text = if example.starts_with("workload") {
            format!("{head}{vm}{vmm}{example}")
        } else if example.starts_with("[[container]]") {
            format!("{head}{example}\n{vm}workload = {{ kind = \"cpu\" }}\n")
        } else {
            (*example).to_owned()
        };
        if let Err(error) = Scenario::parse(&text, "docs/scenarios.md") {
            panic!("{error}\n{text}");
        }
    }
}

#[test]
fn the_example_of_results_reads_and_writes_back() {
    let [example] = blocks(RESULTS, "json")[..] else { panic!("one example") };
    let results: Results = serde_json::from_str(example).unwrap();
    let written: Value = serde_json::from_str(example).unwrap();
    assert_eq!(serde_json::to_value(&results).unwrap(), written);
}

/// A profile with all the evidence there can be.
fn profile() -> Profile {
    let evidence = Evidence {
        over_s: 4.0,
        vcpus_pcpus: 0.4,
        helpers_pcpus: 0.1,
        wanted_pcpus: 0.6,
        run_ms: Some(0.1),
        sleeps_per_s: 4000.0,
        helper_sleeps_per_s: 4000.0,
        block_mb_s: Some(16.0),
        network_mb_s: Some(0.5),
        memory_mib_s: Some(100.0),
    };
    Profile { class: Class::Io, for_s: 9.0, changes: 1, evidence }
}

/// A VM's figures with every field there.
fn complete_vm() -> VmFigures {
    let counters = Some(Counters {
        progressed_s: Some(1.5),
        hazard_s: Some(0.5),
        skew_max_ms: Some(3.0),
        ..Counters::default()
    });
    let vcpu = VcpuFigures { cpu_s: Some(0.5), progress: Some(3), counters };
    let counters = counters.map(|of_vcpu| Counters {
        used_s: Some(1.0),
        charged_s: Some(1.0),
        limited_s: Some(0.1),
        yields: Some(Yields::default()),
        longest_ready_ms: Some(8.0),
        guaranteed_delay_ms: Some(66.0),
        ..of_vcpu
    });
    let delay = DelayUs { count: 1, mean: 1.0, p50: 1.024, p99: 1.024 };
    VmFigures {
        name: "vm0".to_owned(),
        vcpus: 1,
        shares: 1000,
        reservation_pct: Some(50),
        limit_pct: Some(100),
        pool: Some("prod".to_owned()),
        partition: Some("io".to_owned()),
        cosched: Some(Cosched::Gang),
        owed_cpu_s: Some(0.6),
        share_owed_pct: Some(100.0),
        share_got_pct: Some(100.0),
        cpu_s: Some(0.6),
        helpers_cpu_s: Some(0.1),
        vcpu_min_cpu_s: Some(0.5),
        vcpu_max_cpu_s: Some(0.5),
        dispatches: Some(4),
        moves: Some(1),
        progress: Some(3),
        yields: Some(2),
        boot_s: Some(3.5),
        spin_s: Some(0.1),
        longest_spin_ms: Some(2.0),
        local_access_pct: Some(50.0),
        counters,
        vcpu: vec![vcpu],
        profile: Some(profile()),
        numa: Some(NumaFigures {
            home: vec![1],
            local_pct: Some(99.0),
            home_time_pct: Some(99.0),
            migrations: 1,
            moved_mib: 128.0,
        }),
        io: Some(Io {
            block_bytes: Some(1),
            network_bytes: Some(1),
            ms_per_mb: Some(MsPerMb { to_guest: 1.0, to_device: 1.0 }),
            delay_us: IoDelays { to_guest: Some(delay), to_device: Some(delay) },
        }),
        wakeup_us: Some(WakeupUs { count: 1, mean: 1.0, p50: 1.0, p99: 1.0, max: 1.0 }),
        timeline: Some(Timeline { interval_ms: 100, cpu_s: vec![0.1], length_s: vec![0.1] }),
    }
}

/// What repeats say, with every field there.
fn repeats() -> Repeats {
    let value = Mean { n: 2, mean: 1.0, ci95: 0.1 };
    let whose = Whose {
        case: "all".to_owned(),
        vm: "vm0".to_owned(),
        metric: "progress".to_owned(),
        scheduler: "drover".to_owned(),
    };
    let difference = Difference { whose: whose.clone(), against: "eevdf".to_owned(), value };
    Repeats { means: vec![OverRepeats { whose, value }], differences: vec![difference] }
}

/// Results with every field there.
fn complete() -> Results {
    let run = Run {
        case: "all".to_owned(),
        scheduler: "drover".to_owned(),
        repeat: 1,
        seed: Some(1),
        duration_s: 4.0,
        fault: Some("ejected".to_owned()),
        host: HostFigures {
            pcpus: 1,
            idle_s: Some(3.4),
            context_switches: Some(9),
            bpf_run_ns: Some(900),
            pause_exits: Some(8),
            pause_exit_s: Some(0.1),
            preempted_siblings: Some(9.0),
            preempted_holders: Some(1.0),
            page_fault_s: Some(0.1),
            page_fault_spin_s: Some(0.1),
        },
        vms: vec![complete_vm()],
    };
    Results {
        scenario: "s".to_owned(),
        ground: Ground::Lab,
        clock: Some(Clock::Exact),
        origin: Origin {
            files: vec![FileSum { name: "s.toml".to_owned(), sha256: "00".to_owned() }],
            set: vec!["seed=1".to_owned()],
            machine: Some("one pCPU".to_owned()),
            drover: Some("0.1.0".to_owned()),
            program: Some("00".to_owned()),
        },
        seed: 1,
        kernel: Some("x".to_owned()),
        runs: vec![run],
        repeats: Some(repeats()),
        wall: Some(Wall { started: Some("now".to_owned()), elapsed_s: Some(1.0) }),
    }
}

fn paths(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            let dot = if path.is_empty() { "" } else { "." };
            fields
                .iter()
                .for_each(|(key, value)| paths(value, &format!("{path}{dot}{key}"), found));
        }
        Value::Array(items) => {
            items.iter().for_each(|value| paths(value, &format!("{path}[]"), found));
        }
        _ => {
            found.insert(path.to_owned());
        }
    }
}

/// The fields that a row names: `a.b`, and `.c` beside it for `a.c`.
fn fields_of_row(row: &str) -> Vec<String> {
    let cell = row.split(" | ").next().unwrap();
    let named: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
    let above = named[0].rsplit_once('.').map_or("", |(above, _)| above);
    let beside = |field: &&str| match field.strip_prefix('.') {
        Some(field) => format!("{above}.{field}"),
        None => (*field).to_owned(),
    };
    named.iter().map(beside).collect()
}

#[test]
fn fields_in_a_row_are_beside_its_first() {
    let row = "| `a[].b`, `.c[]` | what `.d` is |";
    assert_eq!(fields_of_row(row), ["a[].b", "a[].c[]"]);
    assert_eq!(fields_of_row("| `drover`, `program` | both |"), ["drover", "program"]);
}

#[test]
fn every_field_of_results_is_documented_and_no_other() {
    let mut fields = BTreeSet::new();
    paths(&serde_json::to_value(complete()).unwrap(), "", &mut fields);
    let table = RESULTS.lines().filter(|line| line.starts_with("| `"));
    let table = table.take_while(|line| !line.starts_with("| `H`"));
    let mut documented = BTreeSet::new();
    for named in table.flat_map(fields_of_row) {
        assert!(documented.insert(named.clone()), "{named} stands twice");
    }
    assert_eq!(documented, fields);
}

const CLAIMS: &str = include_str!("../../../scenarios/seeds/claims.toml");
const SEEDS: &str = include_str!("../../../docs/seeds/claims.json");

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The ids of claims that scenarios name.
fn claims_of_scenarios() -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for folder in ["scenarios", "scenarios/seeds"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let is_file = path.extension().is_some_and(|it| it == "toml");
            if !is_file || path.ends_with("claims.toml") {
                continue;
            }
            let beside = |other: &str| {
                std::fs::read_to_string(path.with_file_name(other)).map_err(|it| it.to_string())
            };
            let text = std::fs::read_to_string(&path).unwrap();
            let scenario = Scenario::parse_with(&text, &path.display().to_string(), &beside);
            let expects = scenario.unwrap_or_else(|error| panic!("{error}")).expects;
            ids.extend(expects.into_iter().filter_map(|expect| expect.claim));
        }
    }
    ids
}

#[test]
fn every_claim_of_the_seeds_is_shown_pending_or_outside_and_has_its_row() {
    let claims = claims::parse(CLAIMS, "claims.toml").unwrap();
    assert_eq!(claims.len(), 197);
    claims::check(&claims, &claims_of_scenarios()).unwrap();
    let rows: Vec<Value> = serde_json::from_str(SEEDS).unwrap();
    let ids: Vec<&str> = claims.iter().map(|claim| claim.id.as_str()).collect();
    let in_rows: Vec<&str> = rows.iter().map(|row| row["claim"].as_str().unwrap()).collect();
    assert_eq!(in_rows, ids, "run `make seeds`");
    for (claim, row) in claims.iter().zip(&rows) {
        let standing = row["standing"].as_str().unwrap();
        assert_eq!(standing == "pending", claim.pending.is_some(), "{}", claim.id);
        assert_eq!(standing == "outside", claim.outside.is_some(), "{}", claim.id);
        let is_missed = ["near", "not"].contains(&standing);
        assert!(!is_missed || claim.cause.is_some(), "{}: give it a cause", claim.id);
    }
}

/// The file of a test as a claim names it, such as `policy: share_test` or `drover_core::place::tests`.
fn test_file(named: &str) -> PathBuf {
    if let Some(test) = named.strip_prefix("policy: ") {
        return root().join(format!("policy/test/{test}.c"));
    }
    for (ground, of) in
        [("sim: ", "drover-sim"), ("scenario: ", "drover-scenario"), ("lab: ", "drover")]
    {
        if let Some(file) = named.strip_prefix(ground) {
            return root().join("crates").join(of).join(file);
        }
    }
    let (of, path) = named.split_once("::").unwrap();
    let source = root().join("crates").join(of.replace('_', "-")).join("src");
    source.join(format!("{}.rs", path.replace("::", "/")))
}

#[test]
fn tests_that_show_claims_are_there() {
    for claim in claims::parse(CLAIMS, "claims.toml").unwrap() {
        for test in &claim.tests {
            let (file, names) = test.strip_suffix(')').and_then(|it| it.split_once(" (")).unwrap();
            let text = std::fs::read_to_string(test_file(file));
            let text = text.unwrap_or_else(|error| panic!("{}: {test}: {error}", claim.id));
            for name in names.split(", ") {
                let runs = [
                    format!("\tRUN({name});"),
                    format!("#[test]\nfn {name}("),
                    format!("#[test]\n    fn {name}("),
                ];
                assert!(runs.iter().any(|run| text.contains(run)), "{}: {name}", claim.id);
            }
        }
    }
}
