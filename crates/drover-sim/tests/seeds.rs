// SPDX-License-Identifier: GPL-2.0-only
//! Some of the claims of the seed documents, measured again: docs/seeds.md is what comes of it.

use drover_core::claims::{self, Measured, Standing, judge};
use drover_core::expect::evaluate;
use drover_core::scenario::Scenario;
use drover_rivals::RIVALS;
use drover_sim::scenario::{Options, run_scenario};
use std::collections::BTreeMap;
use std::path::PathBuf;

const CLAIMS: &str = include_str!("../../../scenarios/seeds/claims.toml");
const PAGE: &str = include_str!("../../../docs/seeds.md");
/// As many seeds of randomness as `drover seeds` takes.
const SEEDS: u32 = 5;

/// Scenarios that are quick, and show all of each claim they show.
const FILES: [&str; 6] = [
    "esx-fig3-shares.toml",
    "esx-fig5-limit.toml",
    "seeds/000-fig6-8.toml",
    "seeds/000-s2-shares-and-balance.toml",
    "seeds/000-s22-siblings.toml",
    "seeds/000-s33-caches.toml",
];

/// What shows each claim in a scenario.
fn measured(name: &str) -> BTreeMap<String, Vec<Measured>> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(name);
    let read = |other: &str| {
        std::fs::read_to_string(path.with_file_name(other)).map_err(|error| error.to_string())
    };
    let text = std::fs::read_to_string(&path).unwrap();
    let mut scenario = Scenario::parse_with(&text, name, &read).unwrap();
    (scenario.repeats, scenario.schedulers) = (SEEDS, vec!["drover".to_owned()]);
    let results = run_scenario(&scenario, RIVALS, &Options::default(), &|_, _| {}).unwrap().results;
    let mut measured: BTreeMap<String, Vec<Measured>> = BTreeMap::new();
    for expect in &scenario.expects {
        let Some(id) = &expect.claim else { continue };
        let rows = evaluate(std::slice::from_ref(expect), &results);
        let figures = rows.into_iter().map(|row| Measured { expect: expect.clone(), row });
        measured.entry(id.clone()).or_default().extend(figures);
    }
    measured
}

#[test]
fn claims_stand_as_the_page_says() {
    let claims = claims::parse(CLAIMS, "claims.toml").unwrap();
    for (id, figures) in FILES.iter().flat_map(|name| measured(name)) {
        let claim = claims.iter().find(|claim| claim.id == id).unwrap();
        let word = match judge(claim.kind, claim.judged_by, &figures) {
            Standing::Holds => "| holds |",
            Standing::Near => "| near |",
            Standing::Not => "| **not** |",
        };
        let row = PAGE.lines().find(|line| line.starts_with(&format!("| `{id}`"))).unwrap();
        assert!(row.contains(word), "{id} is {word} now; run `make seeds`");
    }
}
