// SPDX-License-Identifier: GPL-2.0-only
//! The guest fills histograms that the host reads: both must mean the same by a bucket.

use drover_core::histogram::{BUCKETS, SATURATION_NS, bucket_index, bucket_top_ns};
use std::io::Write;
use std::process::{Command, Stdio};

/// guest/histogram.h as a program of the host: values in, one a line, bucket numbers out.
const PROGRAM: &str = r#"
#include <stdio.h>
#include "histogram.h"
int main(void)
{
	unsigned long long value_ns;
	while (scanf("%llu", &value_ns) == 1)
		printf("%u\n", histogram_index(value_ns));
	return 0;
}
"#;

fn guest_indices(values: &[u64]) -> Vec<usize> {
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("index.c"), dir.path().join("index"));
    std::fs::write(&source, PROGRAM).unwrap();
    let guest_dir = concat!(env!("CARGO_MANIFEST_DIR"), "/guest");
    let compiled = Command::new(env!("DROVER_CLANG"))
        .args(["-std=gnu11", "-Wall", "-Werror", "-fsanitize=undefined", "-I", guest_dir])
        .args(["-fsanitize-trap=undefined", "-o"])
        .args([&program, &source])
        .status()
        .unwrap();
    assert!(compiled.success());
    let mut child =
        Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let text: String = values.iter().map(|value| format!("{value}\n")).collect();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn guest_and_host_agree_on_every_bucket() {
    let edges = (0..BUCKETS - 1).flat_map(|index| {
        let top_ns = bucket_top_ns(index);
        [top_ns.saturating_sub(1), top_ns, top_ns + 1]
    });
    let huge = [SATURATION_NS - 1, SATURATION_NS, SATURATION_NS + 1, 1 << 63, u64::MAX];
    let scattered = (0..10_000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (i % 60));
    let values: Vec<u64> = edges.chain(huge).chain(scattered).collect();
    let indices = guest_indices(&values);
    assert_eq!(indices.len(), values.len());
    for (value_ns, index) in values.into_iter().zip(indices) {
        assert_eq!(index, bucket_index(value_ns), "{value_ns} ns");
    }
}
