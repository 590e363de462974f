// SPDX-License-Identifier: GPL-2.0-only
//! `drover report`

use std::fs;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, ensure};
use drover_core::recording_file;
use drover_report::html::{Report, Timeline, page};
use drover_report::perfetto::{self, STRETCHES_MAX};

use super::given::out_file;

/// A file is no longer than a recording may be.
pub(super) const BYTES_MAX: u64 = drover_observe::record::BYTES_MAX + (64 << 20);

#[derive(clap::Args)]
pub struct Args {
    /// Recordings of `drover record`; several stand side by side.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The page to write: one file that needs no network.
    #[arg(long, value_name = "OUT.html", value_parser = out_file(), required_unless_present = "perfetto")]
    html: Option<PathBuf>,
    /// A trace to write, for ui.perfetto.dev: pCPUs, and each VM's vCPUs as they ran and were ready.
    #[arg(long, value_name = "OUT.json", value_parser = out_file())]
    perfetto: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let timelines = args.files.iter().map(|file| timeline(file)).collect::<Result<Vec<_>>>()?;
    let (about, timelines): (Vec<_>, Vec<_>) = timelines.into_iter().unzip();
    if let Some(trace) = &args.perfetto {
        if let Some(ends_ms) = write_trace(trace, &timelines, Some(STRETCHES_MAX))? {
            let file = trace.display();
            eprintln!(
                "drover: {file} has the first {ends_ms} ms of each at least, not all: too much ran"
            );
        }
        println!("trace:    {}", trace.display());
    }
    let Some(html) = &args.html else { return Ok(ExitCode::SUCCESS) };
    let names: Vec<&str> = timelines.iter().map(|timeline| timeline.title.as_str()).collect();
    let report = Report {
        title: format!("Who ran where: {}", names.join(", ")),
        about,
        tables: String::new(),
        timelines,
    };
    print!("{}", write_page(html, &report)?);
    Ok(ExitCode::SUCCESS)
}

/// Writes a page; where it is.
pub fn write_page(html: &Path, report: &Report) -> Result<String> {
    fs::write(html, page(report)).with_context(|| format!("cannot write {}", html.display()))?;
    Ok(format!("report:   {}\n", html.display()))
}

/// Writes a trace for ui.perfetto.dev, of `most` stretches at most; where it ends, ms, if not all is in it.
pub fn write_trace(
    path: &Path,
    timelines: &[Timeline],
    most: Option<usize>,
) -> Result<Option<u64>> {
    let cannot = || format!("cannot write {}", path.display());
    let file = BufWriter::new(fs::File::create(path).with_context(cannot)?);
    let ends_ns = perfetto::write(timelines, most, file).with_context(cannot)?;
    Ok(ends_ns.map(|ends_ns| ends_ns / 1_000_000))
}

/// What is to be known of a recording, and the recording.
fn timeline(file: &Path) -> Result<(String, Timeline)> {
    let named = || file.display().to_string();
    let length = fs::metadata(file).with_context(named)?.len();
    ensure!(length <= BYTES_MAX, "{}: no recording is so long", named());
    let recording = recording_file::read(&fs::read(file).with_context(named)?);
    let recording = recording.map_err(|err| anyhow!("{}: {err}", named()))?;
    let title = file.file_stem().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
    let head = &recording.head;
    let scheduler = head.scheduler.as_deref().unwrap_or("the kernel's");
    let about = format!("{title}: {}, {}, scheduler: {scheduler}", head.host, head.began);
    Ok((about, Timeline::of_recording(&title, &recording)))
}
