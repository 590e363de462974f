// SPDX-License-Identifier: GPL-2.0-only
//! `drover check`

use std::process::ExitCode;

use anyhow::Result;
use drover_core::printable::printable;
use drover_host::check::{Point, State, check_host, is_fit};
use drover_host::scheduler;

pub fn run() -> Result<ExitCode> {
    let mut points = check_host();
    if is_fit(&points) {
        points.push(load());
    }
    print!("{}", text(&points));
    Ok(if is_fit(&points) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether this kernel takes the scheduler: the surest way is to load it, and not to start it.
fn load() -> Point {
    let what = "loading";
    match scheduler::try_load() {
        Ok(()) => {
            let found = "this kernel takes the scheduler; it was not started".to_owned();
            Point { what, state: State::Good, found, fix: "" }
        }
        Err(err) => Point {
            what,
            state: State::Missing,
            found: format!("{err:#}").replace('\n', "; "),
            fix: "boot another kernel of 6.18 or newer, and report this with its version",
        },
    }
}

/// What to do comes first, then everything that was looked at.
fn text(points: &[Point]) -> String {
    let to_do: Vec<&Point> = points.iter().filter(|it| it.state == State::Missing).collect();
    let mut text = match to_do.is_empty() {
        true => "This host is fit: `drover serve` schedules it until stopped.\n".to_owned(),
        false => "This host is not fit yet; nothing was changed. To do:\n".to_owned(),
    };
    for (number, point) in (1..).zip(&to_do) {
        text += &format!("  {number}. {}: {}\n", point.what, point.fix);
    }
    if points.iter().any(|it| it.state == State::Differs) {
        text += "Drover changes some things on this host: those marked DIFFERS.\n";
    }
    text.push('\n');
    for point in points {
        let mark = match point.state {
            State::Good => "ok",
            State::Differs => "DIFFERS",
            State::Lacking => "lacking",
            State::Missing => "MISSING",
        };
        text += &format!("{mark:<7}  {:<18} {}\n", point.what, printable(&point.found));
        if !point.fix.is_empty() {
            text += &format!("         {:<18} -> {}\n", "", point.fix);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(what: &'static str, state: State, fix: &'static str) -> Point {
        Point { what, state, found: "as it is".into(), fix }
    }

    #[test]
    fn what_to_do_comes_first() {
        let good = point("kernel", State::Good, "");
        let all =
            [good, point("BTF", State::Missing, "boot"), point("NUMA", State::Differs, "see")];
        let not_fit = text(&all);
        let lines: Vec<&str> = not_fit.lines().collect();
        assert!(lines[0].contains("not fit yet") && lines[1] == "  1. BTF: boot", "{not_fit}");
        assert!(lines[2].contains("DIFFERS") && lines[4] == "ok       kernel             as it is");
        let fit = text(&all[..1]);
        assert!(fit.starts_with("This host is fit") && !fit.contains("DIFFERS"), "{fit}");
    }
}
