// SPDX-License-Identifier: GPL-2.0-only
//! Reading the progress of a Linux guest off its console, which QEMU writes to a file.

use crate::report_line::{self, Report};
use crate::{GuestError, ProgressSource, Snapshot};
use drover_core::histogram::{BUCKETS, Histogram, bucket_index};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// A line longer than this is no report; what is beyond is dropped.
const LINE_LEN_MAX: usize = 4096;

/// What one Linux guest has printed so far.
///
/// Its progress is what the program reports (report_line.rs), so it moves on in steps of the program's own
/// interval: measure for many of them.
#[derive(Debug)]
pub struct ConsoleReader {
    path: PathBuf,
    file: Option<File>,
    /// The beginning of a line whose end has not been printed.
    partial: Vec<u8>,
    ready_text: Option<String>,
    end_mark: String,
    ready: bool,
    ended: Option<i32>,
    last_line: String,
    tally: Tally,
}

/// What all reports so far come to.
#[derive(Debug, Default)]
struct Tally {
    reported: bool,
    done: f64,
    second: u64,
    late_buckets: Vec<u64>,
    late_sum_ns: u64,
    late_max_ns: u64,
}

impl ConsoleReader {
    /// A reader of the file QEMU writes the guest's console to; it need not be there yet.
    ///
    /// `ready_text` is what the program prints once its work has begun; with none it counts as begun at
    /// once. `end_mark` is what the guest's init prints, followed by the exit status, when
    /// the program has ended.
    pub fn new(path: &Path, ready_text: Option<&str>, end_mark: &str) -> Self {
        Self {
            path: path.to_owned(),
            file: None,
            partial: Vec::new(),
            ready_text: ready_text.map(str::to_owned),
            end_mark: end_mark.to_owned(),
            ready: ready_text.is_none(),
            ended: None,
            last_line: String::new(),
            tally: Tally { late_buckets: vec![0; BUCKETS], ..Tally::default() },
        }
    }

    /// The last line that was printed; empty when none was.
    ///
    /// # Errors
    /// When the console cannot be read.
    pub fn last_line(&mut self) -> Result<&str, GuestError> {
        self.refresh()?;
        Ok(&self.last_line)
    }

    /// Takes in what was printed since the last look.
    fn refresh(&mut self) -> Result<(), GuestError> {
        let printed = self
            .read_more()
            .map_err(|source| GuestError::Console { path: self.path.clone(), source })?;
        for byte in printed {
            match byte {
                b'\n' => {
                    let line = std::mem::take(&mut self.partial);
                    self.take_line(String::from_utf8_lossy(&line).trim());
                }
                byte if self.partial.len() < LINE_LEN_MAX => self.partial.push(byte),
                _ => {}
            }
        }
        Ok(())
    }

    fn read_more(&mut self) -> io::Result<Vec<u8>> {
        if self.file.is_none() {
            self.file = match File::open(&self.path) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
                opened => Some(opened?),
            };
        }
        let mut printed = Vec::new();
        if let Some(file) = &mut self.file {
            file.read_to_end(&mut printed)?;
        }
        Ok(printed)
    }

    fn take_line(&mut self, line: &str) {
        if let Some(status) = line.strip_prefix(&self.end_mark) {
            self.ended = status.trim().parse().ok();
            return;
        }
        if self.ready_text.as_ref().is_some_and(|text| line.contains(text)) {
            self.ready = true;
        }
        if let Some(report) = report_line::parse(line) {
            self.tally.add(report);
        }
        if !line.is_empty() {
            self.last_line = line.to_owned();
        }
    }

    fn ended_badly(&self, expected: bool) -> Result<(), GuestError> {
        match self.ended {
            Some(status) if status != 0 || !expected => Err(GuestError::CommandEnded {
                path: self.path.clone(),
                status,
                last_line: self.last_line.clone(),
            }),
            _ => Ok(()),
        }
    }
}

impl ProgressSource for ConsoleReader {
    fn ready(&mut self) -> Result<bool, GuestError> {
        self.refresh()?;
        self.ended_badly(false)?;
        Ok(self.ready)
    }

    fn snapshot(&mut self) -> Result<Snapshot, GuestError> {
        self.refresh()?;
        self.ended_badly(true)?;
        Ok(self.tally.snapshot())
    }
}

