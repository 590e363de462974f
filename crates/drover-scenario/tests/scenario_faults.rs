// SPDX-License-Identifier: GPL-2.0-only
//! Every fault of a scenario file gets one line: where, what, and how to fix it.

use drover_scenario::Scenario;
use proptest::prelude::*;

const GOOD: &str = r#"name = "x"
sample_ms = 100
host = { cores = 4 }

[[vm]]
name = "vm0"
vcpus = 4
workload = { kind = "cpu" }

[[case]]
name = "a"
[case.vm.vm0]
shares = 500

[[expect]]
metric = "cpu_s"
vm = "vm0"
max = 1.0
"#;

/// The complaint about the good scenario with `old` replaced by `new`.
fn complaint(old: &str, new: &str) -> String {
    assert!(GOOD.contains(old), "{old}");
    let text = GOOD.replacen(old, new, 1);
    match Scenario::parse(&text, "x.toml") {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(error) => error.to_string(),
    }
}

fn check(table: &[(&str, &str, &str)]) {
    for (old, new, expected) in table {
        assert_eq!(complaint(old, new), *expected, "{old} -> {new}");
    }
}

#[test]
fn the_good_one_is_good() {
    let scenario = Scenario::parse(GOOD, "x.toml").unwrap();
    assert_eq!(scenario.cases[0].vms[0].shares_of_all(), 500);
    assert_eq!((scenario.duration_s, scenario.warmup_s, scenario.seed), (4.0, 0.5, 1));
    assert_eq!(scenario.schedulers, ["eevdf", "drover"]);
}

#[test]
fn tables_that_cannot_stand_for_several() {
    check(&[
        (
            "vm = \"vm0\"",
            "vm = \"vm0\"\ncase = [\n    \"a\",\n    \"b\",\n]",
            "x.toml:20: unknown case \"b\" in [[expect]]; did you mean \"a\"?",
        ),
        (
            "vm = \"vm0\"",
            "vm = \"vm0\"\ncase = []",
            "x.toml:18: case = [] is invalid in [[expect]]; name one at least, or remove the key",
        ),
        (
            "vm = \"vm0\"",
            "vm = \"vm0\"\ncase = [\"a\", \"a\"]",
            "x.toml:18: \"a\" is listed twice in [[expect]]; remove one",
        ),
        (
            "vm = \"vm0\"",
            "vm = [\"vm0\", \"vm1\"]",
            "x.toml:17: no VM \"vm1\" takes part; did you mean \"vm0\"?",
        ),
        (
            "vm = \"vm0\"",
            "vm = [7]",
            "x.toml:17: vm = 7 is invalid in [[expect]]; give text in quotes, in one line",
        ),
        (
            "max = 1.0",
            "each = []",
            "x.toml:18: each = [] is invalid in [[expect]]; give rows of keys, such as each = [{ name = \
             \"a\" }, { name = \"b\" }]",
        ),
        (
            "max = 1.0",
            "max = 1.0\neach = [\n    { case = \"a\", max = 2.0 },\n]",
            "x.toml:20: [[expect]] has max for all and in a row; remove one of the two",
        ),
        (
            "max = 1.0",
            "each = [\n    { max = 1.0 },\n    { maxx = 2.0 },\n]",
            "x.toml:20: unknown key \"maxx\" in [[expect]]; did you mean \"max\"?",
        ),
        (
            "max = 1.0",
            "each = [\n    { max = 1.0 },\n    { case = \"a\" },\n]",
            "x.toml:20: an [[expect]] without bound; add min = or max =",
        ),
    ]);
}

#[test]
fn values_that_cannot_be_put_in() {
    check(&[
        (
            "name = \"a\"",
            "for = 3\nname = \"a\"",
            "x.toml:11: for = 3 is invalid in [[case]]; give lists, such as for.n = [1, 2]",
        ),
        (
            "name = \"a\"",
            "for.n = []\nname = \"{n}\"",
            "x.toml:11: for.n = [] is invalid in [[case]]; give texts or whole numbers in a list, or numbers \
             such as \"0-3,8\"",
        ),
        (
            "name = \"a\"",
            "for.n = \"3-1\"\nname = \"{n}\"",
            "x.toml:11: for.n = \"3-1\" is invalid in [[case]]; give texts or whole numbers in a list, or \
             numbers such as \"0-3,8\"",
        ),
        (
            "name = \"a\"",
            "for.n = [1, 2, 1]\nname = \"{n}\"",
            "x.toml:11: \"1\" is listed twice in [[case]]; remove one",
        ),
        (
            "name = \"a\"",
            "for.n = [1, 2]\nname = \"a\"",
            "x.toml:11: for gives n, and {n} stands nowhere in [[case]]; write {n} in a text, or remove it",
        ),
        (
            "name = \"a\"",
            "for = { n = \"1-40\", m = \"1-40\" }\nname = \"{n} {m}\"",
            "x.toml:11: [[case]] stands for 1600 tables; 1000 at most",
        ),
        (
            "[case.vm.vm0]\nshares = 500",
            "for.n = [0]\nvm.vm0.shares = 1\nvm.\"vm{n}\".pin = \"0\"",
            "x.toml:14: \"vm0\" is there twice, with 0 for {n}; remove one",
        ),
        (
            "[case.vm.vm0]",
            "[case.vm.\"vm0, vm[1-3]\"]",
            "x.toml:12: case \"a\" speaks of an unknown VM \"vm[1-3]\"; known are vm0",
        ),
        (
            "vcpus = 4",
            "vcpus = 4\nfor.n = [1, 2]\npin = \"{n}\"",
            "x.toml:6: two VMs are called \"vm0\"; give each its own name",
        ),
    ]);
}

