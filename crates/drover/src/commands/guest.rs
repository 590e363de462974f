// SPDX-License-Identifier: GPL-2.0-only
//! `drover guest`

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use drover_guest::{GuestConfig, Touched};
use drover_scenario::{Vm, Workload};

#[derive(clap::Args)]
pub struct Args {
    /// Name of the VM, by which Drover finds it.
    #[arg(long)]
    name: String,
    /// Number of its vCPUs.
    #[arg(long)]
    vcpus: u32,
    /// What they do, as in a scenario but as JSON: '{"kind":"cpu"}'.
    #[arg(long, value_name = "JSON", value_parser = workload)]
    workload: Workload,
    /// File to share its counters through; made anew.
    #[arg(long, value_name = "PATH")]
    stats: PathBuf,
    /// Do nothing until a runner says so in that file.
    #[arg(long)]
    wait_for_go: bool,
    /// Speed of the work loop; measured by default.
    #[arg(long, value_name = "LOOPS")]
    loops_per_ms: Option<u64>,
    /// Memory that it touches before it starts.
    #[arg(long, value_name = "MIB", default_value_t = 0, value_parser = memory_mib())]
    memory_mib: u32,
    /// The NUMA node where that is to lie at first.
    #[arg(long, value_name = "NODE", requires = "memory_mib")]
    memory_node: Option<u32>,
}

fn memory_mib() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(..=i64::from(Vm::MICRO_MEMORY_MIB_MAX))
}

fn workload(json: &str) -> Result<Workload, String> {
    serde_json::from_str(json).map_err(|error| format!("{error}; see docs/scenarios.md"))
}

pub fn run(args: Args) -> Result<ExitCode> {
    drover_guest::run(&GuestConfig {
        name: args.name,
        vcpus: args.vcpus,
        workload: args.workload,
        stats_path: args.stats,
        wait_for_go: args.wait_for_go,
        loops_per_ms: args.loops_per_ms,
        memory: Touched { mib: args.memory_mib, node: args.memory_node },
    })?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_are_json_in_the_words_of_scenarios() {
        assert_eq!(workload(r#"{"kind":"mix"}"#), Ok(Workload::Mix {}));
        for bad in ["", "cpu", r#"{"kind":"dance"}"#, r#"{"kind":"mix","x":1}"#] {
            let message = workload(bad).unwrap_err();
            assert!(message.contains("docs/scenarios.md") && !message.contains('\n'), "{message}");
        }
    }
}
