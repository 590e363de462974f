// SPDX-License-Identifier: GPL-2.0-only
//! Measures from one moment to the next.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use chrono::Utc;
use drover_host::io_bytes::HostBytes;
use drover_host::names::vm_name;

use crate::figures::Figures;
use crate::observer::{Follower, Keep};
use crate::snapshot::Snapshot;

/// The observer and what it saw last.
#[derive(Debug)]
pub struct Meter {
    follower: Follower,
    socket: PathBuf,
    names: HashMap<u32, String>,
    bytes: HostBytes,
    last: Snapshot,
}

impl Meter {
    /// Begins; `socket` is where Drover would answer.
    ///
    /// # Errors
    /// When the kernel does not take the observer.
    pub fn start(socket: &Path) -> Result<Self> {
        let mut follower = Follower::start(Keep::Sums)?;
        let mut bytes = HostBytes::default();
        let last = Snapshot::take(follower.observer()?, &mut bytes, socket)?;
        let (socket, names) = (socket.to_owned(), HashMap::new());
        Ok(Self { follower, socket, names, bytes, last })
    }

    /// What happened since the last time, or since it began.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn measure(&mut self) -> Result<Figures> {
        let mut now = Snapshot::take(self.follower.observer()?, &mut self.bytes, &self.socket)?;
        if !self.follower.finds_vms() {
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
