// SPDX-License-Identifier: GPL-2.0-only
//! Partitions: sets of a host's pCPUs, each with a policy of its own (policy/partition/partition.h).
//!
//! Partition `default` is always there, shares by Drover's own policy, and has the pCPUs that no other one
//! has. A VM is in one partition. It runs on that one's pCPUs as far as it may run there at all; who is
//! confined to others is served where it may run.
//!
//! Worked example: pCPUs 0-5, partition `io` has 2-3. A VM in `io` that may run anywhere runs on 2-3, one
//! confined to 3-4 on 3, and one confined to 5 on 5.

use crate::asked::{DEFAULT, HOST};
use crate::cpu_list::{CpuList, cpus_text};
use crate::names::is_plain_name;
use crate::nearest::hint;
use crate::params::Params;
use crate::settings::PartitionId;
use crate::tree::Affinity;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most partitions beside `default`.
pub const PARTITIONS_MAX: usize = PartitionId::COUNT_MAX as usize - 1;
/// The shortest slice: below it switching costs more than it serves.
pub const SLICE_MIN_NS: u64 = 100_000;
/// The longest slice, far below the kernel's patience.
pub const SLICE_MAX_NS: u64 = 1_000_000_000;

/// How a partition chooses who runs. The numbers are those of `enum partition_policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[repr(u32)]
pub enum PartitionPolicy {
    /// Drover's own: by shares.
    #[default]
    Share = 0,
    /// Xen's credit scheduler.
    Credit = 1,
    /// One vCPU a pCPU, never preempted.
    Dedicated = 2,
    /// As `credit`; who did I/O keeps its boost for as long as more is likely.
    Anticipatory = 3,
}

impl PartitionPolicy {
    /// The words for them.
    pub const WORDS: [(&'static str, PartitionPolicy); 4] = [
        ("share", Self::Share),
        ("credit", Self::Credit),
        ("dedicated", Self::Dedicated),
        ("anticipatory", Self::Anticipatory),
    ];

    /// How long a thread runs before it is asked again, where nobody says.
    pub fn slice_ns(self) -> u64 {
        match self {
            Self::Share => Params::default().slice_ns,
            Self::Credit | Self::Anticipatory => 30_000_000,
            Self::Dedicated => 100_000_000,
        }
    }
}

words!(PartitionPolicy);

/// Reads a slice such as `3ms` or `500us`, in ns.
///
/// # Errors
/// When the text is no slice or out of range; the message says what to give.
pub fn parse_slice(text: &str) -> Result<u64, String> {
    let units = [("us", 1_000), ("ms", 1_000_000)];
    let ns = units.iter().find_map(|(unit, unit_ns)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(*unit_ns)
    });
    ns.filter(|ns| (SLICE_MIN_NS..=SLICE_MAX_NS).contains(ns))
        .ok_or_else(|| "use 100us to 1000ms, such as 3ms".to_owned())
}

/// A slice as people write it.
pub fn slice_text(ns: u64) -> String {
    match ns % 1_000_000 {
        0 => format!("{}ms", ns / 1_000_000),
        _ => format!("{}us", ns / 1_000),
    }
}

/// A partition as somebody asked for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionSpec {
    /// Unique name, see [`is_plain_name`].
    pub name: String,
    /// Its pCPUs. Some may be offline.
    pub cpus: CpuList,
    /// How it chooses who runs.
    pub policy: PartitionPolicy,
    /// How long a thread runs before it is asked again, ns; none: as the policy has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice_ns: Option<u64>,
}

impl PartitionSpec {
    /// How long a thread runs before it is asked again.
    pub fn slice_ns(&self) -> u64 {
        self.slice_ns.unwrap_or_else(|| self.policy.slice_ns())
    }
}

/// Changes to a partition. Values that are None stay as they are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PartitionChange {
    /// Its pCPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuList>,
    /// How it chooses who runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PartitionPolicy>,
    /// How long a thread runs before it is asked again, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice_ns: Option<u64>,
}

impl PartitionChange {
    /// The partition with what is to change.
    pub fn of(&self, spec: &PartitionSpec) -> PartitionSpec {
        PartitionSpec {
            name: spec.name.clone(),
            cpus: self.cpus.clone().unwrap_or_else(|| spec.cpus.clone()),
            policy: self.policy.unwrap_or(spec.policy),
            slice_ns: self.slice_ns.or(spec.slice_ns),
        }
    }
}

/// What is wrong with a set of partitions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("partition \"{partition}\" {what}; {fix}")]
pub struct PartitionFault {
    /// The partition in question.
    pub partition: String,
    /// The key of it that is at fault.
    pub key: &'static str,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub fix: String,
}

/// A checked set of partitions, `default` apart.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Partitions {
    specs: Vec<PartitionSpec>,
}

