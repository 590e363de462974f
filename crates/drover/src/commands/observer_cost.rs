// SPDX-License-Identifier: GPL-2.0-only
//! `drover observer-cost`: what `drover observe` takes of this machine beside VMs that wake all the time.

use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use drover_observe::cost::{Cost, measure};

use super::observe::host_must_do;

/// Each wakes 1,000 times a second, and next to nothing is done then. A vCPU that waits for a device polls for it on
/// many hosts, and is not woken; one that sleeps is.
const WORKLOAD: &str = r#"{"kind":"sleep","period_us":1000,"work_us":5}"#;
/// An I/O event calls the programs so often: as a thread is woken, when it runs, and when it sleeps again.
const CALLS_PER_EVENT: f64 = 3.0;
/// Until they are all there.
const BOOT: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
pub struct Args {
    /// Micro VMs that wake meanwhile.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=500))]
    vms: u32,
    /// Seconds that it is measured for.
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    host_must_do()?;
    let dir = std::env::temp_dir().join(format!("drover-cost-{}", std::process::id()));
    std::fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let dir = Dir(dir);
    let vms = (0..args.vms).map(|number| MicroVm::start(&dir, number));
    let _vms = vms.collect::<Result<Vec<_>>>()?;
    std::thread::sleep(BOOT);
    let cost = measure(args.seconds)?;
    ensure!(cost.calls > 0, "nothing was seen: do micro VMs run here? `drover check` says");
    print!("{}", text(&cost, args.vms));
    Ok(ExitCode::SUCCESS)
}

/// What it took, and what that is for 20,000 events a second.
fn text(cost: &Cost, vms: u32) -> String {
    #[allow(clippy::cast_precision_loss, reason = "there are no 2^52")]
    let calls = cost.calls as f64;
    let pct = |seconds: f64| 100.0 * seconds / cost.over_s;
    let at_20_000 = 2e6 * CALLS_PER_EVENT * cost.programs_s / calls + pct(cost.reading_s);
    format!(
        "{vms} VMs, {:.0} switches and wake-ups/s\n\
         in the kernel: {:.0} ns each, {:.2} % of a pCPU\n\
         reading, once a second: {:.2} % of a pCPU\n\
         together: {:.2} %; at 20,000 I/O events/s: {at_20_000:.2} %\n",
        calls / cost.over_s,
        1e9 * cost.programs_s / calls,
        pct(cost.programs_s),
        pct(cost.reading_s),
        pct(cost.programs_s + cost.reading_s),
    )
}

/// A directory that goes when dropped.
struct Dir(PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A micro VM in a process of its own, killed when dropped.
struct MicroVm(Child);

impl MicroVm {
    fn start(dir: &Dir, number: u32) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["guest", "--name", &format!("cost-{number}"), "--vcpus", "1"]);
        command.args(["--workload", WORKLOAD, "--loops-per-ms", "500000", "--stats"]);
        command.arg(dir.0.join(number.to_string()));
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(quiet.spawn().context("cannot start a micro VM")?))
    }
}

impl Drop for MicroVm {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_takes_is_told_for_20_000_events_a_second() {
        let cost = Cost { over_s: 10.0, calls: 400_000, programs_s: 0.04, reading_s: 0.01 };
        let text = text(&cost, 5);
        assert!(text.starts_with("5 VMs, 40000 switches and wake-ups/s\n"), "{text}");
        assert!(text.contains("100 ns each, 0.40 %"), "{text}");
        assert!(text.contains("together: 0.50 %"), "{text}");
        assert!(text.ends_with("at 20,000 I/O events/s: 0.70 %\n"), "{text}");
    }
}
