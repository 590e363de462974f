// SPDX-License-Identifier: GPL-2.0-only
//! `drover why`

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use drover_core::printable::cell;
use drover_core::why::{Facts, Finding, Meanwhile, Who, conclude, pcpus};
use drover_host::control::{Answer, OBSERVER_PATH, Request};
use serde_json::json;

use super::ask::{answer, print_json, table};

/// One screen holds so many.
const SHOWN: usize = 10;

#[derive(clap::Args)]
pub struct Args {
    /// The VM, as `drover vm list` names it, or the number of its process.
    vm: String,
    /// The last so many seconds.
    #[arg(long, default_value = "60", value_parser = clap::value_parser!(u32).range(1..=300))]
    seconds: u32,
    /// As JSON, for programs.
    #[arg(long)]
    json: bool,
    /// Where `drover observe` listens.
    #[arg(long, default_value = OBSERVER_PATH)]
    socket: PathBuf,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let request = Request::ExplainWaits { vm: args.vm.clone(), seconds: args.seconds };
    let facts = answer(&args.socket, &request, |answer| match answer {
        Answer::Waits { facts } => Some(facts),
        _ => None,
    })?;
    let found = conclude(&facts);
    match args.json {
        true => {
            let all = json!({ "facts": facts, "causes": found });
            print_json(&serde_json::to_string_pretty(&all)?);
        }
        false => print!("{}", page(&facts, &found)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Where the time went, why it waited, who ran meanwhile.
fn page(facts: &Facts, found: &[Finding]) -> String {
    times(facts) + &causes(facts, found) + &meanwhile(facts)
}

fn times(facts: &Facts) -> String {
    let Facts { vcpus, window_s, run_s, ready_s, costop_s, .. } = *facts;
    let name = cell(&facts.name);
    let scheduler = facts.scheduler.as_deref().map_or("the kernel's".to_owned(), cell);
    let pct = |seconds| format!("{:.1} %", facts.of_vcpus_pct(seconds));
    let waited_s = f64::from(vcpus) * window_s - run_s - ready_s - costop_s;
    let window = duration(window_s);
    let mut text = format!(
        "{name}: {vcpus} vCPU{}, the last {window}, scheduler: {scheduler}\nran {}, ready {}, \
         co-stopped {}, had nothing to do {}\n",
        if vcpus == 1 { "" } else { "s" },
        pct(run_s),
        pct(ready_s),
        pct(costop_s),
        pct(waited_s.max(0.0)),
    );
    if let Some(spins) = facts.spins() {
        text += &format!("{spins}\n");
    }
    if facts.events_s < 0.95 * window_s {
        let known = match facts.events_s {
            0.0 => "Who ran is not known".to_owned(),
            seconds => format!("Who ran is known of the last {} only", duration(seconds)),
        };
        text += &format!("{known}: this host switches more than is kept.\n");
    }
    text
}

/// So long, never as nothing where it is something.
fn duration(seconds: f64) -> String {
    match seconds {
        ..0.9995 => format!("{:.0} ms", (1000.0 * seconds).max(1.0)),
        ..9.95 => format!("{seconds:.1} s"),
        _ => format!("{seconds:.0} s"),
    }
}

fn causes(facts: &Facts, found: &[Finding]) -> String {
    if found.is_empty() {
        return format!(
            "\nNothing is wrong: it was ready, and did not run, for {:.1} % of the time.\n",
            facts.waited_pct()
        );
    }
    let mut text = "\nWhy it waited\n".to_owned();
    for one in found {
        text += &format!(
            "{:>5.1} %  {}\n         would help: {}\n",
            one.pct,
            cell(&one.what),
            cell(&one.helps)
        );
    }
    text
}

fn meanwhile(facts: &Facts) -> String {
    // Other schedulers than Drover know no shares that nobody set.
    let shares =
        |one: &Meanwhile| one.shares.filter(|_| facts.takes_orders() || !one.shares_by_default);
    let shown = facts.meanwhile.iter().take(SHOWN).filter(|one| one.seconds >= 5e-4);
    let row = |one: &Meanwhile| {
        let name = if one.who == Who::Sibling { String::new() } else { one.name.clone() };
        vec![
            format!("{:.3} s", one.seconds),
            one.who.text().to_owned(),
            name,
            shares(one).map_or("-".to_owned(), |shares| shares.to_string()),
            pcpus(&one.pcpus),
        ]
    };
    let rows: Vec<Vec<String>> = shown.map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let titles = ["RAN", "WHO<", "NAME<", "SHARES", "WHERE<"];
    "\nWho ran where it was ready\n".to_owned() + &table(&titles, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_core::counters::Yields;

    fn facts() -> Facts {
        Facts {
            name: "web\n\u{1b}[2J".to_owned(),
            window_s: 60.0,
            events_s: 60.0,
            vcpus: 2,
            run_s: 60.0,
            ready_s: 60.0,
            shares: Some(1000),
            allowed: vec![0, 1],
            allowed_busy_pct: 100.0,
            meanwhile: vec![Meanwhile {
                who: Who::Vm,
                name: "db\u{9b}1m".to_owned(),
                shares: Some(4000),
                shares_by_default: false,
                seconds: 60.0,
                pcpus: vec![0, 1],
            }],
            ..Facts::default()
        }
    }

    #[test]
    fn the_cause_stands_first_with_its_figures_and_what_would_help() {
        let facts = facts();
        let text = page(&facts, &conclude(&facts));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "ran 50.0 %, ready 50.0 %, co-stopped 0.0 %, had nothing to do 0.0 %");
        assert!(lines[4].starts_with("100.0 %  VM db"), "{text}");
        assert!(lines[4].ends_with("has more shares: 4000 beside 1000 of its own"), "{text}");
        assert!(lines[5].contains("would help: more shares"), "{text}");
        assert!(
            lines[9].contains("60.000 s  VM") && lines[9].ends_with("4000  pCPUs 0-1"),
            "{text}"
        );
        assert!(lines.len() <= 24, "one screen");
        assert!(!text.contains(['\u{1b}', '\u{9b}']), "names are anybody's: {text:?}");
    }

    #[test]
    fn nothing_is_said_to_be_wrong_where_nothing_is() {
        let facts = Facts { ready_s: 0.1, meanwhile: Vec::new(), ..facts() };
        let text = page(&facts, &conclude(&facts));
        assert!(text.contains("Nothing is wrong"), "{text}");
        let short = Facts { events_s: 20.0, ..facts };
        assert!(times(&short).contains("the last 20 s only"));
    }

    #[test]
    fn vcpus_that_spin_are_told_beside_where_the_time_went() {
        let yields = Yields { asked: 60_000, granted: 20_000, throttled: 30_000, wasted: 15_000 };
        let text = times(&Facts { yields: Some(yields), ..facts() });
        assert_eq!(
            text.lines().nth(2),
            Some(
                "its vCPUs spin for one another: 1000 times a second one asked that a sibling run, 75 % of it in vain"
            )
        );
    }

    #[test]
    fn no_time_is_told_as_0_s() {
        let of = |window_s, events_s| times(&Facts { window_s, events_s, ..facts() });
        assert!(of(0.3, 0.3).contains("the last 300 ms, "), "{}", of(0.3, 0.3));
        assert!(of(60.0, 0.02).contains("known of the last 20 ms only"));
        assert!(of(60.0, 0.000_1).contains("known of the last 1 ms only"));
        assert!(of(60.0, 0.0).contains("Who ran is not known: this host"));
        assert!(of(1.4, 1.4).contains("the last 1.4 s, "));
    }

    #[test]
    fn shares_that_nobody_set_are_shown_where_drover_goes_by_them() {
        let mut facts = facts();
        facts.meanwhile[0].shares_by_default = true;
        assert!(!meanwhile(&facts).contains("4000"), "{}", meanwhile(&facts));
        facts.scheduler = Some("drover".to_owned());
        assert!(meanwhile(&facts).contains("4000"), "{}", meanwhile(&facts));
    }
}
