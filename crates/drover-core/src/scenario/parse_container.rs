// SPDX-License-Identifier: GPL-2.0-only
//! Reads the containers of a scenario: cgroups with busy threads and settings that the kernel knows.

use super::error::ScenarioError;
use super::keys;
use super::reader::Reader;
use super::{Host, Pace, Vm, Vmm, Workload};
use crate::tree::is_plain_name;

/// The weight of a cgroup that was given none, and what it counts beside shares of VMs.
const WEIGHT_NORMAL: u32 = 100;
const SHARES_NORMAL: u32 = 1000;

/// Reads each `[[container]]`.
pub(super) fn read_containers(top: &Reader, vms: &[&str]) -> Result<Vec<Vm>, ScenarioError> {
    let mut containers: Vec<Vm> = Vec::new();
    for reader in top.tables("container", keys::CONTAINER)? {
        let container = read_container(&reader)?;
        let name = &container.name;
        if vms.contains(&name.as_str()) || containers.iter().any(|other| other.name == *name) {
            let what = format!("two VMs or containers are called \"{name}\"");
            return Err(reader.error("name", what, "give each its own name"));
        }
        containers.push(container);
    }
    Ok(containers)
}

fn read_container(reader: &Reader) -> Result<Vm, ScenarioError> {
    let name = reader.need("name", reader.text("name")?, "\"web\"")?;
    if !is_plain_name(name) {
        let fix = "use 1 to 63 of A-Z a-z 0-9 . _ -";
        return Err(reader.error("name", format!("\"{name}\" is no name for a container"), fix));
    }
    let threads = reader.whole32("threads", 1..=Vm::VCPUS_MAX)?;
    let weight = reader.whole32("weight", 1..=10_000)?.unwrap_or(WEIGHT_NORMAL);
    Ok(Vm {
        name: name.to_owned(),
        vcpus: reader.need("threads", threads, "4")?,
        shares: weight * SHARES_NORMAL / WEIGHT_NORMAL,
        reservation_pct: 0,
        limit_pct: reader.whole32("limit_pct", 1..=100 * Host::PCPUS_MAX)?,
        pool: None,
        cosched: None,
        partition: None,
        vmm: Vmm::Container,
        memory_mib: 0,
        disk: false,
        home: None,
        pin: None,
        memory_nodes: Vec::new(),
        demand_pct: None,
        start_s: None,
        stop_s: None,
        workload: Workload::Cpu { duty_pct: 100, period_us: 10_000, then: None },
        pace: Pace::default(),
    })
}

#[cfg(test)]
mod tests {
    use crate::scenario::{Scenario, Vmm};

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
            assert_eq!((web.vmm, web.vcpus, web.shares), (Vmm::Container, 2, 4000));
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
