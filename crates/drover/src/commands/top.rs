// SPDX-License-Identifier: GPL-2.0-only
//! `drover top`

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use drover_core::printable::{json, one_line};
use drover_observe::csv::Csv;
use drover_observe::figures::Figures;
use drover_observe::meter::Meter;
use drover_observe::screen;
use nix::poll::{PollTimeout, poll};
use nix::unistd::{geteuid, gethostname};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::ask::Daemon;
use super::given::span;
use super::observe::host_must_do;
use super::since::{self, As};

#[derive(clap::Args)]
pub struct Args {
    /// Seconds from one reading to the next.
    #[arg(short = 'd', long, default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// End after so many readings.
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u64).range(1..))]
    iterations: Option<u64>,
    /// No screen: CSV as esxtop's batch mode has it, a line a reading.
    #[arg(short, long, conflicts_with = "json")]
    batch: bool,
    /// No screen: JSON, a line a reading.
    #[arg(long)]
    json: bool,
    /// What happened in the last `10m` instead, up to `24h`: a table, or CSV or JSON. A daemon must have kept it.
    #[arg(long, value_name = "SPAN", value_parser = span, conflicts_with_all = ["interval", "iterations"])]
    since: Option<Duration>,
    #[command(flatten)]
    daemon: Daemon,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok();
    let seconds = seconds.filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "seconds from 0.1 to 3600, as 2.5".to_owned())
}

pub fn run(args: &Args) -> Result<ExitCode> {
    if let Some(since) = args.since {
        crate::pipe::end_with_reader();
        let shown = match (args.batch, args.json) {
            (true, _) => As::Csv,
            (_, true) => As::Json,
            _ => As::Table,
        };
        print!("{}", since::told(&args.daemon.socket, since, shown)?);
        return Ok(ExitCode::SUCCESS);
    }
    let may_observe = geteuid().is_root();
    if may_observe {
        host_must_do()?;
    }
    let on_screen = !args.batch && !args.json;
    if on_screen && !(io::stdout().is_terminal() && io::stdin().is_terminal()) {
        bail!("there is no terminal to show it on; --batch writes CSV, --json JSON");
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot catch signals")?;
    }
    let mut meter = match may_observe {
        true => Meter::start(&args.daemon.socket)?,
        false => told(&args.daemon.socket)?,
    };
    let outcome = if on_screen {
        screen::run(&mut meter, args.interval, args.iterations, &stop)
    } else {
        write_lines(args, &mut meter, &stop)
    };
    outcome.map(|()| ExitCode::SUCCESS)
}

/// By what the daemons say to who may only look.
fn told(socket: &Path) -> Result<Meter> {
    Meter::ask(socket).or_else(|err| {
        host_must_do()?;
        Err(err)
    })
}

/// A line a reading, until stopped or nobody reads any more.
fn write_lines(args: &Args, meter: &mut Meter, stop: &AtomicBool) -> Result<()> {
    let mut lines = Lines::default();
    let mut due = Instant::now();
    for _ in 0..args.iterations.unwrap_or(u64::MAX) {
        due += args.interval;
        while let Some(rest) = due.checked_duration_since(Instant::now()) {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            // A signal ends the wait.
            let rest = rest.min(Duration::from_secs(1)).as_micros().div_ceil(1000);
            let _ = poll(&mut [], PollTimeout::try_from(rest)?);
        }
        let figures = meter.measure()?;
        let text = if args.json {
            json(&serde_json::to_string(&figures)?) + "\n"
        } else {
            lines.of(&figures)
        };
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(err) if err.kind() == ErrorKind::BrokenPipe => return Ok(()),
            written => written.context("cannot write to standard output")?,
        }
    }
    Ok(())
}

/// Lines of CSV.
#[derive(Default)]
struct Lines {
    csv: Option<Csv>,
    said: Vec<String>,
}

impl Lines {
    /// The line of these figures; the head before the first.
    fn of(&mut self, figures: &Figures) -> String {
        let mut text = String::new();
        let csv = self.csv.get_or_insert_with(|| {
            let host = gethostname().unwrap_or_default();
            let csv = Csv::new(&host.to_string_lossy(), figures);
            text = csv.header() + "\n";
            csv
        });
        let late = |vm| format!("VM {vm} came later and has no columns; --json has it");
        let late = csv.left_out(figures).into_iter().map(late);
        for note in late.chain(figures.notes.iter().cloned()) {
            if !self.said.contains(&note) {
                // The lines count, whoever reads this or not.
                let _ = writeln!(io::stderr(), "drover: {}", one_line(&note));
                self.said.push(note);
            }
        }
        text + &csv.row(figures) + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_in_seconds() {
        assert_eq!(seconds("2.5"), Ok(Duration::from_millis(2500)));
        for text in ["0", "0.01", "-1", "nan", "1e9", "2s", ""] {
            assert!(seconds(text).unwrap_err().contains("0.1 to 3600"), "{text}");
        }
    }
}
