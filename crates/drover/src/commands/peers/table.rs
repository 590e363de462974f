// SPDX-License-Identifier: GPL-2.0-only
//! The part of docs/peers.md that is written from data.

use std::collections::BTreeMap;

use super::Data;
use super::cell::{Cell, Standing};

/// Tables of all figures: schedulers side by side, kernels side by side, and who did not run.
pub fn of(data: &Data) -> String {
    let Data { versions, began, ended, cells } = data;
    let kernels = distinct(cells.iter().filter(|it| !it.values.is_empty()).map(|it| &*it.kernel));
    let Some(newest) = kernels.first() else { return "Nothing ran to its end.\n".to_owned() };
    let when = if began == ended { began.clone() } else { format!("{began} to {ended}") };
    let repeats = cells.iter().map(|it| it.values.len()).max().unwrap_or(0);
    let mut text = format!(
        "Ran {when}, {repeats} repeats of each; {versions}. Kernels: {}.{} A dash: not run, or below.\n\n\
         ## On {newest}\n\n",
        kernels.join(", "),
        not_yet(data)
    );
    let here: Vec<&Cell> = cells.iter().filter(|it| it.kernel == **newest).collect();
    text += &side_by_side(&here);
    for scenario in distinct(here.iter().map(|it| &*it.scenario)) {
        text += &format!("\n![{scenario}, under each scheduler](peers/{scenario}.svg)\n");
    }
    text += &by_kernel(cells, &kernels);
    text + &did_not_run(cells)
}

/// Which of the schedulers have not run at all.
fn not_yet(data: &Data) -> String {
    let names = data.versions.split(", ").filter_map(|it| it.split(' ').next());
    let ran = |name: &&str| data.cells.iter().any(|it| it.scheduler == *name);
    let missing: Vec<&str> = names.filter(|name| !ran(name)).map(short).collect();
    match missing.is_empty() {
        true => String::new(),
        false => format!(" Not run so far: {}.", missing.join(", ")),
    }
}

/// Each once, in the order they come in.
fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found = Vec::new();
    for name in names {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

/// Drover and the kernel's own first, then the others.
fn schedulers<'a>(cells: &[&'a Cell]) -> Vec<&'a str> {
    let mut names = distinct(cells.iter().map(|it| &*it.scheduler));
    names.sort_by_key(|name| (*name != "drover", *name != "eevdf", *name));
    names
}

fn find<'a>(cells: &[&'a Cell], title: &str, scheduler: &str) -> Option<&'a Cell> {
    cells.iter().copied().find(|it| it.title == title && it.scheduler == scheduler)
}

/// The one with the best median, the first of equals.
fn best<'a>(cells: impl Iterator<Item = &'a Cell>) -> Option<&'a Cell> {
    cells.reduce(|one, other| if other.leads(one) { other } else { one })
}

/// A row for each figure: the median under each scheduler, the best in bold, and how Drover's stands.
fn side_by_side(cells: &[&Cell]) -> String {
    let schedulers = schedulers(cells);
    let heads: Vec<&str> = schedulers.iter().map(|it| short(it)).collect();
    let mut text = format!(
        "| | asked | {} | Drover is |\n|---|---|{}---|\n",
        heads.join(" | "),
        "--:|".repeat(heads.len())
    );
    for title in distinct(cells.iter().map(|it| &*it.title)) {
        let row: Vec<Option<&Cell>> =
            schedulers.iter().map(|scheduler| find(cells, title, scheduler)).collect();
        let best = best(row.iter().flatten().copied());
        let cell = |cell: &Option<&Cell>| match cell.and_then(Cell::median) {
            None => "-".to_owned(),
            Some(median) if best.and_then(Cell::median) == Some(median) => {
                format!("**{}**", figure(median))
            }
            Some(median) => figure(median),
        };
        let values: Vec<String> = row.iter().map(cell).collect();
        let asked = row.iter().flatten().map(|it| &*it.asked).find(|it| !it.is_empty());
        text += &format!(
            "| {title} | {} | {} | {} |\n",
            asked.unwrap_or_default(),
            values.join(" | "),
            verdict(&row)
        );
    }
    text
}

/// How Drover stands to the best of the others.
fn verdict(row: &[Option<&Cell>]) -> String {
    let of_drover = row.iter().flatten().find(|it| it.scheduler == "drover");
    let others = row.iter().flatten().filter(|it| it.scheduler != "drover");
    let others = others.copied().filter(|it| !it.values.is_empty());
    let (Some(drover), Some(best)) = (of_drover, best(others)) else {
        return "not compared".to_owned();
    };
    let Some((standing, luck)) = drover.against(best) else { return "not measured".to_owned() };
    let name = short(&best.scheduler);
    match standing {
        Standing::Better => format!("first (p = {luck:.3} against {name})"),
        Standing::Alike if drover.leads(best) => format!("first, with {name} (p = {luck:.2})"),
        Standing::Alike => format!("within noise of {name} (p = {luck:.2})"),
        Standing::Worse => format!("**behind {name}** (p = {luck:.3})"),
    }
}

