// SPDX-License-Identifier: GPL-2.0-only
//! The observer that another process runs: `drover observe` keeps what happened lately in the kernel, and root can read it
//! there. The daemon is not asked, and does not notice.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use anyhow::{Context, Result, bail};
use libbpf_rs::query::{LinkInfoIter, ProgInfoIter, ProgInfoQueryOptions, ProgramInfo};
use libbpf_rs::{MapCore, MapHandle, libbpf_sys};
use nix::errno::Errno;

use crate::observer::Reading;
use crate::ring::{RING_EVENTS, Rings};

/// An observer with rings.
#[derive(Debug)]
pub struct Running {
    rings: Rings,
    reader: OwnedFd,
}

impl Running {
    /// Looks for it.
    ///
    /// # Errors
    /// When none runs here, or the kernel does not let it be read.
    pub fn find() -> Result<Self> {
        let options = ProgInfoQueryOptions::default().include_map_ids(true);
        let programs: Vec<ProgramInfo> = ProgInfoIter::with_query_opts(options).collect();
        let named = |name: &'static str| programs.iter().filter(move |it| it.name == name);
        for switch in named("observe_switch") {
            let Some(rings) = rings_of(switch)? else { continue };
            // Programs of one observer have maps in common.
            let is_same =
                |it: &&ProgramInfo| it.map_ids.iter().any(|id| switch.map_ids.contains(id));
            let Some(reader) = named("observe_read").find(is_same) else { continue };
            let Some(link) = LinkInfoIter::default().find(|link| link.prog_id == reader.id) else {
                continue;
            };
            // SAFETY: it takes a number; what it gives is ours.
            let reader = unsafe { owned(libbpf_sys::bpf_link_get_fd_by_id(link.id)) };
            let reader = reader.context("the kernel does not let the observer be read")?;
            return Ok(Self { rings, reader });
        }
        bail!(
            "what happened is kept by `drover observe`, which does not run here: start it, or leave out --last"
        )
    }

    /// What happened lately.
    pub fn rings(&self) -> &Rings {
        &self.rings
    }

    /// All vCPUs of the host as they are now, and their helpers.
    ///
    /// # Errors
    /// When the kernel does not let them be read.
    pub fn read(&self) -> Result<Reading> {
        // SAFETY: it takes a file that is open; what it gives is ours.
        let reading = unsafe { owned(libbpf_sys::bpf_iter_create(self.reader.as_raw_fd())) };
        let mut bytes = Vec::new();
        let read = reading.and_then(|reading| Ok(File::from(reading).read_to_end(&mut bytes)?));
        read.context("cannot read the observer")?;
        Reading::of(&bytes).context("the observer was read in part")
    }
}

/// A file that a call has given, or its error.
///
/// # Safety
/// The file must be nobody else's.
unsafe fn owned(file: i32) -> Result<OwnedFd> {
    match file {
        // SAFETY: by the caller.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(file) }),
        _ => Err(Errno::last().into()),
    }
}

/// The rings that this program writes to; none where it keeps sums alone.
fn rings_of(program: &ProgramInfo) -> Result<Option<Rings>> {
    let maps = program.map_ids.iter().filter_map(|id| MapHandle::from_map_id(*id).ok());
    let maps: Vec<MapHandle> = maps.collect();
    let named = |name: &str| maps.iter().find(|map| map.name() == name);
    let (Some(counts), Some(events)) = (named("rings"), named("ring_events")) else {
        return Ok(None);
    };
    let pcpus = counts.max_entries();
    if events.max_entries() as usize != pcpus as usize * RING_EVENTS {
        return Ok(None);
    }
    if (counts.value_size(), events.value_size()) != Rings::SIZES {
        bail!("the observer that runs here is of another version: start `drover observe` again");
    }
    Rings::new(counts, events, pcpus).map(Some)
}
