// SPDX-License-Identifier: GPL-2.0-only
//! Before `drover run --on host` uses this machine: whether it can, what is going to happen, and a question.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::{Result, bail, ensure};
use drover_experiment::{host, machine};
use drover_host::check::{Point, State, check_host};
use drover_scenario::{Case, Scenario, Vmm};

/// What making VMs and loading a scheduler add to each run, s: a guess, to say how long all takes.
const AROUND_A_RUN_S: f64 = 2.0;

/// Refuses a machine that cannot run the scenario, says what is going to happen, and asks unless `yes`.
///
/// # Errors
/// In one line: the machine cannot, there is no terminal to ask on, or the answer is no. Nothing was changed then.
pub fn ask_first(scenario: &Scenario, yes: bool) -> Result<()> {
    host::fits(scenario)?;
    if let Some(point) = check_host().iter().find(|point| is_in_the_way(point, scenario)) {
        bail!("--on host cannot run here: {}: {}; {}", point.what, point.found, point.fix);
    }
    if yes {
        return Ok(());
    }
    ensure!(
        io::stdin().is_terminal(),
        "--on host uses this machine, so it asks first, and its input is no terminal; add --yes to use it without a question"
    );
    eprint!("{}Go on? [y/N] ", announcement(scenario, &machine()));
    io::stderr().flush()?;
    ensure!(is_yes(&mut io::stdin().lock())?, "not run; nothing was changed");
    Ok(())
}

/// Whether the scenario cannot run for this point of `drover check`: without KVM there are no VMs, and what Drover lacks is
/// of no matter to the kernel's own scheduler.
fn is_in_the_way(point: &Point, scenario: &Scenario) -> bool {
    let mut vms = scenario.cases.iter().flat_map(|case| &case.vms);
    match point.what {
        "KVM" => point.state == State::Lacking && vms.any(|vm| vm.vmm != Vmm::Container),
        _ => point.state == State::Missing && loaded(scenario).next().is_some(),
    }
}

/// The schedulers that are loaded.
fn loaded(scenario: &Scenario) -> impl Iterator<Item = &str> {
    scenario.schedulers.iter().map(String::as_str).filter(|name| *name != "eevdf")
}

fn announcement(scenario: &Scenario, machine: &str) -> String {
    let runs = scenario.cases.len() * scenario.schedulers.len() * scenario.repeats as usize;
    let run_s = scenario.warmup_s + scenario.duration_s + AROUND_A_RUN_S;
    let minutes = (runs as f64 * run_s / 60.0).ceil();
    let vcpus = |case: &Case| case.vms.iter().map(|vm| vm.vcpus).sum::<u32>();
    let most = scenario.cases.iter().map(vcpus).max().unwrap_or(0);
    let schedules = match loaded(scenario).collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => String::new(),
        names => format!(" In its runs {names} schedules every task of this machine."),
    };
    format!(
        "Scenario {} runs on this machine: {machine}.\n\
         For about {minutes} min, VMs with up to {most} vCPUs compete with all that runs here.{schedules}\n\
         At the end, and at once on Ctrl-C, all of it goes again: VMs, scheduler, cgroup drover-lab, /run/drover-lab.\n",
        scenario.name
    )
}

/// Whether the line that comes says so.
fn is_yes(input: &mut impl BufRead) -> Result<bool> {
    let mut line = String::new();
    input.read_line(&mut line)?;
    Ok(["y", "yes"].contains(&line.trim().to_lowercase().as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(schedulers: &str) -> Scenario {
        let text = format!(
            "name = \"s\"\nschedulers = [{schedulers}]\nduration_s = 10.0\nwarmup_s = 3.0\nrepeats = 4\n\
             [host]\n[[vm]]\nname = \"a\"\nvcpus = 3\nworkload = {{ kind = \"cpu\" }}\n"
        );
        Scenario::parse(&text, "s.toml").unwrap()
    }

    #[test]
    fn what_this_machine_lacks_is_in_the_way_of_what_needs_it() {
        let point = |what, state| Point { what, state, found: String::new(), fix: "" };
        let [both, own] = ["\"eevdf\", \"drover\"", "\"eevdf\""].map(scenario);
        let sched_ext = point("sched_ext", State::Missing);
        assert!(is_in_the_way(&sched_ext, &both) && !is_in_the_way(&sched_ext, &own));
        let kvm = point("KVM", State::Lacking);
        assert!(is_in_the_way(&kvm, &both) && is_in_the_way(&kvm, &own));
        assert!(!is_in_the_way(&point("kernel config", State::Lacking), &both));
        assert!(!is_in_the_way(&point("KVM", State::Good), &both));
    }

    #[test]
    fn what_is_going_to_happen_is_said() {
        let said = announcement(&scenario("\"eevdf\", \"drover\""), "a CPU, 8 pCPUs");
        for part in
            ["a CPU, 8 pCPUs", "about 2 min", "up to 3 vCPUs", "drover schedules every task"]
        {
            assert!(said.contains(part), "{part}: {said}");
        }
        let said = announcement(&scenario("\"eevdf\""), "a CPU, 8 pCPUs");
        assert!(said.contains("about 1 min") && !said.contains("schedules every task"), "{said}");
    }

    #[test]
    fn only_a_yes_is_one() {
        for (line, yes) in
            [("y\n", true), ("Yes\n", true), ("\n", false), ("", false), ("yo\n", false)]
        {
            assert_eq!(is_yes(&mut line.as_bytes()).unwrap(), yes, "{line:?}");
        }
    }
}
