// SPDX-License-Identifier: GPL-2.0-only
//! `drover record`

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use drover_observe::record::{BYTES_MAX, record, record_last};
use drover_observe::running::Running;

use super::given::{out_file, span};
use super::observe::host_must_do;
use super::run::stop_on_signals;

#[derive(clap::Args)]
pub struct Args {
    /// The file to write; `drover report` reads it.
    #[arg(value_parser = out_file())]
    out: PathBuf,
    /// For so long; Ctrl-C ends it earlier.
    #[arg(long, default_value = "10", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// The past instead: the last `30s`, or `5m`, as far as `drover observe`, which runs here, keeps what happened.
    #[arg(long, value_parser = span, conflicts_with = "seconds")]
    last: Option<Duration>,
}

/// A recording that reaches back so much less than what was asked for is short.
const SHORT: Duration = Duration::from_millis(100);

pub fn run(args: &Args) -> Result<ExitCode> {
    host_must_do()?;
    let stop = stop_on_signals()?;
    let kept = args.last.map(|last| anyhow::Ok((last, Running::find()?))).transpose()?;
    let out =
        File::create(&args.out).with_context(|| format!("cannot write {}", args.out.display()))?;
    let mut out = BufWriter::new(out);
    let recorded = match &kept {
        Some((last, running)) => record_last(running, &mut out, *last)?,
        None => record(&mut out, Duration::from_secs(args.seconds), &stop)?,
    };
    println!(
        "{}: {} events, {:.1} MB, {} lost",
        args.out.display(),
        recorded.events,
        recorded.bytes as f64 / 1e6,
        recorded.lost
    );
    if args.last.is_some_and(|last| recorded.whole + SHORT < last) {
        println!("It reaches back {:.1} s: no more is kept.", recorded.whole.as_secs_f64());
    }
    if recorded.bytes >= BYTES_MAX {
        println!("It ended early: a recording has {} MB at most.", BYTES_MAX / 1_000_000);
    }
    Ok(ExitCode::SUCCESS)
}
