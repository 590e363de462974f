// SPDX-License-Identifier: GPL-2.0-only
//! A scenario file with the files it names, as it is shipped to the lab.

use crate::overrides::Overrides;
use anyhow::{Context, Result};
use drover_core::scenario::Scenario;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A scenario file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScenarioFile {
    /// Its name, for messages.
    pub name: String,
    /// Its text.
    pub text: String,
    /// The texts of the files it names, by the names it has for them.
    pub others: BTreeMap<String, String>,
}

impl ScenarioFile {
    /// Reads the file at that path and those it names, whose paths are from its directory.
    ///
    /// # Errors
    /// When a file cannot be read; or the first fault in any of them.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        let others = RefCell::new(BTreeMap::new());
        let read = |other: &str| {
            let text = fs::read_to_string(path.with_file_name(other))
                .map_err(|error| error.to_string())?;
            others.borrow_mut().insert(other.to_owned(), text.clone());
            Ok(text)
        };
        Scenario::parse_with(&text, &name, &read)?;
        let others = others.take();
        Ok(Self { name, text, others })
    }

    /// The scenario in it, with `overrides` put in.
    ///
    /// # Errors
    /// The first fault of the files or the overrides.
    pub fn scenario(&self, overrides: &Overrides) -> Result<Scenario> {
        let read = |other: &str| {
            self.others.get(other).cloned().ok_or_else(|| "it was not read before".to_owned())
        };
        let mut scenario = Scenario::parse_with(&self.text, &self.name, &read)?;
        overrides.apply(&mut scenario)?;
        Ok(scenario)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let file = ScenarioFile::read(&path).unwrap();
        drop(dir);
        assert_eq!(file.scenario(&Overrides::default()).unwrap().host.pcpus(), 2);
    }
}
