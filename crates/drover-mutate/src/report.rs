// SPDX-License-Identifier: GPL-2.0-only
//! docs/mutants.md: what became of the mutants, and why survivors may live. The report is
//! written anew by each run; the column "why" is written by people, and taken over.

use std::collections::HashMap;
use std::fmt::Write;

use crate::bench::{Fate, Net};
use crate::site::Site;

/// A file of the policy, and where it can be mutated.
#[derive(Debug)]
pub struct Source {
    /// Its name in the policy's folder.
    pub name: String,
    /// What is in it.
    pub text: String,
    /// Its sites.
    pub sites: Vec<Site>,
}

/// One mutant: a file, a site of it, both by number, and what became of it.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    /// Which file.
    pub file: usize,
    /// Which of its sites.
    pub site: usize,
    /// What became of it.
    pub fate: Fate,
}

const COLUMNS: [Fate; 5] = [
    Fate::NotCompiled,
    Fate::SameCode,
    Fate::Killed(Net::Tests),
    Fate::Killed(Net::Rig),
    Fate::Survived,
];
const SURVIVORS: &str = "## Survivors\n";

/// The report: `intro`, the table of folders, the table of survivors. `old`: the report that was
/// there before.
pub fn report(intro: &str, files: &[Source], outcomes: &[Outcome], old: &str) -> String {
    let mut text = format!("# Mutants of the policy\n\n{intro}\n");
    text.push_str(
        "| folder | sites | planted | not compiled | same code | killed by tests | by the rig | survived |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for of in files.chunk_by(|a, b| folder(a) == folder(b)) {
        let is_in = |outcome: &&Outcome| folder(&files[outcome.file]) == folder(&of[0]);
        let fates: Vec<Fate> = outcomes.iter().filter(is_in).map(|one| one.fate).collect();
        let sites = of.iter().map(|file| file.sites.len()).sum();
        row(&mut text, &format!("`{}`", folder(&of[0])), sites, &fates);
    }
    let fates: Vec<Fate> = outcomes.iter().map(|outcome| outcome.fate).collect();
    row(&mut text, "all", files.iter().map(|file| file.sites.len()).sum(), &fates);
    let _ = write!(
        text,
        "\n{SURVIVORS}\n\
         \"Why\" is written by hand. A row with a reason stays while its line is there and no \
         later run kills it.\n\n\
         | where | before | after | why |\n|---|---|---|---|\n"
    );
    survivors(&mut text, files, outcomes, &whys(old));
    text
}

/// The folder of the policy that a file is in, or the file itself where it is in none.
fn folder(source: &Source) -> &str {
    source.name.split('/').next().unwrap_or(&source.name)
}

fn survivors(text: &mut String, files: &[Source], outcomes: &[Outcome], whys: &Whys<'_>) {
    for (file, source) in files.iter().enumerate() {
        for (number, site) in source.sites.iter().enumerate() {
            let planted = outcomes.iter().find(|one| (one.file, one.site) == (file, number));
            let (before, after) = (cell(&site.before), cell(&site.after));
            let why = whys.get(&(&source.name, &before, &after));
            let listed = match planted {
                Some(outcome) => outcome.fate == Fate::Survived,
                None => why.is_some(),
            };
            if listed {
                let place = format!("`{}:{}`", source.name, site.line);
                let _ = writeln!(text, "| {place} | {before} | {after} | {} |", why.unwrap_or(&""));
            }
        }
    }
}

fn row(text: &mut String, name: &str, sites: usize, fates: &[Fate]) {
    let _ = write!(text, "| {name} | {sites} | {} ", fates.len());
    for column in COLUMNS {
        let _ = write!(text, "| {} ", fates.iter().filter(|fate| **fate == column).count());
    }
    text.push_str("|\n");
}

/// Code in a cell of a table: a bar would end the cell.
fn cell(code: &str) -> String {
    format!("`{}`", code.replace('|', "\\|"))
}

/// Reasons by file, before and after, as these stand in the cells of a report.
type Whys<'a> = HashMap<(&'a str, &'a str, &'a str), &'a str>;

fn whys(old: &str) -> Whys<'_> {
    let rows = old.split_once(SURVIVORS).map_or("", |(_, rows)| rows);
    rows.lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.splitn(4, " | ");
            let (place, before, after) = (cells.next()?, cells.next()?, cells.next()?);
            let (name, _) = place.strip_prefix('`')?.split_once(':')?;
            let why = cells.next()?.trim();
            (!why.is_empty()).then_some(((name, before, after), why))
        })
        .collect()
}

/// How many survivors have no reason.
pub fn unexplained(report: &str) -> usize {
    report.lines().filter(|line| line.starts_with("| `") && line.ends_with("` |  |")).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::sites;

    const C: &str = "int f(void)\n{\n\tif (a || b)\n\t\tg(a < b);\n\treturn 7;\n}\n";

    fn files() -> Vec<Source> {
        vec![Source { name: "x/f.h".into(), text: C.into(), sites: sites(C) }]
    }

    fn outcome(site: usize, fate: Fate) -> Outcome {
        Outcome { file: 0, site, fate }
    }

    #[test]
    fn counts_and_survivors() {
        let outcomes = [
            outcome(0, Fate::Survived),
            outcome(1, Fate::Killed(Net::Tests)),
            outcome(2, Fate::Killed(Net::Rig)),
        ];
        let text = report("Intro.\n", &files(), &outcomes, "");
        assert!(text.contains("| `x` | 4 | 3 | 0 | 0 | 1 | 1 | 1 |\n"), "{text}");
        assert!(text.contains("| all | 4 | 3 | 0 | 0 | 1 | 1 | 1 |\n"), "{text}");
        let survivor = "| `x/f.h:3` | `if (a \\|\\| b)` | `if (a && b)` |  |\n";
        assert!(text.ends_with(survivor), "{text}");
        assert_eq!(unexplained(&text), 1);
    }

    #[test]
    fn reasons_are_kept_by_file_and_text() {
        let old = format!(
            "{SURVIVORS}\n| where | before | after | why |\n|---|---|---|---|\n\
             | `x/f.h:99` | `if (a \\|\\| b)` | `if (a && b)` | b says a \\| c |\n\
             | `x/f.h:5` | `return 7;` | `return 8;` | from another seed |\n\
             | `x/f.h:4` | `g(a < b);` | `g(a <= b);` | killed by now |\n\
             | `x/f.h:4` | `gone(a);` | `;` | no longer there |\n"
        );
        let outcomes = [outcome(0, Fate::Survived), outcome(2, Fate::Killed(Net::Tests))];
        let text = report("", &files(), &outcomes, &old);
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| `x/f.h:")).collect();
        assert_eq!(
            rows,
            [
                "| `x/f.h:3` | `if (a \\|\\| b)` | `if (a && b)` | b says a \\| c |",
                "| `x/f.h:5` | `return 7;` | `return 8;` | from another seed |",
            ]
        );
        assert_eq!(unexplained(&text), 0);
    }
}