const IO: &str = "\n[[partition]]\nname = \"io\"\ncpus = \"2-3\"\n";

#[test]
fn partitions_that_cannot_be() {
    let with = |more: &str| format!("{IO}{more}\n[[vm]]");
    check(&[
        (
            "\n[[vm]]",
            &with("[[partition]]\nname = \"rt\"\ncpus = \"3\"\n"),
            "x.toml:10: partition \"rt\" has pCPU 3, and so has \"io\"; give each pCPU to one partition",
        ),
        (
            "\n[[vm]]",
            &with("[[partition]]\nname = \"io\"\ncpus = \"1\"\n"),
            "x.toml:9: partition \"io\" is there twice; give each its own name",
        ),
        (
            "\n[[vm]]",
            &with("policy = \"credits\"\n"),
            "x.toml:8: unknown policy \"credits\" in [[partition]]; did you mean \"credit\"?",
        ),
        (
            "\n[[vm]]",
            &with("slice_ms = 0\n"),
            "x.toml:8: slice_ms = 0 is invalid in [[partition]]; give a number from 0.1 to 1000",
        ),
        (
            "\n[[vm]]",
            &with("").replace("2-3", "3-4"),
            "x.toml:7: partition \"io\" names pCPU 4, which is not online here; use some of 0-3",
        ),
        (
            "\n[[vm]]",
            &with("").replace("2-3", "0-3"),
            "x.toml:7: partition \"io\" would have the last pCPU of partition \"default\"; leave one at \
             least for the host's own tasks",
        ),
        (
            "\n[[vm]]",
            &with("").replace("2-3", ""),
            "x.toml:7: cpus = \"\" is invalid in [[partition]]; give text in quotes, in one line",
        ),
        (
            "\n[[vm]]",
            &with("").replace("2-3", "3-2"),
            "x.toml:7: \"3-2\" is not a list of CPUs such as \"0-3,8\"; give numbers and ranges with \
             commas between",
        ),
        (
            "\n[[vm]]",
            &with("").replace("\"io\"", "\"default\""),
            "x.toml:6: partition \"default\" has a name that is taken; \"default\" is the partition of all \
             pCPUs that no other has, \"host\" no pool; choose another",
        ),
    ]);
}

#[test]
fn vms_that_cannot_be_in_their_partition() {
    let in_io = |more: &str| format!("{IO}policy = \"credit\"\n[[vm]]\npartition = \"io\"\n{more}");
    check(&[
        (
            "\n[[vm]]",
            "\n[[vm]]\npartition = \"io\"",
            "x.toml:13: VM \"vm0\" is in partition \"io\", which is not there; add a [[partition]]",
        ),
        (
            "\n[[vm]]",
            &in_io("").replace("partition = \"io\"", "partition = \"oi\""),
            "x.toml:18: VM \"vm0\" is in partition \"oi\", which is not there; known are io, default",
        ),
        (
            "\n[[vm]]",
            &in_io("reservation_pct = 10"),
            "x.toml:18: VM \"vm0\" is in partition \"io\" (credit) and has a reservation_pct; that is for \
             partitions of policy share; remove one of the two",
        ),
        (
            "\n[[vm]]",
            &in_io("cosched = \"gang\""),
            "x.toml:18: VM \"vm0\" is in partition \"io\" (credit) and has a cosched; that is for \
             partitions of policy share; remove one of the two",
        ),
        (
            "\n[[vm]]",
            &format!(
                "{IO}\n[[vm]]\nname = \"b\"\nvcpus = 4\nreservation_pct = 250\nworkload = {{ kind = \"cpu\" }}\n\
                 \n[[vm]]\npartition = \"io\""
            ),
            "x.toml:21: case \"a\", VM \"b\": 250% cannot be reserved: partition \"default\" has 180% left of \
             200% (20% kept for the host's own tasks); reserve less, or lower another reservation",
        ),
    ]);
}

