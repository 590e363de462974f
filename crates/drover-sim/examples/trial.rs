// SPDX-License-Identifier: GPL-2.0-only
//! `make trial FILE=SCENARIO SEEDS=10 JSON=out.json`: a scenario in the simulator, as `drover run --on sim --check`, and
//! nothing but that: a changed line of the policy is tried in seconds.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use drover_rivals::RIVALS;
use drover_scenario::Scenario;
use drover_scenario::expect::{Verdict, evaluate};
use drover_sim::scenario::{Options, run_scenario};

/// What was asked for.
#[derive(Debug, Default, PartialEq)]
struct Asked {
    files: Vec<String>,
    seeds: u32,
    /// Where to write the figures of the last scenario.
    json: Option<String>,
}

impl Asked {
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut asked = Self { seeds: 1, ..Self::default() };

        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--seeds" => {
                    let seeds = arguments.next().and_then(|seeds| seeds.parse().ok());
                    let seeds = seeds.filter(|seeds| (1..=10_000).contains(seeds));
                    asked.seeds = seeds.ok_or("--seeds: give 1 to 10000")?;
                }
                "--json" => {
                    asked.json = Some(arguments.next().ok_or("--json: give a file to write")?);
                }
                option if option.starts_with('-') => {
                    return Err(format!("unknown option {option}; known are --seeds and --json"));
                }
                _ => asked.files.push(argument),
            }
        }
        match (asked.files.len(), &asked.json) {
            (0, _) => {
                Err("no scenario is given: make trial FILE=scenarios/esx-fig3-shares.toml"
                    .to_owned())
            }
            (2.., Some(_)) => {
                Err("--json is for one scenario; give one, or leave it out".to_owned())
            }
            _ => Ok(asked),
        }
    }
}

fn main() -> ExitCode {
    let tried = Asked::read(std::env::args().skip(1)).and_then(|asked| {
        let tried = asked.files.iter().map(|file| trial(file, &asked));
        tried.collect::<Result<Vec<bool>, String>>()
    });
    match tried {
        Ok(held) if held.iter().all(|held| *held) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("trial: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all holds that the scenario expects.
fn trial(file: &str, asked: &Asked) -> Result<bool, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("cannot read {file}: {error}"))?;
    let other = |name: &str| {
        fs::read_to_string(Path::new(file).with_file_name(name)).map_err(|error| error.to_string())
    };
    let scenario = Scenario::parse_with(&text, file, &other).map_err(|error| error.to_string())?;
    let options = Options { seeds: asked.seeds, ..Options::default() };
    let results = run_scenario(&scenario, RIVALS, &options, &|_, _| ())?.results;
    let rows = evaluate(&scenario.expects, &results);
    print!("{}\n{}", drover_report::table(&results), drover_report::checks(&rows));
    if let Some(json) = &asked.json {
        let text = serde_json::to_string_pretty(&results).map_err(|error| error.to_string())?;
        fs::write(json, text + "\n").map_err(|error| format!("cannot write {json}: {error}"))?;
        println!("figures:  {json}");
    }
    Ok(rows.iter().all(|row| row.verdict != Verdict::Fail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str]) -> Result<Asked, String> {
        Asked::read(arguments.iter().map(|&it| it.to_owned()))
    }

    #[test]
    fn scenarios_and_options_come_in_any_order() {
        let asked = read(&["--seeds", "5", "a.toml", "--json", "out.json"]).unwrap();
        let (files, json) = (vec!["a.toml".to_owned()], Some("out.json".to_owned()));
        assert_eq!(asked, Asked { files, seeds: 5, json });
        assert_eq!(read(&["a.toml", "b.toml"]).unwrap().seeds, 1);
    }

    #[test]
    fn what_cannot_be_followed_is_refused() {
        for (arguments, said) in [
            (&[][..], "no scenario"),
            (&["a.toml", "--seeds", "0"], "1 to 10000"),
            (&["a.toml", "--json"], "a file"),
            (&["a.toml", "--sedes", "3"], "--sedes"),
            (&["a.toml", "b.toml", "--json", "x"], "one scenario"),
        ] {
            let why = read(arguments).unwrap_err();
            assert!(why.contains(said), "{why}");
        }
    }
}
