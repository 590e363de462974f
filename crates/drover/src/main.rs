// SPDX-License-Identifier: GPL-2.0-only
//! The `drover` command: one file per subcommand in `commands/`.

mod commands;
mod log;
mod pipe;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use drover_core::printable::printable;

/// A CPU scheduler for Linux hosts that run virtual machines.
#[derive(Parser)]
#[command(name = "drover", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check this host and say how to fix what is missing.
    Check,
    /// Show whether Drover is in charge, what is promised and free, and the last warnings.
    Status(commands::status::Args),
    /// See where the time of VMs goes, whichever scheduler is in charge.
    Top(commands::top::Args),
    /// Show a page on this host alone with what VMs got, were owed and waited for over time; read only.
    Web(commands::web::Args),
    /// Say why a VM waited in the last seconds, and what would help.
    Why(commands::why::Args),
    /// Say what to tune on this host or a recorded one, with evidence and what it would gain; change nothing.
    Advise(commands::advise::Args),
    /// Keep books of VMs whichever scheduler is in charge, and answer who asks; schedule nothing.
    Observe(commands::observe::Args),
    /// Record who runs where, and who waits, whichever scheduler is in charge.
    Record(commands::record::Args),
    /// Make a page of recordings that draws them: zoom, hover, states, waits.
    Report(commands::report::Args),
    /// Print results or a recording as CSV.
    Export(commands::export::Args),
    /// Schedule this host until stopped (Ctrl-C gives it back to the kernel).
    Serve(commands::serve::Args),
    /// Look at the configuration file.
    #[command(subcommand)]
    Config(commands::config::Config),
    /// See and set what each VM gets.
    #[command(subcommand)]
    Vm(commands::vm::Vm),
    /// See and set how VMs share the host in pools.
    #[command(subcommand)]
    Pool(commands::pool::Pool),
    /// See and set which pCPUs have a policy of their own.
    #[command(subcommand)]
    Partition(commands::partition::Partition),
    /// See and set which VMs belong together, and which apart.
    #[command(subcommand)]
    Set(commands::set::Set),
    /// See where VMs live on NUMA nodes, and what would be better.
    #[command(subcommand)]
    Numa(commands::numa::Numa),
    /// Take the last order back, then the one before it, up to 16, and say what that changes.
    Undo(commands::undo::Args),
    /// Print what VMs get as Prometheus' text, for node_exporter's textfile collector.
    Metrics(commands::metrics::Args),
    /// Run a scenario under several schedulers and compare what VMs got.
    Run(commands::run::Args),
    /// Say who would wait, and what would fit, were a host or its VMs others.
    Whatif(commands::whatif::Args),
    /// Make scenarios.
    #[command(subcommand)]
    Scenario(commands::scenario::Command),
    /// Run a scenario with many values and seeds, here or on a cluster.
    Sweep(commands::sweep::Args),
    /// Run a micro VM: one process, one VM.
    Guest(commands::guest::Args),
    /// Work in the lab: a virtual host in QEMU with a kernel of its own.
    #[command(subcommand)]
    Lab(commands::lab::Command),
    /// Test the policy in the simulator with random hosts, VMs and faults.
    #[command(hide = true)]
    Soak(commands::soak::Args),
    /// Run scenarios on simulator and lab, and say how far the two are apart.
    #[command(hide = true)]
    Compare(commands::compare::Args),
    /// Write docs/peers.md from what was run under other schedulers.
    #[command(hide = true)]
    Peers(commands::peers::Args),
    /// Measure what the five seed documents claim, in the simulator, into docs/seeds.md.
    #[command(hide = true)]
    Seeds(commands::seeds::Args),
    /// Measure how fast the simulator is on this machine.
    #[command(hide = true)]
    SimSpeed(commands::sim_speed::Args),
    /// Measure what the policy takes for a context switch, by what is asked for 1000 VMs.
    #[command(hide = true)]
    PolicyCost(commands::policy_cost::Args),
    /// Measure and model what sharing a run queue costs, by how many pCPUs share one.
    #[command(hide = true)]
    LockCost(commands::lock_cost::Args),
    /// What observing VMs costs here, beside VMs that wake all the time.
    #[command(hide = true)]
    ObserverCost(commands::observer_cost::Args),
    /// Write man pages and shell completions, for packages.
    #[command(hide = true)]
    Manual(commands::manual::Args),
    #[command(hide = true)]
    LabInit,
    #[command(hide = true)]
    LabRun,
    #[command(hide = true)]
    LabKvmProbe,
    /// Be a container of a scenario: so many busy threads.
    #[command(hide = true)]
    LabBusy { threads: u32 },
}

impl Command {
    /// Whether it has nothing under way that must come to its end when nobody reads what it prints.
    fn only_tells(&self) -> bool {
        matches!(
            self,
            Self::Check
                | Self::Status(_)
                | Self::Why(_)
                | Self::Report(_)
                | Self::Config(_)
                | Self::Vm(_)
                | Self::Pool(_)
                | Self::Partition(_)
                | Self::Set(_)
                | Self::Numa(_)
                | Self::Undo(_)
                | Self::Metrics(_)
        )
    }
}