#[test]
fn pools_and_promises_that_cannot_be() {
    let pool = "\n[[pool]]\nname = \"p\"\nlimit_pct = 100\n\n[[vm]]";
    let with = |more: &str| format!("{pool}\nreservation_pct = {more}");
    check(&[
        (
            "\n[[vm]]",
            &format!("\n[[pool]]\nname = \"a\"\nparent = \"b\"{pool}"),
            "x.toml:5: pool \"a\" is in pool \"b\", which is not there; did you mean \"p\"?",
        ),
        (
            "\n[[vm]]",
            "\n[[pool]]\nname = \"a\"\nparent = \"a\"\n[[vm]]",
            "x.toml:5: pool \"a\" is inside itself (a in a); give one of them another parent",
        ),
        (
            "\n[[vm]]",
            &with("250\npool = \"p\""),
            "x.toml:16: case \"a\", VM \"vm0\": 250% cannot be reserved: pool \"p\" has 100% left of \
             100%; reserve less, or raise the pool's limit",
        ),
        (
            "\n[[vm]]",
            &with("50\npool = \"q\""),
            "x.toml:18: VM \"vm0\" is in pool \"q\", which is not there; did you mean \"p\"?",
        ),
        (
            "vcpus = 4",
            "vcpus = 4\nreservation_pct = 500",
            "x.toml:13: VM \"vm0\" has 4 vCPUs and 500 % reserved; it can use 400 % at most",
        ),
        (
            "vcpus = 4",
            "vcpus = 4\nreservation_pct = 50\nlimit_pct = 40",
            "x.toml:14: VM \"vm0\" is limited to 40 % and has 50 % reserved; \
             raise the limit or lower the reservation",
        ),
        (
            "shares = 500",
            "cosched = \"gnag\"",
            "x.toml:13: unknown cosched \"gnag\" in [case.vm.NAME]; did you mean \"gang\"?",
        ),
        (
            "\"cpu_s\"",
            "\"cpu_pcpus\"\nfrom_s = 9",
            "x.toml:17: from_s = 9 is invalid in [[expect]]; give a number from 0 to 4",
        ),
    ]);
    let uneven = GOOD.replace("= 100", "= 30").replace("\"cpu_s\"", "\"limit_used_pct\"");
    let text = Scenario::parse(&uneven, "x.toml").unwrap_err().to_string();
    assert!(text.contains("looks at 100 ms at a time; set sample_ms to a divisor"), "{text}");
    let unrecorded = GOOD.replace("sample_ms = 100", "").replace("\"cpu_s\"", "\"window_min_pct\"");
    let text = Scenario::parse(&unrecorded, "x.toml").unwrap_err().to_string();
    assert!(text.contains("nothing is recorded over time; add sample_ms"), "{text}");
}

#[test]
fn unknown_keys_and_words() {
    check(&[
        ("vcpus", "vcpu", "x.toml:7: unknown key \"vcpu\" in [[vm]]; did you mean \"vcpus\"?"),
        (
            "cores = 4",
            "colour = 4",
            "x.toml:3: unknown key \"colour\" in [host]; \
             known are sockets, dies, cores, threads, nodes, memory_mib, node_distances, cpu, \
             clock_mhz, l1d_kib, l2_kib, llc_kib, memory_ns, hop_ns, node_mb_s, node_link_mb_s, \
             skew_tick, own_wakeups_per_s, own_work_us, round_us, link_mbit_s, costs",
        ),
        (
            "shares = 500",
            "disk = true",
            "x.toml:13: unknown key \"disk\" in [case.vm.NAME]; \
             known are absent, vcpus, shares, reservation_pct, limit_pct, pool, cosched, \
             partition, pin, memory_node, home, max_per_node, consolidate, demand_pct, start_s, \
             stop_s, workload",
        ),
        (
            "kind = \"cpu\"",
            "kind = \"cpu\", hold_us = 5",
            "x.toml:8: unknown key \"hold_us\" in workload cpu; \
             known are kind, speed, duty_pct, period_us, then",
        ),
        ("\"cpu\"", "\"spu\"", "x.toml:8: unknown kind \"spu\" in workload; did you mean \"cpu\"?"),
        (
            "\"cpu_s\"",
            "\"cpus\"",
            "x.toml:16: unknown metric \"cpus\" in [[expect]]; did you mean \"cpu_s\"?",
        ),
    ]);
}

