// SPDX-License-Identifier: GPL-2.0-only
//! What a sweep does: a scenario with each value of each key that varies and each seed, or trials of the fault rig.
//!
//! A sweep is cut into shards, numbered from 0. What shard N is follows from the plan and N alone: the seeds go round
//! first, then the key that comes last in the plan.
//!
//! Worked example: 2 tunings, 3 numbers of VMs and the seeds 1..20 by 5 are 2 x 3 x 4 = 24 shards; shard 0 has the seeds
//! 1..5 of the first of all, shard 4 the second number of VMs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use drover_experiment::{Overrides, ScenarioFile};
use drover_scenario::results::FileSum;
use drover_scenario::results::Ground;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Shards of a sweep, at most: each is a file in one folder.
const SHARDS_MAX: u128 = 100_000;
/// Seeds of a shard, unless the plan says otherwise.
const SEEDS_PER_SHARD: u64 = 5;
/// Trials of a shard, unless the plan says otherwise: some seconds of work.
const TRIALS_PER_SHARD: u64 = 500;

/// Keys of which `"*"` is known to mean all values.
const ALL_OF: [(&str, &[&str]); 2] = [
    ("tuning", &["default", "pin-node", "mem", "pin-core", "pin-core+mem", "pin-1to1+mem"]),
    ("placement", &["auto", "greedy", "packed", "spread"]),
];

/// What a sweep does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The plan's text.
    pub text: String,
    /// What is done.
    pub work: Work,
}

/// What is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// A scenario is run.
    Runs(Runs),
    /// The fault rig is.
    Soak(Span),
}

/// Runs of a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runs {
    /// The scenario.
    pub file: PathBuf,
    /// It and the files it names.
    pub sums: Vec<FileSum>,
    /// What varies.
    pub axes: Vec<Axis>,
    /// The seeds.
    seeds: Span,
}

/// A key of the scenario and the values it has in turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// The key, as `--set` has it.
    pub key: String,
    /// Its values, as `--set` has them.
    pub values: Vec<String>,
}

/// Numbers from `first` on, and how many of them are a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    first: u64,
    count: u64,
    per_shard: u64,
}

impl Span {
    fn shards(self) -> u64 {
        self.count.div_ceil(self.per_shard)
    }

    /// The first of part `number`, and how many it has.
    fn part(self, number: u64) -> (u64, u64) {
        let skipped = number * self.per_shard;
        (self.first + skipped, self.per_shard.min(self.count - skipped))
    }
}

impl Plan {
    /// Reads the plan at that path; the scenario's path is from its folder.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        let table = DeTable::parse(&text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            anyhow!("{name}:{}: {}", line(&text, at), error.message().trim())
        })?;
        let work = Reader { name: &name, text: &text }.work(table.get_ref(), path)?;
        let plan = Self { text: text.clone(), work };
        let shards = plan.exact_shards();
        ensure!(
            shards <= SHARDS_MAX,
            "{name}: that makes {shards} shards, a sweep has {SHARDS_MAX} at most: vary less, or make shards larger with \
             seeds_per_shard or trials_per_shard"
        );
        Ok(plan)
    }

    fn exact_shards(&self) -> u128 {
        match &self.work {
            Work::Soak(trials) => trials.shards().into(),
            Work::Runs(runs) => {
                let points = runs.axes.iter().map(|axis| axis.values.len() as u128);
                points.fold(runs.seeds.shards().into(), u128::saturating_mul)
            }
        }
    }

    /// How many shards it has.
    pub fn shards(&self) -> usize {
        self.exact_shards() as usize
    }

    /// What the command line of a shard has behind `drover`, but for where figures are written.
    pub fn arguments(&self, shard: usize) -> Vec<String> {
        let shard = shard as u64;
        match &self.work {
            Work::Soak(trials) => {
                let (first, count) = trials.part(shard);
                let (first, count) = (first.to_string(), count.to_string());
                ["soak", "--shard", "--from", &first, "--trials", &count].map(String::from).into()
            }
            Work::Runs(runs) => {
                let chunks = runs.seeds.shards();
                let (first, count) = runs.seeds.part(shard % chunks);
                let (file, seeds) =
                    (runs.file.display(), format!("{first}..{}", first + count - 1));
                let head = ["run", &file.to_string(), "--on", "sim", "--shard", "--seeds", &seeds]
                    .map(String::from);
                let set = runs.values(shard / chunks).into_iter();
                let set = set.flat_map(|set| ["--set".to_owned(), set]);
                head.into_iter().chain(set).collect()
            }
        }
    }
}

