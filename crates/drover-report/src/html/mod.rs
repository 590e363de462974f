// SPDX-License-Identifier: GPL-2.0-only
//! Who ran where as one page of HTML that needs nothing else: no network, no server.
//!
//! The page draws itself (`report.js`) from figures that stand in it as JSON. Names are anybody's: they go through
//! JSON and are put in as text, never as HTML.

mod figures;
mod recorded;
mod timeline;

use drover_core::printable::{json, printable};
use serde_json::json;

use figures::Figures;
pub use timeline::{Person, Stretch, Timeline, Waited};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("report.css");
const SCRIPT: &str = include_str!("report.js");

/// What a page shows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// What stands above it.
    pub title: String,
    /// What is to be known of it, a line each.
    pub about: Vec<String>,
    /// Tables as a terminal has them; empty: none.
    pub tables: String,
    /// What ran, side by side.
    pub timelines: Vec<Timeline>,
}

/// The page.
pub fn page(report: &Report) -> String {
    let timelines = report.timelines.iter().map(|timeline| {
        let figures = Figures::of(timeline);
        json!({
            "title": timeline.title,
            "pcpus": timeline.pcpus,
            "length_ns": timeline.length_ns,
            "people": timeline.people.iter().map(person).collect::<Vec<_>>(),
            "vms": timeline.vms,
            "spans": timeline.packed(),
            "bars": figures.bars,
            "waits": figures.waits,
            "sums": figures.sums,
            "notes": timeline.notes,
        })
    });
    let data = json!({
        "title": report.title,
        "about": report.about,
        "tables": report.tables,
        "timelines": timelines.collect::<Vec<_>>(),
    });
    let (above, below) = PAGE.split_once("DATA").expect("it is in the page");
    let title = text(&printable(&report.title));
    let above = above.replace("/*STYLE*/", STYLE).replace("TITLE", &title);
    above + &in_script(&json(&data.to_string())) + &below.replace("/*SCRIPT*/", SCRIPT)
}

fn person(person: &Person) -> serde_json::Value {
    json!({ "name": person.name, "vm": person.vm, "vcpu": person.vcpu })
}

/// As text in HTML.
fn text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// JSON that cannot end the element it stands in.
fn in_script(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_scenario::schedule::{Schedule, ScheduledVm, Span, Wait, Who};

    pub(super) fn schedule(name: &str) -> Schedule {
        Schedule {
            case: "beside".to_owned(),
            scheduler: "drover".to_owned(),
            from_s: 1.9,
            length_ns: 200_000_000,
            pcpus: 2,
            vms: vec![ScheduledVm { name: name.to_owned(), vcpus: 2 }],
            spans: vec![
                Span { pcpu: 1, from_ns: 500_000, to_ns: 7_000_000, who: Who::Vcpu(0, 1) },
                Span { pcpu: 0, from_ns: 0, to_ns: 1_000_000, who: Who::Host },
            ],
            waits: vec![Wait { vm: 0, vcpu: 0, from_ns: 2_000_000, to_ns: 5_000_000 }],
        }
    }

    fn report(name: &str) -> Report {
        Report {
            title: name.to_owned(),
            timelines: vec![Timeline::of_schedule(&schedule(name))],
            ..Report::default()
        }
    }

    #[test]
    fn a_page_is_whole_and_asks_for_nothing() {
        let page = page(&report("web"));
        assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
        for outside in ["http:", "https:", "src=", "href=", "@import", "url(", "fetch("] {
            assert!(!page.contains(outside), "{outside}");
        }
        for placeholder in ["/*STYLE*/", "/*SCRIPT*/", "<title>TITLE", ">DATA<"] {
            assert!(!page.contains(placeholder), "{placeholder} is left");
        }
    }

    #[test]
    fn names_stay_text_whatever_they_are() {
        let evil = "DATA TITLE</script><script>alert(1)</script>\u{1b}[2J\u{202e}\n&\"'".to_owned()
            + &"x".repeat(4096);
        let page = page(&report(&evil));
        assert_eq!(page.matches("</script>").count(), 2, "the two of the page itself");
        assert!(!page.contains(['\u{1b}', '\u{202e}']));
        let data = page.split_once("type=\"application/json\">").unwrap().1;
        let data = data.split_once("</script>").unwrap().0;
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        assert!(data["title"].as_str().unwrap().starts_with("DATA TITLE</script><script>"));
        assert_eq!(data["timelines"][0]["vms"][0], data["title"]);
    }
}
