// SPDX-License-Identifier: GPL-2.0-only
//! Figures as esxtop's batch mode writes them, for the tools that read it: one line a reading, one
//! column a counter.
//!
//! The columns are those of the first reading, as with esxtop: what is gone leaves its columns empty,
//! and what comes later has none. JSON has everything.

use crate::figures::{Figures, Times, Vm};
use drover_core::io::DelayUs;
use drover_core::printable::printable;

/// A column's name and its figure.
type Counter<Of> = (&'static str, fn(&Of) -> f64);

/// The columns of one VM or vCPU, by esxtop's names.
const COUNTERS: [Counter<Times>; 5] = [
    ("% Used", |times| times.used_pct),
    ("% Run", |times| times.run_pct),
    ("% Ready", |times| times.ready_pct),
    ("% CoStop", |times| times.costop_pct),
    ("% Wait", |times| times.wait_pct),
];

/// The columns of one VM's I/O in one direction: of what there is none in an interval, the cell is empty.
const DELAYS: [Counter<DelayUs>; 3] = [
    ("Delay us mean", |delay| delay.mean),
    ("Delay us p50", |delay| delay.p50),
    ("Delay us p99", |delay| delay.p99),
];

/// Writes lines; knows which columns there are.
#[derive(Debug)]
pub struct Csv {
    host: String,
    columns: Vec<String>,
}

impl Csv {
    /// Columns for what is in these figures, of the host of that name.
    pub fn new(host: &str, figures: &Figures) -> Self {
        let columns = cells(host, figures).into_iter().map(|(column, _)| column).collect();
        Self { host: host.to_owned(), columns }
    }

    /// The first line.
    pub fn header(&self) -> String {
        line(["(PDH-CSV 4.0) (UTC)(0)"].into_iter().chain(self.columns.iter().map(String::as_str)))
    }

    /// The line of these figures.
    pub fn row(&self, figures: &Figures) -> String {
        let cells = cells(&self.host, figures);
        let time = figures.time.strftime("%m/%d/%Y %H:%M:%S").to_string();
        let value = |column: &String| {
            let cell = cells.iter().find(|(name, _)| name == column);
            let value = cell.and_then(|(_, value)| *value);
            value.map_or(String::new(), |value| format!("{value:.2}"))
        };
        let values: Vec<String> = self.columns.iter().map(value).collect();
        line([time.as_str()].into_iter().chain(values.iter().map(String::as_str)))
    }

    /// VMs that have no columns, because they came later.
    pub fn left_out<'a>(&self, figures: &'a Figures) -> Vec<&'a str> {
        let has_none = |pid: u32| {
            let begin = format!(r"\\{}\Group Cpu({pid}:", self.host);
            !self.columns.iter().any(|column| column.starts_with(&begin))
        };
        figures.vms.iter().filter(|vm| has_none(vm.pid)).map(|vm| vm.name.as_str()).collect()
    }
}

/// All there is: column, and value where there is one.
fn cells(host: &str, figures: &Figures) -> Vec<(String, Option<f64>)> {
    let mut cells = Vec::new();
    for pcpu in &figures.pcpus {
        let column = format!(r"\\{host}\Physical Cpu({})\% Util Time", pcpu.pcpu);
        cells.push((column, Some(pcpu.busy_pct)));
    }
    let mut add = |instance: String, times: &Times| {
        for (counter, of) in COUNTERS {
            cells.push((format!(r"\\{host}\{instance}\{counter}"), Some(of(times))));
        }
    };
    for vm in &figures.vms {
        let (pid, name) = (vm.pid, &vm.name);
        add(format!("Group Cpu({pid}:{name})"), &vm.times);
        for vcpu in &vm.vcpus {
            let (tid, number) = (vcpu.tid, vcpu.number);
            add(format!("Vcpu({pid}:{name}:{tid}:vcpu-{number})"), &vcpu.times);
        }
    }
    for vm in &figures.vms {
        let of_io = cells_of_io(vm, figures.interval_s).into_iter();
        let column = |counter| format!(r"\\{host}\Group Io({}:{})\{counter}", vm.pid, vm.name);
        cells.extend(of_io.map(|(counter, value)| (column(counter), value)));
    }
    cells
}

