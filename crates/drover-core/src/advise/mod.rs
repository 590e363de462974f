// SPDX-License-Identifier: GPL-2.0-only
//! What to tune on a host, from a recording of it: `drover advise`.
//!
//! [`Facts`] are what is known; each rule looks at them and says what it finds, with the figures it concludes that from,
//! what does it, and what a simulation is to try. [`RULES`] are all of them. What a simulation then says is not known here.
//!
//! Worst first: what was lost to a finding is the time that vCPUs were ready and did not run for it, in pCPUs. Of findings
//! that lost nothing while it was recorded the order is that of the rules.

mod cookies;
mod emulator;
mod facts;
mod how;
mod huge_pages;
mod limit;
mod memory_node;
mod overview;
mod partition;
mod pause;
mod pins;
mod promise;
mod quota;
#[cfg(test)]
mod tests;
mod vnuma;
mod weights;
mod wide;

pub use facts::{Facts, PcpuFacts, VcpuFacts, VmFacts};
pub use overview::Overview;

use serde::Serialize;

/// A vCPU that was ready for less of its time than that waits for nothing worth a word.
const WAITS: f64 = 0.05;
/// pCPUs that are busy for more of their time have no room.
const FULL: f64 = 0.9;

/// All rules; of two that lost as much the first is worse.
const RULES: [fn(&Facts) -> Vec<Finding>; 13] = [
    cookies::look,
    pins::look,
    limit::look,
    emulator::look,
    quota::look,
    promise::look,
    partition::look,
    wide::look,
    memory_node::look,
    vnuma::look,
    huge_pages::look,
    pause::look,
    weights::look,
];

/// What a rule finds that looks at one VM at a time; it is told the VM's place in [`Facts::vms`].
fn each_vm(
    facts: &Facts,
    rule: impl Fn(&Facts, usize, &VmFacts) -> Option<Finding>,
) -> Vec<Finding> {
    facts.vms.iter().enumerate().filter_map(|(at, vm)| rule(facts, at, vm)).collect()
}

/// Something that may be better.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// The rule that found it.
    pub rule: &'static str,
    /// The VM, by its place in [`Facts::vms`]; none: the host.
    #[serde(skip)]
    pub vm: Option<usize>,
    /// What is lost to it: time that vCPUs were ready, pCPUs.
    pub lost_pcpus: f64,
    /// What it is, in a line.
    pub what: String,
    /// The figures that it is concluded from, in a line.
    pub evidence: String,
    /// Commands or XML that solve it, one line each.
    pub mend: Vec<String>,
    /// What a simulation is to try, or why it cannot.
    #[serde(skip)]
    pub trial: Result<Trial, &'static str>,
}

/// A change to the scenario of the recording.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trial {
    /// Values of VMs as `drover whatif --set` takes them behind the name, such as `limit_pct=200`.
    pub set: Vec<(usize, String)>,
    /// Tables behind the others of the file.
    pub tables: String,
}

/// What is found, the worst first.
pub fn advise(facts: &Facts) -> Vec<Finding> {
    let mut found: Vec<Finding> = RULES.iter().flat_map(|look| look(facts)).collect();
    found.sort_by(|a, b| b.lost_pcpus.total_cmp(&a.lost_pcpus));
    found
}

/// `1 vCPU`, `2 vCPUs`.
pub fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// A part in %.
fn pct(part: f64) -> String {
    format!("{:.1} %", 100.0 * part)
}
