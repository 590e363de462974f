// SPDX-License-Identifier: GPL-2.0-only
//! Whether all that is reserved on a host fits on it, as the daemon decides it.

use crate::host::Host;
use crate::vm::Vm;
use drover_core::cpu_list::CpuList;
use drover_core::partition::Partitions;
use drover_core::tree::Tree;
use drover_core::tree::admission::{Ledger, Refusal};
use drover_core::tree::pcpus::{HOST_PERMILLE, Pcpus};

/// Promises everybody what it asks, in each partition on the pCPUs of that. Returns what can still be promised in `default`,
/// thousandths of a pCPU.
///
/// # Errors
/// Who is refused, and why.
pub fn admit(
    of_host: &Host,
    pools: &Tree,
    partitions: &Partitions,
    vms: &[Vm],
) -> Result<u64, (String, Refusal)> {
    let (siblings, host) = (of_host.siblings(), CpuList::all(of_host.pcpus()));
    let mut free_mcpu = 0;
    for partition in partitions.all() {
        let cpus = partitions.cpus_of(partition, &host).expect("it has a pCPU");
        let pcpus = Pcpus::of(cpus.clone(), &host, &siblings);
        let (pcpus, nr_pools) = match partition {
            None => (pcpus.kept_for_host(HOST_PERMILLE), pools.pools().len()),
            Some(_) => (pcpus, 0),
        };
        let mut ledger = Ledger::new(pools, pcpus, partitions.whole(partition));
        for index in 0..nr_pools {
            let who = format!("pool \"{}\"", pools.pools()[index].spec.name);
            ledger.promise_pool(index).map_err(|refusal| (who, refusal))?;
        }
        let its =
            |vm: &&Vm| vm.partition.as_deref().and_then(|name| partitions.find(name)) == partition;
        for vm in vms.iter().filter(its) {
            let pool = vm.pool.as_deref().and_then(|pool| pools.find(pool));
            let affinity = partitions.affinity(partition, &vm.affinity(), &host).on(&cpus);
            let promise = ledger.promise(pool, &affinity, 10 * u64::from(vm.reservation_pct));
            promise.map_err(|refusal| (format!("VM \"{}\"", vm.name), refusal))?;
        }
        if partition.is_none() {
            free_mcpu = ledger.host_free_mcpu();
        }
    }
    Ok(free_mcpu)
}
