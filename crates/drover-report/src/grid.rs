// SPDX-License-Identifier: GPL-2.0-only
//! Lays out a table whose columns stand in groups, one group for each scheduler.

use std::ops::Range;

/// The widest a table may be, in characters.
pub(crate) const WIDTH: usize = 120;

/// What stands between two columns, and between two groups.
const GAP: &str = "  ";
const BAR: &str = " | ";

/// A table: some leading columns, then the same columns for each group.
pub(crate) struct Grid {
    pub(crate) lead: Vec<&'static str>,
    /// Leading columns whose texts stand left; numbers stand right.
    pub(crate) lead_left: usize,
    pub(crate) groups: Vec<Group>,
    pub(crate) rows: Vec<Row>,
}

/// Columns under a common title.
pub(crate) struct Group {
    pub(crate) title: String,
    pub(crate) columns: Vec<String>,
}

/// A row: the cells of the leading columns, then those of each group.
pub(crate) struct Row {
    pub(crate) lead: Vec<String>,
    pub(crate) groups: Vec<Vec<String>>,
    /// For each group a remark that stands below its cells; empty where there is none to make.
    pub(crate) below: Vec<String>,
}

impl Grid {
    /// The table as text, each line at most [`WIDTH`] wide; groups that do not fit beside each
    /// other follow below, with the leading columns again.
    pub(crate) fn text(&self) -> String {
        let lead_widths = self.lead_widths();
        let lead_width = joined_width(&lead_widths);
        let mut text = String::new();
        let mut first = 0;
        while first < self.groups.len() {
            let (mut last, mut width) = (first, lead_width);
            while last < self.groups.len() {
                width += BAR.len() + self.group_width(last);
                // At least one group goes in, however wide.
                if width > WIDTH && last > first {
                    break;
                }
                last += 1;
            }
            if first > 0 {
                text.push('\n');
            }
            self.write_block(&mut text, &lead_widths, first..last);
            first = last;
        }
        text
    }

    fn write_block(&self, text: &mut String, lead_widths: &[usize], groups: Range<usize>) {
        let blank = vec![""; self.lead.len()];
        let mut titles = self.lead_cells(&blank, lead_widths);
        let mut heads = self.lead_cells(&self.lead, lead_widths);
        let mut rule = "-".repeat(joined_width(lead_widths));
        let widths: Vec<(Vec<usize>, usize)> = groups
            .clone()
            .map(|group| (self.column_widths(group), self.group_width(group)))
            .collect();
        for (group, (widths, width)) in groups.clone().zip(&widths) {
            titles += &format!("{BAR}{:^width$}", self.groups[group].title);
            heads += &format!("{BAR}{:>width$}", cells(&self.groups[group].columns, widths));
            rule += &format!("-+-{}", "-".repeat(*width));
        }
        for line in [titles, heads, rule] {
            push_line(text, &line);
        }
        for row in &self.rows {
            let lead: Vec<&str> = row.lead.iter().map(String::as_str).collect();
            let mut line = self.lead_cells(&lead, lead_widths);
            for (group, (widths, width)) in groups.clone().zip(&widths) {
                line += &format!("{BAR}{:>width$}", cells(&row.groups[group], widths));
            }
            push_line(text, &line);
            let widths = widths.iter().map(|(_, width)| *width);
            write_below(text, row, joined_width(lead_widths), groups.clone().zip(widths));
        }
    }

    fn lead_cells(&self, cells: &[&str], widths: &[usize]) -> String {
        let cell = |(index, (cell, width)): (usize, (&&str, &usize))| {
            let width = *width;
            if index < self.lead_left {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            }
        };
        let cells: Vec<String> = cells.iter().zip(widths).enumerate().map(cell).collect();
        cells.join(GAP)
    }

    fn lead_widths(&self) -> Vec<usize> {
        let width = |index: usize| {
            let cells = self.rows.iter().map(|row| length(&row.lead[index]));
            cells.chain([length(self.lead[index])]).max().unwrap_or(0)
        };
        (0..self.lead.len()).map(width).collect()
    }

