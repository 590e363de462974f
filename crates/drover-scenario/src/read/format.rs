// SPDX-License-Identifier: GPL-2.0-only
//! The format of scenario files: every table, its keys, their types and the ranges of their numbers.
//!
//! A new key is a line here, and its use where the table is read. Tables that are as the rest of Drover
//! has them ([`Host`], [`Workload`], [`Pace`], [`Expect`]) are read into those types as they are.

use crate::clock::Clock;
use crate::expect::{Expect, Metric};
use crate::host::Host;
use crate::pace::Pace;
use crate::tuning::Tuning;
use crate::vm::{Pin, Vm, Vmm};
use crate::workload::Workload;
use drover_core::asked::Consolidate;
use drover_core::cpu_list::CpuList;
use drover_core::partition::{PartitionPolicy, SLICE_MAX_NS, SLICE_MIN_NS};
use drover_core::place::Heuristic;
use drover_core::settings::Cosched;
use drover_core::shares::GivenShares;
use drover_core::tables;
use drover_core::toml_file::{Keys, Ranges, number, whole};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use toml::Spanned;

/// A table, or several, that are read by themselves.
type Elsewhere = Option<IgnoredAny>;

/// The most CPU a pool may be given, % of one pCPU.
const POOL_PCT_MAX: u32 = 100 * Host::PCPUS_MAX;
/// The most CPU of a VM, % of one pCPU.
const VM_PCT_MAX: u32 = 100 * Vm::VCPUS_MAX;
/// The largest cache a host may state, KiB.
const CACHE_KIB_MAX: u32 = 1 << 22;
/// The longest round of turns: each pCPU has one at least between two ticks.
const ROUND_US_MAX: u32 = 1_000;
/// The most that a step of the kernel may cost, ns.
const COST_NS_MAX: u32 = 1_000_000;
/// The longest time that a parameter of a workload may have: a minute.
const WORK_US_MAX: u32 = 60_000_000;
/// The longest time that a parameter of the policy may be, ms: far below the kernel's patience.
const PARAMETER_MS_MAX: f64 = 1_000.0;
/// The largest bound an expectation may set.
const BOUND_MAX: f64 = 1e15;

