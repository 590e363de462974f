// SPDX-License-Identifier: GPL-2.0-only
//! Measures from one moment to the next.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use drover_host::io_bytes::HostBytes;
use drover_host::names::vm_name;
use jiff::Timestamp;

use crate::figures::Figures;
use crate::observer::{Follower, Keep};
use crate::snapshot::Snapshot;

/// Who observes, and what was seen last.
#[derive(Debug)]
pub struct Meter {
    /// None: what `drover serve` or `drover observe` says is all there is.
    follower: Option<Follower>,
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
        Self::begin(Some(Follower::start(Keep::Sums)?), socket)
    }

    /// Begins for who may only look: by what whoever answers at `socket`, or in its place, says.
    ///
    /// # Errors
    /// When nobody answers.
    pub fn ask(socket: &Path) -> Result<Self> {
        Self::begin(None, socket)
    }

    fn begin(mut follower: Option<Follower>, socket: &Path) -> Result<Self> {
        let mut bytes = HostBytes::default();
        let last = look(&mut follower, &mut bytes, socket)?;
        let (socket, names) = (socket.to_owned(), HashMap::new());
        Ok(Self { follower, socket, names, bytes, last })
    }

    /// What happened since the last time, or since it began.
    ///
    /// # Errors
    /// When the kernel, or whoever is asked, does not tell.
    pub fn measure(&mut self) -> Result<Figures> {
        let mut now = look(&mut self.follower, &mut self.bytes, &self.socket)?;
        if self.follower.as_ref().is_some_and(|follower| !follower.finds_vms()) {
            now.notes.push("KVM is not loaded: no VM runs here".to_owned());
        }
        let names = &mut self.names;
        if self.follower.is_none() {
            names.extend(now.told.iter().map(|(pid, vm)| (*pid, vm.name.clone())));
        }
        names.retain(|pid, _| now.process_cpu.contains_key(pid));
        let name = |pid| names.entry(pid).or_insert_with(|| vm_name(pid)).clone();
        let figures = Figures::between(&self.last, &now, Timestamp::now(), name);
        self.last = now;
        Ok(figures)
    }
}

fn look(follower: &mut Option<Follower>, bytes: &mut HostBytes, socket: &Path) -> Result<Snapshot> {
    match follower {
        Some(follower) => Snapshot::take(follower.observer()?, bytes, socket),
        None => Snapshot::take_told(bytes, socket),
    }
}
