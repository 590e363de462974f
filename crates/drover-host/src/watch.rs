// SPDX-License-Identifier: GPL-2.0-only
//! What the daemon looks after besides VMs: pCPUs that come, and vCPUs there is no room for.

use crate::domains::Domains;
use crate::scheduler::Scheduler;
use crate::topology::Topology;

/// What was seen at the last look.
#[derive(Debug)]
pub struct Watch {
    domains: Domains,
    pcpu_changes: Option<u32>,
    unplaced: u32,
    told_unplaced: bool,
}

impl Watch {
    /// Of a scheduler that was started on these domains.
    pub fn new(domains: Domains) -> Self {
        Self { domains, pcpu_changes: None, unplaced: 0, told_unplaced: false }
    }

    /// How many domains there are now.
    pub fn domains(&self) -> u32 {
        self.domains.used()
    }

    /// The domain of each possible pCPU.
    pub fn domain_of(&self) -> &[u32] {
        self.domains.of()
    }

    /// Looks again.
    pub fn look(&mut self, scheduler: &Scheduler) {
        let changes = scheduler.pcpu_changes();
        if self.pcpu_changes != Some(changes) {
            self.pcpu_changes = Some(changes);
            self.look_at_pcpus(scheduler);
        }
        if let Some(line) = self.note_unplaced(scheduler.unplaced_vcpus()) {
            tracing::warn!("{line}");
        }
    }

    fn look_at_pcpus(&mut self, scheduler: &Scheduler) {
        let topology = match Topology::read() {
            Ok(topology) => topology,
            Err(err) => {
                tracing::warn!("{err:#}; pCPUs that came stand in the domain they were in");
                return;
            }
        };
        for (pcpu, domain) in self.domains.see(&topology) {
            let node = self.domains.node_of(&topology, domain);
            let place = Place { domain, sibling: topology.sibling(pcpu as usize), node };
            match scheduler.set_place(pcpu, &place) {
                Ok(()) => tracing::info!("pCPU {pcpu} has come, in domain {domain}"),
                Err(err) => tracing::warn!("pCPU {pcpu} has come, and stays where it was: {err:#}"),
            }
        }
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
    use crate::domains::DomainLevel;
    use crate::topology::tests::Host;

    #[test]
    fn vcpus_without_room_are_said_once_and_when_it_is_over() {
        let topology = Host::new("0", "0", "0").read();
        let mut watch = Watch::new(Domains::new(&topology, DomainLevel::Llc));
        assert_eq!(watch.note_unplaced(4), None, "it takes a moment to make queues");
        assert_eq!(watch.note_unplaced(0), None);
        assert_eq!(watch.note_unplaced(4), None);
        assert!(watch.note_unplaced(3).unwrap().starts_with("3 vCPUs"));
        assert_eq!(watch.note_unplaced(5), None);
        assert!(watch.note_unplaced(0).unwrap().contains("again"));
    }
}
