// SPDX-License-Identifier: GPL-2.0-only
//! Who may look and not order: the group `drover`, on a socket of its own at which nothing can be ordered.
//!
//! Root sees everything there. Another user sees the own VMs: those whose processes the user's were when they were found,
//! unless the daemon was started so that readers see all VMs (`--readers-see-all`).

use crate::control::{Answer, Request};
use crate::files;
use crate::status::{HostStatus, Kind, VmStatus};
use nix::unistd::{Gid, Uid};
use std::path::Path;

/// The group whose members may look.
pub const READERS: &str = "drover";
/// Where the daemon that schedules answers them.
pub const READERS_PATH: &str = "/run/drover-readers/readers.sock";

/// Where groups are.
const GROUPS: &str = "/etc/group";
/// So long that file may be; a million members fit.
const GROUPS_MAX: usize = 16 << 20;

/// The number of that group; none: this host has none. Read from the file: a static program has no name service, and a
/// daemon that runs as root should not load other groups' sources for it.
pub fn group() -> Option<Gid> {
    group_in(&files::text(Path::new(GROUPS), GROUPS_MAX).ok()?)
}

fn group_in(groups: &str) -> Option<Gid> {
    let mut fields = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let number = fields.find(|fields| fields[0] == READERS)?.get(2)?.parse().ok()?;
    Some(Gid::from_raw(number))
}

/// Whose VMs a reader sees; none: all.
pub fn sees_only(user: Uid, readers_see_all: bool) -> Option<u32> {
    (!user.is_root() && !readers_see_all).then_some(user.as_raw())
}

/// Whether it changes nothing.
pub fn is_question(request: &Request) -> bool {
    matches!(
        request,
        Request::Status
            | Request::ListVms { .. }
            | Request::ListOrders
            | Request::ListPools
            | Request::ListPartitions
            | Request::ListSets
            | Request::ListNodes
            | Request::PlanHomes
            | Request::PlanPartitions
            | Request::AdviseVm { .. }
            | Request::ExplainWaits { .. }
            | Request::ListIo
            | Request::ListHistory { .. }
            | Request::ExportConfig
    )
}

/// Why a question is not answered to who sees the own VMs only; `daemon` is who could let them see all.
pub fn is_of_all(daemon: &str) -> String {
    format!(
        "that is of all users' VMs, and for root; who may ask here sees it if `{daemon}` runs with --readers-see-all"
    )
}

/// Those of that user.
pub fn own_of(vms: Vec<VmStatus>, user: u32) -> Vec<VmStatus> {
    vms.into_iter().filter(|vm| vm.kind == Kind::Vm && vm.user == user).collect()
}

/// What a reader is answered: `answer` is asked what root would be told.
pub fn answer(
    request: Request,
    user: Option<u32>,
    mut answer: impl FnMut(Request) -> Answer,
) -> Answer {
    let refused = |reason: String| Answer::Refused { reason };
    if !is_question(&request) {
        return refused(
            "this socket takes no orders; give them to `drover serve`, as root".to_owned(),
        );
    }
    match (user, &request) {
        (None, _) => answer(request),
        (Some(user), Request::ListVms { .. }) => match answer(request) {
            Answer::Vms { vms } => Answer::Vms { vms: own_of(vms, user) },
            other => other,
        },
        (Some(user), Request::ListHistory { .. }) => match answer(request) {
            Answer::History { mut history } => {
                history.vms.retain(|vm| vm.user == user);
                Answer::History { history }
            }
            other => other,
        },
        (Some(user), Request::Status) => {
            match (answer(Request::ListVms { brief: true }), answer(request)) {
                (Answer::Vms { vms }, Answer::Status { status }) => {
                    let names: Vec<String> =
                        own_of(vms, user).into_iter().map(|vm| vm.name).collect();
                    Answer::Status { status: Box::new(without_others(*status, &names)) }
                }
                (_, other) => other,
            }
        }
        _ => refused(is_of_all("drover serve")),
    }
}