fn main() -> ExitCode {
    log::start();
    let cli = Cli::try_parse().unwrap_or_else(|err| refuse(&err));
    if cli.command.only_tells() {
        pipe::end_with_reader();
    }
    let outcome = match cli.command {
        Command::Check => commands::check::run(),
        Command::Status(args) => commands::status::run(&args),
        Command::Top(args) => commands::top::run(&args),
        Command::Web(args) => commands::web::run(&args),
        Command::Why(args) => commands::why::run(&args),
        Command::Advise(args) => commands::advise::run(&args),
        Command::Observe(args) => commands::observe::run(&args),
        Command::Record(args) => commands::record::run(&args),
        Command::Report(args) => commands::report::run(&args),
        Command::Export(args) => commands::export::run(&args),
        Command::Serve(args) => commands::serve::run(&args),
        Command::Config(config) => commands::config::run(&config),
        Command::Vm(vm) => commands::vm::run(vm),
        Command::Pool(pool) => commands::pool::run(pool),
        Command::Partition(partition) => commands::partition::run(partition),
        Command::Set(set) => commands::set::run(set),
        Command::Numa(numa) => commands::numa::run(numa),
        Command::Undo(args) => commands::undo::run(&args),
        Command::Metrics(args) => commands::metrics::run(&args),
        Command::Run(args) => commands::run::run(&args),
        Command::Whatif(args) => commands::whatif::run(&args),
        Command::Scenario(command) => commands::scenario::run(&command),
        Command::Sweep(args) => commands::sweep::run(&args),
        Command::Guest(args) => commands::guest::run(args),
        Command::Lab(command) => commands::lab::run(command),
        Command::LabRun => commands::run::run_in_lab(),
        Command::Soak(args) => commands::soak::run(&args),
        Command::Compare(args) => commands::compare::run(&args),
        Command::Peers(args) => commands::peers::run(&args),
        Command::Seeds(args) => commands::seeds::run(&args),
        Command::SimSpeed(args) => commands::sim_speed::run(&args),
        Command::PolicyCost(args) => commands::policy_cost::run(&args),
        Command::LockCost(args) => commands::lock_cost::run(&args),
        Command::ObserverCost(args) => commands::observer_cost::run(&args),
        Command::Manual(args) => commands::manual::run(&args, Cli::command()),
        Command::LabInit => commands::lab::init(),
        Command::LabKvmProbe => commands::lab::kvm_probe(),
        Command::LabBusy { threads } => commands::lab::busy(threads),
    };
    outcome.unwrap_or_else(|err| {
        log::fault(&format!("{err:#}"));
        ExitCode::FAILURE
    })
}

/// Ends for a command line that cannot be followed, with one line, or for `--help`.
fn refuse(err: &clap::Error) -> ! {
    if !err.use_stderr() || err.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        err.exit();
    }
    eprintln!("drover: {}", printable(&one_line(&err.to_string())));
    std::process::exit(err.exit_code());
}

/// The first paragraph of clap's message, and where to read on.
fn one_line(message: &str) -> String {
    let paragraph = message.split("\n\n").next().unwrap_or(message);
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    let text = words.join(" ");
    format!("{}; see `--help`", text.strip_prefix("error: ").unwrap_or(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(arguments: &[&str]) -> String {
        let arguments = std::iter::once(&"drover").chain(arguments);
        one_line(&Cli::try_parse_from(arguments).err().expect("it is refused").to_string())
    }

    #[test]
    fn a_bad_command_line_is_refused_in_one_line_that_names_what_is_bad() {
        for (arguments, named) in [
            (&["vm", "set", "web", "--shares", "0"][..], "1 to 1000000"),
            (&["vm", "set", "web", "--shares", "-5"], "-5"),
            (&["vm", "set", "web"], "--shares"),
            (&["vm", "set", "web", "--limit", "2"], "150%"),
            (&["pool", "add", "p", "--reservation", "x"], "150%"),
            (&["pool", "set", "p", "--cosched", "x"], "gang"),
            (&["partition", "add", "p"], "--cpus"),
            (&["partition", "add", "p", "--cpus", ""], "0-3,8"),
            (&["partition", "set", "p", "--cpus", "3-1"], "0-3,8"),
            (&["partition", "set", "p", "--policy", "credits"], "did you mean"),
            (&["partition", "set", "p", "--slice", "3"], "3ms"),
            (&["vm", "set", "web", "--partition", "a/b"], "name of a partition"),
            (&["vm", "set", "web", "--max-per-node", "0"], "1 or more, or none, or default"),
            (&["vm", "set", "web", "--consolidate", "yes"], "off, on, auto"),
            (&["set", "add", "s", "--kind", "affine"], "--vms"),
            (&["set", "add", "s", "--vms", "a,b"], "--kind"),
            (&["set", "add", "s", "--vms", "a,b", "--kind", "afine"], "did you mean \"affine\""),
            (&["set", "add", "s", "--vms", "a,b", "--within", "socket"], "known are llc, node"),
            (&["numa", "advise"], "<VM>"),
            (&["partition", "auto"], "--dry-run"),
            (&["run", "s.toml", "--json", "-"], "give its name"),
            (&["run", "s.toml", "--schedule", "-"], "give its name"),
            (&["run", "s.toml", "--on", "sim", "--trace", "-"], "give its name"),
            (&["top", "--since", "2d"], "24h"),
            (&["top", "--since", "10m", "-d", "5"], "--interval"),
            (&["record", "-"], "give its name"),
            (&["report", "a.rec", "--html", "-"], "give its name"),
            (&["report", "a.rec", "--perfetto=-"], "give its name"),
            (&["gallop"], "gallop"),
            (&["check", "--hard"], "--hard"),
        ] {
            let line = refusal(arguments);
            assert!(line.contains(named) && line.ends_with("see `--help`"), "{line}");
            assert!(!line.contains('\n') && !line.starts_with("error"), "{line}");
            assert!(!line.contains("<>"), "{line}");
        }
    }

    #[test]
    fn usage_names_the_options_of_which_one_must_be_given() {
        let help = Cli::try_parse_from(["drover", "partition", "auto", "--help"]).err();
        let help = help.expect("it is told").to_string();
        let usage = "Usage: drover partition auto [OPTIONS] <--on|--off|--dry-run>";
        assert!(help.contains(usage), "{help}");
    }
}
