// SPDX-License-Identifier: GPL-2.0-only
//! A network path through a driver domain: guest, ring, back end, link.
//!
//! A vCPU *sends* pieces into its VM's ring, until it is full. A back end, a vCPU of another VM
//! (Xen's dom0), *forwards*: takes the piece that came first; what that costs it are steps of its own
//! program. Then it *transmits*: the link, one for all VMs, sends pieces one after the other, and the
//! sender is told that its ring has room. So each side waits for the other to be scheduled.
//!
//! Worked example: 1000 Mbit/s, pieces of 50 KB: 0.4 ms each. A back end of 0.2 ms for each fills the
//! link with half of a pCPU; where it has only a fifth of one, 40 % of the link is used.
//!
//! What is left out: acknowledgements, lost packets, TCP's windows, what the receiver does; the
//! device's interrupt: room in the ring is told as soon as the link has taken the piece.

use super::{Guests, Outcome};
use crate::machine::{Machine, TaskId, TaskState};
use drover_scenario::RING_BYTES;
use std::collections::VecDeque;

/// How much the link takes beyond what it is sending, bytes: 256 descriptors of a page.
const LINK_BYTES: u64 = RING_BYTES as u64;

/// Something that was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    bytes: u32,
    sender: TaskId,
}

/// The rings of all VMs, and the link.
#[derive(Debug, Default)]
pub(super) struct Network {
    pub(super) mbit_s: u32,
    /// In the order they were sent.
    sent: VecDeque<Piece>,
    /// Back ends that wait for something to be sent.
    waiting: VecDeque<TaskId>,
    /// When the link has sent all it has.
    free_ns: u64,
}

impl Network {
    fn takes_ns(&self, bytes: u64) -> u64 {
        bytes * 8000 / u64::from(self.mbit_s)
    }
}

impl Guests {
    /// The running vCPU sends, if there is room in its ring.
    pub(super) fn send(&mut self, m: &mut Machine, task: TaskId, bytes: u32) -> Option<Outcome> {
        let vcpu = &mut self.vcpus[task as usize];
        if vcpu.in_ring + bytes > RING_BYTES {
            return Some(self.halt(m, task, u64::MAX));
        }
        vcpu.in_ring += bytes;
        self.vms[vcpu.vm as usize].network_bytes += u64::from(bytes);
        self.network.sent.push_back(Piece { bytes, sender: task });
        if let Some(back_end) = self.network.waiting.pop_front() {
            m.charge(m.this_cpu, m.costs.vm_exit_ns);
            self.tell(m, back_end);
        }
        None
    }

    /// The running back end takes a piece.
    pub(super) fn forward(&mut self, m: &mut Machine, task: TaskId) -> Option<Outcome> {
        let vcpu = &mut self.vcpus[task as usize];
        vcpu.piece = self.network.sent.pop_front();
        if let Some(piece) = vcpu.piece {
            self.vms[vcpu.vm as usize].network_bytes += u64::from(piece.bytes);
            return None;
        }
        self.network.waiting.push_back(task);
        Some(self.halt(m, task, u64::MAX))
    }

    /// The running back end hands the piece it took to the link.
    pub(super) fn transmit(&mut self, m: &mut Machine, task: TaskId) -> Option<Outcome> {
        let Piece { bytes, sender } = self.vcpus[task as usize].piece?;
        let full_ns = m.now_ns + self.network.takes_ns(LINK_BYTES);
        if self.network.free_ns > full_ns {
            let room_ns = self.network.free_ns - self.network.takes_ns(LINK_BYTES);
            self.vcpus[task as usize].told_ns = room_ns;
            return Some(self.halt(m, task, room_ns));
        }
        let vcpu = &mut self.vcpus[task as usize];
        vcpu.piece = None;
        self.vms[vcpu.vm as usize].network_bytes += u64::from(bytes);
        let takes_ns = self.network.takes_ns(bytes.into());
        self.network.free_ns = self.network.free_ns.max(m.now_ns) + takes_ns;
        self.vcpus[sender as usize].in_ring -= bytes;
        self.tell(m, sender);
        None
    }

    /// The network has something for the vCPU: an event that it sees as soon as it runs.
    fn tell(&mut self, m: &mut Machine, task: TaskId) {
        let vcpu = &mut self.vcpus[task as usize];
        if vcpu.told_ns == 0 && m.tasks[task as usize].state != TaskState::Running {
            vcpu.told_ns = m.now_ns;
        }
        self.rouse(m, task);
    }

    /// The vCPU runs again: how long after it was told, or since when there is room?
    pub(super) fn note_told(&mut self, now_ns: u64, task: TaskId) {
        let vcpu = &mut self.vcpus[task as usize];
        if vcpu.told_ns > 0 && vcpu.told_ns <= now_ns {
            let late_ns = now_ns.saturating_sub(vcpu.told_ns);
            self.vms[vcpu.vm as usize].sleeps.record(late_ns);
            self.vcpus[task as usize].told_ns = 0;
        }
    }
}
