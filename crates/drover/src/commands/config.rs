// SPDX-License-Identifier: GPL-2.0-only
//! `drover config check`, `drover config export`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Subcommand;
use drover_host::control::{Answer, Request};
use drover_host::sources::config_file::{CONFIG_PATH, ConfigFile};

use super::ask::{Daemon, answer};

#[derive(Subcommand)]
pub enum Config {
    /// Validate a configuration file and say what is in it; change nothing.
    Check {
        /// The file.
        #[arg(default_value = CONFIG_PATH)]
        file: PathBuf,
    },
    /// Print the configuration with all orders over it, as a configuration file that says the same without them.
    Export {
        #[command(flatten)]
        daemon: Daemon,
    },
}

pub fn run(config: &Config) -> Result<ExitCode> {
    match config {
        Config::Check { file } => println!("{}", check(file)?),
        Config::Export { daemon } => {
            let text = answer(&daemon.socket, &Request::ExportConfig, |answer| match answer {
                Answer::Config { text } => Some(text),
                _ => None,
            })?;
            print!("{text}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn check(file: &Path) -> Result<String> {
    // The daemon takes a file that is not there for one that asks nothing; who names one means one.
    ensure!(file.exists() || file == Path::new(CONFIG_PATH), "there is no {}", file.display());
    let (_, config) = ConfigFile::open(file).map_err(anyhow::Error::msg)?;
    let shown = file.display();
    if !file.exists() {
        return Ok(format!("there is no {shown}: all VMs have the defaults"));
    }
    let counts = [
        config.pools().count(),
        config.partitions().count(),
        config.rule_count(),
        config.sets().count(),
    ];
    if counts == [0; 4] {
        return Ok(format!(
            "{shown}: valid; no pools, partitions, rules for VMs or sets are in it"
        ));
    }
    let [pools, partitions, rules, sets] = counts;
    let mut text = format!(
        "{shown}: valid; pools: {pools}, partitions: {partitions}, rules for VMs: {rules}, sets: {sets}"
    );
    for (pool, place) in config.unknown_pools() {
        text += &format!(
            "\nwarning: {place}: pool {pool:?} is not in this file; until `drover pool add {pool}` these VMs \
             are in no pool"
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_judged_as_the_daemon_would() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("drover.toml");
        assert!(check(&file).unwrap_err().to_string().starts_with("there is no "));
        std::fs::write(&file, "[[pool]]\nname = \"prod\"\n\n[[vm]]\nname = \"*\"\nshares = 5\n")
            .unwrap();
        let valid = check(&file).unwrap();
        assert!(
            valid.ends_with(
                "drover.toml: valid; pools: 1, partitions: 0, rules for VMs: 1, sets: 0"
            ),
            "{valid}"
        );
        std::fs::write(&file, "").unwrap();
        assert!(check(&file).unwrap().contains("no pools, partitions, rules"));
        std::fs::write(&file, "[[vm]]\nname = \"*\"\npool = \"prod\"\n").unwrap();
        let unknown = check(&file).unwrap();
        assert!(unknown.contains("drover.toml:1: pool \"prod\" is not in this file"), "{unknown}");
        std::fs::write(&file, "[[vm]]\nname = \"*\"\nshares = 0\n").unwrap();
        let fault = check(&file).unwrap_err().to_string();
        assert!(fault.contains("drover.toml:3") && !fault.contains('\n'), "{fault}");
    }
}
