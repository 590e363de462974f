// SPDX-License-Identifier: GPL-2.0-only
//! Every table of a scenario file and the keys it may have.
//!
//! The parser refuses what is not in this list, and a test holds docs/scenarios.md to it.

/// Title of each table, as error messages and docs/scenarios.md have it, and its keys.
pub const TABLES: &[(&str, &[&str])] = &[
    (
        TOP,
        &[
            "name",
            "description",
            "duration_s",
            "warmup_s",
            "repeats",
            "seed",
            "clock",
            "schedulers",
            "sample_ms",
            "ple",
            "host",
            "pool",
            "partition",
            "vm",
            "container",
            "case",
            "expect",
            "compare",
        ],
    ),
    (
        HOST,
        &[
            "sockets",
            "dies",
            "cores",
            "threads",
            "nodes",
            "memory_mib",
            "node_distances",
            "cpu",
            "clock_mhz",
            "l1d_kib",
            "l2_kib",
            "llc_kib",
            "memory_ns",
            "hop_ns",
            "node_mb_s",
            "skew_tick",
            "own_wakeups_per_s",
            "own_work_us",
            "round_us",
            "costs",
        ],
    ),
    (
        HOST_COSTS,
        &[
            "tick_ns",
            "context_switch_ns",
            "interrupt_ns",
            "idle_exit_ns",
            "halt_ns",
            "resume_ns",
            "daemon_look_ns",
        ],
    ),
    (POOL, &["name", "parent", "shares", "reservation_pct", "limit_pct", "expandable", "cosched"]),
    (PARTITION, &["name", "cpus", "policy", "slice_ms"]),
    (
        VM,
        &[
            "name",
            "vcpus",
            "shares",
            "reservation_pct",
            "limit_pct",
            "pool",
            "cosched",
            "partition",
            "vmm",
            "memory_mib",
            "memory_node",
            "disk",
            "home",
            "pin",
            "demand_pct",
            "start_s",
            "stop_s",
            "workload",
        ],
    ),
    (CONTAINER, &["name", "weight", "limit_pct", "threads"]),
    (CPU, &["kind", "duty_pct", "period_us", "then", "speed"]),
    (CPU_THEN, &["after_s", "duty_pct"]),
    (LOCK, &["kind", "hold_us", "think_us", "speed"]),
    (BARRIER, &["kind", "work_us", "speed"]),
    (SLEEP, &["kind", "period_us", "work_us", "speed"]),
    (YIELD, &["kind", "work_us"]),
    (MIX, &["kind"]),
    (COMMAND, &["kind", "run", "ready"]),
    (PROGRAM, &["kind", "steps", "roles", "locks", "pv_spin_us", "speed"]),
    (PROGRAM_ROLE, &["vcpus", "steps"]),
    (SPEED, &["smt_gain_pct", "misses_per_ms", "working_set_kib", "lines_per_miss"]),
    (CASE, &["name", "ple", "pool", "vm"]),
    (CASE_POOL, &["shares", "reservation_pct", "limit_pct", "expandable", "cosched"]),
    (
        CASE_VM,
        &[
            "absent",
            "vcpus",
            "shares",
            "reservation_pct",
            "limit_pct",
            "pool",
            "cosched",
            "partition",
            "pin",
            "memory_node",
            "demand_pct",
            "start_s",
            "stop_s",
            "workload",
        ],
    ),
    (
        EXPECT,
        &[
            "title",
            "metric",
            "scheduler",
            "case",
            "vm",
            "min",
            "max",
            "published",
            "relative_to",
            "relative_to_case",
            "or",
            "from_s",
            "to_s",
        ],
    ),
    (EXPECT_OR, &["case", "times"]),
    (
        COMPARE,
        &[
            "metric",
            "scheduler",
            "case",
            "vm",
            "relative_to_case",
            "tolerance_pct",
            "tolerance_points",
            "reason",
        ],
    ),
];

/// The tables of a host's configuration, as [`TABLES`]; docs/operating.md shows them.
pub const CONFIG_TABLES: &[(&str, &[&str])] = &[
    (CONFIG, &["pool", "vm", "set", "numa"]),
    (CONFIG_NUMA, &["move_mib_per_s", "placement"]),
    (CONFIG_POOL, &["name", "parent", "shares", "reservation", "limit", "expandable", "cosched"]),
    (CONFIG_SET, &["name", "vms", "kind", "within", "hard"]),
    (
        CONFIG_VM,
        &[
            "name",
            "shares",
            "reservation",
            "limit",
            "pool",
            "cosched",
            "partition",
            "max_per_node",
            "consolidate",
        ],
    ),
];

pub(crate) const CONFIG: &str = "drover.toml";
pub(crate) const CONFIG_NUMA: &str = "drover.toml [numa]";
pub(crate) const CONFIG_POOL: &str = "drover.toml [[pool]]";
pub(crate) const CONFIG_SET: &str = "drover.toml [[set]]";
pub(crate) const CONFIG_VM: &str = "drover.toml [[vm]]";
pub(super) const TOP: &str = "top level";
pub(super) const HOST: &str = "[host]";
pub(super) const HOST_COSTS: &str = "[host.costs]";
pub(super) const POOL: &str = "[[pool]]";
pub(super) const PARTITION: &str = "[[partition]]";
pub(super) const VM: &str = "[[vm]]";
pub(super) const CONTAINER: &str = "[[container]]";
pub(super) const CPU: &str = "workload cpu";
pub(super) const CPU_THEN: &str = "workload cpu, then";
pub(super) const LOCK: &str = "workload lock";
pub(super) const BARRIER: &str = "workload barrier";
pub(super) const SLEEP: &str = "workload sleep";
pub(super) const YIELD: &str = "workload yield";
pub(super) const MIX: &str = "workload mix";
pub(super) const COMMAND: &str = "workload command";
pub(super) const PROGRAM: &str = "workload program";
pub(super) const PROGRAM_ROLE: &str = "workload program, roles";
pub(super) const SPEED: &str = "workload, speed";
pub(super) const CASE: &str = "[[case]]";
pub(super) const CASE_POOL: &str = "[case.pool.NAME]";
pub(super) const CASE_VM: &str = "[case.vm.NAME]";
pub(super) const EXPECT: &str = "[[expect]]";
pub(super) const EXPECT_OR: &str = "[[expect]], or";
pub(super) const COMPARE: &str = "[[compare]]";

/// The keys of the table with this title.
///
/// # Panics
/// When there is no such table.
pub(super) fn of(title: &str) -> &'static [&'static str] {
    let table = TABLES.iter().chain(CONFIG_TABLES).find(|(known, _)| *known == title);
    table.expect("every table the parser reads is listed").1
}