/// A name without what all of them begin with.
fn short(scheduler: &str) -> &str {
    match scheduler {
        "drover" => "Drover",
        "eevdf" => "EEVDF",
        _ => scheduler.strip_prefix("scx_").unwrap_or(scheduler),
    }
}

/// A number with three digits that count.
fn figure(value: f64) -> String {
    match value.abs() {
        it if it >= 100.0 => format!("{value:.0}"),
        it if it >= 10.0 => format!("{value:.1}"),
        it if it >= 0.0095 || it == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// Those that ran on several kernels, on each.
fn by_kernel(cells: &[Cell], kernels: &[&str]) -> String {
    let on =
        |kernel: &str| -> Vec<&Cell> { cells.iter().filter(|it| it.kernel == kernel).collect() };
    let older: Vec<Vec<&Cell>> = kernels.iter().skip(1).map(|kernel| on(kernel)).collect();
    if older.is_empty() {
        return String::new();
    }
    let all: Vec<Vec<&Cell>> = kernels.iter().map(|kernel| on(kernel)).collect();
    let of_older: Vec<&Cell> = older.into_iter().flatten().collect();
    let schedulers = schedulers(&of_older);
    let mut text = "\n## On each kernel\n\n|".to_owned();
    for scheduler in &schedulers {
        for kernel in kernels {
            let series = kernel.split(['+', '-']).next().unwrap_or(kernel);
            text += &format!(" | {} {series}", short(scheduler));
        }
    }
    text += &format!(" |\n|---|{}\n", "--:|".repeat(schedulers.len() * kernels.len()));
    for title in distinct(of_older.iter().map(|it| &*it.title)) {
        text += &format!("| {title}");
        for scheduler in &schedulers {
            for cells in &all {
                let median = find(cells, title, scheduler).and_then(Cell::median);
                text += &format!(" | {}", median.map_or("-".to_owned(), figure));
            }
        }
        text += " |\n";
    }
    text
}

/// Who was thrown out or did not run, and why.
fn did_not_run(cells: &[Cell]) -> String {
    let mut faults: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for cell in cells {
        let Some(fault) = &cell.fault else { continue };
        let scenarios = faults.entry((&cell.scheduler, fault)).or_default();
        if !scenarios.contains(&&*cell.scenario) {
            scenarios.push(&cell.scenario);
        }
    }
    if faults.is_empty() {
        return String::new();
    }
    let mut text =
        "\n## Who was thrown out, or did not run\n\n| scheduler | in | what it was |\n|---|---|---|\n".to_owned();
    for ((scheduler, fault), scenarios) in faults {
        let fault = fault.replace('|', "/");
        text += &format!("| {} | {} | {fault} |\n", short(scheduler), scenarios.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(scheduler: &str, kernel: &str, values: &[f64]) -> Cell {
        Cell {
            scenario: "waking".to_owned(),
            title: "how late, us".to_owned(),
            asked: "<= 100".to_owned(),
            bound: Some(100.0),
            more: false,
            kernel: kernel.to_owned(),
            scheduler: scheduler.to_owned(),
            values: values.to_vec(),
            fault: values.is_empty().then(|| "a stall | ejected".to_owned()),
        }
    }

    fn page(cells: Vec<Cell>) -> String {
        let versions = "scx_other 9, scx_later 8".to_owned();
        of(&Data { versions, began: "2030-01-01".into(), ended: "2030-01-02".into(), cells })
    }

    #[test]
    fn the_best_is_bold_and_what_is_behind_is_said() {
        let text = page(vec![
            cell("scx_other", "7.9", &[1.0, 2.0, 3.0, 4.0]),
            cell("eevdf", "7.9", &[90.0, 91.0, 92.0, 93.0]),
            cell("drover", "7.9", &[11.0, 12.0, 13.0, 14.0]),
            cell("scx_bad", "7.9", &[]),
            cell("eevdf", "6.30", &[80.0]),
        ]);
        for part in [
            "2030-01-01 to 2030-01-02, 4 repeats",
            "Not run so far: later.",
            "| | asked | Drover | EEVDF | bad | other | Drover is |",
            "| how late, us | <= 100 | 12.5 | 91.5 | - | **2.50** | **behind other** (p = 0.029) |",
            "| | EEVDF 7.9 | EEVDF 6.30 |",
            "| how late, us | 91.5 | 80.0 |",
            "| bad | waking | a stall / ejected |",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn without_a_significant_difference_nobody_is_behind() {
        let text = page(vec![
            cell("eevdf", "7.9", &[1.0, 3.0, 5.0, 7.0]),
            cell("drover", "7.9", &[2.0, 4.0, 6.0, 8.0]),
        ]);
        assert!(text.contains("within noise of EEVDF (p = 0."), "{text}");
    }
}
