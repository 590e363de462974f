// SPDX-License-Identifier: GPL-2.0-only
//! A page for each seed document, such as docs/seeds/000.md: each picture above the claims that it shows.

use super::Row;
use drover_scenario::claims::DOCUMENTS;
use std::collections::BTreeSet;
use std::path::Path;

/// The page of a document; `pictures` are the names of those there are, without `.svg`.
pub fn document(number: &str, rows: &[Row], pictures: &BTreeSet<String>) -> String {
    let title = DOCUMENTS.iter().find(|(of, _)| *of == number).map_or("", |(_, title)| title);
    let of: Vec<&Row> = rows.iter().filter(|row| row.document() == number).collect();
    let mut text = format!(
        "# {number}: {title}\n\nWritten by `make seeds` from [claims.json](claims.json), with the summary in \
         [seeds.md](../seeds.md). A heading is a scenario, run by `drover run scenarios/seeds/NAME.toml --on sim --repeats \
         5` unless it says otherwise; measured is the median of the seeds of randomness, with the least and the most.\n"
    );
    if pictures.contains(number) {
        text += &format!(
            "\n![Claims of {number}, and how far what was measured is from each]({number}.svg)\n"
        );
    }
    let mut files: Vec<&String> = Vec::new();
    for file in of.iter().filter_map(|row| row.files.first()) {
        if !files.contains(&file) {
            files.push(file);
        }
    }
    for file in files {
        text += &of_scenario(file, &of, pictures);
    }
    text += "\n## Not measured\n\n| claim | the document says | shown by, or why not |\n|---|---|---|\n";
    for row in of.iter().filter(|row| row.files.is_empty()) {
        let why =
            row.pending.iter().chain(&row.outside).map(|why| format!("{}: {why}", row.standing));
        let shown: Vec<String> = row.tests.iter().cloned().chain(why).collect();
        text += &line(&[&name(row), &row.says, &(shown.join("<br>") + &note(row))]);
    }
    text
}

fn of_scenario(file: &str, of: &[&Row], pictures: &BTreeSet<String>) -> String {
    let stem = Path::new(file).file_stem().unwrap_or_default().to_string_lossy();
    let of: Vec<&&Row> =
        of.iter().filter(|row| row.files.first().is_some_and(|it| it == file)).collect();
    let mut text = format!("\n## {stem}\n");
    if Path::new(file).parent() != Some(Path::new("scenarios/seeds")) {
        text += &format!("\n`{file}`\n");
    }
    if pictures.contains(&*stem) {
        text += &format!("\n![{stem}: said and measured]({stem}.svg)\n");
    }
    text += "\n| claim | the document says | measured | |\n|---|---|---|---|\n";
    for row in of {
        let beside = together(&row.beside).into_iter().map(|it| format!("beside: {it}"));
        let figures: Vec<String> = together(&row.figures).into_iter().chain(beside).collect();
        let measured = figures.join("<br>") + &note(row);
        text += &line(&[&name(row), &row.says, &measured, &row.standing]);
    }
    text
}

/// A figure in its parts: what is counted, in which case, over what, the value, and what is asked.
fn parts(figure: &str) -> Option<[&str; 5]> {
    let (label, value) = figure.split_once(": ")?;
    let ends = [", asked ", ", said "].into_iter().filter_map(|it| value.find(it)).min();
    let (value, asked) = value.split_at(ends.unwrap_or(value.len()));
    let (label, over) = label.split_at(label.find(" over ").unwrap_or(label.len()));
    let (metric, case) = label.split_once(", ")?;
    Some([metric, case, over, value, asked])
}

/// What figures that stand together have in common.
fn shared(figure: &str) -> Option<(&str, &str, &str)> {
    let [metric, _, over, _, asked] = parts(figure)?;
    Some((metric, over, asked))
}

/// The figures, those that follow each other and differ in case and value only as one.
fn together(figures: &[String]) -> Vec<String> {
    let alike = figures.chunk_by(|a, b| shared(a).is_some() && shared(a) == shared(b));
    let each = alike.map(|alike| match shared(&alike[0]) {
        Some((metric, over, asked)) if alike.len() > 1 => {
            let values = alike.iter().filter_map(|it| parts(it));
            let values = values.map(|[_, case, _, value, _]| format!("{case} {value}"));
            format!("{metric}{over}: {}{asked}", values.collect::<Vec<_>>().join("; "))
        }
        _ => alike[0].clone(),
    });
    each.collect()
}

fn name(row: &Row) -> String {
    format!("`{}` ({})", row.claim, row.section)
}

fn note(row: &Row) -> String {
    row.note.as_ref().map_or(String::new(), |note| format!(" *{note}*"))
}

fn line(cells: &[&str]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_that_differ_in_case_and_value_stand_together() {
        let figures = [
            "work, 2 node, eevdf over 2 default: 1.0, asked <= 1.03 of 2 default",
            "work, 2 core, eevdf over 2 default: 0.6 (0.5 to 0.7), asked <= 1.03 of 2 default",
            "work, 3 core over 3 default: 0.6, asked <= 1.03 of 3 default",
            "work: 7",
        ];
        let told = together(&figures.map(str::to_owned));
        let first = "work over 2 default: 2 node, eevdf 1.0; 2 core, eevdf 0.6 (0.5 to 0.7), asked <= 1.03 of 2 default";
        assert_eq!(told, [first, figures[2], figures[3]]);
    }
}
