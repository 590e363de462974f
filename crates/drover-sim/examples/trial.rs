// SPDX-License-Identifier: GPL-2.0-only
//! `make trial FILE=SCENARIO`: a scenario in the simulator, as `drover run --on sim --check`, and nothing but that: a
//! changed line of the policy is tried in seconds.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use drover_core::expect::{Verdict, evaluate};
use drover_core::scenario::Scenario;
use drover_rivals::RIVALS;
use drover_sim::scenario::{Options, run_scenario};

fn main() -> ExitCode {
    let files: Vec<String> = std::env::args().skip(1).collect();
    let tried: Result<Vec<bool>, String> = files.iter().map(|file| trial(file)).collect();
    match tried {
        Ok(held) if !held.is_empty() && held.iter().all(|held| *held) => ExitCode::SUCCESS,
        Ok(held) if !held.is_empty() => ExitCode::FAILURE,
        Ok(_) => fault("no scenario is given: make trial FILE=scenarios/esx-fig3-shares.toml"),
        Err(why) => fault(&why),
    }
}

fn fault(why: &str) -> ExitCode {
    eprintln!("trial: {why}");
    ExitCode::FAILURE
}

/// Whether all holds that the scenario expects.
fn trial(file: &str) -> Result<bool, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("cannot read {file}: {error}"))?;
    let other = |name: &str| {
        fs::read_to_string(Path::new(file).with_file_name(name)).map_err(|error| error.to_string())
    };
    let scenario = Scenario::parse_with(&text, file, &other).map_err(|error| error.to_string())?;
    let outcome = run_scenario(&scenario, RIVALS, &Options::default(), &|_, _| ())?;
    let rows = evaluate(&scenario.expects, &outcome.results);
    print!("{}\n{}", drover_report::table(&outcome.results), drover_report::checks(&rows));
    Ok(rows.iter().all(|row| row.verdict != Verdict::Fail))
}
