// SPDX-License-Identifier: GPL-2.0-only
//! `drover status`

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use drover_core::percent;
use drover_core::printable::one_line;
use drover_host::control::{Answer, Request, ask_either, is_there};
use drover_host::status::{HostStatus, PartitionStatus};

use super::ask::{Daemon, UNKNOWN_ANSWER, percent_of, print_json};

#[derive(clap::Args)]
pub struct Args {
    /// As JSON, for programs.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Fails where Drover is not in charge.
pub fn run(args: &Args) -> Result<ExitCode> {
    let socket = &args.daemon.socket;
    if !is_there(socket) {
        let other = in_charge(Path::new("/sys/kernel/sched_ext"));
        match args.json {
            true => print_json(&serde_json::to_string_pretty(&None::<HostStatus>)?),
            false => print!("{}", absent(other.as_deref())),
        }
        return Ok(ExitCode::FAILURE);
    }
    let (Answer::Status { status }, _) = ask_either(socket, &Request::Status)? else {
        bail!(UNKNOWN_ANSWER);
    };
    match args.json {
        true => print_json(&serde_json::to_string_pretty(&status)?),
        false => print!("{}", text(&status)),
    }
    Ok(ExitCode::SUCCESS)
}

/// The sched_ext scheduler that is loaded.
fn in_charge(sched_ext: &Path) -> Option<String> {
    let read = |name: &str| Some(fs::read_to_string(sched_ext.join(name)).ok()?.trim().to_owned());
    let state = read("state").filter(|state| state != "disabled")?;
    Some(read("root/ops").unwrap_or(state))
}

fn absent(other: Option<&str>) -> String {
    match other {
        None => "Drover is not in charge here: the kernel's own scheduler is.\n\
                 Start it with `drover serve`; `drover check` says what is missing for that.\n"
            .to_owned(),
        Some(other) => format!(
            "Drover is not in charge here: the sched_ext scheduler {} is loaded.\n\
             Stop that first, then start `drover serve`.\n",
            one_line(other)
        ),
    }
}

fn text(status: &HostStatus) -> String {
    let HostStatus { version, kernel, cpus, domains, vms, containers, pools, .. } = status;
    let mut text =
        format!("Drover {version} is in charge of this host, for {}.\n", time(status.in_charge_s));
    let mut line = |title: &str, what: &str| text += &format!("{title:<12}{}\n", one_line(what));
    line("kernel", kernel);
    line("pCPUs", &format!("{cpus} online, run queues: {domains}"));
    status.partitions.iter().for_each(|partition| line("policy", &policy(partition)));
    let got = status.got_pcpus.map(|got| format!(", got {}", percent_of(Some(got))));
    let got = got.unwrap_or_default();
    line("VMs", &format!("{vms}, containers: {containers}, pools: {pools}{got}"));
    for partition in &status.partitions {
        line_of_room(partition, status.partitions.len() > 1)
            .iter()
            .for_each(|it| line("reserved", it));
    }
    let config = status.config.as_deref().unwrap_or("no drover.toml: defaults, and orders");
    match &status.config_fault {
        None => line("settings", config),
        Some(fault) => line("settings", &format!("{config} has a fault: {fault}")),
    }
    match status.troubles.is_empty() {
        true => line("not kept", "nothing: all that was asked is in force"),
        false => status.troubles.iter().for_each(|trouble| line("not kept", trouble)),
    }
    for warning in &status.warnings {
        line("warned", &format!("{} ago: {}", time(warning.ago_s), warning.text));
    }
    if status.warnings.is_empty() {
        line("warned", "of nothing since it began");
    }
    text
}

fn policy(partition: &PartitionStatus) -> String {
    let PartitionStatus { name, policy, slice_ms, cpus, .. } = partition;
    let place = cpus.as_ref().map_or("no pCPU".to_owned(), |cpus| format!("pCPUs {cpus}"));
    format!("{policy}, slices of {slice_ms} ms, on {place} (partition {name})")
}

/// What is promised, and what can be; of one of several partitions with its name.
fn line_of_room(partition: &PartitionStatus, several: bool) -> Option<String> {
    let amounts = [partition.promised_mcpu?, partition.host_mcpu?.into(), partition.free_mcpu?];
    let [promised, host, free] = amounts.map(percent::text64);
    let size = percent::text64(partition.size_mcpu?);
    let name = if several { format!(" (partition {})", partition.name) } else { String::new() };
    Some(format!(
        "{promised} of {size} by VMs and pools, {host} by the host's own tasks; free: {free}{name}"
    ))
}

/// In the two largest units that are not 0.
fn time(s: f64) -> String {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "above 0")]
    let s = s.max(0.0) as u64;
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        3600..86400 => format!("{} h {} min", s / 3600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86400, s / 3600 % 24),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use drover_core::partition::PartitionPolicy;
    use drover_host::recent::Warning;

    pub fn status() -> HostStatus {
        let partition = PartitionStatus {
            name: "default".to_owned(),
            cpus: Some("0-3".parse().unwrap()),
            offline: None,
            policy: PartitionPolicy::Share,
            slice_ms: 3.0,
            size_mcpu: Some(4000),
            host_mcpu: Some(400),
            promised_mcpu: Some(1500),
            free_mcpu: Some(2100),
            vms: Vec::new(),
            unplaced_vcpus: 0,
            got_pcpus: None,
        };
        HostStatus {
            version: "1.2.3".to_owned(),
            kernel: "6.18.0".to_owned(),
            in_charge_s: 7322.0,
            cpus: "0-3".parse().unwrap(),
            domains: 1,
            vms: 2,
            containers: 0,
            got_pcpus: Some(1.25),
            pools: 1,
            promised_mcpu: 1500,
            partitions: vec![partition],
            config: None,
            config_fault: None,
            troubles: Vec::new(),
            warnings: Vec::new(),
        }
    }

    #[test]
    fn what_is_promised_and_free_is_told() {
        let told = text(&status());
        assert!(told.starts_with("Drover 1.2.3 is in charge of this host, for 2 h 2 min.\n"));
        assert!(told.contains("150% of 400% by VMs and pools, 40% by the host's"), "{told}");
        assert!(told.contains("free: 210%") && told.contains("share, slices of 3 ms"), "{told}");
        let warned = Warning { ago_s: 61.0, text: "a\nb".to_owned() };
        let troubled = HostStatus { warnings: vec![warned], ..status() };
        let told = text(&troubled);
        assert!(told.ends_with("1 min 1 s ago: a; b\n"), "{told}");
    }

    #[test]
    fn a_fault_of_the_configuration_is_told_and_not_that_all_is_in_force() {
        let fault = "/etc/drover/drover.toml:3: shares: use 1 to 1000000";
        let faulty = HostStatus {
            config: Some("/etc/drover/drover.toml".to_owned()),
            config_fault: Some(fault.to_owned()),
            troubles: vec![format!("{fault}; the configuration before it still counts")],
            ..status()
        };
        let told = text(&faulty);
        let of = |title: &str| told.lines().find(|line| line.starts_with(title)).unwrap();
        assert!(
            of("settings").contains("has a fault: /etc/drover/drover.toml:3: shares"),
            "{told}"
        );
        assert!(of("not kept").ends_with("the configuration before it still counts"), "{told}");
        assert!(!told.contains("all that was asked is in force"), "{told}");
        assert!(text(&status()).contains("not kept    nothing: all that was asked is in force"));
    }

    #[test]
    fn who_is_in_charge_instead_is_told() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(in_charge(dir.path()), None);
        fs::write(dir.path().join("state"), "enabled\n").unwrap();
        fs::create_dir(dir.path().join("root")).unwrap();
        fs::write(dir.path().join("root/ops"), "scx_other\n").unwrap();
        assert_eq!(in_charge(dir.path()).as_deref(), Some("scx_other"));
        assert!(absent(Some("scx_other")).contains("scx_other is loaded"));
    }
}
