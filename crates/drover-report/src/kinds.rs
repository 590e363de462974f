// SPDX-License-Identifier: GPL-2.0-only
//! VMs of one kind: those whose names are alike but for a number at the end, such as `web-1` and `web-2`.
//!
//! A picture of 50 VMs tells them apart by kind: no palette has 50 colours, and no axis room for 50 names.

use crate::picture::TOLD_APART;

/// With more VMs than that pictures show kinds.
const EACH_MAX: usize = TOLD_APART;

/// VMs of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kind<'a> {
    /// What their names begin with; of a VM that is alone, its name.
    pub(crate) name: &'a str,
    /// Their names.
    pub(crate) vms: Vec<&'a str>,
}

impl Kind<'_> {
    /// The kind in words.
    pub(crate) fn title(&self) -> String {
        match self.vms.len() {
            1 => self.vms[0].to_owned(),
            count => format!("{}: {count} VMs", self.name),
        }
    }
}

/// The kinds of these VMs, in the order in which they come; none where they are few enough to show each.
pub(crate) fn kinds<'a>(vms: &[&'a str]) -> Option<Vec<Kind<'a>>> {
    let kinds = all_kinds(vms);
    (vms.len() > EACH_MAX && kinds.len() < vms.len()).then_some(kinds)
}

/// The same however few they are.
pub(crate) fn all_kinds<'a>(vms: &[&'a str]) -> Vec<Kind<'a>> {
    let mut kinds: Vec<Kind<'a>> = Vec::new();
    for &vm in vms {
        let name = name_of(vm);
        match kinds.iter_mut().find(|kind| kind.name == name) {
            Some(kind) => kind.vms.push(vm),
            None => kinds.push(Kind { name, vms: vec![vm] }),
        }
    }
    kinds
}

fn name_of(vm: &str) -> &str {
    let begin = vm.trim_end_matches(|letter: char| letter.is_ascii_digit());
    match begin.trim_end_matches(['-', '_', '.']) {
        "" => vm,
        name => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_by_a_number_are_one_kind() {
        let mut vms: Vec<String> = (1..=30).map(|number| format!("web-{number}")).collect();
        vms.extend(["db0", "db1", "lone"].map(str::to_owned));
        let names: Vec<&str> = vms.iter().map(String::as_str).collect();
        let kinds = kinds(&names).unwrap();
        let titles: Vec<String> = kinds.iter().map(Kind::title).collect();
        assert_eq!(titles, ["web: 30 VMs", "db: 2 VMs", "lone"]);
        assert_eq!(super::kinds(&names[..EACH_MAX]), None);
    }
}
