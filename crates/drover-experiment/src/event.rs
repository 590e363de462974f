// SPDX-License-Identifier: GPL-2.0-only
//! What an experiment tells while it runs.
//!
//! Out of the lab events come as lines of its output: [`MARK`] and the event as JSON. So a run that
//! is finished is safe outside, whatever happens to the virtual host afterwards.

use drover_scenario::results::Run;
use drover_scenario::schedule::Schedule;
use serde::{Deserialize, Serialize};

/// What a line that holds an event begins with.
const MARK: &str = "@drover ";

/// A run that begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Which of all runs, from 1.
    pub number: usize,
    /// How many there will be.
    pub of: usize,
    /// Name of the case.
    pub case: String,
    /// Label of the scheduler.
    pub scheduler: String,
    /// Which repeat, from 1.
    pub repeat: u32,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A run begins.
    Started(Started),
    /// A run is over; its figures.
    Finished(Box<Run>),
    /// Who ran where for a while of a run that is over.
    Schedule(Box<Schedule>),
    /// A line for the user.
    Notice(String),
}

impl Event {
    /// The event as a line, without its end.
    pub(crate) fn to_line(&self) -> String {
        let json = serde_json::to_string(self).expect("events hold nothing JSON could not");
        format!("{MARK}{json}")
    }

    /// The event in a line; none in any other line.
    pub(crate) fn from_line(line: &str) -> Option<Self> {
        serde_json::from_str(line.trim_end().strip_prefix(MARK)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started() -> Started {
        let (case, scheduler) = ("1:7".to_owned(), "drover".to_owned());
        Started { number: 2, of: 14, case, scheduler, repeat: 1 }
    }

    #[test]
    fn events_travel_as_lines() {
        for event in [Event::Started(started()), Event::Notice("a \"b\"\nc".to_owned())] {
            let line = event.to_line();
            assert_eq!(line.lines().count(), 1);
            assert_eq!(Event::from_line(&format!("{line}\r\n")), Some(event));
        }
    }

    #[test]
    fn other_lines_are_no_events() {
        for line in ["", "drover: no", "@drover ", "@drover {}", " @drover \"x\""] {
            assert_eq!(Event::from_line(line), None, "{line}");
        }
    }
}
