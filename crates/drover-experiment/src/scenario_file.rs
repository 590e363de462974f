// SPDX-License-Identifier: GPL-2.0-only
//! A scenario file with the files it names, as it is shipped to the lab.

use crate::machine::machine;
use crate::overrides::Overrides;
use anyhow::{Context, Result};
use drover_scenario::Scenario;
use drover_scenario::results::{FileSum, Ground, Origin};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// A scenario file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScenarioFile {
    /// Its name, for messages.
    pub name: String,
    /// Its text.
    pub text: String,
    /// The texts of the files it names, by the names it has for them.
    pub others: BTreeMap<String, String>,
    /// What is laid over them, such as `host.cores=16`.
    pub set: Vec<String>,
}

impl ScenarioFile {
    /// Reads the file at that path and those it names, whose paths are from its directory.
    ///
    /// # Errors
    /// When a file cannot be read; or the first fault in any of them.
    pub fn read(path: &Path) -> Result<Self> {
        Self::read_set(path, &[])
    }

    /// The same, with settings such as `host.cores=16` laid over what is read.
    ///
    /// # Errors
    /// As [`ScenarioFile::read`]; or when there is no such key to set, or it does not take that value.
    pub fn read_set(path: &Path, set: &[String]) -> Result<Self> {
        let name = path.display().to_string();
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        let others = RefCell::new(BTreeMap::new());
        let read = |other: &str| {
            let text = fs::read_to_string(path.with_file_name(other))
                .map_err(|error| error.to_string())?;
            others.borrow_mut().insert(other.to_owned(), text.clone());
            Ok(text)
        };
        Scenario::parse_set(&text, &name, &read, set)?;
        let others = others.take();
        Ok(Self { name, text, others, set: set.to_vec() })
    }

    /// The scenario in it, with `overrides` put in.
    ///
    /// # Errors
    /// The first fault of the files or the overrides.
    pub fn scenario(&self, overrides: &Overrides) -> Result<Scenario> {
        let read = |other: &str| {
            self.others.get(other).cloned().ok_or_else(|| "it was not read before".to_owned())
        };
        let mut scenario = Scenario::parse_set(&self.text, &self.name, &read, &self.set)?;
        overrides.apply(&mut scenario)?;
        Ok(scenario)
    }

    /// What its results come from, where `scenario` is what was read of it.
    pub fn origin(&self, scenario: &Scenario, ground: Ground) -> Origin {
        // Folders may have users' names, and what ran on a real machine may be shown to others.
        let told = |name: &str| match ground {
            Ground::Host => {
                Path::new(name).file_name().unwrap_or_default().to_string_lossy().into()
            }
            _ => name.to_owned(),
        };
        let sum = |(name, text): (&String, &String)| FileSum {
            name: told(name),
            sha256: format!("{:x}", Sha256::digest(text)),
        };
        let host = scenario.host.words();
        let machine = match ground {
            Ground::Sim => format!("simulated, {host}"),
            Ground::Lab => format!("virtual, {host}"),
            Ground::Host => machine(),
        };
        Origin {
            files: std::iter::once((&self.name, &self.text)).chain(&self.others).map(sum).collect(),
            set: self.set.clone(),
            machine: Some(machine),
            drover: Some(env!("CARGO_PKG_VERSION").to_owned()),
            program: program_sum().map(str::to_owned),
        }
    }
}

/// SHA-256 of the program that this is, in hex.
pub fn program_sum() -> Option<&'static str> {
    static SUM: OnceLock<Option<String>> = OnceLock::new();
    let sum = || Some(format!("{:x}", Sha256::digest(fs::read("/proc/self/exe").ok()?)));
    SUM.get_or_init(sum).as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA256_OF_TWO: &str = "d33e2c31b38aa818e1ec2e6128c0b07fca069836d874f2694b06a0e37c4b519b";

    #[test]
    fn a_scenario_keeps_what_it_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.toml");
        let text = "name = \"s\"\nhost = \"two.toml\"\n[[vm]]\nname = \"a\"\nvcpus = 1\n\
                    workload = { kind = \"cpu\" }\n";
        fs::write(&path, text).unwrap();
        let error = ScenarioFile::read(&path).unwrap_err().to_string();
        assert!(error.contains("s.toml:2: cannot read") && error.contains("two.toml"), "{error}");
        fs::write(dir.path().join("two.toml"), "cores = 2\n").unwrap();
        let set = ScenarioFile::read_set(&path, &["host.cores=3".to_owned()]).unwrap();
        assert_eq!(set.scenario(&Overrides::default()).unwrap().host.pcpus(), 3);
        let file = ScenarioFile::read(&path).unwrap();
        drop(dir);
        let scenario = file.scenario(&Overrides::default()).unwrap();
        assert_eq!(scenario.host.pcpus(), 2);
        let origin = file.origin(&scenario, Ground::Sim);
        let names: Vec<&str> = origin.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, [path.to_str().unwrap(), "two.toml"]);
        // As `printf 'cores = 2\n' | sha256sum` has it.
        assert_eq!(origin.files[1].sha256, SHA256_OF_TWO);
        assert!(origin.machine.unwrap().starts_with("simulated, 2 pCPUs"));
        let origin = file.origin(&scenario, Ground::Host);
        let names: Vec<&str> = origin.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["s.toml", "two.toml"], "of a real machine no folders are told");
    }
}
