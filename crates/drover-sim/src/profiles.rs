// SPDX-License-Identifier: GPL-2.0-only
//! The daemon's profiler in the simulator: every second it takes a reading of each VM.
//!
//! Limitation. What a VM's I/O steps move is not known in bytes; what it sends by the network is.

use crate::class::Class;
use crate::sim::{Plan, Sim};
use drover_core::profile::{Counted, INTERVAL, Profile};
use std::time::Duration;

impl<C: Class> Sim<C> {
    /// Profiles VMs from now on.
    pub(crate) fn keep_profiles(&mut self) {
        self.profiler = Some(Box::default());
        self.plan(self.m.now_ns, Plan::Profile);
    }

    /// The profiler looks, and plans to look again.
    pub(crate) fn look_at_profiles(&mut self) {
        let Some(mut profiler) = self.profiler.take() else { return };
        for vm in 0..self.vms.len() as u32 {
            let now = Duration::from_nanos(self.m.now_ns);
            profiler.look(vm.into(), self.counted(vm), now);
        }
        self.plan(self.m.now_ns + INTERVAL.as_nanos() as u64, Plan::Profile);
        self.profiler = Some(profiler);
        self.look_at_arrangement();
    }

    /// What kind of work the VM does; none: too little is known yet.
    pub fn profile(&self, vm: u32) -> Option<Profile> {
        self.profiler.as_ref()?.profile(vm.into())
    }

    fn counted(&self, vm: u32) -> Counted {
        let mut counted = Counted::default();
        let bytes = self.guests.vms[vm as usize].network_bytes;
        for task in self.tasks_of(vm) {
            let known = &self.m.tasks[task as usize];
            let (ns, sleeps) = match known.in_kvm_run {
                true => (&mut counted.vcpu_ns, &mut counted.vcpu_sleeps),
                false => (&mut counted.helper_ns, &mut counted.helper_sleeps),
            };
            *ns += self.m.cpu_time_now_ns(task);
            *sleeps += known.sleeps;
        }
        let used_ns = counted.vcpu_ns + counted.helper_ns;
        counted.ready_ns = self.class.wanted_ns(&self.m, vm).saturating_sub(used_ns);
        counted.network_bytes = Some(bytes);
        counted.memory_mib_s =
            self.speeds.as_ref().map(|speeds| speeds.pressure(&self.m.topology, vm).1);
        counted
    }
}
