// SPDX-License-Identifier: GPL-2.0-only
//! What the daemon looks after besides VMs: pCPUs that come, and vCPUs there is no room for.

use crate::scheduler::Scheduler;
use crate::topology::Topology;

/// What was seen at the last look.
#[derive(Debug, Default)]
pub struct Watch {
    pcpu_changes: Option<u32>,
    unplaced: u32,
    told_unplaced: bool,
}

impl Watch {
    /// Looks again; the host's pCPUs, where any may have come.
    pub fn look(&mut self, scheduler: &Scheduler) -> Option<Topology> {
        if let Some(line) = self.note_unplaced(scheduler.unplaced_vcpus()) {
            tracing::warn!("{line}");
        }
        let changes = scheduler.pcpu_changes();
        if self.pcpu_changes.replace(changes) == Some(changes) {
            return None;
        }
        let topology = Topology::read();
        topology
            .inspect_err(|err| {
                tracing::warn!("{err:#}; pCPUs that came stand in the domain they were in");
            })
            .ok()
    }

    /// What to say of so many, if anything. Those of one look only wait for queues to be made.
    fn note_unplaced(&mut self, now: u32) -> Option<String> {
        let stays = self.unplaced.min(now);
        self.unplaced = now;
        let (told, tell) = (self.told_unplaced, stays > 0);
        self.told_unplaced = tell;
        match (told, tell) {
            (false, true) => Some(format!(
                "{stays} vCPUs are of VMs for which no room is left, and run as tasks of the host; \
                 2047 VMs at most have settings of their own"
            )),
            (true, false) => {
                Some("all vCPUs are of VMs with settings of their own again".to_owned())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vcpus_without_room_are_said_once_and_when_it_is_over() {
        let mut watch = Watch::default();
        assert_eq!(watch.note_unplaced(4), None, "it takes a moment to make queues");
        assert_eq!(watch.note_unplaced(0), None);
        assert_eq!(watch.note_unplaced(4), None);
        assert!(watch.note_unplaced(3).unwrap().starts_with("3 vCPUs"));
        assert_eq!(watch.note_unplaced(5), None);
        assert!(watch.note_unplaced(0).unwrap().contains("again"));
    }
}