#[test]
fn values_out_of_range_or_of_the_wrong_type() {
    let shares = |given: &str| {
        format!(
            "x.toml:13: shares = {given} is invalid in [case.vm.NAME]; \
             give 1 to 1000000, or \"low\", \"normal\", \"high\""
        )
    };
    for given in ["-5", "0", "1.5", "\"many\"", "1000001", "99999999999999999999", "[1]"] {
        assert_eq!(complaint("shares = 500", &format!("shares = {given}")), shares(given));
    }
    check(&[
        (
            "vcpus = 4",
            "vcpus = 257",
            "x.toml:7: vcpus = 257 is invalid in [[vm]]; give a whole number from 1 to 256",
        ),
        (
            "sample_ms = 100",
            "duration_s = nan",
            "x.toml:2: duration_s = nan is invalid in top level; \
             give a number from 0.01 to 86400",
        ),
        (
            "workload = { kind = \"cpu\" }",
            "workload = \"cpu\"",
            "x.toml:8: workload = \"cpu\" is invalid in [[vm]]; \
             give a table, such as { kind = \"cpu\" }",
        ),
        (
            "shares = 500",
            "absent = 1",
            "x.toml:13: absent = 1 is invalid in [case.vm.NAME]; give true or false",
        ),
        (
            "sample_ms = 100",
            "schedulers = \"drover\"",
            "x.toml:2: schedulers = \"drover\" is invalid in top level; give a list of texts",
        ),
    ]);
}

#[test]
fn what_is_missing() {
    let without_workload = "x.toml:12: VM \"vm0\" has no workload; \
                            add one, such as workload = { kind = \"cpu\" }";
    check(&[
        ("workload = { kind = \"cpu\" }", "", without_workload),
        (
            "kind = \"cpu\"",
            "duty_pct = 5",
            "x.toml:8: workload has no kind; \
             add one, such as kind = \"cpu\", \"lock\", \"barrier\", \"sleep\", \"yield\", \"io\", \"mix\", \
             \"program\" or \"command\"",
        ),
        ("name = \"vm0\"", "", "x.toml:5: [[vm]] has no name; add one, such as name = \"vm0\""),
        ("vcpus = 4", "", "x.toml:12: VM \"vm0\" has no vcpus; add one, such as vcpus = 4"),
        (
            "host = { cores = 4 }",
            "",
            "x.toml:1: top level has no host; add one, such as host = { cores = 4 }",
        ),
        ("max = 1.0", "", "x.toml:15: an [[expect]] without bound; add min = or max ="),
        (
            "vm = \"vm0\"\nmax",
            "vm = \"*\"\ntitle = \"CPU\"\nmax",
            "x.toml:18: a title is for one figure, these are several; \
             name case and vm, or remove the title",
        ),
        (
            "vm = \"vm0\"",
            "",
            "x.toml:15: cpu_s is a figure of a VM, and none is named; \
             add vm = \"NAME\", or \"*\" for each",
        ),
    ]);
}

#[test]
fn hosts_that_cannot_be() {
    check(&[
        (
            "cores = 4",
            "sockets = 3, nodes = 2",
            "x.toml:3: 3 dies do not divide evenly among 2 NUMA nodes; \
             choose nodes so that sockets * dies is a multiple of it",
        ),
        (
            "cores = 4",
            "cores = 1024, threads = 8",
            "x.toml:3: the host has 8192 pCPUs; \
             sockets * dies * cores * threads may be 4096 at most",
        ),
        (
            "vcpus = 4",
            "vcpus = 4\npin = \"0-4\"",
            "x.toml:8: pin = \"0-4\" names CPU 4, the host has none; \
             use CPUs 0 to 3 or enlarge [host]",
        ),
        (
            "vcpus = 4",
            "vcpus = 4\npin = \"all\"",
            "x.toml:8: pin = \"all\" is invalid in [[vm]]; \
             give CPUs such as \"0-3,8\", or a list with those of each vCPU",
        ),
        (
            "vcpus = 4",
            "vcpus = 4\npin = [\"0\", \"1\", \"2\", \"4\"]",
            "x.toml:8: pin = \"4\" names CPU 4, the host has none; \
             use CPUs 0 to 3 or enlarge [host]",
        ),
        (
            "vcpus = 4",
            "vcpus = 4\npin = [\"0\", \"1-2\"]",
            "x.toml:13: VM \"vm0\" has 4 vCPUs and pin is for 2; \
             give a list of CPUs for each vCPU, or one text for all",
        ),
        (
            "vcpus = 4",
            "vcpus = 4\npin = \"1-2\"\nreservation_pct = 250",
            "x.toml:12: case \"a\", VM \"vm0\": 250% cannot be reserved: pCPUs 1-2 have 200% left of 200%; \
             reserve less, lower another reservation there, or let it run on more pCPUs",
        ),
    ]);
}

