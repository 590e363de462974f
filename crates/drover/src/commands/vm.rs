// SPDX-License-Identifier: GPL-2.0-only
//! `drover vm list`, `set`, `orders`, `forget`

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Subcommand;
use drover_core::asked::{Asked, HOST, Key, Limit};
use drover_core::cpu_list::CpuList;
use drover_core::io::DelayUs;
use drover_core::names::is_meant;
use drover_core::nearest::there_is_no;
use drover_core::percent;
use drover_core::printable::one_line;
use drover_host::control::{Answer, By, Request, ask, ask_either};
use drover_host::status::{Kind, OrderStatus, VcpuStatus, VmStatus};
use drover_host::vcpus::{ReadyTimes, add_threads};

use super::ask::{
    DEFAULT, Daemon, UNKNOWN_ANSWER, add_io, answer, idle_limit, percent_of, print_json, rehearse,
    table,
};
use super::given::given;
use super::numa::ONE_NODE;

/// How often a list that is watched is shown.
const WATCH: Duration = Duration::from_secs(2);
/// Over so long it is looked at for which part of the time vCPUs are ready.
const READY_OVER: Duration = Duration::from_secs(1);

#[derive(Subcommand)]
pub enum Vm {
    /// Show all VMs and containers, and what they get.
    List {
        /// Of these only: names, or the beginning of names with an asterisk, as in "web-*".
        #[arg(value_name = "NAME")]
        names: Vec<String>,
        /// The order: as they were found, by name, or who has most of a figure first.
        #[arg(long, value_enum, default_value = "found")]
        sort: Sort,
        /// Show it anew every 2 s, until Ctrl-C.
        #[arg(long, conflicts_with = "json")]
        watch: bool,
        /// Show below each VM its vCPUs: what each does, the pCPU it last ran on, where it may run, and for which part
        /// of a second it was ready and did not run.
        #[arg(long, short, conflicts_with_all = ["why", "numa", "profile", "io"])]
        verbose: bool,
        /// Show for each value where it came from.
        #[arg(long, conflicts_with = "json")]
        why: bool,
        /// Show where each is at home on NUMA nodes, and its memory.
        #[arg(long, conflicts_with_all = ["json", "why"])]
        numa: bool,
        /// Show what kind of work each does, and the evidence.
        #[arg(long, conflicts_with_all = ["json", "why", "numa"])]
        profile: bool,
        /// Show what the disks and the network of each move, and how late that is, as `drover observe` counts it.
        #[arg(long, conflicts_with_all = ["json", "why", "numa", "profile"])]
        io: bool,
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
        /// For as long as it runs, and no longer than the daemon: this is not kept. "default" leaves a value to what is.
        #[arg(long)]
        live: bool,
        /// Say what would change, and whether it would be taken; change nothing.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        daemon: Daemon,
    },
}

#[derive(clap::Args)]
#[group(required = true, multiple = true)]
pub struct Values {
    /// 1 to 1000000, or low, normal, high: 500, 1000, 2000 per vCPU.
    #[arg(long, value_parser = given(Key::Shares), hide_possible_values = true)]
    shares: Option<String>,
    /// CPU guaranteed to it: 150% is one pCPU and a half.
    #[arg(long, value_parser = given(Key::Reservation), hide_possible_values = true)]
    reservation: Option<String>,
    /// The most CPU it may have, or none.
    #[arg(long, value_parser = given(Key::Limit), hide_possible_values = true)]
    limit: Option<String>,
    /// The pool it is in, or host for none.
    #[arg(long, value_parser = given(Key::Pool), hide_possible_values = true)]
    pool: Option<String>,
    /// How its vCPUs are kept together: auto, off, strict, relaxed, skew or gang.
    #[arg(long, value_parser = given(Key::Cosched), hide_possible_values = true)]
    cosched: Option<String>,
    /// The partition it runs in.
    #[arg(long, value_parser = given(Key::Partition), hide_possible_values = true)]
    partition: Option<String>,
    /// The most vCPUs of it on a NUMA node, or none: as many as a node has cores.
    #[arg(long, value_parser = given(Key::MaxPerNode), hide_possible_values = true)]
    max_per_node: Option<String>,
    /// Whether it is to live in one last-level cache: off, on or auto.
    #[arg(long, value_parser = given(Key::Consolidate), hide_possible_values = true)]
    consolidate: Option<String>,
}

