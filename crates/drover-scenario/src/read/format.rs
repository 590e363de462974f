// SPDX-License-Identifier: GPL-2.0-only
//! The format of scenario files: every table, its keys, their types and the ranges of their numbers.
//!
//! A new key is a line here, with a comment, from which docs/scenarios.md is made, and its use where the
//! table is read. Tables that are as the rest of Drover has them ([`Host`], [`Workload`], [`Pace`],
//! [`Expect`]) are read into those types as they are.

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
        /// Its name, 1 to 63 of `A-Z a-z 0-9 . _ -`, as of the file; needed.
        name: String;
        /// What it shows, in one line.
        description: Option<String>;
        /// Measured time of each run, 0.01 to 86400; default 4.
        duration_s: Option<f64> = number(0.01, 86_400.0);
        /// Time before that, 0 to 3600; default 0.5.
        warmup_s: Option<f64> = number(0.0, 3_600.0);
        /// Runs of each case under each scheduler, 1 to 1000; default 1.
        repeats: Option<u32> = whole(1, 1_000);
        /// Of what is drawn at random, 0 to 2^63 - 1; default 1.
        seed: Option<u64>;
        /// Of the lab: `exact` (default; identical from run to run, for CPU time) or `real` (for
        /// throughput).
        clock: Option<Clock>;
        /// Default `["eevdf", "drover"]`; name or path of any sched_ext scheduler, which is
        /// started with the arguments in the file `PROGRAM.args` beside it, one a line. In the simulator
        /// also `cfs36` (Linux 3.6; `cfs36-cheaper-yield`, `cfs36-throttled-yield`,
        /// `cfs36-autonuma`, `cfs36-autonuma-slowly`, `cfs36-schednuma`), `credit` (Xen's), `esx35`
        /// (`esx35-fine-locks`), `esx4`, `priority`.
        schedulers: Option<Vec<String>>;
        /// Also record CPU time in intervals of this length, 1 to 60000. Takes some time from a VM:
        /// in the lab 1.2 % of a pCPU at 50 ms.
        sample_ms: Option<u32> = whole(1, 60_000);
        /// `true`: pause-loop exits; simulator only.
        ple: Option<bool>;
        /// The host: a table, or the name of a file with one; needed.
        host: IgnoredAny;
        /// Pools of VMs.
        pool: Elsewhere;
        /// Partitions of the host's pCPUs.
        partition: Elsewhere;
        /// `true`: as after `drover partition auto --on`, for VMs without partition, pin, pool,
        /// reservation and `cosched`.
        auto_partitions: Option<bool>;
        /// The VMs; needed.
        vm: Elsewhere;
        /// Containers beside the VMs.
        container: Elsewhere;
        /// Sets of VMs that belong together or apart.
        set: Elsewhere;
        /// How homes are chosen in the simulator: `auto` (default), or by free memory `greedy`
        /// (first node with enough), `packed` (least that is enough), `spread` (most).
        placement: Option<Heuristic>;
        /// Of all VMs: `default` (nothing), `pin-node`, `mem` (memory to a node), `pin-core` (as
        /// many threads as vCPUs), `pin-core+mem`, `pin-1to1+mem` (each vCPU to a thread), in turn
        /// over nodes and cores; a VM's own `pin` and `memory_node` come first.
        tuning: Option<Tuning>;
        /// Parameters of the policy; simulator only.
        policy: Elsewhere;
        /// Variants of the VMs; default one, called `all`.
        case: Elsewhere;
        /// What results must show.
        expect: Elsewhere;
        /// What simulator and lab are compared by.
        compare: Elsewhere;
    }

    "[policy]" PolicyTable {
        /// How long a thread runs before it is asked again, 0.1 to 1000, below `wait_bound_ms`;
        /// default 7.
        slice_ms: Option<f64> = number(SLICE_MIN_NS as f64 / 1e6, SLICE_MAX_NS as f64 / 1e6);
        /// CPU time saved up by sleeping; this and the following but the last up to 1000; default
        /// 10.
        wake_credit_ms: Option<f64> = number(0.0, PARAMETER_MS_MAX);
        /// CPU time that an awake VM may be owed for each thread, 1 at least; default 32.
        claim_bound_ms: Option<f64> = number(1.0, PARAMETER_MS_MAX);
        /// By how much more a waking VM must be owed to preempt; default 0.25.
        preempt_gain_ms: Option<f64> = number(0.0, PARAMETER_MS_MAX);
        /// Virtual time behind that is worth a migration; default 8.
        steal_gain_ms: Option<f64> = number(0.0, PARAMETER_MS_MAX);
        /// Longest wait of a ready VM, 1 at least; default 1000.
        wait_bound_ms: Option<f64> = number(1.0, PARAMETER_MS_MAX);
        /// How far vCPUs drift apart before a co-stop, 0.1 at least; default 3.
        skew_max_ms: Option<f64> = number(0.1, PARAMETER_MS_MAX);
        /// Longest hold for a common start, 1 at least; default 50.
        hold_max_ms: Option<f64> = number(1.0, PARAMETER_MS_MAX);
        /// How often it is judged which VMs need their vCPUs together, 1 at least; default 50.
        judge_window_ms: Option<f64> = number(1.0, PARAMETER_MS_MAX);
        /// Charge for time beside a busy sibling thread, 1 to 1000; default 625.
        shared_core_permille: Option<u32> = whole(1, 1_000);
    }

    "[[pool]]" PoolTable {
        /// Unique name; needed.
        name: String;
        /// Its pool, 8 deep at most; default the host.
        parent: Option<String>;
        /// Shares, 1 to 1000000, `"low"` (2000), `"normal"` (4000, default), `"high"` (8000).
        shares: Option<GivenShares>;
        /// Promised CPU, % of a pCPU; default 0.
        reservation_pct: Option<u32> = whole(0, POOL_PCT_MAX);
        /// Most CPU, % of a pCPU; default none.
        limit_pct: Option<u32> = whole(1, POOL_PCT_MAX);
        /// `true` (default): what reservations in it exceed its own by is taken from its parent.
        expandable: Option<bool>;
        /// `cosched` of its VMs that say nothing; default its parent's.
        cosched: Option<Cosched>;
    }

    "[[partition]]" PartitionTable {
        /// Unique name, not `default` or `host`; needed.
        name: String;
        /// Its pCPUs, such as `"0-1,3"`, leaving `default` one; needed.
        cpus: CpuList;
        /// Its policy: [`share`](operating.md#partitions) (default), `credit`, `dedicated` or
        /// `anticipatory`.
        policy: Option<PartitionPolicy>;
        /// Its slice, 0.1 to 1000; default 7 (`share`), 30 (`credit`, `anticipatory`), 100
        /// (`dedicated`).
        slice_ms: Option<f64> = number(SLICE_MIN_NS as f64 / 1e6, SLICE_MAX_NS as f64 / 1e6);
    }

    "[[vm]]" VmTable {
        /// Unique name; needed.
        name: String;
        /// So many VMs, `name-1`, `name-2` ..., 1 to 1000; see also
        /// [`for`](#tables-that-differ-little-for-and-each).
        count: Option<u32> = whole(1, Vm::COUNT_MAX);
        /// Number of vCPUs, 1 to 256; needed, here or in each case.
        vcpus: Option<u32> = whole(1, Vm::VCPUS_MAX);
        /// Shares, 1 to 1000000, `"low"` (500 per vCPU), `"normal"` (1000, default), `"high"`
        /// (2000). Under Drover words count vCPUs that run; what a VM is owed, and other
        /// schedulers, count all.
        shares: Option<GivenShares>;
        /// Promised CPU, % of a pCPU; default 0.
        reservation_pct: Option<u32> = whole(0, VM_PCT_MAX);
        /// Most CPU, % of a pCPU; default none.
        limit_pct: Option<u32> = whole(1, VM_PCT_MAX);
        /// Its pool; default the host.
        pool: Option<String>;
        /// How its vCPUs are kept together: `off`, `strict`, `relaxed`, `skew`, `gang`, `auto`;
        /// default its pool's, else `auto`.
        cosched: Option<Cosched>;
        /// Its partition; outside `default` without pool, outside policy `share` without
        /// reservation and `cosched`.
        partition: Option<String>;
        /// `micro` (default, Drover's own small VM) or `qemu` (a Linux guest).
        vmm: Option<Vmm>;
        /// Memory of a `qemu` guest, 64 at least, default 256; of a micro VM, touched before it
        /// starts, 240 at most.
        memory_mib: Option<u32> = whole(64, Host::MEMORY_MIB_MAX);
        /// Node where a micro VM's memory lies at first (preferred, not bound); in the simulator
        /// also a list: interleaved. Default where it is touched.
        memory_node: Option<OneOrMore> = whole(0, Host::PCPUS_MAX);
        /// `true`: a `qemu` guest has `/dev/vda`, 64 MiB of zeros, virtio-blk on an I/O thread; its
        /// I/O delays are measured, its machine is `pc`.
        disk: Option<bool>;
        /// Address of a `qemu` guest, such as `"10.0.0.1"` (`/24`): virtio-net on a tap, all on one
        /// bridge, by vhost-net if there; as with `disk`.
        network: Option<Ipv4Addr>;
        /// Its home node by order, in the simulator; default chosen.
        home: Option<u32> = whole(0, 1023);
        /// Most vCPUs of it at home on one node; default a node's cores.
        max_per_node: Option<u32> = whole(1, Vm::VCPUS_MAX);
        /// Whether it lives in one last-level cache: `on`, `off`, `auto` (default).
        consolidate: Option<Consolidate>;
        /// CPUs of all its threads, `"0-1,3"`, or a list of each vCPU's, `["0", "1", "2-3"]`;
        /// default any.
        pin: Option<Pin>;
        /// Most CPU it can use, % of a pCPU; needed to say what is owed beside `sleep`, `io`,
        /// `mix`, `command`.
        demand_pct: Option<u32> = whole(1, VM_PCT_MAX);
        /// When its workload starts; default before the warm-up.
        start_s: Option<f64>;
        /// When it is killed.
        stop_s: Option<f64>;
        /// What its vCPUs do; needed, here or in each case.
        workload: Elsewhere;
    }

    "[[container]]" ContainerTable {
        /// Name, unique among VMs, too; needed.
        name: String;
        /// `cpu.weight`, 1 to 10000; default 100.
        weight: Option<u32> = whole(1, 10_000);
        /// `cpu.max`, % of a pCPU; default none.
        limit_pct: Option<u32> = whole(1, POOL_PCT_MAX);
        /// Number of busy threads, 1 to 256; needed.
        threads: u32 = whole(1, Vm::VCPUS_MAX);
    }

    "workload program" ProgramTable {
        /// `program`.
        kind: IgnoredAny;
        /// Steps of every vCPU, 1000 at most; this or `roles` is needed.
        steps: Option<Vec<Spanned<String>>>;
        /// Steps of some vCPUs.
        roles: Elsewhere;
        /// Spinlocks, name and kind: `ticket` (in order of asking, running or not) or
        /// `test-and-set` (any that spins just then); with `-pv` a waiter halts after a while and
        /// is kicked.
        locks: Option<BTreeMap<Spanned<String>, LockWord>>;
        /// How long a `-pv` waiter spins before it halts; default 500.
        pv_spin_us: Option<u32> = whole(0, WORK_US_MAX);
        /// What its speed hangs on.
        speed: Elsewhere;
    }

    "workload program, roles" RoleTable {
        /// Which vCPUs, such as `"0-1,3"`; default all that no other role names.
        vcpus: Option<CpuList>;
        /// What they do; needed.
        steps: Vec<Spanned<String>>;
    }

    "[[case]]" CaseTable {
        /// Unique name, 63 letters at most; needed.
        name: String;
        /// As at the top level.
        ple: Option<bool>;
        /// As at the top level.
        placement: Option<Heuristic>;
        /// As at the top level.
        tuning: Option<Tuning>;
        /// Changes by pool.
        pool: Elsewhere;
        /// Changes by VM.
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
        /// `true`: it takes no part.
        absent: Option<bool>;
        /// Shares that were not set follow.
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
        /// Replaced as a whole.
        workload: Elsewhere;
    }

    "[[compare]]" CompareTable {
        /// The figure; needed.
        metric: Metric;
        /// `drover` (default) or `eevdf`.
        scheduler: Option<String>;
        /// Case, or a list of cases; default each.
        case: Option<String>;
        /// As of `[[expect]]`.
        vm: Option<String>;
        /// As of `[[expect]]`.
        relative_to_case: Option<String>;
        /// How far the simulator's value may be off, % of the lab's; this or the next is needed.
        tolerance_pct: Option<f64> = number(0.0, 1000.0);
        /// The same in the value's own unit, for %.
        tolerance_points: Option<f64> = number(0.0, 100.0);
        /// Why it is known to be further off.
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
