// SPDX-License-Identifier: GPL-2.0-only
//! Sets of VMs that belong together or apart, as people name them; [`crate::place`] keeps them.
//!
//! Some of its VMs may not be there yet. Hard sets that contradict each other are refused, and so is one that this
//! host is too small for. Of soft ones that is said, and what wins.

mod table;

pub use table::{SetTable, read_sets};

use crate::names::is_plain_name;
use crate::place::{Kind, Within, contradiction};
use crate::printable::printable;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A set as somebody asked for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetSpec {
    /// Unique name, see [`is_plain_name`].
    pub name: String,
    /// Its VMs by their names: two at least.
    pub vms: Vec<String>,
    /// Together or apart.
    pub kind: Kind,
    /// In what.
    #[serde(default)]
    pub within: Within,
    /// It is never broken: a VM that it leaves no home for has none.
    #[serde(default)]
    pub hard: bool,
}

/// What is wrong with a set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("set \"{set}\" {what}; {fix}")]
pub struct SetFault {
    /// The set in question.
    pub set: String,
    /// The key of it that is at fault.
    pub key: &'static str,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub fix: String,
}

/// How many homes a host has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Nodes that may be a home.
    pub nodes: usize,
    /// Last-level caches (LLCs) of these.
    pub llcs: usize,
}

impl SetSpec {
    fn fault(
        &self,
        key: &'static str,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> SetFault {
        SetFault { set: self.name.clone(), key, what: what.into(), fix: fix.into() }
    }

    /// Whether that many homes are enough to keep its VMs apart, if that is what it must.
    ///
    /// # Errors
    /// When they are not.
    pub fn check(&self, room: Room) -> Result<(), SetFault> {
        let (homes, what) = match self.within {
            Within::Node => (room.nodes, "NUMA node"),
            Within::Llc => (room.llcs, "last-level cache"),
        };
        if !self.hard || self.kind == Kind::Affine || self.vms.len() <= homes {
            return Ok(());
        }
        let count = self.vms.len();
        let what =
            format!("keeps {count} VMs each on a {what} of its own, and this host has {homes}");
        Err(self.fault("vms", what, "name fewer VMs, or leave out that it is hard"))
    }

    fn check_alone(&self) -> Result<(), SetFault> {
        if !is_plain_name(&self.name) {
            let fix = "use 1 to 63 of A-Z a-z 0-9 . _ -";
            return Err(self.fault("name", "has no proper name", fix));
        }
        for (place, vm) in self.vms.iter().enumerate() {
            if vm.is_empty() || printable(vm) != *vm {
                let what = format!("names a VM {:?}, which none can be called", printable(vm));
                return Err(self.fault("vms", what, "name VMs as `drover vm list` does"));
            }
            if self.vms[..place].contains(vm) {
                return Err(self.fault("vms", format!("names VM {vm} twice"), "name it once"));
            }
        }
        if self.vms.len() < 2 {
            return Err(self.fault("vms", "has less than two VMs", "name two or more"));
        }
        Ok(())
    }
}

/// Whether these sets can stand together, whatever the host is.
///
/// # Errors
/// The first fault found.
pub fn check(sets: &[SetSpec]) -> Result<(), SetFault> {
    for (place, set) in sets.iter().enumerate() {
        set.check_alone()?;
        if sets[..place].iter().any(|earlier| earlier.name == set.name) {
            return Err(set.fault("name", "is there twice", "give each its own name"));
        }
    }
    let hard: Vec<&SetSpec> = sets.iter().filter(|set| set.hard).collect();
    let Some(Contradiction { together, apart, vms: [a, b] }) = first(&hard) else { return Ok(()) };
    let later = sets.iter().rfind(|set| [&together.name, &apart.name].contains(&&set.name));
    let what = format!(
        "cannot be kept: \"{}\" has VMs {a} and {b} together, \"{}\" has them apart, and both are hard",
        together.name, apart.name
    );
    let fix = "leave out that one of them is hard, or take one of these VMs out of it";
    Err(later.expect("both are there").fault("vms", what, fix))
}

/// Of sets that can stand together, those that cannot all be kept: both names, and in a line which wins.
pub fn soft_contradictions(sets: &[SetSpec]) -> Vec<([&str; 2], String)> {
    let mut left: Vec<&SetSpec> = sets.iter().collect();
    let mut told = Vec::new();
    while let Some(Contradiction { together, apart, vms: [a, b] }) = first(&left) {
        let wins = match (together.hard, apart.hard) {
            (true, false) => format!("\"{}\" wins, which is hard", together.name),
            (false, true) => format!("\"{}\" wins, which is hard", apart.name),
            _ => "hard ones go first, then the one that concerns more CPU time".to_owned(),
        };
        let text = format!(
            "set \"{}\" has VMs {a} and {b} together, \"{}\" has them apart: {wins}",
            together.name, apart.name
        );
        told.push(([together.name.as_str(), apart.name.as_str()], text));
        left.retain(|set| set.name != apart.name);
    }
    told
}