impl Tally {
    fn add(&mut self, report: Report) {
        self.reported = true;
        match report {
            Report::Count(count) => self.done += count as f64,
            Report::Rate { second, per_s } => {
                // A program that was started anew counts its seconds from 0 again.
                let since = if second > self.second { self.second } else { 0 };
                self.done += per_s * (second - since) as f64;
                self.second = second;
            }
            Report::Late { late_us, count } => {
                let late_ns = late_us * 1000;
                self.done += count as f64;
                self.late_buckets[bucket_index(late_ns)] += count;
                self.late_sum_ns = self.late_sum_ns.saturating_add(late_ns.saturating_mul(count));
                if count > 0 {
                    self.late_max_ns = self.late_max_ns.max(late_ns);
                }
            }
        }
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            progress: self.reported.then_some(self.done.round() as u64),
            vcpu_progress: Vec::new(),
            wakeups: Histogram::from_parts(&self.late_buckets, self.late_sum_ns, self.late_max_ns),
            yields: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const END_MARK: &str = "the command ended with status ";

    struct Console {
        _dir: tempfile::TempDir,
        file: File,
        reader: ConsoleReader,
    }

    fn console(ready_text: Option<&str>) -> Console {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("console");
        let reader = ConsoleReader::new(&path, ready_text, END_MARK);
        Console { file: File::create(&path).unwrap(), _dir: dir, reader }
    }

    impl Console {
        fn print(&mut self, text: &str) {
            self.file.write_all(text.as_bytes()).unwrap();
        }
    }

    #[test]
    fn a_guest_without_a_console_yet_is_not_ready() {
        let path = Path::new("/no/such/console");
        let mut reader = ConsoleReader::new(path, Some("started"), END_MARK);
        assert!(!reader.ready().unwrap());
        assert_eq!(reader.snapshot().unwrap().progress, None);
    }

    #[test]
    fn rates_become_events_also_when_lines_come_in_pieces() {
        let mut console = console(Some("Threads started!"));
        console.print("Initializing\r\nThreads sta");
        assert!(!console.reader.ready().unwrap());
        console.print(
            "rted!\r\n[ 1s ] thds: 2 eps: 100.5 lat\r\n[ 3s ] thds: 2 eps: 50.0 lat\r\n[ 4s ] th",
        );
        assert!(console.reader.ready().unwrap());
        assert_eq!(console.reader.snapshot().unwrap().progress, Some(201));
        console.print("ds: 2 eps: 10.0 lat\r\n");
        assert_eq!(console.reader.snapshot().unwrap().progress, Some(211));
        console.print("[ 1s ] thds: 2 eps: 5.0 lat\r\n");
        assert_eq!(console.reader.snapshot().unwrap().progress, Some(216), "a second run");
    }

    #[test]
    fn a_latency_histogram_is_taken_over() {
        let mut console = console(None);
        console.print("000060 000003\t000001\n000200 000000\t000000\n000100 000001\t000000\n");
        let snapshot = console.reader.snapshot().unwrap();
        assert_eq!((snapshot.progress, snapshot.wakeups.count()), (Some(5), 5));
        assert_eq!(snapshot.wakeups.mean_ns(), Some(68_000.0));
        assert_eq!(snapshot.wakeups.max_ns(), Some(100_000));
    }

    #[test]
    fn a_command_that_failed_is_told_with_its_last_words() {
        let mut console = console(None);
        console.print("sh: sysbenhc: not found\nthe command ended with status 127\n");
        let message = console.reader.ready().unwrap_err().to_string();
        assert!(message.contains("status 127") && message.contains("sysbenhc"), "{message}");
        assert_eq!(message.lines().count(), 1);
        assert!(console.reader.snapshot().is_err());
        assert_eq!(console.reader.last_line().unwrap(), "sh: sysbenhc: not found");
    }

    #[test]
    fn a_command_that_has_done_its_work_keeps_its_counts() {
        let mut console = console(None);
        console.print("Time: 0.5\nthe command ended with status 0\n");
        assert_eq!(console.reader.snapshot().unwrap().progress, Some(1));
        assert!(console.reader.ready().is_err(), "nothing is left to be measured");
    }

    #[test]
    fn endless_lines_take_no_endless_memory() {
        let mut console = console(None);
        console.print(&"x".repeat(100_000));
        console.print("\nprogress 3\n");
        assert_eq!(console.reader.snapshot().unwrap().progress, Some(3));
    }
}
