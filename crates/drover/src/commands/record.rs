// SPDX-License-Identifier: GPL-2.0-only
//! `drover record`

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use drover_observe::record::{BYTES_MAX, record};

use super::given::out_file;
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
}

pub fn run(args: &Args) -> Result<ExitCode> {
    host_must_do()?;
    let stop = stop_on_signals()?;
    let out =
        File::create(&args.out).with_context(|| format!("cannot write {}", args.out.display()))?;
    let mut out = BufWriter::new(out);
    let recorded = record(&mut out, Duration::from_secs(args.seconds), &stop)?;
    println!(
        "{}: {} events, {:.1} MB, {} lost",
        args.out.display(),
        recorded.events,
        recorded.bytes as f64 / 1e6,
        recorded.lost
    );
    if recorded.bytes >= BYTES_MAX {
        println!("It ended early: a recording has {} MB at most.", BYTES_MAX / 1_000_000);
    }
    Ok(ExitCode::SUCCESS)
}