impl Runs {
    /// What is set at that point, as `--set` has it.
    fn values(&self, mut point: u64) -> Vec<String> {
        let mut set = Vec::new();
        for axis in self.axes.iter().rev() {
            let of = axis.values.len() as u64;
            set.push(format!("{}={}", axis.key, axis.values[(point % of) as usize]));
            point /= of;
        }
        set.reverse();
        set
    }

    /// Reads the scenario with each value of each key, beside the first of all others: what is wrong with one is told
    /// before anything runs.
    fn check(&mut self) -> Result<()> {
        let first: Vec<String> = self.values(0);
        for (number, axis) in self.axes.iter().enumerate() {
            for value in &axis.values {
                let mut set = first.clone();
                set[number] = format!("{}={value}", axis.key);
                ScenarioFile::read_set(&self.file, &set)?;
            }
        }
        let file = ScenarioFile::read_set(&self.file, &first)?;
        let scenario = file.scenario(&Overrides::default())?;
        self.sums = file.origin(&scenario, Ground::Sim).files;
        Ok(())
    }
}

/// The line of that byte, from 1.
fn line(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|&&byte| byte == b'\n').count() + 1
}

type Value<'a> = Spanned<DeValue<'a>>;

struct Reader<'a> {
    name: &'a str,
    text: &'a str,
}

