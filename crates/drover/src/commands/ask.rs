// SPDX-License-Identifier: GPL-2.0-only
//! What commands that talk to the daemon share.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use drover_core::asked::{Asked, Key};
use drover_core::printable::{cell, json};
use drover_host::control::{Answer, Request, SOCKET_PATH, ask};

#[derive(clap::Args)]
pub struct Daemon {
    /// Where the daemon listens.
    #[arg(long, default_value = SOCKET_PATH)]
    pub socket: PathBuf,
}

pub use drover_core::asked::DEFAULT;

/// What is said of an answer to another question.
pub const UNKNOWN_ANSWER: &str = "the daemon answered something else; is it of this version?";

/// What the daemon answers, of the kind that was asked for.
pub fn answer<T>(
    socket: &Path,
    request: &Request,
    of_kind: impl Fn(Answer) -> Option<T>,
) -> Result<T> {
    of_kind(ask(socket, request)?).context(UNKNOWN_ANSWER)
}

/// Whether a text is one of a VM's values, or [`DEFAULT`].
pub fn given(key: Key) -> impl Fn(&str) -> Result<String, String> + Clone {
    move |text| {
        if text != DEFAULT {
            let read = Asked::default().read(key, text);
            read.map_err(|fix| format!("{fix}, or {DEFAULT}"))?;
        }
        Ok(text.to_owned())
    }
}

/// CPU in % of one pCPU; a dash where there is nothing to say.
pub fn percent_of(pcpus: Option<f64>) -> String {
    pcpus.map_or("-".to_owned(), |pcpus| format!("{:.1}%", 100.0 * pcpus))
}

/// Prints JSON for programs, and terminals.
pub fn print_json(text: &str) {
    println!("{}", json(text));
}

/// A table with columns as wide as they need to be: those whose title ends in `<` to the left.
pub fn table(titles: &[&str], rows: &[Vec<String>]) -> String {
    let title = |column: usize| titles[column].trim_end_matches('<');
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|text| cell(text)).collect()).collect();
    let cells = |column: usize| rows.iter().map(move |row| row[column].chars().count());
    let width = |column: usize| cells(column).chain([title(column).len()]).max().unwrap_or(0);
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    let line = |cell: &dyn Fn(usize) -> String| {
        let one = |column: usize| {
            let (text, width) = (cell(column), widths[column]);
            match titles[column].ends_with('<') {
                true => format!("{text:<width$}"),
                false => format!("{text:>width$}"),
            }
        };
        let line: Vec<String> = (0..titles.len()).map(one).collect();
        line.join("  ").trim_end().to_owned() + "\n"
    };
    let mut text = line(&|column| title(column).to_owned());
    for row in &rows {
        text += &line(&|column| row[column].clone());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let text = table(&["NAME<", "N"], &[row(["a", "10000"]), row(["a-long-name", "1"])]);
        assert_eq!(text, "NAME             N\na            10000\na-long-name      1\n");
    }

    #[test]
    fn nothing_but_letters_stands_in_a_table() {
        let text = table(&["NAME<"], &[vec!["/x\u{1b}[2J\u{9b}\u{202e}\nr".to_owned()]]);
        assert_eq!(text, "NAME\n/x\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}r\n");
    }

    #[test]
    fn a_value_is_given_or_left_to_others() {
        let limit = given(Key::Limit);
        assert_eq!(
            (limit("default").unwrap(), limit("150%").unwrap()),
            (DEFAULT.into(), "150%".into())
        );
        assert!(limit("150").err().unwrap().ends_with("or none, or default"));
    }
}