impl Partitions {
    /// Takes partitions that have names of their own and no pCPU twice.
    ///
    /// # Errors
    /// The first fault found.
    pub fn of(specs: Vec<PartitionSpec>) -> Result<Self, PartitionFault> {
        for (index, spec) in specs.iter().enumerate() {
            check_name(spec)?;
            for earlier in &specs[..index] {
                if earlier.name == spec.name {
                    return Err(fault(spec, "name", "is there twice", "give each its own name"));
                }
                let both = earlier.cpus.common(&spec.cpus);
                if let Some(both) = both {
                    let what = format!("has {}, and so has \"{}\"", cpus_text(&both), earlier.name);
                    return Err(fault(spec, "cpus", what, "give each pCPU to one partition"));
                }
            }
            if index >= PARTITIONS_MAX {
                let what =
                    format!("is one too many: {PARTITIONS_MAX} beside \"{DEFAULT}\" are the most");
                return Err(fault(spec, "name", what, "remove some"));
            }
        }
        Ok(Self { specs })
    }

    /// Whether that partition may have its pCPUs on a host where these are online.
    ///
    /// # Errors
    /// When one is missing, or none is left for `default`.
    pub fn check(&self, index: usize, online: &CpuList) -> Result<(), PartitionFault> {
        let spec = &self.specs[index];
        if let Some(missing) = spec.cpus.without(online) {
            let is = if missing.cpus().len() == 1 { "is" } else { "are" };
            let what = format!("names {}, which {is} not online here", cpus_text(&missing));
            return Err(fault(spec, "cpus", what, format!("use some of {online}")));
        }
        if self.cpus_of(None, online).is_none() {
            let what = format!("would have the last pCPU of partition \"{DEFAULT}\"");
            let fix = "leave one at least for the host's own tasks";
            return Err(fault(spec, "cpus", what, fix));
        }
        Ok(())
    }

    /// The partitions, in the order they were made.
    pub fn specs(&self) -> &[PartitionSpec] {
        &self.specs
    }

    /// The partition with that name. None if there is no such partition, and for `default`.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.specs.iter().position(|spec| spec.name == name)
    }

    /// All partitions: `default` first, as none, then the others by index.
    pub fn all(&self) -> impl Iterator<Item = Option<usize>> + use<> {
        std::iter::once(None).chain((0..self.specs.len()).map(Some))
    }

    /// How a partition chooses who runs.
    pub fn policy(&self, partition: Option<usize>) -> PartitionPolicy {
        partition.map_or(PartitionPolicy::Share, |index| self.specs[index].policy)
    }

    /// The partitions of policy `share` that have some of these pCPUs, and which: there VMs have reservations, weights
    /// and homes.
    pub fn sharing(&self, of: &CpuList) -> Vec<(Option<usize>, CpuList)> {
        let shares = |it: &Option<usize>| self.policy(*it) == PartitionPolicy::Share;
        let own = |it: Option<usize>| Some((it, self.cpus_of(it, of)?));
        self.all().filter(shares).filter_map(own).collect()
    }

    /// What people are told promises are made on there, with its verb.
    pub fn whole(&self, partition: Option<usize>) -> String {
        match self.specs.is_empty() {
            true => "this host has".to_owned(),
            false => format!("partition \"{}\" has", self.name(partition)),
        }
    }

    /// How a partition is called; none is `default`.
    pub fn name(&self, partition: Option<usize>) -> &str {
        partition.map_or(DEFAULT, |index| &self.specs[index].name)
    }

    /// The partition of a pCPU.
    pub fn of_cpu(&self, cpu: u32) -> Option<usize> {
        self.specs.iter().position(|spec| spec.cpus.contains(cpu))
    }

    /// The pCPUs that a partition has of these; none where it has none.
    pub fn cpus_of(&self, partition: Option<usize>, of: &CpuList) -> Option<CpuList> {
        CpuList::of(of.cpus().iter().copied().filter(|&cpu| self.of_cpu(cpu) == partition))
    }

    /// Where the vCPUs of a VM run that is in that partition, and may run where `affinity` says, on a host
    /// of these pCPUs.
    pub fn affinity(
        &self,
        partition: Option<usize>,
        affinity: &Affinity,
        host: &CpuList,
    ) -> Affinity {
        match self.cpus_of(partition, host) {
            Some(cpus) if !self.specs.is_empty() => affinity.drawn_to(&cpus).on(host),
            _ => affinity.on(host),
        }
    }

    /// What there is no partition of that name, and what to do about it.
    pub fn unknown(&self, name: &str) -> (String, String) {
        let fix = match self.specs.is_empty() {
            true => "make it with `drover partition add`".to_owned(),
            false => {
                let names = self.specs.iter().map(|spec| spec.name.as_str()).chain([DEFAULT]);
                hint(name, names)
            }
        };
        (format!("there is no partition \"{name}\""), fix)
    }
}

fn fault(
    spec: &PartitionSpec,
    key: &'static str,
    what: impl Into<String>,
    fix: impl Into<String>,
) -> PartitionFault {
    PartitionFault { partition: spec.name.clone(), key, what: what.into(), fix: fix.into() }
}

