// SPDX-License-Identifier: GPL-2.0-only
//! docs/seeds.md.

use super::{Outcome, Shown, figures};
use drover_scenario::claims::{DOCUMENTS, Kind, Standing};
use std::fmt::Write;

/// A picture: the path of the scenario it is of, and its own from the page.
pub type Drawn = (String, String);

/// The page: a summary, what does not hold, and a table for each document.
pub fn page(shown: &[Shown], seeds: u32, pictures: &[Drawn]) -> String {
    let mut text = HEAD.replace("{seeds}", &seeds.to_string());
    text += &summary(shown);
    text += &misses(shown);
    for (number, title) in DOCUMENTS {
        let of: Vec<&Shown> = of_document(shown, number).collect();
        text += &format!("\n## {number}: {title}\n");
        text += &gallery(&of, pictures);
        text += &table(&of, seeds);
    }
    text
}

const HEAD: &str = "\
# What the seed documents say, and what we measure

Written by `make seeds`. The five documents Drover comes from make 197 claims about how a system behaves. Each has a row below:
what the document says, and what the simulator measures, the median of {seeds} seeds of randomness with the least and the most.

- A **number** holds within 10 % or 3 percentage points, whichever is more, and is *near* within twice that. Of a ratio it is
  the change that counts.
- A **direction** holds when every seed of randomness is as said, and is *near* when only the median is.
- A **mechanism** names the test that shows it; `make test` runs it. Each of these tests fails when the mechanism is taken out of
  the source: `make mechanisms` tries that ([mechanisms.md](mechanisms.md)).
- What stands *beside* a claim is not judged: mostly what Drover does where the document speaks of another system.
- *Pending*: nothing shows it yet, and something could; the row says what is missing.
- *Outside*: no scheduler is in it, so none can show it: a fact of a device, a setting of an experiment, a row that fixes
  a unit here, or one that claims neither a number nor a direction. The row says which.

Bounds come from the documents' words, never from what was measured. Fitted are SPECjbb's misses and the working set of
kernel-compile, each to the row of one VM in figure 17 of 000, and SPECjbb's traffic, to a measurement that is none of the documents'
([simulator.md](simulator.md)); what a piece costs dom0, to the 38 % of 001; and of 002 how long dbench holds its lock, to the first two rows of its table, how long `lru_lock` is held, to 292 s against
189, and the work between two stops of a boot, to 369 s against 25. These rows say so, all others are predictions. The values of
most figures are lost with their pictures: then the direction that the text gives is the claim.
";

fn of_document<'a>(shown: &'a [Shown], number: &'a str) -> impl Iterator<Item = &'a Shown> + Clone {
    shown.iter().filter(move |shown| shown.claim.document() == number)
}

const OUTCOMES: [Outcome; 6] = [
    Outcome::Measured(Standing::Holds),
    Outcome::Measured(Standing::Near),
    Outcome::Measured(Standing::Not),
    Outcome::Tested,
    Outcome::Pending,
    Outcome::Outside,
];

fn counts<'a>(of: impl Iterator<Item = &'a Shown> + Clone) -> String {
    let count = |outcome| of.clone().filter(|shown| shown.outcome() == outcome).count();
    let counts: Vec<String> = OUTCOMES.iter().map(|&it| count(it).to_string()).collect();
    format!("{} | {}", of.clone().count(), counts.join(" | "))
}

/// How many claims hold, by document and by kind.
fn summary(shown: &[Shown]) -> String {
    let columns = "claims | hold | near | not | by test | pending | outside |\n|---|---|---|---|---|---|---|---|\n";
    let mut text = format!("\n## In short\n\n| document | {columns}");
    for (number, title) in DOCUMENTS {
        let counts = counts(of_document(shown, number));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {number}: {title} | {counts} |");
    }
    let _ = writeln!(text, "| all | {} |", counts(shown.iter()));
    text += &format!("\n| kind | {columns}");
    let kinds = [
        ("numbers", Kind::Number),
        ("directions", Kind::Direction),
        ("mechanisms", Kind::Mechanism),
    ];
    for (name, kind) in kinds {
        let of = shown.iter().filter(|shown| shown.claim.kind == kind);
        let _ = writeln!(text, "| {name} | {} |", counts(of));
    }
    text
}

/// What is not as the documents say, or nearly, with the reason.
fn misses(shown: &[Shown]) -> String {
    let mut text = "\n## What is not as said\n\n".to_owned();
    let is_miss = |shown: &&Shown| {
        matches!(shown.outcome(), Outcome::Measured(Standing::Near | Standing::Not))
    };
    for miss in shown.iter().filter(is_miss) {
        let (claim, word) = (&miss.claim, miss.outcome().word());
        let figures = figures::cell(&judged(miss), "; ");
        let note = claim.note.as_ref().map_or(String::new(), |note| format!(" {note}"));
        let _ =
            writeln!(text, "- `{}`, {word}. {} We measure {figures}.{note}", claim.id, claim.says);
    }
    if !shown.iter().any(|shown| is_miss(&shown)) {
        text += "Nothing that was measured.\n";
    }
    text
}

/// The claim without the figures that stand beside it.
fn judged(shown: &Shown) -> Shown {
    let figures = shown.figures.iter().filter(|(_, it)| !it.expect.beside).cloned().collect();
    Shown { claim: shown.claim.clone(), figures }
}

