// SPDX-License-Identifier: GPL-2.0-only
//! What an order changes, or would: what is asked before and after it, compared.

use std::collections::BTreeSet;

use crate::plan::{Plan, PlannedVm};
use crate::saved::Saved;
use crate::status::Change;
use drover_core::asked::{Asked, Key};
use drover_core::partition::{PartitionSpec, slice_text};
use drover_core::percent;
use drover_core::resolve::Why;
use drover_core::sets::SetSpec;
use drover_core::tree::PoolSpec;

/// What was ordered, and what is in force for it.
pub type Ordered<'a> = (&'a Saved, &'a Plan);

/// All that is another after than before: of VMs, pools, partitions and sets, in this order.
pub fn changes(before: Ordered<'_>, after: Ordered<'_>) -> Vec<Change> {
    let mut changes: Vec<Change> =
        after.1.vms.iter().flat_map(|vm| of_vm(before.1.vm(vm.id), vm)).collect();
    changes.extend(of_absent(before, after));
    let pools = |plan: &Plan| -> Vec<PoolSpec> {
        let specs = plan.tree.pools().iter().map(|pool| pool.spec.clone());
        specs.filter(|spec| !spec.is_of_a_name()).collect()
    };
    changes.extend(of_specs("pool", &pools(before.1), &pools(after.1), |it| &it.name, pool_text));
    let [was, is] = [before, after].map(|(_, plan)| plan.partitions.specs());
    changes.extend(of_specs("partition", was, is, |it| &it.name, partition_text));
    let [was, is] = [before, after].map(|(saved, _)| &saved.sets[..]);
    changes.extend(of_specs("set", was, is, |it| &it.name, set_text));
    let auto = |saved: &Saved| Some(if saved.auto_partitions { "on" } else { "off" }.to_owned());
    changes.extend(change("partition auto", None, auto(before.0), auto(after.0)));
    changes
}

fn change(
    whose: impl Into<String>,
    key: Option<Key>,
    from: Option<String>,
    to: Option<String>,
) -> Option<Change> {
    (from != to).then(|| Change { whose: whose.into(), key, from, to })
}

/// Each value of a VM that runs, with where it comes from.
fn of_vm(before: Option<&PlannedVm>, after: &PlannedVm) -> Vec<Change> {
    let before = before.map(PlannedVm::why).unwrap_or_default();
    let text = |why: &Why| format!("{} ({})", why.value, why.origin);
    let one = |why: &Why| {
        let was = before.iter().find(|was| was.key == why.key)?;
        change(format!("VM {}", after.name), Some(why.key), Some(text(was)), Some(text(why)))
    };
    after.why().iter().filter_map(one).collect()
}

/// What is ordered for VMs that do not run.
fn of_absent(before: Ordered<'_>, after: Ordered<'_>) -> Vec<Change> {
    let here: BTreeSet<&str> = after.1.vms.iter().map(|vm| vm.name.as_str()).collect();
    let names: BTreeSet<&String> = before.0.vms.keys().chain(after.0.vms.keys()).collect();
    let absent = names.into_iter().filter(|name| !here.contains(name.as_str()));
    let of_name = |name: &String| {
        let [was, is] = [before.0, after.0].map(|saved| saved.vms.get(name));
        let text = |asked: Option<&Asked>, key| asked.and_then(|asked| asked.text(key));
        let whose = format!("VM {name}, which does not run");
        let one = |key| change(whose.clone(), Some(key), text(was, key), text(is, key));
        Key::ALL.into_iter().filter_map(one).collect::<Vec<_>>()
    };
    absent.flat_map(of_name).collect()
}

fn of_specs<T>(
    kind: &str,
    before: &[T],
    after: &[T],
    name: impl Fn(&T) -> &String,
    text: impl Fn(&T) -> String,
) -> Vec<Change> {
    let names: BTreeSet<&String> = before.iter().chain(after).map(&name).collect();
    let told = |specs: &[T], of: &String| specs.iter().find(|it| name(it) == of).map(&text);
    let one = |of: &String| change(format!("{kind} {of}"), None, told(before, of), told(after, of));
    names.into_iter().filter_map(one).collect()
}

fn pool_text(spec: &PoolSpec) -> String {
    let mut text = format!("shares {}", spec.shares);
    if let Some(parent) = &spec.parent {
        text += &format!(", parent {parent}");
    }
    if spec.reservation_mcpu > 0 {
        text += &format!(", reservation {}", percent::text(spec.reservation_mcpu));
    }
    if let Some(limit_mcpu) = spec.limit_mcpu {
        text += &format!(", limit {}", percent::text(limit_mcpu));
    }
    if !spec.expandable {
        text += ", not expandable";
    }
    if let Some(cosched) = spec.cosched {
        text += &format!(", cosched {cosched}");
    }
    text
}

fn partition_text(spec: &PartitionSpec) -> String {
    format!("pCPUs {}, {}, slices of {}", spec.cpus, spec.policy, slice_text(spec.slice_ns()))
}

fn set_text(spec: &SetSpec) -> String {
    let hard = if spec.hard { "hard, " } else { "" };
    format!("{hard}{} within {}, VMs {}", spec.kind, spec.within, spec.vms.join(", "))
}
