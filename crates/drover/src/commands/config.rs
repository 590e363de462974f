// SPDX-License-Identifier: GPL-2.0-only
//! `drover config check`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Subcommand;
use drover_host::sources::config_file::{CONFIG_PATH, ConfigFile};

#[derive(Subcommand)]
pub enum Config {
    /// Say whether a configuration file is without fault, and change nothing.
    Check {
        /// The file.
        #[arg(default_value = CONFIG_PATH)]
        file: PathBuf,
    },
}

pub fn run(config: &Config) -> Result<ExitCode> {
    let Config::Check { file } = config;
    println!("{}", check(file)?);
    Ok(ExitCode::SUCCESS)
}

fn check(file: &Path) -> Result<String> {
    // The daemon takes a file that is not there for one that asks nothing; who names one means one.
    ensure!(file.exists() || file == Path::new(CONFIG_PATH), "there is no {}", file.display());
    ConfigFile::open(file).map_err(anyhow::Error::msg)?;
    Ok(format!("{}: no fault", file.display()))
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
        assert!(check(&file).unwrap().ends_with("drover.toml: no fault"));
        std::fs::write(&file, "[[vm]]\nname = \"*\"\nshares = 0\n").unwrap();
        let fault = check(&file).unwrap_err().to_string();
        assert!(fault.contains("drover.toml:3") && !fault.contains('\n'), "{fault}");
    }
}