#[test]
fn memory_and_speed_that_cannot_be() {
    let fast = "{ cores = 4, llc_kib = 4096, memory_ns = 100, node_mb_s = 10000 }";
    let misses = |needs: &str| {
        let needs = format!("misses_per_ms = {needs}");
        format!("vcpus = 4\nworkload = {{ kind = \"cpu\", speed = {{ {needs} }} }}\n")
    };
    // What becomes of vm0 on a host that says how fast its memory is.
    let on_fast = |needs: &str| {
        let rest = "vcpus = 4\nworkload = { kind = \"cpu\" }\n";
        let text = GOOD.replacen("{ cores = 4 }", fast, 1).replacen(rest, &misses(needs), 1);
        Scenario::parse(&text, "x.toml").map_or_else(|error| error.to_string(), |_| String::new())
    };
    assert_eq!(on_fast("10000, working_set_kib = 1024, lines_per_miss = 31"), "");
    let more = "x.toml:8: a vCPU alone moves 10240 MB/s, a node has 10000; \
                lower misses_per_ms or lines_per_miss, or raise the host's node_mb_s";
    assert_eq!(on_fast("10000, working_set_kib = 1024, lines_per_miss = 32"), more);
    let half = "x.toml:8: misses_per_ms without working_set_kib; add working_set_kib";
    assert_eq!(on_fast("10000"), half);
    check(&[
        (
            "vcpus = 4\nworkload = { kind = \"cpu\" }\n",
            &misses("10000, working_set_kib = 1024"),
            "x.toml:8: misses_per_ms, on a host that does not say how fast its memory is; \
             add llc_kib, memory_ns, hop_ns and node_mb_s to [host], or remove it",
        ),
        (
            "kind = \"cpu\"",
            "kind = \"cpu\", speed = { lines_per_miss = 2 }",
            "x.toml:8: working_set_kib or lines_per_miss, and no misses_per_ms; \
             add misses_per_ms, or remove them",
        ),
        (
            "kind = \"cpu\"",
            "kind = \"cpu\", speed = { smt_gain_pct = 90 }",
            "x.toml:8: smt_gain_pct = 90 is invalid in workload, speed; \
             give a whole number from 100 to 200",
        ),
        (
            "cores = 4",
            "cores = 4, llc_kib = 4096, memory_ns = 100",
            "x.toml:3: the host has memory_ns and no node_mb_s; add node_mb_s, or remove memory_ns",
        ),
        (
            "cores = 4",
            "cores = 4, node_link_mb_s = 5000",
            "x.toml:3: the host has node_link_mb_s and no memory_ns; add memory_ns, or remove node_link_mb_s",
        ),
        (
            "vcpus = 4",
            "vcpus = 4\nmemory_node = 1",
            "x.toml:8: memory_node names node 1, the host has none; use nodes 0 to 0 or enlarge [host]",
        ),
        (
            "vcpus = 4",
            "vcpus = 4\nmemory_node = [0, 0]",
            "x.toml:8: memory_node names node 0 twice; memory lies on its nodes in equal parts",
        ),
        (
            "vcpus = 4",
            "vcpus = 4\nmemory_node = []",
            "x.toml:8: memory_node names no node; give one, such as 0",
        ),
        (
            "vcpus = 4",
            "vcpus = 4\nmemory_node = \"0\"",
            "x.toml:8: memory_node = \"0\" is invalid in [[vm]]; give a whole number from 0 to 4096",
        ),
    ]);
}

#[test]
fn vms_that_contradict_themselves() {
    check(&[
        (
            "kind = \"cpu\"",
            "kind = \"command\", run = \"true\"",
            "x.toml:12: VM \"vm0\" is a micro VM and cannot run a command; \
             add vmm = \"qemu\" to the VM",
        ),
        (
            "vcpus = 4",
            "vcpus = 4\nvmm = \"qemu\"",
            "x.toml:13: VM \"vm0\" is a QEMU guest and has no workload cpu; \
             give it { kind = \"command\", run = \"...\" } or remove vmm = \"qemu\"",
        ),
        (
            "vcpus = 4",
            "vcpus = 4\nmemory_mib = 241",
            "x.toml:13: VM \"vm0\" is a micro VM with 241 MiB; use 240 at most",
        ),
        (
            "vcpus = 4",
            "vcpus = 4\ndisk = true",
            "x.toml:13: VM \"vm0\" is a micro VM, which has no disk; \
             remove it, or add vmm = \"qemu\" and a command",
        ),
        (
            "vcpus = 4",
            "vcpus = 4\nnetwork = \"10.0.0.1\"",
            "x.toml:13: VM \"vm0\" is a micro VM, which has no network; \
             remove it, or add vmm = \"qemu\" and a command",
        ),
        (
            "vcpus = 4",
            "vcpus = 4\nhome = 1",
            "x.toml:8: home = 1 names a NUMA node, the host has 1; count them from 0, or enlarge [host]",
        ),
        (
            "shares = 500",
            "start_s = 2\nstop_s = 1",
            "x.toml:14: VM \"vm0\" stops at 1 s and starts at 2 s; set stop_s after start_s",
        ),
        (
            "\"vm0\"",
            "\"vm 0\"",
            "x.toml:6: \"vm 0\" is no name for a VM; use 1 to 63 of A-Z a-z 0-9 . _ -",
        ),
        (
            "shares = 500",
            "absent = true",
            "x.toml:10: every VM is absent from case \"a\"; leave one in",
        ),
    ]);
}