/// Two sets that no placement can keep, and two VMs of both.
struct Contradiction<'a> {
    together: &'a SetSpec,
    apart: &'a SetSpec,
    vms: [&'a str; 2],
}

fn first<'a>(sets: &[&'a SetSpec]) -> Option<Contradiction<'a>> {
    let each = |set: &&'a SetSpec| (set.name.as_str(), set.kind, set.within, set.vms.as_slice());
    let (together, apart, vms) = contradiction(sets.iter().map(each))?;
    let named = |name: &str| sets.iter().copied().find(|set| set.name == name);
    Some(Contradiction {
        together: named(together)?,
        apart: named(apart)?,
        vms: vms.map(String::as_str),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, kind: Kind, hard: bool, vms: &[&str]) -> SetSpec {
        let vms = vms.iter().map(|&vm| vm.to_owned()).collect();
        SetSpec { name: name.to_owned(), vms, kind, within: Within::Node, hard }
    }

    fn said(sets: &[SetSpec]) -> String {
        check(sets).unwrap_err().to_string()
    }

    #[test]
    fn hard_sets_that_contradict_each_other_are_refused_with_both_names_and_the_vms() {
        let sets = [
            set("web", Kind::Affine, true, &["a", "b"]),
            set("far", Kind::AntiAffine, true, &["c", "b", "a"]),
        ];
        assert_eq!(
            said(&sets),
            "set \"far\" cannot be kept: \"web\" has VMs b and a together, \"far\" has them apart, and both \
             are hard; leave out that one of them is hard, or take one of these VMs out of it"
        );
        for soft in 0..2 {
            let mut sets = sets.clone();
            sets[soft].hard = false;
            assert_eq!(check(&sets), Ok(()));
            let told = soft_contradictions(&sets);
            let wins = ["\"far\" wins, which is hard", "\"web\" wins, which is hard"][soft];
            assert_eq!(told.len(), 1);
            assert_eq!(told[0].0, ["web", "far"]);
            assert!(told[0].1.ends_with(wins) && told[0].1.contains("b and a"), "{}", told[0].1);
        }
        let soft = sets.map(|set| SetSpec { hard: false, ..set });
        assert!(soft_contradictions(&soft)[0].1.ends_with("concerns more CPU time"));
        assert!(soft_contradictions(&soft[..1]).is_empty());
    }

    #[test]
    fn sets_that_make_no_sense_are_refused_with_the_fix() {
        let good = || set("web", Kind::Affine, false, &["a", "b"]);
        for (sets, expected) in [
            (vec![set("a b", Kind::Affine, false, &["a", "b"])], "use 1 to 63 of"),
            (vec![set("web", Kind::Affine, false, &["a"])], "has less than two VMs; name two"),
            (vec![set("web", Kind::Affine, false, &["a", "a"])], "names VM a twice"),
            (vec![set("web", Kind::Affine, false, &["a", ""])], "which none can be called"),
            (vec![set("web", Kind::Affine, false, &["a", "b\n"])], "which none can be called"),
            (vec![good(), good()], "is there twice; give each its own name"),
        ] {
            let said = said(&sets);
            assert!(said.contains(expected) && said.lines().count() == 1, "{said}");
        }
    }

    #[test]
    fn a_hard_set_wants_a_home_for_each() {
        let room = Room { nodes: 2, llcs: 3 };
        let mut three = set("far", Kind::AntiAffine, true, &["a", "b", "c"]);
        assert_eq!(
            three.check(room).unwrap_err().to_string(),
            "set \"far\" keeps 3 VMs each on a NUMA node of its own, and this host has 2; \
             name fewer VMs, or leave out that it is hard"
        );
        three.within = Within::Llc;
        assert_eq!(three.check(room), Ok(()));
        for set in [
            SetSpec { hard: false, within: Within::Node, ..three.clone() },
            SetSpec { kind: Kind::Affine, within: Within::Node, ..three },
        ] {
            assert_eq!(set.check(room), Ok(()));
        }
    }

    #[test]
    fn what_is_left_out_is_soft_and_of_nodes() {
        let text = r#"{"name":"web","vms":["a","b"],"kind":"anti-affine"}"#;
        let read: SetSpec = serde_json::from_str(text).unwrap();
        assert_eq!(read, set("web", Kind::AntiAffine, false, &["a", "b"]));
    }
}