    fn column_widths(&self, group: usize) -> Vec<usize> {
        let columns = &self.groups[group].columns;
        let width = |index: usize| {
            let cells = self.rows.iter().map(|row| length(&row.groups[group][index]));
            cells.chain([length(&columns[index])]).max().unwrap_or(0)
        };
        (0..columns.len()).map(width).collect()
    }

    fn group_width(&self, group: usize) -> usize {
        let below = self.rows.iter().filter_map(|row| row.below.get(group));
        let texts = below.chain([&self.groups[group].title]).map(|text| length(text));
        texts.chain([joined_width(&self.column_widths(group))]).max().unwrap_or(0)
    }
}

/// The remarks below a row, if any; groups come with their widths.
fn write_below(
    text: &mut String,
    row: &Row,
    lead_width: usize,
    groups: impl Iterator<Item = (usize, usize)>,
) {
    if row.below.iter().all(String::is_empty) {
        return;
    }
    let mut line = " ".repeat(lead_width);
    for (group, width) in groups {
        line += &format!("{BAR}{:<width$}", row.below[group]);
    }
    push_line(text, &line);
}

fn cells(cells: &[String], widths: &[usize]) -> String {
    let cell = |(cell, width): (&String, &usize)| format!("{cell:>width$}", width = *width);
    let cells: Vec<String> = cells.iter().zip(widths).map(cell).collect();
    cells.join(GAP)
}

fn joined_width(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1)
}

fn length(text: &str) -> usize {
    text.chars().count()
}

fn push_line(text: &mut String, line: &str) {
    text.push_str(line.trim_end());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn grid(groups: &[&str], cell: &str) -> Grid {
        let columns = || vec!["got %".to_owned(), "cpu s".to_owned()];
        let group = |title: &&str| Group { title: (*title).to_owned(), columns: columns() };
        let row = Row {
            lead: vec!["1:7".to_owned(), "1,000".to_owned()],
            groups: vec![vec![cell.to_owned(); 2]; groups.len()],
            below: Vec::new(),
        };
        let groups = groups.iter().map(group).collect();
        Grid { lead: vec!["case", "shares"], lead_left: 1, groups, rows: vec![row] }
    }

    #[test]
    fn groups_stand_side_by_side_under_their_titles() {
        let expected = "             |    eevdf     |    drover
case  shares | got %  cpu s | got %  cpu s
-------------+--------------+-------------
1:7    1,000 |  12.5   12.5 |  12.5   12.5
";
        assert_eq!(grid(&["eevdf", "drover"], "12.5").text(), expected);
    }

    #[test]
    fn remarks_stand_below_the_cells_of_their_group() {
        let mut grid = grid(&["eevdf", "drover"], "12.5");
        grid.rows[0].below = vec!["got 12.1..12.9".to_owned(), String::new()];
        let expected = "             |     eevdf      |    drover
case  shares |   got %  cpu s | got %  cpu s
-------------+----------------+-------------
1:7    1,000 |    12.5   12.5 |  12.5   12.5
             | got 12.1..12.9 |
";
        assert_eq!(grid.text(), expected);
    }

    #[test]
    fn groups_that_do_not_fit_follow_below() {
        let text = grid(&["a", "b", "c"], &"x".repeat(20)).text();
        assert_eq!(text.matches("case").count(), 2, "{text}");
        assert_eq!(text.lines().count(), 9);
    }

    proptest! {
        #[test]
        fn no_line_is_too_wide(groups in 1usize..9, cell in "[a-z]{0,40}") {
            let titles = vec!["scheduler"; groups];
            let text = grid(&titles, &cell).text();
            prop_assert!(text.lines().all(|line| length(line) <= WIDTH), "{}", text);
            prop_assert_eq!(text.matches("scheduler").count(), groups);
        }
    }
}