#[test]
fn things_that_speak_of_what_is_not_there() {
    check(&[
        (
            "[case.vm.vm0]",
            "[case.vm.vm1]",
            "x.toml:12: case \"a\" speaks of an unknown VM \"vm1\"; did you mean \"vm0\"?",
        ),
        (
            "vm = \"vm0\"",
            "vm = \"vm9\"",
            "x.toml:17: no VM \"vm9\" takes part; did you mean \"vm0\"?",
        ),
        (
            "max = 1.0",
            "max = 1.0\ncase = \"b\"",
            "x.toml:19: unknown case \"b\" in [[expect]]; did you mean \"a\"?",
        ),
        (
            "max = 1.0",
            "max = 1.0\nrelative_to = \"evdf\"",
            "x.toml:19: unknown relative_to \"evdf\" in [[expect]]; did you mean \"eevdf\"?",
        ),
        (
            "max = 1.0",
            "max = 1.0\nrelative_to_gain = { case = \"a\" }",
            "x.toml:19: relative_to_gain, but the figure itself is not relative; add relative_to_case = or relative_to =",
        ),
        (
            "max = 1.0",
            "max = 1.0\nrelative_to = \"eevdf\"\nrelative_to_gain = { case = \"b\" }",
            "x.toml:20: unknown case \"b\" in [[expect]], relative_to_gain; did you mean \"a\"?",
        ),
        (
            "sample_ms = 100",
            "schedulers = [\"drover\", \"/x/drover\"]",
            "x.toml:2: scheduler \"drover\" is listed twice; remove one; repeats = 2 runs all twice",
        ),
        (
            "metric = \"cpu_s\"",
            "metric = \"idle_pct\"",
            "x.toml:17: idle_pct is a figure of the host, not of a VM; remove vm",
        ),
    ]);
}

#[test]
fn windows_that_hold_no_sample() {
    check(&[
        (
            "max = 1.0",
            "max = 1.0\nfrom_s = 2.0\nto_s = 2.05",
            "x.toml:19: from 2 s to 2.05 s there is no whole sample; widen it or lower sample_ms",
        ),
        (
            "\"cpu_s\"",
            "\"progress\"\nto_s = 1",
            "x.toml:17: progress is not recorded over time; \
             use share_got_pct, cpu_s or cpu_pcpus, or remove from_s, to_s",
        ),
    ]);
    let text = GOOD.replace("sample_ms = 100", "") + "from_s = 1\n";
    let error = Scenario::parse(&text, "x.toml").unwrap_err();
    assert_eq!(
        error.to_string(),
        "x.toml:19: nothing is recorded over time; add sample_ms = 100 at the top level"
    );
}

#[test]
fn two_of_a_name() {
    let vm = "[[vm]]\nname = \"vm0\"\nvcpus = 1\nworkload = { kind = \"mix\" }\n";
    let error = Scenario::parse(&format!("{GOOD}{vm}"), "x.toml").unwrap_err();
    assert_eq!(error.to_string(), "x.toml:20: two VMs are called \"vm0\"; give each its own name");
    let error = Scenario::parse(&format!("{GOOD}[[case]]\nname = \"a\"\n"), "x.toml").unwrap_err();
    assert_eq!(error.to_string(), "x.toml:20: two cases are called \"a\"; give each its own name");
}

