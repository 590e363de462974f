// SPDX-License-Identifier: GPL-2.0-only
//! What commands that talk to the daemon share.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use drover_core::percent;
use drover_core::printable::{cell, json, one_line};
use drover_host::control::{Answer, OBSERVER_PATH, Request, SOCKET_PATH, ask};
use drover_host::status::{Change, VmStatus};

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

/// Says what an order would change, if the daemon would take it.
///
/// # Errors
/// When it would not, with the reason.
pub fn rehearse(socket: &Path, order: &Request) -> Result<()> {
    let request = Request::DryRun { order: Box::new(order.clone()) };
    let changes = answer(socket, &request, |answer| match answer {
        Answer::Changes { changes } => Some(changes),
        _ => None,
    })?;
    match changes.is_empty() {
        true => println!("That would be taken, and would change nothing."),
        false => print!("That would be taken, and would change:\n{}", changed(&changes)),
    }
    Ok(())
}

/// A line for each change.
pub fn changed(changes: &[Change]) -> String {
    let line = |change: &Change| {
        let absent = if change.key.is_some() { "nothing" } else { "not there" };
        let side = |text: &Option<String>| text.clone().unwrap_or_else(|| absent.to_owned());
        let key = change.key.map(|key| format!(" {}", key.name())).unwrap_or_default();
        let Change { whose, from, to, .. } = change;
        format!("  {}\n", one_line(&format!("{whose}:{key} {} -> {}", side(from), side(to))))
    };
    changes.iter().map(line).collect()
}

/// Says of each VM what `drover observe` knows of its I/O.
///
/// # Errors
/// When that does not run.
pub fn add_io(vms: &mut [VmStatus]) -> Result<()> {
    let known = answer(OBSERVER_PATH.as_ref(), &Request::ListIo, |answer| match answer {
        Answer::Io { vms } => Some(vms),
        _ => None,
    })?;
    for vm in vms {
        vm.io = known.iter().find(|it| it.pid == vm.pid).map(|it| it.io);
    }
    Ok(())
}

/// That a limit of that much holds nobody, where it does.
pub fn idle_limit(whose: &str, limit_mcpu: Option<u32>, socket: &Path) -> Result<Option<String>> {
    let Some(limit_mcpu) = limit_mcpu else { return Ok(None) };
    let status = answer(socket, &Request::Status, |answer| match answer {
        Answer::Status { status } => Some(status),
        _ => None,
    })?;
    let host_mcpu = 1000 * status.cpus.cpus().len() as u64;
    Ok((u64::from(limit_mcpu) >= host_mcpu).then(|| {
        let [limit, host] = [limit_mcpu.into(), host_mcpu].map(percent::text64);
        format!(
            "Note: {whose} has a limit of {limit} and this host {host}: the limit never holds it."
        )
    }))
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
    use drover_core::asked::Key;

    use super::*;

    #[test]
    fn a_change_has_a_line_with_both_sides() {
        let change = |whose: &str, key, from: Option<&str>, to: Option<&str>| {
            let [from, to] = [from, to].map(|side| side.map(str::to_owned));
            Change { whose: whose.to_owned(), key, from, to }
        };
        let changes = [
            change(
                "VM web",
                Some(Key::Limit),
                Some("none (default)"),
                Some("150% (drover vm set)"),
            ),
            change("VM db, which does not run", Some(Key::Shares), None, Some("high")),
            change("pool a", None, Some("shares high"), None),
        ];
        assert_eq!(
            changed(&changes),
            "  VM web: limit none (default) -> 150% (drover vm set)\n\
             \x20 VM db, which does not run: shares nothing -> high\n\
             \x20 pool a: shares high -> not there\n"
        );
    }

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
}