impl Values {
    fn order(self, name: String, live: bool) -> Request {
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
        match live {
            true => Request::SetVmLive { name, set, reset },
            false => Request::SetVm { name, set, reset },
        }
    }
}

pub fn run(vm: Vm) -> Result<ExitCode> {
    match vm {
        Vm::List { names, sort, watch, verbose, why, numa, profile, io, json, daemon } => {
            let shown = Shown { names, sort, verbose, why, numa, profile, io, json };
            list(&shown, &daemon.socket)?;
            if watch {
                watch_on(&shown, &daemon.socket)?;
            }
        }
        Vm::Orders { json, daemon } => list_orders(json, &daemon.socket)?,
        Vm::Forget { name, daemon } => {
            ask(&daemon.socket, &Request::ForgetVm { name })?;
        }
        Vm::Set { name, values, live, dry_run: true, daemon } => {
            rehearse(&daemon.socket, &values.order(name, live))?;
        }
        Vm::Set { name, values, live, daemon, .. } => {
            let order = values.order(name.clone(), live);
            ask(&daemon.socket, &order)?;
            notes(&name, &order, &daemon.socket)?.iter().for_each(|note| println!("{note}"));
            let order = orders(&daemon.socket)?.into_iter().find(|it| it.name == name);
            if let Some(line) = order.and_then(|order| who_has_it(&order)) {
                println!("{line}");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Values that were ordered and are of no use.
fn notes(name: &str, order: &Request, socket: &Path) -> Result<Vec<String>> {
    let Some((_, set, _)) = order.of_vm() else { return Ok(Vec::new()) };
    let limit_mcpu = set.limit.and_then(Limit::mcpu);
    let mut notes: Vec<String> =
        idle_limit(&format!("VM {name}"), limit_mcpu, socket)?.into_iter().collect();
    if let Some(mcpu) = set.reservation_mcpu {
        notes.extend(vms(socket)?.iter().filter_map(|vm| idle_reservation(vm, name, mcpu)));
    }
    Ok(notes)
}

/// That a VM cannot use all that is reserved for it, where it cannot.
fn idle_reservation(vm: &VmStatus, name: &str, mcpu: u32) -> Option<String> {
    let usable_mcpu = 1000 * vm.vcpus;
    let is_more = vm.name == name && vm.vcpus > 0 && mcpu > usable_mcpu;
    is_more.then(|| {
        let [mcpu, usable] = [mcpu, usable_mcpu].map(percent::text);
        format!(
            "Note: {mcpu} are reserved for VM {name}, and its {} vCPUs can use {usable}: the rest is kept from others only.",
            vm.vcpus
        )
    })
}

fn vms(socket: &Path) -> Result<Vec<VmStatus>> {
    answer(socket, &Request::ListVms { brief: false }, |answer| match answer {
        Answer::Vms { vms } => Some(vms),
        _ => None,
    })
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
            "{vms} VMs would be named {name}: a limit is in force for all of them together, all else for the first. \
             Give each a name of its own to order for it."
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
    let has_live = orders.iter().any(|order| !order.live.is_empty());
    let values = |asked: &Asked| {
        let value = |key: Key| Some(format!("{} {}", key.name(), asked.text(key)?));
        Key::ALL.into_iter().filter_map(value).collect::<Vec<_>>().join(", ")
    };
    let row = |order: &OrderStatus| {
        let here = if order.here { "yes" } else { "no" };
        let mut row = vec![order.name.clone(), here.to_owned(), values(&order.ordered)];
        row.extend(has_live.then(|| values(&order.live)));
        row
    };
    let mut titles = vec!["NAME<", "HERE<", "ORDERED<"];
    titles.extend(has_live.then_some("WHILE IT RUNS<"));
    table(&titles, &orders.iter().map(row).collect::<Vec<_>>())
}

/// How VMs are listed.
struct Shown {
    names: Vec<String>,
    sort: Sort,
    verbose: bool,
    why: bool,
    numa: bool,
    profile: bool,
    io: bool,
    json: bool,
}

impl Shown {
    /// Is what the daemon tells in brief enough?
    fn is_brief(&self) -> bool {
        !(self.verbose || self.why || self.profile || self.json)
    }
}

/// What VMs are sorted by.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Sort {
    Found,
    Name,
    Got,
    Ready,
    Cpu,
}

impl Sort {
    fn sort(self, vms: &mut [VmStatus]) {
        let most_first = |figure: fn(&VmStatus) -> f64| {
            move |a: &VmStatus, b: &VmStatus| figure(b).total_cmp(&figure(a))
        };
        match self {
            Self::Found => {}
            Self::Name => vms.sort_by(|a, b| a.name.cmp(&b.name)),
            Self::Got => vms.sort_by(most_first(|vm| vm.got_pcpus.unwrap_or(0.0))),
            Self::Ready => vms.sort_by(most_first(|vm| vm.ready_pct.unwrap_or(0.0))),
            Self::Cpu => vms.sort_by(most_first(|vm| vm.vcpu_cpu_s + vm.helper_cpu_s)),
        }
    }
}

/// Those of the VMs that are meant, in their order.
fn chosen(mut vms: Vec<VmStatus>, names: &[String], sort: Sort) -> Result<Vec<VmStatus>> {
    if let Some(name) = names.iter().find(|name| !vms.iter().any(|vm| is_meant(name, &vm.name))) {
        bail!(there_is_no("VM", name, vms.iter().map(|vm| vm.name.as_str())));
    }
    vms.retain(|vm| names.is_empty() || names.iter().any(|name| is_meant(name, &vm.name)));
    sort.sort(&mut vms);
    Ok(vms)
}

/// Shows them anew until it is ended, or the daemon is.
fn watch_on(shown: &Shown, socket: &Path) -> Result<()> {
    loop {
        std::thread::sleep(WATCH);
        // To the upper left, and nothing below.
        print!("\x1b[H\x1b[2J");
        list(shown, socket)?;
    }
}

/// The VMs that are meant, as whoever answers knows them.
fn ask_chosen(shown: &Shown, socket: &Path) -> Result<(Vec<VmStatus>, By)> {
    let (Answer::Vms { vms }, by) =
        ask_either(socket, &Request::ListVms { brief: shown.is_brief() })?
    else {
        bail!(UNKNOWN_ANSWER);
    };
    Ok((chosen(vms, &shown.names, shown.sort)?, by))
}

fn list(shown: &Shown, socket: &Path) -> Result<()> {
    let proc = Path::new("/proc");
    let (mut vms, by) = ask_chosen(shown, socket)?;
    if by == By::Observer && !shown.json {
        eprintln!("drover: as `drover observe` sees it");
    }
    if shown.verbose {
        let (before, begun) = (ReadyTimes::read(proc, &vms), Instant::now());
        std::thread::sleep(READY_OVER);
        (vms, _) = ask_chosen(shown, socket)?;
        add_threads(proc, &mut vms);
        before.add_parts(&mut vms, begun.elapsed());
    } else if shown.json {
        add_threads(proc, &mut vms);
    }
    if shown.io {
        add_io(&mut vms)?;
    } else if shown.json {
        // Without `drover observe` there is all the rest.
        let _ = add_io(&mut vms);
    }
    if shown.json {
        print_json(&serde_json::to_string_pretty(&vms)?);
    } else if vms.is_empty() {
        println!("No VM runs here.");
    } else if shown.why {
        print!("{}", reasons(&vms));
    } else if shown.numa {
        print!("{}", homes(&vms));
    } else if shown.profile {
        print!("{}", profiles(&vms));
    } else if shown.io {
        print!("{}", io(&vms));
    } else if shown.verbose {
        print!("{}", with_vcpus(&overview(&vms, by), &vms));
    } else {
        print!("{}", overview(&vms, by));
    }
    Ok(())
}

/// What kind of work each VM does, and how that is known.
fn profiles(vms: &[VmStatus]) -> String {
    let row = |vm: &VmStatus| {
        let Some(profile) = &vm.profile else {
            let why = match vm.kind {
                Kind::Vm => "too little is known yet",
                Kind::Container => "containers are not profiled",
            };
            return vec![
                vm.name.clone(),
                "-".to_owned(),
                "-".to_owned(),
                "-".to_owned(),
                why.to_owned(),
            ];
        };
        vec![
            vm.name.clone(),
            profile.class.to_string(),
            format!("{:.0} s", profile.for_s),
            format!("{:.1}%", 100.0 * profile.evidence.wanted_pcpus),
            profile.evidence.text(),
        ]
    };
    table(
        &["NAME<", "CLASS<", "FOR", "WANTS", "EVIDENCE<"],
        &vms.iter().map(row).collect::<Vec<_>>(),
    )
}

/// What the I/O of each VM moves, how often and how late it asks for a pCPU, and what that is for each MB.
fn io(vms: &[VmStatus]) -> String {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let row = |vm: &VmStatus| {
        let status = vm.io.unwrap_or_default();
        let mb_s = status.lately.bytes().mb_s(status.over_s);
        let mut row = vec![vm.name.clone()];
        row.extend(mb_s.map(|mb_s| or_dash(mb_s.map(|it| format!("{it:.1} MB/s")))));
        let (delays, lost) = (status.lately.delay_us, status.lately.ms_per_mb);
        for (delay, lost_ms) in [
            (delays.to_guest, lost.map(|it| it.to_guest)),
            (delays.to_device, lost.map(|it| it.to_device)),
        ] {
            #[allow(clippy::cast_precision_loss, reason = "there are no 2^52")]
            let per_s = |delay: DelayUs| delay.count as f64 / status.over_s;
            row.push(or_dash(delay.map(|it| format!("{:.0}/s", per_s(it)))));
            row.push(or_dash(delay.map(|it| format!("{:.1} us", it.mean))));
            row.push(or_dash(delay.map(|it| format!("{:.1} us", it.p99))));
            row.push(or_dash(lost_ms.map(|ms| format!("{ms:.2} ms/MB"))));
        }
        row
    };
    table(
        &[
            "NAME<",
            "DISK",
            "NETWORK",
            "TO GUEST",
            "MEAN",
            "P99",
            "LOST",
            "TO DEVICE",
            "MEAN",
            "P99",
            "LOST",
        ],
        &vms.iter().map(row).collect::<Vec<_>>(),
    )
}

/// Where the word of people stands, where managers go by numbers.
const LABEL_COLUMN: usize = 1;
/// Where the partition stands, on hosts that have more than one in use.
const PARTITION_COLUMN: usize = 4;

fn overview(vms: &[VmStatus], by: By) -> String {
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
        "%RDY",
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
            vm.ready_pct.map_or("-".to_owned(), |pct| format!("{pct:.1}")),
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
    if vms.iter().any(|vm| vm.owed_pcpus.is_none()) {
        text += match by {
            By::Observer => "OWED -: Drover does not schedule here, and nobody is owed anything\n",
            By::Scheduler => "OWED -: found just now; it is known after a second or two\n",
        };
    }
    text + &troubles(vms)
}

/// The overview with the vCPUs of each VM below its line.
fn with_vcpus(overview: &str, vms: &[VmStatus]) -> String {
    let row = |vcpu: &VcpuStatus| {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        vec![
            format!("  vCPU {}", vcpu.number),
            or_dash(vcpu.state.map(|state| state.text().to_owned())),
            format!("last on pCPU {}", or_dash(vcpu.pcpu.map(|pcpu| pcpu.to_string()))),
            format!("may run on {}", or_dash(vcpu.affinity.as_ref().map(CpuList::to_string))),
            format!("ready {}", or_dash(vcpu.ready_pct.map(|pct| format!("{pct:.1}%")))),
        ]
    };
    let rows: Vec<Vec<String>> = vms.iter().flat_map(|vm| vm.vcpu.iter().map(row)).collect();
    let rows = table(&["<", "<", "<", "<", "<"], &rows);
    let mut rows = rows.lines().skip(1);
    let mut lines = overview.lines();
    let mut text: String = lines.next().map(|titles| titles.to_owned() + "\n").unwrap_or_default();
    for (vm, line) in vms.iter().zip(lines.by_ref()) {
        let of_vm = rows.by_ref().take(vm.vcpu.len());
        text.extend([line].into_iter().chain(of_vm).flat_map(|line| [line, "\n"]));
    }
    text.extend(lines.flat_map(|line| [line, "\n"]));
    text
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
    use drover_core::io::{Bytes, Io, IoDelays, IoStatus};
    use drover_core::profile::{Class, Counted, Evidence, Profile};
    use drover_core::resolve::Why;
    use drover_host::names::Source;
    use drover_host::status::VcpuState;
    use std::time::Duration;

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
            user: 0,
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
            ready_pct: Some(12.5),
            guaranteed_delay_why: "its reservation of 150%: 2 threads".to_owned(),
            counters: Counters {
                longest_ready_ms: Some(8.125),
                guaranteed_delay_ms: Some(66.0),
                ..Counters::default()
            },
            home_why: Some("its memory lies there".to_owned()),
            profile: None,
            io: None,
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
        let text = overview(&[vm("web")], By::Scheduler);
        let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(words[4..10], ["prod", "2000", "150%", "none", "150.0%", "-"]);
        assert_eq!(words[words.len() - 4..], ["8.12", "ms", "66.00", "ms"], "{text}");
        assert!(!text.contains('!'), "{text}");
        assert!(!text.contains("PARTITION"), "{text}");
        let apart = [VmStatus { partition: "io".to_owned(), ..vm("db") }, vm("web")];
        let apart = overview(&apart, By::Scheduler);
        let column: Vec<_> = apart.lines().map(|line| line.split_whitespace().nth(4)).collect();
        assert_eq!(column, [Some("PARTITION"), Some("io"), Some("default")], "{apart}");
        let short = VmStatus { reservation_mcpu: 1000, ..vm("web") };
        let text = overview(&[short], By::Scheduler);
        assert!(text.contains("100%!") && text.contains("too few pCPUs are online"), "{text}");
    }

    #[test]
    fn vcpus_stand_below_their_vm() {
        let vcpu = |number, pcpu| VcpuStatus {
            state: Some(VcpuState::Running),
            pcpu: Some(pcpu),
            affinity: Some("0-1,3".parse().unwrap()),
            ready_pct: Some(12.34),
            ..VcpuStatus::numbered(number)
        };
        let web = VmStatus { vcpu: vec![vcpu(0, 3), vcpu(1, 10)], ..vm("web") };
        let troubles = vec!["too much".to_owned()];
        let gone = VcpuStatus::numbered(0);
        let vms = [web, VmStatus { vcpu: vec![gone], troubles, ..vm("db") }];
        let text = with_vcpus(&overview(&vms, By::Scheduler), &vms);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("NAME") && lines[1].starts_with("web "), "{text}");
        assert_eq!(
            lines[2..4],
            [
                "  vCPU 0  running  last on pCPU 3   may run on 0-1,3  ready 12.3%",
                "  vCPU 1  running  last on pCPU 10  may run on 0-1,3  ready 12.3%",
            ]
        );
        assert!(lines[4].starts_with("db "), "{text}");
        assert_eq!(lines[5], "  vCPU 0  -        last on pCPU -   may run on -      ready -");
        assert_eq!(lines[6..], ["db: too much"]);
    }

    #[test]
    fn ready_time_is_of_the_last_second_and_a_dash_for_what_is_owed_has_its_reason() {
        let known = overview(&[vm("web")], By::Scheduler);
        let at = known.lines().next().unwrap().find("%RDY").expect("it is a column");
        assert_eq!(&known.lines().nth(1).unwrap()[at..at + 4], "12.5", "{known}");
        assert!(!known.contains("0.50 s") && !known.contains("OWED -"), "{known}");
        let (owed_pcpus, ready_pct) = (None, None);
        let new = [VmStatus { owed_pcpus, ready_pct, ..vm("new") }, vm("web")];
        let told = overview(&new, By::Scheduler);
        assert!(
            told.ends_with("OWED -: found just now; it is known after a second or two\n"),
            "{told}"
        );
        let observed = overview(&new, By::Observer);
        assert!(observed.contains("OWED -: Drover does not schedule here"), "{observed}");
    }

    #[test]
    fn what_people_call_vms_stands_beside_their_numbers() {
        let labelled = VmStatus { label: Some("web".to_owned()), ..vm("100") };
        let text = overview(&[labelled, vm("db")], By::Scheduler);
        let words = |line: usize| text.lines().nth(line).unwrap().split_whitespace();
        assert_eq!(words(0).take(3).collect::<Vec<_>>(), ["NAME", "CALLED", "KIND"], "{text}");
        assert_eq!(words(1).take(3).collect::<Vec<_>>(), ["100", "web", "VM"], "{text}");
    }

    #[test]
    fn vms_are_chosen_by_name_and_sorted() {
        let busy = VmStatus { ready_pct: Some(90.0), ..vm("web-2") };
        let all = vec![vm("web-1"), vm("db"), busy];
        let of = |names: &[&str], sort| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            let chosen = chosen(all.clone(), &names, sort).map_err(|err| err.to_string())?;
            Ok(chosen.into_iter().map(|vm| vm.name).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(of(&["web-*"], Sort::Ready), Ok("web-2 web-1".to_owned()));
        assert_eq!(of(&[], Sort::Name), Ok("db web-1 web-2".to_owned()));
        let fault: String = of(&["wbe-1"], Sort::Found).unwrap_err();
        assert!(fault.contains("did you mean \"web-1\""), "{fault}");
    }

    #[test]
    fn a_reservation_above_the_vcpus_is_noted() {
        let note = idle_reservation(&vm("web"), "web", 3000).unwrap();
        assert!(note.contains("its 2 vCPUs can use 200%"), "{note}");
        assert_eq!(idle_reservation(&vm("web"), "web", 2000), None);
        assert_eq!(idle_reservation(&vm("web"), "db", 3000), None);
    }

    #[test]
    fn orders_are_listed_with_their_values() {
        let mut asked = Asked::default();
        asked.read(Key::Shares, "high").unwrap();
        asked.read(Key::Limit, "150%").unwrap();
        let order = OrderStatus {
            name: "web".to_owned(),
            here: false,
            vms: 0,
            ordered: asked.clone(),
            live: Asked::default(),
        };
        let text = ordered(std::slice::from_ref(&order));
        assert_eq!(text.lines().nth(1), Some("web   no    shares high, limit 150%"), "{text}");
        let live =
            OrderStatus { here: true, ordered: Asked::default(), live: asked, ..order.clone() };
        let text = ordered(&[order.clone(), live]);
        assert_eq!(
            text.lines().skip(1).collect::<Vec<_>>(),
            [
                "web   no    shares high, limit 150%",
                "web   yes                            shares high, limit 150%"
            ]
        );
        assert!(who_has_it(&order).unwrap().starts_with("No VM web is here"));
        let of = |vms| who_has_it(&OrderStatus { here: true, vms, ..order.clone() });
        assert_eq!(of(1), None);
        assert!(
            of(6).unwrap().starts_with("6 VMs would be named web: a limit is in force for all")
        );
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
    fn classes_are_shown_with_their_evidence() {
        let counted = Counted {
            vcpu_ns: 360_000_000,
            vcpu_sleeps: 6000,
            helper_ns: 120_000_000,
            helper_sleeps: 6000,
            block_bytes: Some(24_000_000),
            ..Counted::default()
        };
        let zero = Counted { block_bytes: Some(0), ..Counted::default() };
        let evidence = Evidence::between(&zero, &counted, Duration::from_secs(1));
        let profile = Some(Profile { class: Class::Io, for_s: 12.0, changes: 0, evidence });
        let text = profiles(&[VmStatus { profile, ..vm("db") }, vm("new")]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1],
            "db    io     12 s  48.0%  runs of 0.06 ms; helpers 12.0%, woken 6000/s; 12500 I/O events a \
             CPU second; disk 24.0 MB/s"
        );
        assert!(lines[2].ends_with("too little is known yet"), "{text}");
    }

    #[test]
    fn io_is_shown_with_units_and_what_is_not_known_is_a_dash() {
        let delay = DelayUs { count: 400, mean: 12.34, p50: 8.0, p99: 81.9 };
        let delay_us = IoDelays { to_guest: Some(delay), to_device: None };
        let bytes = Bytes { block_bytes: None, network_bytes: Some(50_000_000) };
        let lately = Io { delay_us, ..Io::default() }.with_bytes(bytes);
        let status = IoStatus { over_s: 2.0, lately, ..IoStatus::default() };
        let text = io(&[VmStatus { io: Some(status), ..vm("web") }, vm("new")]);
        let lines: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(lines[1], "web - 25.0 MB/s 200/s 12.3 us 81.9 us 0.10 ms/MB - - - 0.00 ms/MB");
        assert_eq!(lines[2], "new - - - - - - - - - -");
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
