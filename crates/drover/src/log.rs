// SPDX-License-Identifier: GPL-2.0-only
//! What is said on stderr: to a terminal in colours, to a file with the time, to systemd's journal with a
//! priority. The journal has the time by itself, and takes `<N>` at the beginning of a line as syslog's
//! priority N.

use std::fmt;
use std::io::IsTerminal;

use drover_core::printable::one_line;
use drover_host::recent;
use nix::sys::stat::fstat;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// syslog's priority of an error.
const ERROR: u8 = 3;

/// From here on what the program has to say is written to stderr.
pub fn start() {
    let filter = EnvFilter::try_from_env("DROVER_LOG").unwrap_or_else(|_| "info".into());
    let log = tracing_subscriber::fmt()
        .fmt_fields(debug_fn(write_field))
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        // It would tell stderr that stderr cannot be written, and end us: the daemon outlives its log.
        .log_internal_errors(false);
    match is_journal() {
        true => log.event_format(Journal).finish().with(Warnings).init(),
        false => log.finish().with(Warnings).init(),
    }
}

/// The last line of a command that failed.
pub fn fault(line: &str) {
    let line = one_line(line);
    match is_journal() {
        true => eprintln!("<{ERROR}>{line}"),
        false => eprintln!("drover: {line}"),
    }
}

/// What is said of others is in words of theirs: it is one line, and does nothing to a terminal.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let text = one_line(&format!("{value:?}"));
    match field.name() {
        "message" => write!(writer, "{text}"),
        name => write!(writer, " {name}={text}"),
    }
}

/// Whether stderr is what systemd has connected to its journal.
fn is_journal() -> bool {
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    fstat(std::io::stderr()).is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Keeps the last warnings, for `drover status`.
struct Warnings;

impl<S: Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        // Levels that say less are greater.
        if *event.metadata().level() <= Level::WARN {
            let mut text = Message(String::new());
            event.record(&mut text);
            recent::keep(text.0);
        }
    }
}

/// What an event says, without its fields.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = one_line(&format!("{value:?}"));
        }
    }
}

struct Journal;

impl<S, N> FormatEvent<S, N> for Journal
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(writer, "<{}>", priority(*event.metadata().level()))?;
        context.field_format().format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => ERROR,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}