impl Reader<'_> {
    fn wrong(&self, at: &Value<'_>, what: &str) -> anyhow::Error {
        anyhow!("{}:{}: {what}", self.name, line(self.text, at.span().start))
    }

    fn work(&self, table: &DeTable<'_>, path: &Path) -> Result<Work> {
        const KNOWN: [&str; 5] = ["file", "seed", "seeds_per_shard", "vary", "soak"];
        self.known(table, &KNOWN)?;
        match (table.get("file"), table.get("soak")) {
            (Some(file), None) => self.runs(table, file, path).map(Work::Runs),
            (None, Some(soak)) if table.len() == 1 => self.soak(soak).map(Work::Soak),
            _ => bail!(
                "{}: give a scenario as file = \"s.toml\", or trials as soak = {{ from = 1, trials = 10000 }}, not both",
                self.name
            ),
        }
    }

    fn known(&self, table: &DeTable<'_>, known: &[&str]) -> Result<()> {
        match table.iter().find(|(key, _)| !known.contains(&&**key.get_ref())) {
            None => Ok(()),
            Some((key, value)) => {
                let what =
                    format!("unknown key \"{}\"; known are {}", key.get_ref(), known.join(", "));
                Err(self.wrong(value, &what))
            }
        }
    }

    fn soak(&self, soak: &Value<'_>) -> Result<Span> {
        let table = soak.get_ref().as_table();
        let table =
            table.ok_or_else(|| self.wrong(soak, "give soak = { from = 1, trials = 10000 }"))?;
        self.known(table, &["from", "trials", "trials_per_shard"])?;
        let number = |key, default| table.get(key).map_or(Ok(default), |it| self.number(it, 1));
        let trials =
            table.get("trials").ok_or_else(|| self.wrong(soak, "give trials, such as 10000"))?;
        let per_shard = number("trials_per_shard", TRIALS_PER_SHARD)?;
        Ok(Span { first: number("from", 1)?, count: self.number(trials, 1)?, per_shard })
    }

    fn runs(&self, table: &DeTable<'_>, file: &Value<'_>, path: &Path) -> Result<Runs> {
        let named =
            file.get_ref().as_str().ok_or_else(|| self.wrong(file, "give the scenario's path"))?;
        let file = std::path::absolute(path.with_file_name(named))?;
        let mut axes = Vec::new();
        if let Some(vary) = table.get("vary") {
            self.axes(vary, "", &mut axes)?;
        }
        let seeds = table.get("seed").map(|it| self.seeds(it)).transpose()?;
        ensure!(
            !axes.is_empty() || seeds.is_some(),
            "{}: nothing varies: give seed = \"1..20\", or keys of the scenario in [vary]",
            self.name
        );
        let per_shard =
            table.get("seeds_per_shard").map_or(Ok(SEEDS_PER_SHARD), |it| self.number(it, 1))?;
        // More than `drover run` takes at once.
        let per_shard = per_shard.min(10_000);
        let (first, count) = match seeds {
            Some(seeds) => seeds,
            None => (ScenarioFile::read(&file)?.scenario(&Overrides::default())?.seed, 1),
        };
        let seeds = Span { first, count, per_shard };
        let mut runs = Runs { file, sums: Vec::new(), axes, seeds };
        runs.check()?;
        Ok(runs)
    }

    fn number(&self, value: &Value<'_>, least: u64) -> Result<u64> {
        let number =
            value.get_ref().as_integer().and_then(|it| it.as_str().replace('_', "").parse().ok());
        let number = number.filter(|&it| (least..=i64::MAX as u64).contains(&it));
        number.ok_or_else(|| self.wrong(value, &format!("give a whole number, {least} or more")))
    }

    /// The first seed, and how many there are.
    fn seeds(&self, value: &Value<'_>) -> Result<(u64, u64)> {
        match value.get_ref().as_str() {
            None => Ok((self.number(value, 0)?, 1)),
            Some(text) => match range(text) {
                Some((first @ 0.., last)) => Ok((first as u64, (last - first) as u64 + 1)),
                _ => Err(self.wrong(value, "give a seed, or a range such as \"1..20\"")),
            },
        }
    }

    fn axes(&self, at: &Value<'_>, prefix: &str, axes: &mut Vec<Axis>) -> Result<()> {
        let Some(table) = at.get_ref().as_table() else {
            axes.push(Axis { key: prefix.to_owned(), values: self.values(at, prefix)? });
            return Ok(());
        };
        let mut below: Vec<_> = table.iter().collect();
        // In the order of the file.
        below.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in below {
            let dot = if prefix.is_empty() { "" } else { "." };
            self.axes(value, &format!("{prefix}{dot}{}", part_of_key(key.get_ref())), axes)?;
        }
        Ok(())
    }

    /// The values of a key: a list; a range of whole numbers; `"*"`; or the only one there is.
    fn values(&self, value: &Value<'_>, key: &str) -> Result<Vec<String>> {
        if let Some(items) = value.get_ref().as_array() {
            ensure!(
                !items.is_empty(),
                self.wrong(value, &format!("{key} has no values: the sweep is over nothing"))
            );
            return items.iter().map(|item| self.value(item)).collect();
        }
        match value.get_ref().as_str() {
            Some("*") => {
                let all = ALL_OF.iter().find(|(known, _)| *known == key);
                let known = ALL_OF.map(|(known, _)| known).join(" and ");
                let what = format!("\"*\" is known for {known}; list the values of {key}");
                let (_, all) = all.ok_or_else(|| self.wrong(value, &what))?;
                Ok(all.iter().map(|&word| word.to_owned()).collect())
            }
            Some(text) if text.contains("..") => match range(text) {
                Some((first, last)) if (last - first) as u128 >= SHARDS_MAX => {
                    let what = format!(
                        "{text} are {} values, a sweep has {SHARDS_MAX} shards at most",
                        last - first + 1
                    );
                    Err(self.wrong(value, &what))
                }
                Some((first, last)) => {
                    Ok((first..=last).map(|number| number.to_string()).collect())
                }
                None => Err(self.wrong(
                    value,
                    &format!("{text:?} is no range; give one such as \"1..192\", from low to high"),
                )),
            },
            _ => Ok(vec![self.value(value)?]),
        }
    }

    /// A value, as it stands in the plan.
    fn value(&self, value: &Value<'_>) -> Result<String> {
        let text = match value.get_ref().as_str() {
            Some(word) if is_bare(word) => word,
            _ => &self.text[value.span()],
        };
        ensure!(!text.contains('\n'), self.wrong(value, "give this value on one line"));
        Ok(text.to_owned())
    }
}

