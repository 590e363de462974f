// SPDX-License-Identifier: GPL-2.0-only
//! What the daemon looks after besides VMs: pCPUs that come, vCPUs there is no room for, and core-scheduling cookies.

use crate::cookies::Tagged;
use crate::helper::Helper;
use crate::kernel::{Kernel, Refusal, Slots};
use crate::names::user_name;
use crate::scheduler::Scheduler;
use crate::topology::Topology;
use std::sync::Arc;

/// What was seen at the last look.
#[derive(Debug, Default)]
pub struct Watch {
    pcpu_changes: Option<u32>,
    unplaced: u32,
    /// Why vCPUs are without room, as it was said last.
    told: Option<Refusal>,
    /// Who watches for cookies, where they are a danger.
    helper: Option<Arc<Helper>>,
}

impl Watch {
    /// With that one, which watches for cookies.
    pub(crate) fn new(helper: Arc<Helper>) -> Self {
        Self { helper: Some(helper), ..Self::default() }
    }

    /// Who has a cookie with which this host may freeze at any moment.
    pub fn cookie(&self) -> Option<Tagged> {
        self.helper.as_ref()?.cookie()
    }

    /// Looks again; the host's pCPUs, where any may have come.
    pub fn look(&mut self, scheduler: &Scheduler) -> Option<Topology> {
        if let Some(line) = self.note_unplaced(scheduler.slots()) {
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

    /// What to say of vCPUs without room, if anything. Those of one look only wait for queues to be made.
    fn note_unplaced(&mut self, slots: Slots) -> Option<String> {
        let stays = self.unplaced.min(slots.unplaced_vcpus);
        self.unplaced = slots.unplaced_vcpus;
        let tell = (stays > 0).then(|| match slots.refusal() {
            // A VM went, and nobody has asked again since.
            Refusal::NotMadeYet => self.told.unwrap_or(Refusal::NotMadeYet),
            refusal => refusal,
        });
        if std::mem::replace(&mut self.told, tell) == tell {
            return None;
        }
        let count = Slots::COUNT;
        Some(match tell {
            None => "all vCPUs are of VMs with settings of their own again".to_owned(),
            Some(Refusal::NotMadeYet) => format!(
                "{stays} vCPUs are of VMs whose queues were not made when they came; these have settings of their \
                 own when a vCPU of them has next run"
            ),
            Some(Refusal::Full) => format!(
                "{stays} vCPUs are of VMs for which no room is left, and run as ordinary tasks; {count} VMs and \
                 containers at most have settings of their own"
            ),
            Some(Refusal::CrowdedUser(user)) => format!(
                "user {} has as many VMs and containers as there is room left for: {stays} vCPUs of VMs beyond run \
                 as ordinary tasks; one user has half of what others leave of {count} at most",
                user_name(user)
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(unplaced_vcpus: u32) -> Slots {
        Slots { held: Slots::COUNT, crowded_user: 0, unplaced_vcpus }
    }

    #[test]
    fn vcpus_without_room_are_said_once_and_when_it_is_over() {
        let mut watch = Watch::default();
        assert_eq!(watch.note_unplaced(slots(4)), None, "it takes a moment to make queues");
        assert_eq!(watch.note_unplaced(slots(0)), None);
        assert_eq!(watch.note_unplaced(slots(4)), None);
        assert!(watch.note_unplaced(slots(3)).unwrap().starts_with("3 vCPUs"));
        assert_eq!(watch.note_unplaced(slots(5)), None);
        assert!(watch.note_unplaced(slots(0)).unwrap().contains("again"));
    }

    #[test]
    fn vcpus_that_wait_for_queues_are_not_said_to_lack_room() {
        let mut watch = Watch::default();
        let waiting = Slots { held: 860, crowded_user: 0, unplaced_vcpus: 30 };
        assert_eq!(watch.note_unplaced(waiting), None);
        let line = watch.note_unplaced(waiting).unwrap();
        assert!(line.contains("30 vCPUs are of VMs whose queues were not made"), "{line}");
        assert_eq!(watch.note_unplaced(waiting), None);
    }

    #[test]
    fn a_user_with_more_vms_than_others_leave_him_is_named() {
        let mut watch = Watch::default();
        let crowded = |held| Slots { held, crowded_user: 4_000_000_001, unplaced_vcpus: 2 };
        assert_eq!(watch.note_unplaced(crowded(1023)), None);
        let line = watch.note_unplaced(crowded(1023)).unwrap();
        assert!(line.starts_with("user 4000000001 has as many VMs"), "{line}");
        assert!(line.contains("2 vCPUs of VMs beyond run as ordinary tasks"), "{line}");
        assert_eq!(watch.note_unplaced(crowded(1024)), None);
        let room_again = Slots { crowded_user: 0, ..crowded(1023) };
        assert_eq!(watch.note_unplaced(room_again), None);
        let full = watch.note_unplaced(crowded(Slots::COUNT)).unwrap();
        assert!(full.contains("no room is left"), "{full}");
    }
}
