// SPDX-License-Identifier: GPL-2.0-only
//! The mechanisms that the seed documents describe, and what is taken out of the source to be without each:
//! crates/drover-mutate/mechanisms.toml.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use drover_scenario::claims::{self, Claim};
use serde::Deserialize;

/// Where they are listed, in the project.
const LIST: &str = "crates/drover-mutate/mechanisms.toml";
const CLAIMS: &str = "scenarios/seeds/claims.toml";

/// A mechanism, and an edit of one file that takes it out.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mechanism {
    /// The ids, in scenarios/seeds/claims.toml, of the claims about this mechanism.
    pub claims: Vec<String>,
    /// What the source does without it, in a few words.
    pub without: String,
    /// The file, from the project's root.
    pub file: String,
    /// What stands there once.
    pub old: String,
    /// What is put in its place.
    pub new: String,
    /// The tests that must fail then, named as in the claims, one each: `policy: x_test (y)`.
    pub fails: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    mechanism: Vec<Mechanism>,
}

/// Reads the list of a project; each edit applies, and each test that shows a claim has one that it must fail.
///
/// # Errors
/// The first fault, in one line.
pub fn read(project: &Path) -> Result<Vec<Mechanism>> {
    let text = |file: &str| {
        fs::read_to_string(project.join(file)).with_context(|| format!("cannot read {file}"))
    };
    let list: List = toml::from_str(&text(LIST)?).with_context(|| LIST.to_owned())?;
    for mechanism in &list.mechanism {
        mechanism.applied(&text(&mechanism.file)?)?;
    }
    check(&list.mechanism, &claims::parse(&text(CLAIMS)?, CLAIMS)?)?;
    Ok(list.mechanism)
}

impl Mechanism {
    /// The source of its file without it.
    ///
    /// # Errors
    /// What is to be taken out is not there, or more than once.
    pub fn applied(&self, source: &str) -> Result<String> {
        let found = source.matches(&self.old).count();
        let Self { without, file, .. } = self;
        ensure!(
            found == 1,
            "{LIST}, \"{without}\": its old text is {found} times in {file}; give what stands there once"
        );
        Ok(source.replacen(&self.old, &self.new, 1))
    }
}

/// The tests of a claim, one each.
fn tests(claim: &Claim) -> BTreeSet<String> {
    let of = |entry: &String| {
        let (file, names) = entry.strip_suffix(')')?.split_once(" (")?;
        Some(names.split(", ").map(|name| format!("{file} ({name})")).collect::<Vec<_>>())
    };
    claim.tests.iter().filter_map(of).flatten().collect()
}

fn check(mechanisms: &[Mechanism], claims: &[Claim]) -> Result<()> {
    for Mechanism { claims: ids, without, fails, .. } in mechanisms {
        ensure!(
            !fails.is_empty() && !ids.is_empty(),
            "{LIST}, \"{without}\": name claims and tests"
        );
        let of = claims.iter().filter(|claim| ids.contains(&claim.id));
        let known: BTreeSet<String> = of.clone().flat_map(tests).collect();
        let strange = ids.iter().find(|id| claims.iter().all(|claim| claim.id != **id));
        ensure!(strange.is_none(), "{LIST}, \"{without}\": unknown claim {strange:?}");
        let strange = fails.iter().find(|test| !known.contains(*test));
        ensure!(
            strange.is_none(),
            "{LIST}, \"{without}\": no claim of it has the test {strange:?}"
        );
    }
    for claim in claims {
        let of = mechanisms.iter().filter(|it| it.claims.contains(&claim.id));
        let tried: BTreeSet<String> = of.flat_map(|it| it.fails.iter().cloned()).collect();
        let not_tried = tests(claim).into_iter().find(|test| !tried.contains(test));
        ensure!(
            not_tried.is_none(),
            "claim {} in {CLAIMS}: nothing in {LIST} says what its test {not_tried:?} must fail without",
            claim.id
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    pub fn project() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    fn mechanism() -> Mechanism {
        let text = "claims = [\"000-a\"]\nwithout = \"b\"\nfile = \"f\"\nold = \"x\"\nnew = \"\"\n\
                    fails = [\"policy: t (one)\"]\n";
        toml::from_str(text).unwrap()
    }

    fn claims(tests: &str) -> Vec<Claim> {
        let text = format!(
            "[[claim]]\nid = \"000-a\"\nsection = \"1\"\nhost = \"-\"\nvms = \"-\"\nworkload = \"-\"\n\
             compares = \"-\"\nmetric = \"-\"\nsays = \"-\"\nkind = \"mechanism\"\nquote = \"-\"\n\
             tests = [\"{tests}\"]\n"
        );
        claims::parse(&text, "c.toml").unwrap()
    }

    #[test]
    fn every_edit_applies_and_every_test_of_a_claim_has_one() {
        let mechanisms = read(&project()).unwrap();
        assert!(mechanisms.len() > 40, "{}", mechanisms.len());
    }

    #[test]
    fn an_edit_applies_once() {
        assert_eq!(mechanism().applied("axb").unwrap(), "ab");
        for source in ["ab", "xx"] {
            let error = mechanism().applied(source).unwrap_err().to_string();
            assert!(error.contains("times in f") && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn tests_and_claims_must_know_each_other() {
        assert!(check(&[mechanism()], &claims("policy: t (one)")).is_ok());
        for (mechanisms, tests, said) in [
            (vec![mechanism()], "policy: t (one, two)", "its test Some(\"policy: t (two)\")"),
            (vec![], "policy: t (one)", "its test Some(\"policy: t (one)\")"),
            (vec![mechanism()], "policy: t (two)", "no claim of it has the test"),
            (
                vec![Mechanism { claims: vec!["000-b".to_owned()], ..mechanism() }],
                "policy: t (one)",
                "unknown claim Some(\"000-b\")",
            ),
        ] {
            let error = check(&mechanisms, &claims(tests)).unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains('\n'), "{error}");
        }
    }
}