/// What a VM's I/O moved, how late it was, and what that is for each MB.
fn cells_of_io(vm: &Vm, interval_s: f64) -> Vec<(String, Option<f64>)> {
    let [disk, network] = vm.io.bytes().mb_s(interval_s);
    let mut cells =
        vec![("Disk MBytes/sec".to_owned(), disk), ("Network MBytes/sec".to_owned(), network)];
    let (delays, lost) = (vm.io.delay_us, vm.io.ms_per_mb);
    for (direction, delay, lost_ms) in [
        ("to Guest", delays.to_guest, lost.map(|lost| lost.to_guest)),
        ("to Device", delays.to_device, lost.map(|lost| lost.to_device)),
    ] {
        let column = |counter: &str| format!("{direction} {counter}");
        #[allow(clippy::cast_precision_loss, reason = "there are no 2^52")]
        let count = delay.map_or(0.0, |delay| delay.count as f64);
        cells.push((column("Wake-ups/sec"), Some(count / interval_s)));
        cells.extend(DELAYS.map(|(counter, of)| (column(counter), delay.as_ref().map(of))));
        cells.push((column("Lost ms/MByte"), lost_ms));
    }
    cells
}

fn line<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let quoted: Vec<String> =
        cells.map(|cell| format!("\"{}\"", printable(cell).replace('"', "\"\""))).collect();
    quoted.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::tests::figures;
    use drover_core::io::Bytes;

    #[test]
    fn a_line_has_a_value_for_each_column() {
        let first = figures(&[("web", 185, 50.0)]);
        let csv = Csv::new("kvm1", &first);
        let header = csv.header();
        assert!(
            header.starts_with(r#""(PDH-CSV 4.0) (UTC)(0)","\\kvm1\Physical Cpu(0)\% Util Time","#)
        );
        for column in
            [r"\\kvm1\Group Cpu(185:web)\% Ready", r"\\kvm1\Vcpu(185:web:186:vcpu-0)\% CoStop"]
        {
            assert!(header.contains(&format!("\"{column}\"")), "{header}");
        }
        let row = csv.row(&first);
        assert!(row.starts_with(r#""11/24/2026 14:31:07","75.00","#), "{row}");
        assert_eq!(row.matches(',').count(), header.matches(',').count());
        assert!(row.contains(r#""50.00","50.00","0.00","0.00""#), "{row}");
    }

    #[test]
    fn what_did_not_happen_has_no_delay() {
        let mut figures = figures(&[("web", 185, 50.0)]);
        let delay = DelayUs { count: 400, mean: 12.25, p50: 8.192, p99: 81.92 };
        figures.interval_s = 2.0;
        figures.vms[0].io.delay_us.to_guest = Some(delay);
        let csv = Csv::new("kvm1", &figures);
        assert!(csv.header().contains(r#""\\kvm1\Group Io(185:web)\to Guest Delay us p99""#));
        let row = csv.row(&figures);
        let io = r#","","","200.00","12.25","8.19","81.92","","0.00","","","","""#;
        assert!(row.ends_with(io), "{row}");
        figures.vms[0].io = figures.vms[0]
            .io
            .with_bytes(Bytes { block_bytes: None, network_bytes: Some(5_000_000) });
        let io = r#","","2.50","200.00","12.25","8.19","81.92","0.98","0.00","","","","0.00""#;
        assert!(csv.row(&figures).ends_with(io), "{}", csv.row(&figures));
    }

    #[test]
    fn columns_stay_when_vms_come_and_go() {
        let csv = Csv::new("kvm1", &figures(&[("web", 185, 50.0)]));
        let later = figures(&[("db", 200, 10.0)]);
        let row = csv.row(&later);
        assert_eq!(row.matches(',').count(), csv.header().matches(',').count());
        assert!(row.ends_with(r#","","","","","""#), "{row}");
        assert_eq!(row.matches(r#","""#).count(), 5 + 5 + 12, "{row}");
        assert_eq!(csv.left_out(&later), ["db"]);
    }

    #[test]
    fn a_name_cannot_break_a_line() {
        let csv = Csv::new("kvm1", &figures(&[("a\",\"b", 185, 50.0)]));
        assert!(csv.header().contains(r#"Group Cpu(185:a"",""b)"#), "{}", csv.header());
    }
}