tables! {
    "top level" Top {
        name: String;
        description: Option<String>;
        duration_s: Option<f64> = number(0.01, 86_400.0);
        warmup_s: Option<f64> = number(0.0, 3_600.0);
        repeats: Option<u32> = whole(1, 1_000);
        seed: Option<u64>;
        clock: Option<Clock>;
        schedulers: Option<Vec<String>>;
        sample_ms: Option<u32> = whole(1, 60_000);
        ple: Option<bool>;
        host: IgnoredAny;
        pool: Elsewhere;
        partition: Elsewhere;
        auto_partitions: Option<bool>;
        vm: Elsewhere;
        container: Elsewhere;
        set: Elsewhere;
        placement: Option<Heuristic>;
        tuning: Option<Tuning>;
        policy: Elsewhere;
        case: Elsewhere;
        expect: Elsewhere;
        compare: Elsewhere;
    }

    "[policy]" PolicyTable {
        slice_ms: Option<f64> = number(SLICE_MIN_NS as f64 / 1e6, SLICE_MAX_NS as f64 / 1e6);
        wake_credit_ms: Option<f64> = number(0.0, PARAMETER_MS_MAX);
        claim_bound_ms: Option<f64> = number(1.0, PARAMETER_MS_MAX);
        preempt_gain_ms: Option<f64> = number(0.0, PARAMETER_MS_MAX);
        steal_gain_ms: Option<f64> = number(0.0, PARAMETER_MS_MAX);
        wait_bound_ms: Option<f64> = number(1.0, PARAMETER_MS_MAX);
        skew_max_ms: Option<f64> = number(0.1, PARAMETER_MS_MAX);
        hold_max_ms: Option<f64> = number(1.0, PARAMETER_MS_MAX);
        judge_window_ms: Option<f64> = number(1.0, PARAMETER_MS_MAX);
        shared_core_permille: Option<u32> = whole(1, 1_000);
    }

    "[[pool]]" PoolTable {
        name: String;
        parent: Option<String>;
        shares: Option<GivenShares>;
        reservation_pct: Option<u32> = whole(0, POOL_PCT_MAX);
        limit_pct: Option<u32> = whole(1, POOL_PCT_MAX);
        expandable: Option<bool>;
        cosched: Option<Cosched>;
    }

    "[[partition]]" PartitionTable {
        name: String;
        cpus: CpuList;
        policy: Option<PartitionPolicy>;
        slice_ms: Option<f64> = number(SLICE_MIN_NS as f64 / 1e6, SLICE_MAX_NS as f64 / 1e6);
    }

    "[[vm]]" VmTable {
        name: String;
        count: Option<u32> = whole(1, Vm::COUNT_MAX);
        vcpus: Option<u32> = whole(1, Vm::VCPUS_MAX);
        shares: Option<GivenShares>;
        reservation_pct: Option<u32> = whole(0, VM_PCT_MAX);
        limit_pct: Option<u32> = whole(1, VM_PCT_MAX);
        pool: Option<String>;
        cosched: Option<Cosched>;
        partition: Option<String>;
        vmm: Option<Vmm>;
        memory_mib: Option<u32> = whole(64, Host::MEMORY_MIB_MAX);
        memory_node: Option<OneOrMore> = whole(0, Host::PCPUS_MAX);
        disk: Option<bool>;
        network: Option<Ipv4Addr>;
        home: Option<u32> = whole(0, 1023);
        max_per_node: Option<u32> = whole(1, Vm::VCPUS_MAX);
        consolidate: Option<Consolidate>;
        pin: Option<Pin>;
        demand_pct: Option<u32> = whole(1, VM_PCT_MAX);
        start_s: Option<f64>;
        stop_s: Option<f64>;
        workload: Elsewhere;
    }

    "[[container]]" ContainerTable {
        name: String;
        weight: Option<u32> = whole(1, 10_000);
        limit_pct: Option<u32> = whole(1, POOL_PCT_MAX);
        threads: u32 = whole(1, Vm::VCPUS_MAX);
    }

    "workload program" ProgramTable {
        kind: IgnoredAny;
        steps: Option<Vec<Spanned<String>>>;
        roles: Elsewhere;
        locks: Option<BTreeMap<Spanned<String>, LockWord>>;
        pv_spin_us: Option<u32> = whole(0, WORK_US_MAX);
        speed: Elsewhere;
    }

    "workload program, roles" RoleTable {
        vcpus: Option<CpuList>;
        steps: Vec<Spanned<String>>;
    }

    "[[case]]" CaseTable {
        name: String;
        ple: Option<bool>;
        placement: Option<Heuristic>;
        tuning: Option<Tuning>;
        pool: Elsewhere;
        vm: Elsewhere;
    }

    // What cases may change: the types are those of what they change.
    "[case.pool.NAME]" CasePoolTable {
        shares: Elsewhere;
        reservation_pct: Elsewhere;
        limit_pct: Elsewhere;
        expandable: Elsewhere;
        cosched: Elsewhere;
    }

    "[case.vm.NAME]" CaseVmTable {
        absent: Option<bool>;
        vcpus: Elsewhere;
        shares: Elsewhere;
        reservation_pct: Elsewhere;
        limit_pct: Elsewhere;
        pool: Elsewhere;
        cosched: Elsewhere;
        partition: Elsewhere;
        pin: Elsewhere;
        memory_node: Elsewhere;
        home: Elsewhere;
        max_per_node: Elsewhere;
        consolidate: Elsewhere;
        demand_pct: Elsewhere;
        start_s: Elsewhere;
        stop_s: Elsewhere;
        workload: Elsewhere;
    }

    "[[compare]]" CompareTable {
        metric: Metric;
        scheduler: Option<String>;
        case: Option<String>;
        vm: Option<String>;
        relative_to_case: Option<String>;
        tolerance_pct: Option<f64> = number(0.0, 1000.0);
        tolerance_points: Option<f64> = number(0.0, 100.0);
        reason: Option<String>;
    }
}

impl Keys for Host {
    const TITLE: &'static str = "[host]";
    const RANGES: Ranges = &[
        ("sockets", whole(1, 1024)),
        ("dies", whole(1, 1024)),
        ("cores", whole(1, 1024)),
        ("threads", whole(1, 1024)),
        ("nodes", whole(1, 1024)),
        ("memory_mib", whole(256, Self::MEMORY_MIB_MAX)),
        ("node_distances", whole(1, 254)),
        ("clock_mhz", whole(100, 20_000)),
        ("l1d_kib", whole(1, CACHE_KIB_MAX)),
        ("l2_kib", whole(1, CACHE_KIB_MAX)),
        ("llc_kib", whole(1, CACHE_KIB_MAX)),
        ("memory_ns", whole(1, 10_000)),
        ("hop_ns", whole(0, 10_000)),
        ("node_mb_s", whole(100, 10_000_000)),
        ("node_link_mb_s", whole(100, 10_000_000)),
        ("own_wakeups_per_s", whole(1, 10_000)),
        ("own_work_us", whole(1, 1_000_000)),
        ("round_us", whole(1, ROUND_US_MAX)),
        ("link_mbit_s", whole(1, 1_000_000)),
        ("tick_ns", whole(0, COST_NS_MAX)),
        ("context_switch_ns", whole(0, COST_NS_MAX)),
        ("interrupt_ns", whole(0, COST_NS_MAX)),
        ("idle_exit_ns", whole(0, COST_NS_MAX)),
        ("halt_ns", whole(0, COST_NS_MAX)),
        ("resume_ns", whole(0, COST_NS_MAX)),
        ("daemon_look_ns", whole(0, COST_NS_MAX)),
    ];
}