fn check_name(spec: &PartitionSpec) -> Result<(), PartitionFault> {
    if !is_plain_name(&spec.name) {
        let fix = "use 1 to 63 of A-Z a-z 0-9 . _ -";
        return Err(fault(spec, "name", "has no proper name", fix));
    }
    if [DEFAULT, HOST].contains(&spec.name.as_str()) {
        let what = "has a name that is taken";
        let fix = format!(
            "\"{DEFAULT}\" is the partition of all pCPUs that no other has, \"{HOST}\" no pool; \
             choose another"
        );
        return Err(fault(spec, "name", what, fix));
    }
    Ok(())
}

/// Everything asked for a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionSettings {
    /// How it chooses who runs.
    pub policy: PartitionPolicy,
    /// How long a thread runs before it is asked again, above 0.
    pub slice_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, cpus: &str) -> PartitionSpec {
        let policy = PartitionPolicy::Credit;
        PartitionSpec { name: name.to_owned(), cpus: cpus.parse().unwrap(), policy, slice_ns: None }
    }

    fn said(specs: &[PartitionSpec]) -> String {
        Partitions::of(specs.to_vec()).unwrap_err().to_string()
    }

    #[test]
    fn policies_and_slices_go_there_and_back() {
        for (word, policy) in PartitionPolicy::WORDS {
            assert_eq!((word.parse(), policy.to_string()), (Ok(policy), word.to_owned()));
            assert_eq!(serde_json::to_string(&policy).unwrap(), format!("\"{word}\""));
        }
        let said = "credits".parse::<PartitionPolicy>().unwrap_err();
        assert_eq!(said, "did you mean \"credit\"?");
        for text in ["3ms", "1500us", "100us", "1000ms"] {
            assert_eq!(slice_text(parse_slice(text).unwrap()), text);
        }
        for text in ["", "3", "ms", "0ms", "-1ms", "1001ms", "99us", "99999999999999999999ms"] {
            assert!(parse_slice(text).unwrap_err().contains("such as 3ms"), "{text}");
        }
        assert_eq!(spec("io", "0").slice_ns(), 30_000_000);
    }

    #[test]
    fn the_worked_example_of_the_header_holds() {
        let partitions = Partitions::of(vec![spec("io", "2-3")]).unwrap();
        let host = CpuList::all(6);
        let runs_on = |partition, affinity: &str| {
            let affinity = Affinity::within(affinity.parse().unwrap());
            partitions.affinity(partition, &affinity, &host)
        };
        let within = |cpus: &str| Affinity::within(cpus.parse().unwrap());
        assert_eq!(partitions.affinity(Some(0), &Affinity::ANYWHERE, &host), within("2-3"));
        assert_eq!(runs_on(Some(0), "3-4"), within("3"));
        assert_eq!(runs_on(Some(0), "5"), within("5"));
        assert_eq!(partitions.affinity(None, &Affinity::ANYWHERE, &host), within("0-1,4-5"));
        assert_eq!(runs_on(None, "2"), within("2"));
        let none = Partitions::default();
        assert!(none.affinity(None, &within("0-5"), &host).is_anywhere());
    }

    #[test]
    fn each_vcpu_that_may_run_there_is_drawn_to_its_partition() {
        let partitions = Partitions::of(vec![spec("io", "2-3")]).unwrap();
        let split = Affinity::of_vcpus(["0-2", "5"].map(|cpus| cpus.parse().unwrap()));
        let drawn = Affinity::of_vcpus(["2", "5"].map(|cpus| cpus.parse().unwrap()));
        assert_eq!(partitions.affinity(Some(0), &split, &CpuList::all(6)), drawn);
        let online = "0-1,4-5".parse().unwrap();
        assert!(partitions.affinity(Some(0), &Affinity::ANYWHERE, &online).is_anywhere());
    }

    #[test]
    fn what_cannot_stand_together_is_refused_with_the_mend() {
        assert_eq!(
            said(&[spec("io", "0-2"), spec("rt", "2-3")]),
            "partition \"rt\" has pCPU 2, and so has \"io\"; give each pCPU to one partition"
        );
        assert_eq!(
            said(&[spec("io", "0"), spec("io", "1")]),
            "partition \"io\" is there twice; give each its own name"
        );
        assert!(said(&[spec("default", "0")]).contains("a name that is taken"));
        assert!(said(&[spec("a b", "0")]).contains("use 1 to 63 of"));
        let many: Vec<_> = (0..64).map(|n| spec(&format!("p{n}"), &n.to_string())).collect();
        assert!(said(&many).contains("\"p63\" is one too many: 63 beside \"default\""));
        assert!(Partitions::of(many[..63].to_vec()).is_ok());
    }

    #[test]
    fn a_host_must_have_the_pcpus_and_one_for_itself() {
        let check = |cpus: &str| {
            let partitions = Partitions::of(vec![spec("io", cpus)]).unwrap();
            partitions.check(0, &"0-2".parse().unwrap()).map_err(|fault| fault.to_string())
        };
        assert_eq!(check("1-2"), Ok(()));
        assert_eq!(
            check("2-4").unwrap_err(),
            "partition \"io\" names pCPUs 3-4, which are not online here; use some of 0-2"
        );
        assert_eq!(
            check("0-2").unwrap_err(),
            "partition \"io\" would have the last pCPU of partition \"default\"; \
             leave one at least for the host's own tasks"
        );
    }
}
