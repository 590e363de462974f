// SPDX-License-Identifier: GPL-2.0-only
//! `drover sim-speed`: how fast the simulator is on this machine.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use drover_sim::speed::{bytes_per_vcpu, growing, loads, measure};

pub fn run() -> Result<ExitCode> {
    println!("{:>9} {:>12}  load", "M events/s", "x real time");
    for load in loads() {
        let speed = measure(&load);
        let rate = speed.events_per_s() / 1e6;
        println!("{rate:>10.1} {:>12.0}  {}", speed.times_real(), load.name);
    }
    println!("\n{:>9} {:>12}  growing: {}", "pCPUs", "ns an event", growing()[0].name);
    for load in growing() {
        let speed = measure(&load);
        println!("{:>9} {:>12.0}", load.host.pcpus(), 1e9 / speed.events_per_s());
    }
    if let Some(bytes) = bytes_per_vcpu() {
        println!("\n{bytes} bytes a vCPU, on 4096 pCPUs with 2047 VMs of 16 vCPUs");
    }
    println!("\n2 threads do {:.2} times the work of one", scaling());
    Ok(ExitCode::SUCCESS)
}

/// How much more two threads do than one, each with simulations of its own.
fn scaling() -> f64 {
    let load = loads().swap_remove(1);
    let begin = Instant::now();
    measure(&load);
    let one_s = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| measure(&load));
        measure(&load);
    });
    2.0 * one_s / begin.elapsed().as_secs_f64()
}