impl Keys for Workload {
    const TITLE: &'static str = "workload";
    const RANGES: Ranges = &[
        ("after_s", number(0.0, 86_400.0)),
        ("duty_pct", whole(0, 100)),
        ("period_us", whole(10, WORK_US_MAX)),
        ("hold_us", whole(0, WORK_US_MAX)),
        ("think_us", whole(0, WORK_US_MAX)),
        ("work_us", whole(0, WORK_US_MAX)),
    ];
}

impl Keys for Pace {
    const TITLE: &'static str = "workload, speed";
    const RANGES: Ranges = &[
        ("smt_gain_pct", whole(100, 200)),
        ("misses_per_ms", whole(1, 1_000_000)),
        ("working_set_kib", whole(1, 1 << 30)),
        ("lines_per_miss", whole(1, 1_000)),
    ];
}

impl Keys for Expect {
    const TITLE: &'static str = "[[expect]]";
    const RANGES: Ranges = &[
        ("min", number(-BOUND_MAX, BOUND_MAX)),
        ("max", number(-BOUND_MAX, BOUND_MAX)),
        ("published", number(-BOUND_MAX, BOUND_MAX)),
        ("times", number(0.0, BOUND_MAX)),
    ];
}

/// A number, or a list of some.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum OneOrMore {
    One(u32),
    More(Vec<u32>),
}

impl VmTable {
    /// The nodes that its memory lies on.
    pub(super) fn memory_nodes(&self) -> &[u32] {
        match &self.memory_node {
            None => &[],
            Some(OneOrMore::One(node)) => std::slice::from_ref(node),
            Some(OneOrMore::More(nodes)) => nodes,
        }
    }
}

/// How a spinlock of a program is handed over; with `Pv`, waiters halt after a while.
#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LockWord {
    Ticket,
    TestAndSet,
    TicketPv,
    TestAndSetPv,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expect::{Gain, OrTimes};
    use crate::host::HostCosts;
    use crate::workload::CpuThen;
    use drover_core::sets::SetTable;
    use serde::de::DeserializeOwned;

    const DOCS: &str = include_str!("../../../../docs/scenarios.md");

    /// The keys of a table, as serde lists them to who gives another.
    fn keys<T: DeserializeOwned>(kind: &str) -> Vec<String> {
        let table = toml::de::Deserializer::parse(kind).unwrap();
        let error = T::deserialize(table).err().unwrap().message().to_owned();
        assert!(error.starts_with("unknown field `zzz`"), "{error}");
        error.split('`').skip(3).step_by(2).map(str::to_owned).collect()
    }

    /// What stands in backticks in the first column of the table under the heading that ends in `title`.
    fn documented(title: &str) -> Vec<&'static str> {
        let heading = format!("`{title}`\n");
        let (_, body) = DOCS.split_once(&heading).unwrap_or_else(|| panic!("no heading {title}"));
        let rows = body.lines().skip_while(|line| !line.starts_with("| `"));
        let rows = rows.take_while(|line| line.starts_with("| `"));
        rows.map(|row| row["| `".len()..].split('`').next().unwrap()).collect()
    }

    fn check<T: DeserializeOwned>(title: &str) {
        assert_eq!(keys::<T>("zzz = 1"), documented(title), "{title}");
    }

    #[test]
    fn every_key_is_documented_in_its_table_and_no_other() {
        check::<Top>(Top::TITLE);
        check::<Host>(Host::TITLE);
        check::<HostCosts>("[host.costs]");
        check::<PolicyTable>(PolicyTable::TITLE);
        check::<PoolTable>(PoolTable::TITLE);
        check::<PartitionTable>(PartitionTable::TITLE);
        check::<VmTable>(VmTable::TITLE);
        check::<ContainerTable>(ContainerTable::TITLE);
        check::<SetTable>(SetTable::TITLE);
        check::<CpuThen>("workload cpu, then");
        check::<ProgramTable>(ProgramTable::TITLE);
        check::<RoleTable>(RoleTable::TITLE);
        check::<Pace>(Pace::TITLE);
        check::<CaseTable>(CaseTable::TITLE);
        check::<CasePoolTable>(CasePoolTable::TITLE);
        check::<CaseVmTable>(CaseVmTable::TITLE);
        check::<Expect>(Expect::TITLE);
        check::<Gain>("[[expect]], relative_to_gain");
        check::<OrTimes>("[[expect]], or");
        check::<CompareTable>(CompareTable::TITLE);
        for (kind, speed) in [
            ("cpu", Some("speed")),
            ("lock", Some("speed")),
            ("barrier", Some("speed")),
            ("sleep", Some("speed")),
            ("yield", None),
            ("io", None),
            ("mix", None),
            ("command", None),
        ] {
            let own = keys::<Workload>(&format!("kind = \"{kind}\"\nzzz = 1"));
            let own = own.iter().map(String::as_str);
            let all: Vec<_> = ["kind"].into_iter().chain(own).chain(speed).collect();
            assert_eq!(all, documented(&format!("workload {kind}")));
        }
    }
}
