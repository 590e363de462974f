// SPDX-License-Identifier: GPL-2.0-only
//! `drover vm list`, `set`, `orders`, `forget`

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Subcommand;
use drover_core::asked::{Asked, HOST, Key, Limit};
use drover_core::percent;
use drover_core::printable::one_line;
use drover_host::control::{Answer, By, Request, ask, ask_either};
use drover_host::status::{Kind, OrderStatus, VmStatus};

use super::ask::{DEFAULT, Daemon, UNKNOWN_ANSWER, answer, given, percent_of, print_json, table};
use super::numa::ONE_NODE;

#[derive(Subcommand)]
pub enum Vm {
    /// Show all VMs and containers, and what they get.
    List {
        /// Show for each value where it came from.
        #[arg(long, conflicts_with = "json")]
        why: bool,
        /// Show where each is at home on NUMA nodes, and its memory.
        #[arg(long, conflicts_with_all = ["json", "why"])]
        numa: bool,
        /// As JSON, for programs.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Show what was ordered for VMs, whether they are here or not.
    Orders {
        /// As JSON, for programs.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Delete a VM's saved settings: what other sources say counts again.
    Forget {
        /// The VM, as `drover vm orders` names it.
        name: String,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Change what a VM is to have, at once and from now on, or as soon as it comes. "default" leaves a
    /// value to other sources.
    Set {
        /// The VM, as `drover vm list` names it.
        name: String,
        #[command(flatten)]
        values: Values,
        #[command(flatten)]
        daemon: Daemon,
    },
}

#[derive(clap::Args)]
#[group(required = true, multiple = true)]
pub struct Values {
    /// 1 to 1000000, or low, normal, high: 500, 1000, 2000 per vCPU.
    #[arg(long, value_parser = given(Key::Shares))]
    shares: Option<String>,
    /// CPU guaranteed to it: 150% is one pCPU and a half.
    #[arg(long, value_parser = given(Key::Reservation))]
    reservation: Option<String>,
    /// The most CPU it may have, or none.
    #[arg(long, value_parser = given(Key::Limit))]
    limit: Option<String>,
    /// The pool it is in, or host for none.
    #[arg(long, value_parser = given(Key::Pool))]
    pool: Option<String>,
    /// How its vCPUs are kept together: auto, off, strict, relaxed, skew or gang.
    #[arg(long, value_parser = given(Key::Cosched))]
    cosched: Option<String>,
    /// The partition it runs in.
    #[arg(long, value_parser = given(Key::Partition))]
    partition: Option<String>,
    /// The most vCPUs of it on a NUMA node, or none: as many as a node has cores.
    #[arg(long, value_parser = given(Key::MaxPerNode))]
    max_per_node: Option<String>,
    /// Whether it is to live in one last-level cache: off, on or auto.
    #[arg(long, value_parser = given(Key::Consolidate))]
    consolidate: Option<String>,
}

impl Values {
    fn order(self, name: String) -> Request {
        let Self { shares, reservation, limit, pool, cosched, .. } = self;
        let Self { partition, max_per_node, consolidate, .. } = self;
        let values =
            [shares, reservation, limit, pool, cosched, partition, max_per_node, consolidate];
        let (mut set, mut reset) = (Asked::default(), Vec::new());
        for (key, value) in Key::ALL.into_iter().zip(values) {
            match value.as_deref() {
                None => {}
                Some(DEFAULT) => reset.push(key),
                Some(text) => set.read(key, text).expect("it was looked at as it was given"),
            }
        }
        Request::SetVm { name, set, reset }
    }
}

pub fn run(vm: Vm) -> Result<ExitCode> {
    match vm {
        Vm::List { why, numa, json, daemon } => list((why, numa, json), &daemon.socket)?,
        Vm::Orders { json, daemon } => list_orders(json, &daemon.socket)?,
        Vm::Forget { name, daemon } => {
            ask(&daemon.socket, &Request::ForgetVm { name })?;
        }
        Vm::Set { name, values, daemon } => {
            ask(&daemon.socket, &values.order(name.clone()))?;
            let order = orders(&daemon.socket)?.into_iter().find(|it| it.name == name);
            if let Some(line) = order.and_then(|order| who_has_it(&order)) {
                println!("{line}");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn orders(socket: &Path) -> Result<Vec<OrderStatus>> {
    answer(socket, &Request::ListOrders, |answer| match answer {
        Answer::Orders { orders } => Some(orders),
        _ => None,
    })
}

/// Whom an order reached, where that is not one VM.
fn who_has_it(order: &OrderStatus) -> Option<String> {
    let OrderStatus { name, vms, .. } = order;
    match (order.here, vms) {
        (false, _) => Some(format!(
            "No VM {name} is here: that is kept until it comes, or `drover vm forget`."
        )),
        (true, 0 | 1) => None,
        (true, vms) => Some(format!(
            "{vms} VMs are named {name}: that is in force for all of them together. Give each a name of its own to \
             order for one."
        )),
    }
}

fn list_orders(json: bool, socket: &Path) -> Result<()> {
    let orders = orders(socket)?;
    if json {
        print_json(&serde_json::to_string_pretty(&orders)?);
    } else if orders.is_empty() {
        println!("Nothing is ordered for any VM.");
    } else {
        print!("{}", ordered(&orders));
    }
    Ok(())
}

/// One line for each VM, with the values that were ordered.
fn ordered(orders: &[OrderStatus]) -> String {
    let row = |order: &OrderStatus| {
        let value = |key: Key| Some(format!("{} {}", key.name(), order.ordered.text(key)?));
        let values: Vec<String> = Key::ALL.into_iter().filter_map(value).collect();
        let here = if order.here { "yes" } else { "no" };
        vec![order.name.clone(), here.to_owned(), values.join(", ")]
    };
    table(&["NAME<", "HERE<", "ORDERED<"], &orders.iter().map(row).collect::<Vec<_>>())
}

fn list((why, numa, json): (bool, bool, bool), socket: &Path) -> Result<()> {
    let (Answer::Vms { vms }, by) = ask_either(socket, &Request::ListVms)? else {
        bail!(UNKNOWN_ANSWER);
    };
    if by == By::Observer && !json {
        eprintln!("drover: as `drover observe` sees it");
    }
    if json {
        print_json(&serde_json::to_string_pretty(&vms)?);
    } else if vms.is_empty() {
        println!("No VM runs here.");
    } else if why {
        print!("{}", reasons(&vms));
    } else if numa {
        print!("{}", homes(&vms));
    } else {
        print!("{}", overview(&vms));
    }
    Ok(())
}

/// Where the word of people stands, where managers go by numbers.
const LABEL_COLUMN: usize = 1;
/// Where the partition stands, on hosts that have more than one in use.
const PARTITION_COLUMN: usize = 4;

fn overview(vms: &[VmStatus]) -> String {
    let divided = vms.iter().any(|vm| vm.partition != DEFAULT);
    let labelled = vms.iter().any(|vm| vm.label.is_some());
    let mut titles = vec![
        "NAME<",
        "KIND<",
        "PID",
        "VCPUS",
        "POOL<",
        "SHARES",
        "RESERVED",
        "LIMIT",
        "OWED",
        "GOT",
        "CPU TIME",
        "READY",
        "LONGEST READY",
        "GUARANTEED",
    ];
    if divided {
        titles.insert(PARTITION_COLUMN, "PARTITION<");
    }
    if labelled {
        titles.insert(LABEL_COLUMN, "CALLED<");
    }
    let row = |vm: &VmStatus| {
        let short = if vm.reservation_mcpu < vm.promised_mcpu { "!" } else { "" };
        let is_vm = vm.kind == Kind::Vm;
        let kind = if is_vm { "VM" } else { "container" };
        let number = |it: u32| if is_vm { it.to_string() } else { "-".to_owned() };
        let mut row = vec![
            vm.name.clone(),
            kind.to_owned(),
            number(vm.pid),
            number(vm.vcpus),
            vm.pool.clone().unwrap_or_else(|| HOST.to_owned()),
            vm.shares.to_string(),
            percent::text(vm.reservation_mcpu) + short,
            vm.limit_mcpu.map_or(Limit::Open, Limit::At).to_string(),
            percent_of(vm.owed_pcpus),
            percent_of(vm.got_pcpus),
            format!("{:.2} s", vm.vcpu_cpu_s + vm.helper_cpu_s),
            format!("{:.2} s", vm.ready_s),
            milliseconds(vm.counters.longest_ready_ms),
            milliseconds(vm.counters.guaranteed_delay_ms),
        ];
        if divided {
            row.insert(PARTITION_COLUMN, vm.partition.clone());
        }
        if labelled {
            row.insert(LABEL_COLUMN, vm.label.clone().unwrap_or_default());
        }
        row
    };
    let mut text = table(&titles, &vms.iter().map(row).collect::<Vec<_>>());
    if vms.iter().any(|vm| vm.reservation_mcpu < vm.promised_mcpu) {
        text += "! less than was promised: too few pCPUs are online\n";
    }
    text + &troubles(vms)
}

/// Where memory lies, as esxtop calls it: NHN is the home node, N%L the part that lies there.
fn homes(vms: &[VmStatus]) -> String {
    if vms.iter().all(|vm| vm.numa.is_none()) {
        return ONE_NODE.to_owned();
    }
    let percent = |part: Option<f64>| part.map_or("-".to_owned(), |part| format!("{part:.1}"));
    let row = |vm: &VmStatus| {
        let numa = vm.numa.clone().unwrap_or_default();
        let ran = !numa.home.is_empty() && numa.ran_s > 0.0;
        let homes: Vec<String> = numa.home.iter().map(u32::to_string).collect();
        vec![
            vm.name.clone(),
            if homes.is_empty() { "-".to_owned() } else { homes.join(",") },
            percent(numa.local_pct),
            percent(ran.then(|| 100.0 * numa.home_s / numa.ran_s)),
            numa.migrations.to_string(),
            format!("{:.0} MiB", numa.moved_mib),
            vm.home_why.clone().unwrap_or_default(),
        ]
    };
    table(
        &["NAME<", "NHN", "N%L", "%HOME", "NMIG", "MOVED", "WHY<"],
        &vms.iter().map(row).collect::<Vec<_>>(),
    )
}

fn milliseconds(ms: Option<f64>) -> String {
    ms.map_or("-".to_owned(), |ms| format!("{ms:.2} ms"))
}

/// For each value of each VM where it came from.
pub fn reasons(vms: &[VmStatus]) -> String {
    let of_vm = |vm: &VmStatus| -> Vec<Vec<String>> {
        let row = |why: &drover_core::resolve::Why| {
            let value = why.value.clone();
            vec![String::new(), why.key.name().to_owned(), value, why.origin.clone()]
        };
        let uuid = vm.uuid.as_ref().map(|uuid| format!(", UUID {uuid}")).unwrap_or_default();
        let by = vm.named_by.text().to_owned() + &uuid;
        let name = vec![vm.name.clone(), "name".to_owned(), vm.name.clone(), by];
        let delay = milliseconds(vm.counters.guaranteed_delay_ms);
        let delay =
            [String::new(), "delay".to_owned(), delay, vm.guaranteed_delay_why.clone()].to_vec();
        [name].into_iter().chain(vm.why.iter().map(row)).chain([delay]).collect()
    };
    let rows: Vec<Vec<String>> = vms.iter().flat_map(of_vm).collect();
    table(&["NAME<", "VALUE<", "IS<", "FROM<"], &rows) + &troubles(vms)
}

/// What was asked and cannot be.
fn troubles(vms: &[VmStatus]) -> String {
    let of_vm = |vm: &VmStatus| -> Vec<String> {
        let line = |trouble: &String| one_line(&format!("{}: {trouble}", vm.name)) + "\n";
        vm.troubles.iter().map(line).collect()
    };
    vms.iter().flat_map(of_vm).collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use drover_core::counters::{Counters, Numa};
    use drover_core::resolve::Why;
    use drover_host::names::Source;

    pub fn vm(name: &str) -> VmStatus {
        let why = |key, value: &str, origin: &str| Why {
            key,
            value: value.to_owned(),
            origin: origin.to_owned(),
        };
        VmStatus {
            kind: Kind::Vm,
            name: name.into(),
            named_by: Source::Process,
            label: None,
            uuid: None,
            pid: 7,
            vcpus: 2,
            shares: 2000,
            shares_by_default: true,
            reservation_mcpu: 1500,
            promised_mcpu: 1500,
            limit_mcpu: None,
            pool: Some("prod".to_owned()),
            partition: DEFAULT.to_owned(),
            owed_pcpus: Some(1.5),
            got_pcpus: None,
            vcpu_cpu_s: 1.0,
            helper_cpu_s: 0.25,
            ready_s: 0.5,
            guaranteed_delay_why: "its reservation of 150%: 2 threads".to_owned(),
            counters: Counters {
                longest_ready_ms: Some(8.125),
                guaranteed_delay_ms: Some(66.0),
                ..Counters::default()
            },
            home_why: Some("its memory lies there".to_owned()),
            numa: Some(Numa {
                home: vec![1],
                migrations: 2,
                local_pct: Some(97.25),
                moved_mib: 64.0,
                home_s: 3.0,
                ran_s: 4.0,
            }),
            vcpu: Vec::new(),
            why: vec![
                why(Key::Shares, "normal", "default"),
                why(Key::Reservation, "150%", "drover vm set"),
            ],
            troubles: Vec::new(),
        }
    }

    #[test]
    fn what_a_vm_has_is_shown_in_the_words_it_is_set_in() {
        let text = overview(&[vm("web")]);
        let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(words[4..10], ["prod", "2000", "150%", "none", "150.0%", "-"]);
        assert_eq!(words[words.len() - 4..], ["8.12", "ms", "66.00", "ms"], "{text}");
        assert!(!text.contains('!'), "{text}");
        assert!(!text.contains("PARTITION"), "{text}");
        let apart = overview(&[VmStatus { partition: "io".to_owned(), ..vm("db") }, vm("web")]);
        let column: Vec<_> = apart.lines().map(|line| line.split_whitespace().nth(4)).collect();
        assert_eq!(column, [Some("PARTITION"), Some("io"), Some("default")], "{apart}");
        let short = VmStatus { reservation_mcpu: 1000, ..vm("web") };
        let text = overview(&[short]);
        assert!(text.contains("100%!") && text.contains("too few pCPUs are online"), "{text}");
    }

    #[test]
    fn what_people_call_vms_stands_beside_their_numbers() {
        let text = overview(&[VmStatus { label: Some("web".to_owned()), ..vm("100") }, vm("db")]);
        let words = |line: usize| text.lines().nth(line).unwrap().split_whitespace();
        assert_eq!(words(0).take(3).collect::<Vec<_>>(), ["NAME", "CALLED", "KIND"], "{text}");
        assert_eq!(words(1).take(3).collect::<Vec<_>>(), ["100", "web", "VM"], "{text}");
    }

    #[test]
    fn orders_are_listed_with_their_values() {
        let mut asked = Asked::default();
        asked.read(Key::Shares, "high").unwrap();
        asked.read(Key::Limit, "150%").unwrap();
        let order = OrderStatus { name: "web".to_owned(), here: false, vms: 0, ordered: asked };
        let text = ordered(std::slice::from_ref(&order));
        assert_eq!(text.lines().nth(1), Some("web   no    shares high, limit 150%"), "{text}");
        assert!(who_has_it(&order).unwrap().starts_with("No VM web is here"));
        let of = |vms| who_has_it(&OrderStatus { here: true, vms, ..order.clone() });
        assert_eq!(of(1), None);
        assert!(of(6).unwrap().starts_with("6 VMs are named web: that is in force for all"));
    }

    #[test]
    fn homes_are_shown_where_there_are_nodes() {
        let text = homes(&[vm("web"), VmStatus { numa: Some(Numa::default()), ..vm("db") }]);
        let words = |line: usize| text.lines().nth(line).unwrap().split_whitespace();
        let numbers = ["web", "1", "97.2", "75.0", "2", "64", "MiB"];
        assert_eq!(words(1).take(7).collect::<Vec<_>>(), numbers);
        assert_eq!(words(2).take(7).collect::<Vec<_>>(), ["db", "-", "-", "-", "0", "0", "MiB"]);
        assert!(text.lines().nth(1).unwrap().ends_with("  its memory lies there"), "{text}");
        assert!(
            homes(&[VmStatus { numa: None, ..vm("web") }])
                .contains("one NUMA node and one last-level cache only")
        );
    }

    #[test]
    fn why_has_a_line_for_each_value_and_troubles_below() {
        let mut troubled = VmStatus { uuid: Some("12-ab".to_owned()), ..vm("web") };
        troubled.troubles.push("pool \"x\" is not there".to_owned());
        let text = reasons(&[troubled]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1],
            "web   name         web       its process, which is root's, UUID 12-ab"
        );
        assert_eq!(lines[3], "      reservation  150%      drover vm set");
        assert_eq!(lines[4], "      delay        66.00 ms  its reservation of 150%: 2 threads");
        assert_eq!(lines[5], "web: pool \"x\" is not there");
    }
}