/// The pictures of the scenarios that show these claims, in the order of the claims.
fn gallery(of: &[&Shown], pictures: &[Drawn]) -> String {
    let mut paths: Vec<&String> = Vec::new();
    for (path, _) in of.iter().flat_map(|shown| &shown.figures) {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    let drawn = paths.iter().filter_map(|path| pictures.iter().find(|(of, _)| of == *path));
    drawn.map(|(of, picture)| format!("\n![{of}]({picture})\n")).collect()
}

fn table(of: &[&Shown], seeds: u32) -> String {
    let mut text =
        "\n| claim | the document says | we measure | | again |\n|---|---|---|---|---|\n"
            .to_owned();
    for shown in of {
        let claim = &shown.claim;
        let note = claim.note.as_ref().map_or(String::new(), |note| format!(" *{note}*"));
        let cells = [
            format!("`{}` ({})", claim.id, claim.section),
            claim.says.clone(),
            format!("{}{note}", evidence(shown)),
            shown.outcome().word().to_owned(),
            again(shown, seeds),
        ];
        let cells = cells.map(|cell| cell.replace('|', "\\|"));
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

/// The figures, the tests, or why there are none.
fn evidence(shown: &Shown) -> String {
    let mut parts = Vec::new();
    if !shown.figures.is_empty() {
        parts.push(figures::cell(shown, "<br>"));
    }
    parts.extend(shown.claim.tests.iter().cloned());
    parts.extend(shown.claim.pending.iter().map(|why| format!("pending: {why}")));
    parts.extend(shown.claim.outside.iter().map(|why| format!("outside: {why}")));
    parts.join("<br>")
}

/// The command that measures it again.
fn again(shown: &Shown, seeds: u32) -> String {
    let mut files: Vec<&str> = shown.figures.iter().map(|(file, _)| file.as_str()).collect();
    files.dedup();
    let command = |file: &&str| format!("`drover run {file} --on sim --repeats {seeds}`");
    files.iter().map(command).collect::<Vec<_>>().join("<br>")
}

#[cfg(test)]
mod tests {
    use super::super::lines;
    use super::*;
    use drover_scenario::claims::{Claim, JudgedBy, Measured};
    use drover_scenario::expect::{Expect, Metric, Row, Verdict};

    fn shown(id: &str, kind: Kind, median: Option<f64>) -> Shown {
        let expect = Expect { published: Some(1.17), ..Expect::of(Metric::TotalProgress) };
        let row = Row {
            scheduler: "drover".to_owned(),
            case: Some("4.1".to_owned()),
            vm: None,
            metric: expect.metric,
            measured: median,
            range: median.map(|it| (it - 0.01, it + 0.01)),
            published: expect.published,
            asked: ">= 1".to_owned(),
            verdict: Verdict::Pass,
            note: None,
        };
        let claim = Claim {
            id: id.to_owned(),
            section: "4.7".to_owned(),
            says: "17 | 18 percent.".to_owned(),
            kind,
            judged_by: JudgedBy::Each,
            tests: Vec::new(),
            pending: median.is_none().then(|| "no scenario yet".to_owned()),
            outside: None,
            note: Some("As fitted.".to_owned()),
        };
        let figure = ("scenarios/seeds/x.toml".to_owned(), Measured { expect, row });
        Shown { claim, figures: median.map(|_| figure).into_iter().collect() }
    }

    #[test]
    fn every_claim_has_a_row_and_the_summary_counts_them() {
        let mut tested = shown("000-c", Kind::Mechanism, None);
        tested.claim.pending = None;
        tested.claim.tests = vec!["policy: share_test (x)".to_owned()];
        let mut outside = shown("001-e", Kind::Number, None);
        (outside.claim.pending, outside.claim.outside) = (None, Some("of devices".to_owned()));
        let mut beside = shown("000-b", Kind::Number, Some(9.5));
        beside.figures[0].1.expect.beside = true;
        let mut missed = shown("000-b", Kind::Number, Some(2.5));
        missed.figures.extend(beside.figures);
        let all = [
            shown("000-a", Kind::Number, Some(1.16)),
            missed,
            tested,
            shown("001-d", Kind::Direction, None),
            outside,
        ];
        let drawn = [("scenarios/seeds/x.toml".to_owned(), "seeds/x.svg".to_owned())];
        let text = page(&all, 5, &drawn);
        for part in [
            "2010 | 3 | 1 | 0 | 1 | 1 | 0 | 0 |",
            "| all | 5 | 1 | 0 | 1 | 1 | 1 | 1 |",
            "| numbers | 3 | 1 | 0 | 1 | 0 | 0 | 1 |",
            "- `000-b`, **not**. 17 | 18 percent. We measure total progress, 4.1: **2.50** (2.49 to 2.51), said 1.170. As fitted.",
            "| `000-a` (4.7) | 17 \\| 18 percent. | total progress, 4.1: **1.160** (1.150 to 1.170), said 1.170 *As fitted.* | holds | `drover run scenarios/seeds/x.toml --on sim --repeats 5` |",
            "| policy: share_test (x) *As fitted.* | by test |  |",
            "| pending: no scenario yet *As fitted.* | pending |",
            "| outside: of devices *As fitted.* | outside |",
            "<br>beside: total progress, 4.1: **9.50** (9.49 to 9.51) *As fitted.* | **not** |",
            "![scenarios/seeds/x.toml](seeds/x.svg)",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert_eq!(text.matches("![").count(), 1);
        let lines = lines(&all);
        assert!(lines.starts_with("holds  000-a: total progress, 4.1: 1.160 ("), "{lines}");
        assert_eq!(lines.lines().count(), 2, "only what was measured");
    }
}
