// SPDX-License-Identifier: GPL-2.0-only
//! Measures from one moment to the next.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use chrono::Utc;
use drover_host::{kvm, names::vm_name};

use crate::figures::Figures;
use crate::observer::Observer;
use crate::snapshot::Snapshot;

/// The observer and what it saw last.
#[derive(Debug)]
pub struct Meter {
    observer: Observer,
    /// vCPUs were described when the observer was loaded: it finds them.
    knows_vcpus: bool,
    socket: PathBuf,
    names: HashMap<u32, String>,
    last: Snapshot,
}

impl Meter {
    /// Begins; `socket` is where Drover would answer.
    ///
    /// # Errors
    /// When the kernel does not take the observer.
    pub fn start(socket: &Path) -> Result<Self> {
        let knows_vcpus = kvm::is_known(Path::new("/"));
        let observer = Observer::start()?;
        let last = Snapshot::take(&observer, socket)?;
        Ok(Self { observer, knows_vcpus, socket: socket.to_owned(), names: HashMap::new(), last })
    }

    /// What happened since the last time, or since it began.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn measure(&mut self) -> Result<Figures> {
        // Nobody has run a VM yet; from now on somebody may.
        if !self.knows_vcpus && Path::new("/sys/module/kvm").exists() {
            (self.observer, self.knows_vcpus) = (Observer::start()?, true);
        }
        let mut now = Snapshot::take(&self.observer, &self.socket)?;
        if !self.knows_vcpus {
            now.notes.push("KVM is not loaded: no VM runs here".to_owned());
        }
        let names = &mut self.names;
        names.retain(|pid, _| now.process_cpu.contains_key(pid));
        let name = |pid| names.entry(pid).or_insert_with(|| vm_name(pid)).clone();
        let figures = Figures::between(&self.last, &now, Utc::now(), name);
        self.last = now;
        Ok(figures)
    }
}
