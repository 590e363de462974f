// SPDX-License-Identifier: GPL-2.0-only
//! Reads the containers of a scenario: cgroups with busy threads and settings that the kernel knows.

use super::check_name;
use super::format::{ContainerTable, Top};
use crate::vm::{Vm, Vmm};
use crate::workload::{CPU_PERIOD_US, Workload};
use drover_core::shares::Shares;
use drover_core::toml_file::{Read, Table};

/// The weight of a cgroup that was given none, and what it counts beside shares of VMs.
const WEIGHT_NORMAL: u32 = 100;
const SHARES_NORMAL: u32 = 1000;

/// Reads each `[[container]]`.
pub(super) fn read_containers(top: &Table<Top>, vms: &[&str]) -> Read<Vec<Vm>> {
    let mut containers: Vec<Vm> = Vec::new();
    for table in top.tables("container")? {
        let container = read_container(&table)?;
        let name = &container.name;
        if vms.contains(&name.as_str()) || containers.iter().any(|other| other.name == *name) {
            let what = format!("two VMs or containers are called \"{name}\"");
            return Err(table.error("name", what, "give each its own name"));
        }
        containers.push(container);
    }
    Ok(containers)
}

fn read_container(table: &Table<ContainerTable>) -> Read<Vm> {
    check_name(table, &table.name, "a container")?;
    let weight = table.weight.unwrap_or(WEIGHT_NORMAL);
    let period_us = CPU_PERIOD_US;
    let busy = Workload::Cpu { duty_pct: 100, period_us, then: None };
    Ok(Vm {
        shares: Shares::Exact(weight * SHARES_NORMAL / WEIGHT_NORMAL),
        limit_pct: table.limit_pct,
        vmm: Vmm::Container,
        ..Vm::new(&table.name, table.threads, busy)
    })
}

#[cfg(test)]
mod tests {
    use crate::scenario::Scenario;
    use crate::vm::Vmm;

    fn read(containers: &str) -> Result<Scenario, String> {
        let text = format!(
            "name = \"s\"\n[host]\n[[vm]]\nname = \"a\"\nvcpus = 1\nworkload = {{ kind = \"cpu\" }}\n{containers}"
        );
        Scenario::parse(&text, "s.toml").map_err(|error| error.to_string())
    }

    #[test]
    fn containers_take_part_in_every_case_after_the_vms() {
        let scenario = read(
            "[[container]]\nname = \"web\"\nweight = 400\nlimit_pct = 20\nthreads = 2\n\
             [[case]]\nname = \"x\"\n[[case]]\nname = \"y\"\n",
        );
        for case in scenario.unwrap().cases {
            let web = &case.vms[1];
            assert_eq!((web.vmm, web.vcpus, web.shares_of_all()), (Vmm::Container, 2, 4000));
            assert_eq!((web.limit_pct, case.has_containers()), (Some(20), true));
        }
        assert!(!read("").unwrap().cases[0].has_containers());
    }

    #[test]
    fn faults_are_told_with_the_mend() {
        let said = |text: &str| read(text).unwrap_err();
        assert!(said("[[container]]\nname = \"web\"\n").contains("has no threads; add one"));
        let twice = said("[[container]]\nname = \"a\"\nthreads = 1\n");
        assert!(twice.contains("two VMs or containers are called \"a\"; give each"), "{twice}");
        assert!(
            said("[[container]]\nname = \"/a\"\nthreads = 1\n").contains("no name for a container")
        );
    }
}
