// SPDX-License-Identifier: GPL-2.0-only
//! `drover report`

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, ensure};
use drover_core::recording_file;
use drover_report::html::{Report, Timeline, page};

/// A file is no longer than a recording may be.
const BYTES_MAX: u64 = drover_observe::record::BYTES_MAX + (64 << 20);

#[derive(clap::Args)]
pub struct Args {
    /// Recordings of `drover record`; several stand side by side.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The page to write: one file that needs no network.
    #[arg(long, value_name = "OUT.html")]
    html: PathBuf,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let timelines = args.files.iter().map(|file| timeline(file)).collect::<Result<Vec<_>>>()?;
    let names: Vec<&str> = timelines.iter().map(|(_, timeline)| timeline.title.as_str()).collect();
    let report = Report {
        title: format!("Who ran where: {}", names.join(", ")),
        about: timelines.iter().map(|(about, _)| about.clone()).collect(),
        tables: String::new(),
        timelines: timelines.into_iter().map(|(_, timeline)| timeline).collect(),
    };
    write_page(&args.html, &report)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a page, and says where.
pub fn write_page(html: &Path, report: &Report) -> Result<()> {
    fs::write(html, page(report)).with_context(|| format!("cannot write {}", html.display()))?;
    println!("report:   {}", html.display());
    Ok(())
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
