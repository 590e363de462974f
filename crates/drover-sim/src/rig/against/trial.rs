// SPDX-License-Identifier: GPL-2.0-only
//! A trial: a host and what its VMs do, nothing set. It is written as a scenario, read as one, and run as
//! what was read: a trial that is kept is the file that ran.

use drover_core::toml_file::FileError;
use drover_scenario::Scenario;
use std::fmt::Write;

/// A trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    /// The seed it was drawn from, and that it runs with.
    pub seed: u64,
    /// The host.
    pub host: TrialHost,
    /// Its VMs.
    pub vms: Vec<TrialVm>,
}

/// The host of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialHost {
    /// Last-level caches.
    pub dies: u32,
    /// Cores of each.
    pub cores: u32,
    /// Hardware threads of a core.
    pub threads: u32,
    /// Its pCPUs let vCPUs out that spin.
    pub ple: bool,
}

/// A VM of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialVm {
    /// Its name: what it does and its number.
    pub name: String,
    /// What its vCPUs do, the first of them first.
    pub roles: Vec<TrialRole>,
    /// The kind of its spinlock `l`, if it has one.
    pub lock: Option<&'static str>,
}

/// What some vCPUs of a VM do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialRole {
    /// So many.
    pub vcpus: u32,
    /// Their steps.
    pub steps: Vec<String>,
}

impl TrialHost {
    /// Number of pCPUs.
    pub fn pcpus(&self) -> u32 {
        self.dies * self.cores * self.threads
    }
}

impl TrialVm {
    /// Number of vCPUs.
    pub fn vcpus(&self) -> u32 {
        self.roles.iter().map(|role| role.vcpus).sum()
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "\n[[vm]]\nname = \"{}\"\nvcpus = {}", self.name, self.vcpus())?;
        let locks = self.lock.map(|kind| format!("locks = {{ l = \"{kind}\" }}, "));
        writeln!(text, "workload = {{ kind = \"program\", {}roles = [", locks.unwrap_or_default())?;
        let mut first = 0;
        for role in &self.roles {
            let last = first + role.vcpus - 1;
            let vcpus = if first == last { format!("{first}") } else { format!("{first}-{last}") };
            let steps: Vec<String> = role.steps.iter().map(|step| format!("\"{step}\"")).collect();
            writeln!(text, "    {{ vcpus = \"{vcpus}\", steps = [{}] }},", steps.join(", "))?;
            first += role.vcpus;
        }
        writeln!(text, "] }}")
    }
}

impl Trial {
    /// The scenario's file, with these lines on top.
    pub fn text(&self, rival: &str, remarks: &[String]) -> String {
        let mut text = String::from("# SPDX-License-Identifier: GPL-2.0-only\n");
        let Self { seed, host: TrialHost { dies, cores, threads, ple }, vms } = self;
        for remark in remarks {
            let _ = writeln!(text, "# {remark}");
        }
        let _ = writeln!(
            text,
            "name = \"against-{rival}-{seed}\"\nseed = {seed}\nduration_s = 3.0\nwarmup_s = 1.0\n\
             schedulers = [\"{rival}\", \"drover\"]\nple = {ple}\n\
             host = {{ dies = {dies}, cores = {cores}, threads = {threads} }}"
        );
        for vm in vms {
            let _ = vm.write(&mut text);
        }
        text
    }

    /// The scenario.
    ///
    /// # Errors
    /// As [`Scenario::parse`]: a trial that was made smaller may make no sense.
    pub fn scenario(&self, rival: &str) -> Result<Scenario, FileError> {
        Scenario::parse(&self.text(rival, &[]), "trial")
    }
}