/// Leaves out what names VMs of others, or may.
fn without_others(mut status: HostStatus, own: &[String]) -> HostStatus {
    status.partitions.iter_mut().for_each(|partition| partition.vms.retain(|vm| own.contains(vm)));
    let is_own = |trouble: &String| own.iter().any(|vm| trouble.starts_with(&format!("VM {vm}: ")));
    status.troubles.retain(is_own);
    status.warnings.clear();
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recent::Warning;
    use crate::status::History;
    use drover_core::tree::PoolChange;

    fn vms() -> Vec<VmStatus> {
        let of = |name: &str, user| VmStatus { user, ..VmStatus::sample(name) };
        let container = VmStatus { kind: Kind::Container, ..of("/a", 1000) };
        vec![of("bank", 0), of("alice@web", 1000), of("bob@web", 1001), container]
    }

    #[test]
    fn the_group_is_found_by_its_whole_name() {
        let groups = "root:x:0:\ndrovers:x:5:\nodd\ndrover:x:998:alice,bob\n";
        assert_eq!(group_in(groups), Some(Gid::from_raw(998)));
        assert_eq!(group_in("drovers:x:5:\n"), None);
        assert_eq!(group_in("drover:x\n"), None);
    }

    fn status() -> HostStatus {
        let partition = serde_json::json!({"name": "default", "policy": "share", "slice_ms": 7.0, "cpus": "0-3",
            "vms": ["bank", "alice@web", "bob@web"]});
        let status = serde_json::json!({"version": "1", "kernel": "7", "in_charge_s": 1.0, "cpus": "0-3", "domains": 1,
            "vms": 3, "containers": 1, "pools": 0, "promised_mcpu": 500, "partitions": [partition],
            "troubles": ["VM bank: x", "VM alice@web: y", "VM alice@web2: z"], "warnings": []});
        let status: HostStatus = serde_json::from_value(status).unwrap();
        HostStatus { warnings: vec![Warning { ago_s: 1.0, text: "bank".to_owned() }], ..status }
    }

    fn history() -> History {
        let vm = |(name, user): (&str, u32)| {
            serde_json::json!({"name": name, "pid": 7, "user": user, "is_here": true, "first_step": 0,
                "ready_mcpu": [1], "owed_mcpu": [null], "got_mcpu": [2], "peak": null})
        };
        let vms: Vec<_> = [("bank", 0), ("alice@web", 1000), ("bob@web", 1001)].map(vm).to_vec();
        let history = serde_json::json!({"begun_unix_s": 0.0, "kept_s": 1, "step_s": 1, "first_step": 0, "steps": 1,
            "vms": vms});
        serde_json::from_value(history).unwrap()
    }

    fn ask(request: Request, user: Option<u32>) -> Answer {
        answer(request, user, |request| match request {
            Request::ListVms { .. } => Answer::Vms { vms: vms() },
            Request::Status => Answer::Status { status: Box::new(status()) },
            Request::ListHistory { .. } => Answer::History { history: Box::new(history()) },
            _ => Answer::Done,
        })
    }

    #[test]
    fn a_user_sees_the_own_vms_and_no_word_of_others() {
        let past = Request::ListHistory { seconds: 60, step_s: 1 };
        let told = [Request::ListVms { brief: false }, Request::Status, past]
            .map(|request| ask(request, Some(1000)));
        let text = serde_json::to_string(&told).unwrap();
        assert!(text.contains("alice@web\"") && text.contains("VM alice@web: y"), "{text}");
        for others in ["bank", "bob", "alice@web2", "/a"] {
            assert!(!text.contains(others), "{others}: {text}");
        }
        let Answer::Status { status: told } = ask(Request::Status, Some(1000)) else { panic!() };
        assert_eq!((told.vms, told.promised_mcpu), (3, 500), "figures are of the host");
        for request in [Request::ListPools, Request::ListOrders, Request::ExportConfig] {
            let Answer::Refused { reason } = ask(request, Some(1000)) else { panic!() };
            assert!(reason.contains("--readers-see-all"), "{reason}");
        }
        assert_eq!(ask(Request::ListPools, None), Answer::Done);
        let Answer::Vms { vms: all } = ask(Request::ListVms { brief: false }, None) else {
            panic!()
        };
        assert_eq!(all.len(), 4);
        assert_eq!(sees_only(Uid::from_raw(7), false), Some(7));
        assert_eq!(sees_only(Uid::from_raw(7), true), None);
        assert_eq!(sees_only(Uid::from_raw(0), false), None);
    }

    #[test]
    fn no_reader_can_give_orders() {
        let (name, change) = ("web".to_owned(), PoolChange::default());
        let set_vm = Request::SetVm { name: name.clone(), set: Default::default(), reset: vec![] };
        let orders = [
            Request::SetVmLive { name: name.clone(), set: Default::default(), reset: vec![] },
            Request::ForgetVm { name: name.clone() },
            Request::AddPool { name: name.clone(), change: change.clone() },
            Request::SetPool { name: name.clone(), change },
            Request::RemovePool { name: name.clone() },
            Request::AddPartition { name: name.clone(), change: Default::default() },
            Request::SetPartition { name: name.clone(), change: Default::default() },
            Request::RemovePartition { name: name.clone() },
            Request::SetAutoPartitions { on: true },
            Request::RemoveSet { name },
            Request::Undo,
            Request::DryRun { order: Box::new(set_vm.clone()) },
            set_vm,
        ];
        for order in orders {
            for user in [None, Some(1000)] {
                let told = answer(order.clone(), user, |order| panic!("{order:?}"));
                let Answer::Refused { reason } = told else { panic!("{order:?}") };
                assert!(reason.contains("takes no orders"), "{reason}");
            }
        }
    }
}
