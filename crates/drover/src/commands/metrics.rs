// SPDX-License-Identifier: GPL-2.0-only
//! `drover metrics`: what the daemon knows, once, in Prometheus' text format.
//!
//! Where Drover does not schedule it is what `drover observe` knows. The daemon has no network, so nobody scrapes it: packaging/drover-metrics.service writes this to a file that
//! node_exporter reads. There is a series per VM, container, pool, partition and vCPU.

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use drover_core::printable::cell;
use drover_host::control::{Answer, By, Request, ask_either};
use drover_host::status::{
    HostStatus, Kind, PartitionStatus, PoolStatus, VcpuState, VcpuStatus, VmStatus,
};
use drover_host::vcpus::add_threads;
use drover_observe::snapshot::scheduler_in_charge;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeMetric, prometheus_text, text as openmetrics_text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use super::ask::{Daemon, UNKNOWN_ANSWER, add_io};

#[derive(clap::Args)]
pub struct Args {
    /// As OpenMetrics: with units and an end. node_exporter reads the text without.
    #[arg(long)]
    openmetrics: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Without a daemon there is less to say, but that is said: its text has `drover_up 0`.
pub fn run(args: &Args) -> Result<ExitCode> {
    let known = Known::ask(&args.daemon.socket);
    let failed = known.as_ref().err().map(|err| anyhow::anyhow!("{err:#}"));
    let format = if args.openmetrics { Format::OpenMetrics } else { Format::Prometheus };
    print!("{}", text(known.ok(), scheduler_in_charge(), format));
    failed.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// What the daemon answers.
#[derive(Debug)]
struct Known {
    by: By,
    vms: Vec<VmStatus>,
    pools: Vec<PoolStatus>,
    partitions: Vec<PartitionStatus>,
    /// Of the daemon that schedules only.
    host: Option<HostStatus>,
}

impl Known {
    fn ask(socket: &Path) -> Result<Self> {
        let (vms, by) = ask_either(socket, &Request::ListVms { brief: false })?;
        let answers = (
            vms,
            ask_either(socket, &Request::ListPools)?.0,
            ask_either(socket, &Request::ListPartitions)?.0,
        );
        match answers {
            (
                Answer::Vms { mut vms },
                Answer::Pools { pools },
                Answer::Partitions { partitions },
            ) => {
                // Without `drover observe` there is all the rest.
                let _ = add_io(&mut vms);
                add_threads(Path::new("/proc"), &mut vms);
                let host = match by {
                    By::Scheduler => host_status(socket),
                    By::Observer => None,
                };
                Ok(Self { by, vms, pools, partitions, host })
            }
            _ => bail!(UNKNOWN_ANSWER),
        }
    }
}

/// None where the daemon does not say: all the rest is worth telling.
fn host_status(socket: &Path) -> Option<HostStatus> {
    match ask_either(socket, &Request::Status) {
        Ok((Answer::Status { status }, _)) => Some(*status),
        _ => None,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Prometheus,
    OpenMetrics,
}

fn text(known: Option<Known>, scheduler: Option<String>, format: Format) -> String {
    let mut registry = Registry::with_prefix("drover");
    let scheduler = scheduler.unwrap_or_else(|| "kernel".to_owned());
    registry.register_collector(Box::new(Page { known, scheduler }));
    let mut text = String::new();
    let encode = match format {
        Format::Prometheus => prometheus_text::encode,
        Format::OpenMetrics => openmetrics_text::encode,
    };
    encode(&mut text, &registry).expect("a string takes all");
    text
}

type Labels = Vec<(&'static str, String)>;

/// A vCPU with the labels of its VM.
type Vcpu = (Labels, VcpuStatus);

/// One metric of a `T`; `drover_` stands before its name. A counter's ends in `_total`, too.
struct Metric<T> {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    /// None: there is nothing to say of this one.
    of: fn(&T) -> Option<f64>,
}

const fn counter<T>(
    name: &'static str,
    help: &'static str,
    of: fn(&T) -> Option<f64>,
) -> Metric<T> {
    Metric { name, help, kind: MetricType::Counter, of }
}

const fn gauge<T>(name: &'static str, help: &'static str, of: fn(&T) -> Option<f64>) -> Metric<T> {
    Metric { name, help, kind: MetricType::Gauge, of }
}

fn pcpus(mcpu: impl Into<f64>) -> Option<f64> {
    Some(mcpu.into() / 1e3)
}

#[allow(clippy::cast_precision_loss, reason = "exact up to 2^53")]
fn count(events: u64) -> Option<f64> {
    Some(events as f64)
}

const VM: &[Metric<VmStatus>] = &[
    counter("vm_vcpu_cpu_seconds", "CPU time of its vCPUs.", |vm| Some(vm.vcpu_cpu_s)),
    counter("vm_helper_cpu_seconds", "CPU time of its other threads.", |vm| Some(vm.helper_cpu_s)),
    counter("vm_charged_cpu_seconds", "CPU time it was charged for.", |vm| vm.counters.charged_s),
    counter("vm_ready_seconds", "Time its threads were ready and did not run, summed.", |vm| {
        Some(vm.ready_s)
    }),
    counter("vm_limited_seconds", "The part of its ready time for which a limit held it.", |vm| {
        vm.counters.limited_s
    }),
    counter("vm_costopped_seconds", "Time its vCPUs were co-stopped, summed.", |vm| {
        Some(vm.counters.costop_s)
    }),
    counter("vm_costops", "Co-stops.", |vm| count(vm.counters.costops)),
    counter("vm_yields", "Directed yields that its vCPUs asked for.", |vm| {
        count(vm.counters.yields?.asked)
    }),
    counter("vm_yields_granted", "Directed yields after which the sibling ran next.", |vm| {
        count(vm.counters.yields?.granted)
    }),
    counter(
        "vm_yields_throttled",
        "Directed yields that came too soon after the last of that vCPU.",
        |vm| count(vm.counters.yields?.throttled),
    ),
    counter(
        "vm_yields_wasted",
        "Directed yields after which the vCPU asked again at once.",
        |vm| count(vm.counters.yields?.wasted),
    ),
    counter("vm_numa_moved_bytes", "Memory that was moved to its home node.", |vm| {
        Some(vm.numa.as_ref()?.moved_mib * 1024.0 * 1024.0)
    }),
    counter("vm_block_bytes", "Bytes to and from its disks.", |vm| {
        count(vm.io?.since_found.bytes.block_bytes?)
    }),
    counter("vm_network_bytes", "Bytes to and from the network.", |vm| {
        count(vm.io?.since_found.bytes.network_bytes?)
    }),
    counter("vm_io_to_guest_delays", "Runs of its vCPUs for which a device asked.", |vm| {
        count(vm.io?.since_found.to_guest.count)
    }),
    counter("vm_io_to_guest_delay_seconds", "How late these runs began, summed.", |vm| {
        Some(vm.io?.since_found.to_guest.seconds)
    }),
    counter("vm_io_to_device_delays", "Runs of its back ends for which somebody asked.", |vm| {
        count(vm.io?.since_found.to_device.count)
    }),
    counter("vm_io_to_device_delay_seconds", "How late these runs began, summed.", |vm| {
        Some(vm.io?.since_found.to_device.seconds)
    }),
    gauge("vm_numa_local_ratio", "The part of its memory that lies on its home node.", |vm| {
        Some(vm.numa.as_ref()?.local_pct? / 100.0)
    }),
    gauge("vm_vcpus", "vCPUs seen so far.", |vm| {
        (vm.kind == Kind::Vm).then(|| f64::from(vm.vcpus))
    }),
    gauge("vm_shares", "Shares in force.", |vm| Some(f64::from(vm.shares))),
    gauge("vm_reserved_pcpus", "CPU promised to it and kept, in pCPUs.", |vm| {
        pcpus(vm.reservation_mcpu)
    }),
    gauge("vm_promised_pcpus", "CPU promised to it, in pCPUs.", |vm| pcpus(vm.promised_mcpu)),
    gauge("vm_limit_pcpus", "The most CPU it may have, in pCPUs; absent: no limit.", |vm| {
        pcpus(vm.limit_mcpu?)
    }),
    gauge("vm_owed_pcpus", "What it is owed for what it wants, in pCPUs.", |vm| vm.owed_pcpus),
    gauge("vm_got_pcpus", "What it got in the last second, in pCPUs.", |vm| vm.got_pcpus),
    gauge(
        "vm_longest_ready_seconds",
        "The longest single wait since its settings last changed, without limits and co-stops.",
        |vm| Some(vm.counters.longest_ready_ms? / 1e3),
    ),
    gauge("vm_guaranteed_delay_seconds", "The longest such wait that may be.", |vm| {
        Some(vm.counters.guaranteed_delay_ms? / 1e3)
    }),
];

const VCPU: &[Metric<Vcpu>] = &[
    counter("vcpu_ready_seconds", "Time its thread was ready and did not run.", |(_, vcpu)| {
        Some(count(vcpu.ready_ns?)? / 1e9)
    }),
    gauge("vcpu_last_pcpu", "The pCPU it last ran on.", |(_, vcpu)| Some(f64::from(vcpu.pcpu?))),
];

const POOL: &[Metric<PoolStatus>] = &[
    gauge("pool_vms", "VMs directly in it.", |pool| Some(f64::from(pool.vms))),
    gauge("pool_shares", "Shares among its siblings.", |pool| Some(f64::from(pool.shares))),
    gauge("pool_reserved_pcpus", "CPU promised to it and kept, in pCPUs.", |pool| {
        pcpus(pool.reservation_mcpu)
    }),
    gauge("pool_free_pcpus", "What can still be promised in it, in pCPUs.", |pool| {
        Some(count(pool.free_mcpu)? / 1e3)
    }),
    gauge("pool_limit_pcpus", "The most CPU it may have, in pCPUs; absent: no limit.", |pool| {
        pcpus(pool.limit_mcpu?)
    }),
    gauge("pool_owed_pcpus", "What it is owed now, in pCPUs.", |pool| pool.owed_pcpus),
    gauge("pool_got_pcpus", "What was got in it in the last second, in pCPUs.", |pool| {
        pool.got_pcpus
    }),
];

const PARTITION: &[Metric<PartitionStatus>] = &[
    gauge("partition_vms", "VMs in it.", |partition| count(partition.vms.len() as u64)),
    gauge(
        "partition_unplaced_vcpus",
        "vCPUs of VMs without room, which run as ordinary tasks; of default.",
        |partition| count(partition.unplaced_vcpus.into()),
    ),
    gauge(
        "partition_host_reserved_pcpus",
        "Kept for the host's own tasks; of default.",
        |partition| pcpus(partition.host_mcpu?),
    ),
    gauge("partition_free_pcpus", "What can still be reserved; of policy share.", |partition| {
        count(partition.free_mcpu?).map(|mcpu| mcpu / 1e3)
    }),
    gauge("partition_got_pcpus", "What they got in the last second, in pCPUs.", |partition| {
        partition.got_pcpus
    }),
];

const HOST: &[Metric<HostStatus>] = &[gauge(
    "config_fault",
    "Whether drover.toml has a fault, and what it said before counts: `drover status` names it.",
    |host| Some(f64::from(u8::from(host.config_fault.is_some()))),
)];

/// All that is printed.
#[derive(Debug)]
struct Page {
    known: Option<Known>,
    scheduler: String,
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let answers = |by| self.known.as_ref().is_some_and(|known| known.by == by);
        let is = |is: &bool| Some((*is).into());
        let up = gauge("up", "Whether the daemon that schedules answers.", is);
        write(&mut encoder, &[up], &[answers(By::Scheduler)], |_| Vec::new())?;
        let observed = gauge("observed", "Whether what is told is observed only.", is);
        write(&mut encoder, &[observed], &[answers(By::Observer)], |_| Vec::new())?;
        let build = gauge("build_info", "The version of this program.", |()| Some(1.0));
        write(&mut encoder, &[build], &[()], |()| {
            vec![("version", env!("CARGO_PKG_VERSION").to_owned())]
        })?;
        let scheduler = gauge(
            "scheduler_info",
            "The scheduler in charge of this host; kernel: the kernel's own.",
            |_: &String| Some(1.0),
        );
        let name = std::slice::from_ref(&self.scheduler);
        write(&mut encoder, &[scheduler], name, |name| vec![("scheduler", cell(name))])?;
        let Some(known) = &self.known else { return Ok(()) };
        write(&mut encoder, HOST, known.host.as_slice(), |_| Vec::new())?;
        let info = gauge("vm_info", "Where it stands.", |_: &VmStatus| Some(1.0));
        write(&mut encoder, &[info], &known.vms, place_of_vm)?;
        write(&mut encoder, VM, &known.vms, vm_labels)?;
        let vcpus: Vec<Vcpu> = known.vms.iter().flat_map(vcpus_of).collect();
        write(&mut encoder, VCPU, &vcpus, vcpu_labels)?;
        let state = gauge("vcpu_state", "1 for what it does now.", |(_, vcpu): &Vcpu| {
            vcpu.state.map(|_| 1.0)
        });
        write(&mut encoder, &[state], &vcpus, |vcpu| {
            let state = vcpu.1.state.map_or("", VcpuState::text).to_owned();
            [vcpu_labels(vcpu), vec![("state", state)]].concat()
        })?;
        let affinity = gauge("vcpu_affinity_info", "Where it may run.", |(_, vcpu): &Vcpu| {
            vcpu.affinity.as_ref().map(|_| 1.0)
        });
        write(&mut encoder, &[affinity], &vcpus, |vcpu| {
            let cpus = vcpu.1.affinity.as_ref().map(ToString::to_string).unwrap_or_default();
            [vcpu_labels(vcpu), vec![("cpus", cpus)]].concat()
        })?;
        write(&mut encoder, POOL, &known.pools, |pool| vec![("pool", cell(&pool.name))])?;
        write(&mut encoder, PARTITION, &known.partitions, |partition| {
            vec![("partition", cell(&partition.name))]
        })
    }
}

fn vm_labels(vm: &VmStatus) -> Labels {
    let kind = if vm.kind == Kind::Vm { "vm" } else { "container" };
    vec![("vm", cell(&vm.name)), ("kind", kind.to_owned())]
}

fn vcpus_of(vm: &VmStatus) -> impl Iterator<Item = Vcpu> {
    vm.vcpu.iter().map(|vcpu| (vm_labels(vm), vcpu.clone()))
}

fn vcpu_labels((vm, vcpu): &Vcpu) -> Labels {
    vm.iter().cloned().chain([("vcpu", vcpu.number.to_string())]).collect()
}

/// What may change in the life of a VM is here alone: its other series go on then.
fn place_of_vm(vm: &VmStatus) -> Labels {
    let given = |name, text: &Option<String>| text.as_deref().map(|text| (name, cell(text)));
    let places = [
        Some(("partition", cell(&vm.partition))),
        given("pool", &vm.pool),
        given("called", &vm.label),
        given("uuid", &vm.uuid),
    ];
    vm_labels(vm).into_iter().chain(places.into_iter().flatten()).collect()
}

/// A name as it is before its unit, and the unit it ends in.
fn unit_of(name: &str) -> (&str, Option<Unit>) {
    const UNITS: [&str; 4] = ["seconds", "bytes", "pcpus", "ratio"];
    let split = name.rsplit_once('_').filter(|(_, unit)| UNITS.contains(unit));
    split.map_or((name, None), |(name, unit)| (name, Some(Unit::Other(unit.to_owned()))))
}

/// Each metric with a line for each thing that has it. Names may be alike, or look alike as they are shown, and whoever
/// reads two lines of one series takes none: what comes after the first has its number among them, too.
fn write<T>(
    encoder: &mut DescriptorEncoder,
    metrics: &[Metric<T>],
    things: &[T],
    labels: impl Fn(&T) -> Labels,
) -> Result<(), std::fmt::Error> {
    let mut alike: HashMap<Labels, u32> = HashMap::new();
    let numbered = |thing: &T| {
        let mut labels = labels(thing);
        let number = alike.entry(labels.clone()).and_modify(|number| *number += 1).or_insert(1);
        if *number > 1 {
            labels.push(("number", number.to_string()));
        }
        labels
    };
    let each: Vec<Labels> = things.iter().map(numbered).collect();
    for metric in metrics {
        let values = things.iter().zip(&each);
        let values = values.filter_map(|(thing, labels)| Some((labels, (metric.of)(thing)?)));
        let values: Vec<(&Labels, f64)> = values.collect();
        if values.is_empty() {
            continue;
        }
        let (name, unit) = unit_of(metric.name);
        let mut family =
            encoder.encode_descriptor(name, metric.help, unit.as_ref(), metric.kind)?;
        for (labels, value) in values {
            let line = family.encode_family(labels)?;
            match metric.kind {
                MetricType::Counter => ConstCounter::new(value).encode(line)?,
                _ => ConstGauge::new(value).encode(line)?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_core::counters::{Counters, Numa, Yields};
    use drover_core::io::{Bytes, DelaySum, IoStatus, IoSums};
    use std::collections::BTreeSet;

    const DASHBOARD: &str = include_str!("../../../../packaging/dashboard.json");
    const ALERTS: &str = include_str!("../../../../packaging/alerts.yml");
    const FLEET: &str = include_str!("../../../../packaging/fleet.yml");

    fn vm(name: &str) -> VmStatus {
        let counters = Counters {
            charged_s: Some(1.5),
            limited_s: Some(0.25),
            yields: Some(Yields { asked: 3, granted: 2, throttled: 1, wasted: 1 }),
            longest_ready_ms: Some(8.5),
            guaranteed_delay_ms: Some(66.0),
            ..Counters::default()
        };
        let numa = Some(Numa { local_pct: Some(97.5), moved_mib: 1.0, ..Numa::default() });
        let (limit_mcpu, pool) = (Some(1500), Some("prod".to_owned()));
        let (owed_pcpus, got_pcpus) = (Some(1.5), Some(1.25));
        let plain = super::super::vm::tests::vm(name);
        let sums = IoSums {
            bytes: Bytes { block_bytes: Some(4096), network_bytes: Some(1500) },
            to_guest: DelaySum { count: 7, seconds: 0.5 },
            to_device: DelaySum { count: 8, seconds: 0.25 },
        };
        let io = Some(IoStatus { over_s: 1.0, since_found: sums, ..IoStatus::default() });
        let vcpu = VcpuStatus {
            state: Some(VcpuState::CoStopped),
            pcpu: Some(2),
            affinity: Some("0-3".parse().unwrap()),
            ready_ns: Some(1_500_000_000),
            ..VcpuStatus::numbered(1)
        };
        let vcpu = vec![vcpu];
        VmStatus { counters, numa, limit_mcpu, pool, owed_pcpus, got_pcpus, io, vcpu, ..plain }
    }

    fn known() -> Known {
        let pool = r#"{"name":"prod","parent":null,"depth":1,"shares":8000,"reservation_mcpu":2000,"limit_mcpu":3000,
            "expandable":true,"free_mcpu":500,"vms":1,"owed_pcpus":2.5,"got_pcpus":2.25,"origin":"drover pool"}"#;
        let partition = r#"{"name":"default","cpus":"0-3","offline":null,"policy":"share","slice_ms":7.0,"size_mcpu":4000,"host_mcpu":400,"free_mcpu":3600,
            "vms":["web"],"got_pcpus":2.25}"#;
        Known {
            by: By::Scheduler,
            vms: vec![vm("web")],
            pools: vec![serde_json::from_str(pool).unwrap()],
            partitions: vec![serde_json::from_str(partition).unwrap()],
            host: Some(host(None)),
        }
    }

    fn host(config_fault: Option<&str>) -> HostStatus {
        let config_fault = config_fault.map(str::to_owned);
        HostStatus { config_fault, ..super::super::status::tests::status() }
    }

    #[test]
    fn a_fault_of_the_configuration_is_a_figure() {
        let fault = "/etc/drover/drover.toml:3: shares: use 1 to 1000000";
        for (fault, figure) in [(None, 0), (Some(fault), 1)] {
            let known = Known { host: Some(host(fault)), ..known() };
            let page = text(Some(known), None, Format::Prometheus);
            assert!(page.contains(&format!("\ndrover_config_fault {figure}.0\n")), "{page}");
        }
        let observed = Known { by: By::Observer, host: None, ..known() };
        let page = text(Some(observed), None, Format::Prometheus);
        assert!(!page.contains("drover_config_fault"), "{page}");
    }

    fn page() -> String {
        text(Some(known()), Some("drover".to_owned()), Format::Prometheus)
    }

    /// Words of a text that could be names of our metrics.
    fn names(text: &str) -> BTreeSet<&str> {
        // What rules record is called instance:drover_...: that is one word.
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && !"_:".contains(c));
        words.filter(|word| word.starts_with("drover_")).collect()
    }

    /// Name, labels and value of a line of the format.
    fn read(line: &str) -> (&str, &str, f64) {
        let (series, value) = line.rsplit_once(' ').expect(line);
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        (name, labels.strip_suffix('}').expect(line), value.parse().expect(line))
    }

    #[test]
    fn every_line_is_of_the_format_and_every_series_is_there_once() {
        let page = page();
        let (mut typed, mut seen) = (BTreeSet::new(), BTreeSet::new());
        for line in page.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                assert!(typed.insert(name), "{line}");
            } else if !line.starts_with("# HELP ") {
                let (name, labels, value) = read(line);
                assert!(typed.contains(name) && value.is_finite(), "{line}");
                assert!(seen.insert((name, labels)), "{line}");
            }
        }
        assert!(
            page.contains("\ndrover_vm_ready_seconds_total{vm=\"web\",kind=\"vm\"} 0.5\n"),
            "{page}"
        );
        for line in ["block_bytes_total", "network_bytes_total", "io_to_guest_delays_total"] {
            assert!(page.contains(&format!("\ndrover_vm_{line}{{vm=\"web\"")), "{line}: {page}");
        }
        let vcpu = "{vm=\"web\",kind=\"vm\",vcpu=\"1\"";
        for line in [
            format!("ready_seconds_total{vcpu}}} 1.5"),
            format!("last_pcpu{vcpu}}} 2"),
            format!("state{vcpu},state=\"co-stopped\"}} 1"),
            format!("affinity_info{vcpu},cpus=\"0-3\"}} 1"),
        ] {
            assert!(page.contains(&format!("\ndrover_vcpu_{line}")), "{line}: {page}");
        }
        let tables = HOST.len() + VM.len() + VCPU.len() + POOL.len() + PARTITION.len();
        assert_eq!(typed.len(), tables + 7, "each metric has a line");
    }

    #[test]
    fn openmetrics_has_units_at_the_end_of_names_and_an_end_and_the_same_series() {
        let open = text(Some(known()), Some("drover".to_owned()), Format::OpenMetrics);
        assert!(open.ends_with("\n# EOF\n"), "{open}");
        let units: Vec<(&str, &str)> =
            open.lines().filter_map(|line| line.strip_prefix("# UNIT ")?.split_once(' ')).collect();
        assert!(units.contains(&("drover_vm_ready_seconds", "seconds")), "{units:?}");
        assert!(units.contains(&("drover_vm_limit_pcpus", "pcpus")), "{units:?}");
        assert!(units.iter().all(|(name, unit)| name.ends_with(&format!("_{unit}"))), "{units:?}");
        let lines = |text: &str| -> BTreeSet<String> {
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
        };
        assert_eq!(lines(&open), lines(&page()));
    }

    #[test]
    fn dashboard_and_alerts_ask_only_for_what_is_printed() {
        let page = page();
        let printed: BTreeSet<&str> =
            page.lines().filter(|line| !line.starts_with('#')).map(|line| read(line).0).collect();
        for file in [DASHBOARD, ALERTS, FLEET] {
            let asked = names(file);
            assert!(asked.len() > 3, "{asked:?}");
            let missing: Vec<_> = asked.difference(&printed).collect();
            assert!(missing.is_empty(), "{missing:?} is not printed");
        }
        let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
        assert!(dashboard["panels"].as_array().is_some_and(|panels| panels.len() > 5));
    }

    #[test]
    fn without_a_daemon_that_is_said() {
        let page = text(None, None, Format::Prometheus);
        assert!(page.contains("\ndrover_up 0"), "{page}");
        assert!(page.contains("\ndrover_scheduler_info{scheduler=\"kernel\"} 1"), "{page}");
        assert!(!page.contains("drover_vm_"), "{page}");
    }

    #[test]
    fn what_is_observed_only_is_told_and_does_not_look_like_a_scheduler() {
        let page = text(Some(Known { by: By::Observer, ..known() }), None, Format::Prometheus);
        for line in ["\ndrover_up 0", "\ndrover_observed 1", "\ndrover_vm_ready_seconds_total{"] {
            assert!(page.contains(line), "{page}");
        }
    }

    #[test]
    fn a_name_cannot_break_out_of_its_label() {
        let known = Known { vms: vec![vm("a\"} 1\nb\\\u{9b}")], ..known() };
        let page = text(Some(known), None, Format::Prometheus);
        let shown = "{vm=\"a\\\"} 1\u{fffd}b\\\\\u{fffd}\",kind=\"vm\"}";
        assert!(page.contains(shown), "{page}");
    }

    #[test]
    fn who_is_called_alike_has_a_series_all_the_same() {
        let vms = ["a", "a", "b", "a\u{7}", "a\u{8}"].map(vm).to_vec();
        let page = text(Some(Known { vms, ..known() }), None, Format::Prometheus);
        let lines = || page.lines().filter(|line| line.starts_with("drover_vm_vcpus{"));
        let series: BTreeSet<&str> = lines().map(|line| read(line).1).collect();
        assert_eq!((series.len(), lines().count()), (5, 5), "{page}");
        assert!(series.contains("vm=\"a\",kind=\"vm\",number=\"2\""), "{series:?}");
    }
}
