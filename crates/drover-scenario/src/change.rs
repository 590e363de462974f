// SPDX-License-Identifier: GPL-2.0-only
//! VMs that come to a host, or leave it, in a scenario that was read: what `drover whatif` asks about.

use crate::admission::admit;
use crate::scenario::{Case, Scenario};
use drover_core::names::is_meant;
use drover_core::nearest::there_is_no;

/// VMs that are added at once, at most.
const ADDED_MAX: u32 = 1000;

/// VMs that come or leave.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// So many VMs that are like the one of that name.
    pub add: Vec<Added>,
    /// Names and patterns of VMs that leave.
    pub remove: Vec<String>,
}

/// VMs that come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// How many.
    pub count: u32,
    /// Like which.
    pub like: String,
}

impl std::str::FromStr for Added {
    type Err = String;

    /// Reads `10xweb`, or `web` for one.
    fn from_str(text: &str) -> Result<Self, String> {
        let counted =
            text.split_once('x').and_then(|(count, like)| Some((count.parse().ok()?, like)));
        let (count, like) = counted.unwrap_or((1, text));
        if like.is_empty() || !(1..=ADDED_MAX).contains(&count) {
            return Err(format!(
                "use a number up to {ADDED_MAX}, x and the name of a VM, such as 10xweb"
            ));
        }
        Ok(Self { count, like: like.to_owned() })
    }
}

impl Change {
    /// Lets them come and leave, in each case; then whether all that is reserved still fits.
    ///
    /// # Errors
    /// In one line, when there is no such VM, none is left, or a reservation does not fit.
    pub fn apply(&self, scenario: &mut Scenario) -> Result<(), String> {
        for case in &mut scenario.cases {
            self.add(case)?;
            self.remove(case)?;
            if case.vms.is_empty() {
                return Err("no VM is left".to_owned());
            }
            admit(&scenario.host, &case.pools, &case.partitions, &case.vms)
                .map_err(|(who, refusal)| format!("{who}: {}; {}", refusal.what(), refusal.fix))?;
        }
        Ok(())
    }

    fn add(&self, case: &mut Case) -> Result<(), String> {
        for Added { count, like } in &self.add {
            let of_name = case.vms.iter().find(|vm| vm.name == *like);
            let vm = of_name.ok_or_else(|| unknown(case, like))?.clone();
            let taken: Vec<String> = case.vms.iter().map(|vm| vm.name.clone()).collect();
            let names =
                (1..).map(|number| format!("{like}+{number}")).filter(|name| !taken.contains(name));
            for name in names.take(*count as usize) {
                case.vms.push(crate::Vm { name, ..vm.clone() });
            }
        }
        Ok(())
    }

    fn remove(&self, case: &mut Case) -> Result<(), String> {
        for pattern in &self.remove {
            let before = case.vms.len();
            let known = case.clone();
            case.vms.retain(|vm| !is_meant(pattern, &vm.name));
            if case.vms.len() == before {
                return Err(unknown(&known, pattern));
            }
        }
        Ok(())
    }
}

fn unknown(case: &Case, name: &str) -> String {
    there_is_no("VM", name, case.vms.iter().map(|vm| vm.name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = \"s\"\nhost = { cores = 4 }\n[[vm]]\nname = \"web\"\nvcpus = 1\nreservation_pct = 50\n\
                        workload = { kind = \"cpu\" }\n[[vm]]\nname = \"db\"\nvcpus = 2\nworkload = { kind = \"cpu\" }\n";

    fn changed(add: &[&str], remove: &[&str]) -> Result<Vec<String>, String> {
        let mut scenario = Scenario::parse(TEXT, "s.toml").unwrap();
        let add = add.iter().map(|text| text.parse().unwrap()).collect();
        let remove = remove.iter().map(|&text| text.to_owned()).collect();
        Change { add, remove }.apply(&mut scenario)?;
        Ok(scenario.cases[0].vms.iter().map(|vm| vm.name.clone()).collect())
    }

    #[test]
    fn vms_come_as_others_are_and_leave_by_name() {
        assert_eq!(changed(&[], &[]).unwrap(), ["web", "db"]);
        assert_eq!(
            changed(&["2xweb", "db"], &[]).unwrap(),
            ["web", "db", "web+1", "web+2", "db+1"]
        );
        assert_eq!(changed(&["2xweb", "web"], &["db", "web+[1-2]"]).unwrap(), ["web", "web+3"]);
        assert_eq!(changed(&["web"], &["web*"]).unwrap(), ["db"], "those that came leave, too");
    }

    #[test]
    fn what_cannot_be_is_told_in_a_line() {
        for text in ["", "0xweb", "1001xweb", "3x"] {
            assert!(text.parse::<Added>().unwrap_err().contains("10xweb"), "{text}");
        }
        assert_eq!("x86".parse(), Ok(Added { count: 1, like: "x86".to_owned() }));
        for (add, remove, said) in [
            (&["wab"][..], &[][..], "there is no VM \"wab\"; did you mean \"web\""),
            (&[], &["d"], "there is no VM \"d\""),
            (&[], &["*"], "no VM is left"),
            // 3.6 pCPUs can be promised.
            (&["7xweb"], &[], "VM \"web+7\": "),
        ] {
            let line = changed(add, remove).unwrap_err();
            assert!(line.contains(said) && !line.contains('\n'), "{line}");
        }
        assert_eq!(changed(&["6xweb"], &[]).unwrap().len(), 8);
    }
}
