// SPDX-License-Identifier: GPL-2.0-only
//! How things come back from the lab.
//!
//! The virtual host has two one-way ports (virtio-serial), each a file on this machine: `output` takes what
//! the command prints, `report` takes one cpio archive: an entry `booted` when the command starts, after its
//! end every file of `/out`, the kernel's log and last `status`. Plain files never make QEMU wait, so the exact
//! clock is not disturbed; and an archive without its end mark says that the lab did not get that far.

use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cpio::{self, FileEntry, Node, Writer};

const BOOTED: &str = "booted";
const STATUS: &str = "status";
const KERNEL_LOG: &str = "kernel-log";
const OUT: &str = "out/";

/// In the lab: opens the port of a name for writing.
///
/// # Errors
/// When the virtual host has no such port.
pub fn open_port(name: &str) -> Result<File> {
    let ports = Path::new("/sys/class/virtio-ports");
    for entry in fs::read_dir(ports).context("the lab has no virtio ports")? {
        let entry = entry?;
        let found = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        if found.trim() == name {
            let device = Path::new("/dev").join(entry.file_name());
            return Ok(OpenOptions::new().write(true).open(device)?);
        }
    }
    anyhow::bail!("the lab has no port `{name}`")
}

/// In the lab: the writer of the report.
pub struct Reporter<W: Write> {
    writer: Writer<BufWriter<W>>,
}

/// Bytes handed to the port at once: the largest piece the driver takes without splitting.
const PIECE_LEN: usize = 32 * 1024;

impl<W: Write> Reporter<W> {
    /// Begins a report and says that the lab is up.
    ///
    /// # Errors
    /// When the port cannot be written.
    pub fn begin(port: W) -> Result<Self> {
        let mut writer = Writer::new(BufWriter::with_capacity(PIECE_LEN, port));
        writer.add(BOOTED, &Node::File { permissions: 0o644, data: b"" })?;
        writer.flush()?;
        Ok(Self { writer })
    }

    /// Ends it with the files below `out`, the kernel's log and the command's exit status.
    ///
    /// # Errors
    /// When a file cannot be read or the port not be written.
    pub fn end(mut self, out: &Path, kernel_log: &[u8], exit_status: i32) -> Result<()> {
        for path in files_below(out)? {
            let data = fs::read(&path)?;
            let permissions = fs::metadata(&path)?.permissions().mode() & 0o777;
            let name = path.strip_prefix(out)?.to_string_lossy();
            self.writer.add(&format!("{OUT}{name}"), &Node::File { permissions, data: &data })?;
        }
        self.writer.add(KERNEL_LOG, &Node::File { permissions: 0o644, data: kernel_log })?;
        let status = exit_status.to_string();
        self.writer.add(STATUS, &Node::File { permissions: 0o644, data: status.as_bytes() })?;
        self.writer.finish()?;
        Ok(())
    }
}

/// Regular files below a directory, sorted, links not followed.
fn files_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let (mut files, mut pending) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(current) = pending.pop() {
        for entry in fs::read_dir(&current)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                pending.push(entry.path());
            } else if kind.is_file() {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

/// What a report says so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The command was started.
    pub booted: bool,
    /// Exit status of the command, when it ended and everything came back whole.
    pub exit_status: Option<i32>,
    /// The kernel's log.
    pub kernel_log: String,
    /// The files of `/out`, by path relative to it.
    pub files: Vec<FileEntry>,
}

impl Report {
    /// Reads a report, whole or cut off.
    ///
    /// # Errors
    /// When the bytes are no report.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let (entries, whole) = cpio::read(bytes).context("the lab's report is damaged")?;
        let mut report = Self::default();
        for entry in entries {
            match entry.path.as_str() {
                BOOTED => report.booted = true,
                KERNEL_LOG => report.kernel_log = String::from_utf8_lossy(&entry.data).into_owned(),
                STATUS if whole => {
                    report.exit_status = std::str::from_utf8(&entry.data)?.parse().ok();
                }
                path => {
                    if let Some(path) = path.strip_prefix(OUT) {
                        report.files.push(FileEntry { path: path.to_owned(), ..entry });
                    }
                }
            }
        }
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Vec<u8> {
        let out = tempfile::tempdir().unwrap();
        fs::create_dir(out.path().join("sub")).unwrap();
        fs::write(out.path().join("sub/b.svg"), b"<svg>").unwrap();
        fs::write(out.path().join("a.json"), b"{}").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", out.path().join("link")).unwrap();
        let mut port = Vec::new();
        Reporter::begin(&mut port).unwrap().end(out.path(), b"log", 3).unwrap();
        port
    }

    #[test]
    fn a_whole_report_brings_everything_back() {
        let report = Report::parse(&report()).unwrap();
        assert!(report.booted);
        assert_eq!(report.exit_status, Some(3));
        assert_eq!(report.kernel_log, "log");
        let paths: Vec<_> = report.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["a.json", "sub/b.svg"]);
    }

    #[test]
    fn a_cut_report_has_no_exit_status() {
        let bytes = report();
        for len in 0..bytes.len() - 10 {
            assert_eq!(Report::parse(&bytes[..len]).unwrap().exit_status, None, "at {len}");
        }
    }

    #[test]
    fn an_empty_report_is_a_lab_that_did_not_boot() {
        assert_eq!(Report::parse(b"").unwrap(), Report::default());
    }

    #[test]
    fn the_start_is_told_at_once() {
        let mut port = Vec::new();
        let reporter = Reporter::begin(&mut port).unwrap();
        std::mem::forget(reporter);
        assert!(Report::parse(&port).unwrap().booted);
    }
}