/// A range of whole numbers, both ends in it.
fn range(text: &str) -> Option<(i64, i64)> {
    let (first, last) = text.split_once("..")?;
    let (first, last): (i64, i64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first <= last && last.checked_sub(first).is_some_and(|count| count < i64::MAX))
        .then_some((first, last))
}

/// Whether `--set` takes the word for a text without quotes.
fn is_bare(word: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_+".contains(letter);
    let starts_well = word.starts_with(|letter: char| letter.is_ascii_alphabetic());
    starts_well && word.chars().all(is_plain) && !["true", "false", "inf", "nan"].contains(&word)
}

/// A part of a key, as TOML writes it.
fn part_of_key(part: &str) -> String {
    let is_bare = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    match !part.is_empty() && part.chars().all(is_bare) {
        true => part.to_owned(),
        // What JSON escapes, TOML escapes alike.
        false => serde_json::Value::from(part).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENARIO: &str = "name = \"s\"\nseed = 9\n[host]\n[[vm]]\nname = \"a\"\nvcpus = 1\nworkload = { kind = \"cpu\" }\n";

    fn read(plan: &str) -> Result<Plan, String> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("s.toml"), SCENARIO).unwrap();
        let path = dir.path().join("plan.toml");
        fs::write(&path, plan).unwrap();
        let plan = Plan::read(&path).map_err(|error| format!("{error:#}"));
        plan.map_err(|error| error.replace(&format!("{}/", dir.path().display()), ""))
    }

    /// The shards, as what is set and the seeds.
    fn shards(plan: &str) -> Vec<String> {
        let plan = read(plan).unwrap();
        let line = |shard| {
            plan.arguments(shard)[4..]
                .join(" ")
                .replace("--shard --seeds ", "")
                .replace("--set ", "")
        };
        (0..plan.shards()).map(line).collect()
    }

    #[test]
    fn a_sweep_is_each_value_with_each_other_and_with_all_seeds() {
        let plan = "file = \"s.toml\"\nseed = \"1..7\"\nseeds_per_shard = 4\n[vary]\nvm.a.count = \"1..2\"\ntuning = [\"mem\", \"pin-core+mem\"]\n";
        let expected = [
            "1..4 vm.a.count=1 tuning=mem",
            "5..7 vm.a.count=1 tuning=mem",
            "1..4 vm.a.count=1 tuning=pin-core+mem",
            "5..7 vm.a.count=1 tuning=pin-core+mem",
            "1..4 vm.a.count=2 tuning=mem",
        ];
        let shards = shards(plan);
        assert_eq!(shards[..5], expected);
        assert_eq!(shards.len(), 8);
        let plan = read(plan).unwrap();
        assert_eq!(plan.arguments(0)[..4], ["run", &plan.arguments(0)[1], "--on", "sim"]);
        assert!(Path::new(&plan.arguments(0)[1]).is_absolute());
    }

    #[test]
    fn values_are_as_the_plan_has_them() {
        let vary = |vary: &str| shards(&format!("file = \"s.toml\"\n[vary]\n{vary}\n"));
        assert_eq!(
            vary("slice_ms = [0.5, 2]"),
            ["9..9 slice_ms=0.5", "9..9 slice_ms=2"],
            "the scenario's seed"
        );
        assert_eq!(
            vary("schedulers = [[\"eevdf\"], [\"drover\"]]")[0],
            "9..9 schedulers=[\"eevdf\"]"
        );
        assert_eq!(vary("vm.\"*\".shares = [\"low\", 7]")[1], "9..9 vm.\"*\".shares=7");
        assert_eq!(vary("host = [{ cores = 3 }]"), ["9..9 host={ cores = 3 }"]);
        assert_eq!(vary("vm.a.name = \"true\"")[0], "9..9 vm.a.name=\"true\"");
        assert_eq!((vary("tuning = \"*\"").len(), vary("placement = \"*\"").len()), (6, 4));
    }

    #[test]
    fn a_star_is_all_that_a_key_takes() {
        for (key, words) in ALL_OF {
            let refused =
                read(&format!("file = \"s.toml\"\n[vary]\n{key} = [\"no such\"]\n")).unwrap_err();
            assert!(refused.ends_with(&format!("; known are {}", words.join(", "))), "{refused}");
        }
    }

    #[test]
    fn trials_of_the_rig_are_cut_alike() {
        let plan = read("soak = { from = 5, trials = 1200 }\n").unwrap();
        let lines: Vec<String> =
            (0..plan.shards()).map(|shard| plan.arguments(shard).join(" ")).collect();
        assert_eq!(lines[0], "soak --shard --from 5 --trials 500");
        assert_eq!((lines[2].as_str(), lines.len()), ("soak --shard --from 1005 --trials 200", 3));
    }

    #[test]
    fn what_cannot_be_is_refused_in_one_line() {
        let vary = |vary: &str| format!("file = \"s.toml\"\n[vary]\n{vary}\n");
        for (plan, said) in [
            (String::new(), "plan.toml: give a scenario as file"),
            ("file = \"s.toml\"\n".to_owned(), "plan.toml: nothing varies"),
            ("file = \"s.toml\"\nsoak = { trials = 1 }\n".to_owned(), "not both"),
            ("file = \"none.toml\"\nseed = 1\n".to_owned(), "cannot read none.toml"),
            (
                "file = \"s.toml\"\nsed = 1\n".to_owned(),
                "plan.toml:2: unknown key \"sed\"; known are file, seed",
            ),
            (
                "file = \"s.toml\"\nseed = \"5..3\"\n".to_owned(),
                "plan.toml:2: give a seed, or a range",
            ),
            (
                "file = \"s.toml\"\nseed = \"-5..3\"\n".to_owned(),
                "plan.toml:2: give a seed, or a range",
            ),
            (
                "file = \"s.toml\"\nseed = -1\n".to_owned(),
                "plan.toml:2: give a whole number, 0 or more",
            ),
            (
                "file = \"s.toml\"\nseed = 1\nseeds_per_shard = 0\n".to_owned(),
                "plan.toml:3: give a whole number, 1 or more",
            ),
            ("file = \"s.toml\"\nseed".to_owned(), "plan.toml:2: "),
            (vary("tuning = []"), "plan.toml:3: tuning has no values: the sweep is over nothing"),
            (vary("vm.a.count = \"5..1\""), "plan.toml:3: \"5..1\" is no range"),
            (vary("vm.a.vcpus = \"*\""), "plan.toml:3: \"*\" is known for tuning and placement"),
            (vary("vm.b.count = 1"), "there is no [[vm]] \"b\""),
            (vary("vm.a.vcpus = [1, 0]"), "--set vm.a.vcpus=0: "),
            (vary("tuning = [\"mem\", \"pin\"]"), "--set tuning=pin: "),
            (
                vary("vm.a.count = \"1..1000000000\""),
                "1000000000 values, a sweep has 100000 shards at most",
            ),
            (
                "file = \"s.toml\"\nseed = \"1..1000000000\"\n".to_owned(),
                "that makes 200000000 shards",
            ),
            (vary("host.cores = \"1..400\"\nvm.a.count = \"1..400\""), "that makes 160000 shards"),
            (
                "soak = { trials = 1000000000, trials_per_shard = 1 }\n".to_owned(),
                "that makes 1000000000 shards",
            ),
            ("soak = { from = 1 }\n".to_owned(), "plan.toml:1: give trials"),
            ("soak = 3\n".to_owned(), "plan.toml:1: give soak = {"),
        ] {
            let line = read(&plan).expect_err(&plan);
            assert!(line.contains(said) && !line.contains('\n'), "{plan}: {line}");
        }
    }
}
