// SPDX-License-Identifier: GPL-2.0-only
//! How fast the simulator is: `cargo bench -p drover-sim`. Elements are events.
#![expect(missing_docs, reason = "criterion's macro makes a function without")]

use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use drover_sim::sim_speed::{Load, growing_pcpus, growing_vcpus, loads, started};
use std::time::{Duration, Instant};

/// One iteration simulates so many events.
const EVENTS: u64 = 1000;
/// ... in steps of so much virtual time.
const STEP_NS: u64 = 1_000_000;

fn bench(c: &mut Criterion, name: &str, loads: &[Load]) {
    let mut group = c.benchmark_group(name);
    group
        .sampling_mode(SamplingMode::Flat)
        .sample_size(10)
        .throughput(Throughput::Elements(EVENTS));
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2));
    for load in loads {
        let mut sim = None;
        group.bench_function(load.name.as_str(), |bencher| {
            let sim = sim.get_or_insert_with(|| started(load));
            bencher.iter_custom(|iterations| {
                let (asked, before) = (iterations * EVENTS, sim.m.counts.events);
                let begin = Instant::now();
                while sim.m.counts.events - before < asked {
                    sim.run(sim.m.now_ns + STEP_NS);
                }
                let done = sim.m.counts.events - before;
                begin.elapsed().mul_f64(asked as f64 / done as f64)
            });
        });
    }
    group.finish();
}

fn speed(c: &mut Criterion) {
    bench(c, "loads", &loads());
    bench(c, "growing pCPUs", &growing_pcpus());
    bench(c, "growing vCPUs", &growing_vcpus());
}

criterion_group!(benches, speed);
criterion_main!(benches);