#[test]
fn whatever_is_no_toml_is_one_line_too() {
    for text in ["[", "name = ", "a = 1\na = 2", "= 3", "\u{0}", "x = \"", "[[vm]\nname = 1"] {
        let error = Scenario::parse(text, "x.toml").unwrap_err().to_string();
        assert!(error.starts_with("x.toml:"), "{error}");
        assert!(error.contains("not TOML"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn cases_lay_over_the_vm_and_shares_follow_the_vcpus() {
    let text = r#"name = "x"
host = { cores = 2 }
[[vm]]
name = "a"
vcpus = 2
workload = { kind = "cpu" }
[[vm]]
name = "b"
vcpus = 1
shares = 700
workload = { kind = "lock" }
[[case]]
name = "as it is"
[[case]]
name = "other"
vm.a = { vcpus = 3, workload = { kind = "sleep", period_us = 500 } }
vm.b.absent = true
"#;
    let scenario = Scenario::parse(text, "x.toml").unwrap();
    let brief = |case: usize| {
        let vms = scenario.cases[case].vms.iter();
        vms.map(|vm| (vm.name.as_str(), vm.vcpus, vm.shares_of_all(), vm.workload.kind())).collect()
    };
    let as_it_is: Vec<_> = brief(0);
    assert_eq!(as_it_is, [("a", 2, 2000, "cpu"), ("b", 1, 700, "lock")]);
    let other: Vec<_> = brief(1);
    assert_eq!(other, [("a", 3, 3000, "sleep")]);
}

proptest! {
    #[test]
    fn a_mangled_file_is_read_or_refused_in_one_line(
        from in 0usize..GOOD.len(),
        length in 0usize..40,
        put in prop::sample::select(vec![
            "", "=", "[", "]]", "{", "\"", "\n", "-1", "1e999", "9223372036854775808", "nan", "0",
            "vcpus = 0", "[[vm]]", "[vm]", "\u{7f}", "\u{e9}", "'''", "1979-05-27", "absent = true",
        ]),
    ) {
        let to = (from + length).min(GOOD.len());
        let text = format!("{}{put}{}", &GOOD[..from], &GOOD[to..]);
        if let Err(error) = Scenario::parse(&text, "x.toml") {
            prop_assert_eq!(error.to_string().lines().count(), 1, "{}", error);
            prop_assert!(error.line <= text.lines().count() + 1);
        }
    }
}

#[test]
fn a_host_of_its_own_file_is_read_and_faults_name_that_file() {
    let text = GOOD.replacen("{ cores = 4 }", "\"hosts/h.toml\"", 1);
    let parse = |host: &str| {
        let read = |name: &str| {
            assert_eq!(name, "hosts/h.toml");
            Ok(host.to_owned())
        };
        Scenario::parse_with(&text, "dir/x.toml", &read).map_err(|error| error.to_string())
    };
    let host = parse("cores = 2\nthreads = 2\nclock_mhz = 2400\n").unwrap().host;
    assert_eq!((host.pcpus(), host.clock_mhz), (4, Some(2400)));
    for (host, expected) in [
        (
            "cores = 2\nclock_mhz = 1",
            "dir/hosts/h.toml:2: clock_mhz = 1 is invalid in [host]; \
             give a whole number from 100 to 20000",
        ),
        ("cores = ", "dir/hosts/h.toml:1: not TOML"),
        (
            "sockets = 2\nnodes = 2\nnode_distances = [[10, 20]]",
            "dir/hosts/h.toml:3: node_distances is not 2 rows of 2; \
             give a row for each node, as numactl --hardware prints them",
        ),
        (
            "sockets = 2\nnodes = 2\nnode_distances = [[10, 10], [20, 10]]",
            "dir/hosts/h.toml:3: distance 10 from node 0 to node 1; \
             10 is the distance of a node to itself, others are more",
        ),
        (
            "node_distances = [[10, \"far\"]]",
            "dir/hosts/h.toml:1: node_distances = [[10, \"far\"]] is invalid in [host]; \
             give whole numbers, each from 1 to 254",
        ),
        (
            "own_work_us = 100",
            "dir/hosts/h.toml:1: own_wakeups_per_s and own_work_us belong together; \
             give both or neither",
        ),
        (
            "own_wakeups_per_s = 1000\nown_work_us = 1000",
            "dir/hosts/h.toml:2: own_wakeups_per_s times own_work_us is a second or more; \
             leave something to the VMs",
        ),
        (
            "[costs]\ntick_ns = 2000000",
            "dir/hosts/h.toml:2: tick_ns = 2000000 is invalid in [host]; \
             give a whole number from 0 to 1000000",
        ),
        (
            "costs = { tick_us = 2 }",
            "dir/hosts/h.toml:1: unknown key \"tick_us\" in [host]; \
             did you mean \"tick_ns\"?",
        ),
    ] {
        let error = parse(host).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
    let alone = Scenario::parse(&text, "dir/x.toml").unwrap_err().to_string();
    assert!(alone.starts_with("dir/x.toml:3: cannot read dir/hosts/h.toml: "), "{alone}");
}

/// The complaint about a program of these steps, in a scenario of one VM of 4 vCPUs.
fn program_complaint(steps: &str) -> String {
    let program = format!(
        "{{ kind = \"program\", locks = {{ a = \"ticket\", b = \"test-and-set-pv\" }}, {steps} }}"
    );
    complaint("{ kind = \"cpu\" }", &program)
}

#[test]
fn programs_that_could_never_go_on_are_refused() {
    for (steps, expected) in [
        (r#"steps = ["count"]"#, "a round takes no time and would go on forever"),
        (r#"steps = ["compute 0 us", "count"]"#, "a round takes no time"),
        (r#"steps = ["compute 1 us", "repeat 5", "count", "end"]"#, "a round takes no time"),
        (r#"steps = ["compute 1 ns", "count"]"#, "a round takes 1 ns on average"),
        (r#"steps = ["compute 1 us", "for 1 s", "kernel 0 ns to 9 ns", "end"]"#, "takes 4 ns"),
        (r#"steps = ["take a", "take a"]"#, "take a: whoever comes here holds it already"),
        (r#"steps = ["release a"]"#, "release a: whoever comes here does not hold it"),
        (r#"steps = ["take a", "compute 1 us"]"#, "a round ends otherwise than it began: lock a"),
        (r#"steps = ["take a", "sleep 1 ms", "release a"]"#, "halts while it holds the spinlock a"),
        (r#"steps = ["wait jobs"]"#, "queue jobs is waited for and nobody puts work into it"),
        (r#"steps = ["compute 1 us", "spawn 2 jobs"]"#, "queue jobs gets work and nobody waits"),
        (r#"steps = ["repeat 2", "compute 1 us"]"#, "an end is missing"),
        (r#"steps = ["compute 1 us", "end"]"#, "an end too many"),
        (r#"steps = ["compute 1 fortnight"]"#, "\"compute 1 fortnight\" is no step"),
        (r#"steps = ["timer 0 us"]"#, "\"timer 0 us\" is no step"),
        (r#"steps = ["repeat 0", "compute 1 us", "end"]"#, "\"repeat 0\" is no step"),
        (r#"steps = ["take c", "release c"]"#, "unknown lock \"c\"; did you mean"),
        (r#"steps = ["tale a"]"#, "unknown step \"tale a\"; did you mean \"take\"?"),
        (r#"steps = []"#, "a round takes no time"),
        (r#"pv_spin_us = 1"#, "the program has no steps"),
        (
            r#"roles = [{ vcpus = "0-1", steps = ["compute 1 us"] }]"#,
            "no role speaks of vCPU 2 of VM \"vm0\"",
        ),
        (
            r#"roles = [{ vcpus = "7", steps = ["compute 1 us"] }, { steps = ["compute 1 us"] }]"#,
            "VM \"vm0\" has no vCPU 7, a role of it has",
        ),
        (
            r#"roles = [{ steps = ["compute 1 us"] }, { steps = ["compute 1 us"] }]"#,
            "two roles are for the rest",
        ),
        (r#"steps = ["compute 1 us", "repeat 1000001", "end"]"#, "\"repeat 1000001\" is no step"),
    ] {
        let error = program_complaint(steps);
        assert!(error.starts_with("x.toml:") && error.contains(expected), "{steps}: {error}");
        assert!(error.contains("; ") && !error.contains('\n'), "{error}");
    }
}

#[test]
fn a_fault_in_a_step_is_told_with_the_line_of_the_step() {
    let steps = "steps = [\n\"compute 1 us\",\n\"meat all\",\n]";
    let error = program_complaint(steps);
    assert_eq!(error, "x.toml:10: unknown step \"meat all\"; did you mean \"meet\"?");
}

#[test]
fn a_workload_of_its_own_file_is_read() {
    let text = GOOD.replacen("{ kind = \"cpu\" }", "\"workloads/w.toml\"", 1);
    let parse = |workload: &str| {
        let read = |name: &str| {
            assert_eq!(name, "workloads/w.toml");
            Ok(workload.to_owned())
        };
        Scenario::parse_with(&text, "x.toml", &read).map_err(|error| error.to_string())
    };
    let good = "kind = \"program\"\nlocks.l = \"ticket\"\n\
                steps = [\"take l\", \"compute 1 us\", \"release l\", \"count\"]\n";
    assert_eq!(parse(good).unwrap().cases[0].vms[0].workload.kind(), "program");
    let error = parse(&good.replace("1 us", "1 uS")).unwrap_err();
    assert!(error.starts_with("workloads/w.toml:3: \"compute 1 uS\" is no step"), "{error}");
    let error = parse("steps = []").unwrap_err();
    assert!(error.starts_with("workloads/w.toml:1: workload has no kind"), "{error}");
}
