/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a micro VM and the host see of each other.
 *
 * One MAP_SHARED file is a memory slot of the VM at STATS_ADDRESS: a control page, then one
 * struct drover_vcpu per vCPU. The VMM fills the control page before the first vCPU runs (`magic`
 * last); after that an observer writes `go` and the guest `start_tsc`, nobody anything else. Below
 * it only the guest writes, each record its own vCPU, but for `answers`, which its back end writes.
 * All words are naturally aligned, so a reader sees old or new, never half.
 *
 * src/layout.rs says the same in Rust. The assertions below and there hold the two together:
 * change both, and LAYOUT_VERSION.
 */
#ifndef DROVER_GUEST_LAYOUT_H
#define DROVER_GUEST_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#define LAYOUT_MAGIC 0x3130747365756744ull /* "Dguest01" */
#define LAYOUT_VERSION 4

/* Guest-physical addresses. Code lies below 64 KiB: the IDT in boot.S needs 16-bit addresses. */
#define CODE_ADDRESS 0x1000ull
#define CODE_END 0x10000ull
#define STEAL_ADDRESS 0x20000ull
#define STACKS_ADDRESS 0x100000ull
#define STACK_BYTES 0x4000ull
#define STATS_ADDRESS 0x10000000ull

#define MAX_VCPUS 256
#define CONTROL_BYTES 4096
#define HISTOGRAM_SUB_BITS 5
#define HISTOGRAM_BUCKETS 1024

/* A guest that cannot go on writes the exception's vector here and the VMM ends it. */
#define PANIC_PORT 0xf4

/* vCPU i asks its back end by a write to the i-th of these ports, and is told by this interrupt. */
#define IO_PORTS 0x500
#define IO_VECTOR 0x21

enum drover_workload {
	WORKLOAD_CPU = 1,
	WORKLOAD_LOCK = 2,
	WORKLOAD_BARRIER = 3,
	WORKLOAD_SLEEP = 4,
	WORKLOAD_MIX = 5,
	WORKLOAD_YIELD = 6,
	WORKLOAD_IO = 7,
};

enum drover_vcpu_state {
	VCPU_NOT_BOOTED = 0,
	VCPU_AT_GATE = 1,
	VCPU_WORKING = 2,
};

struct drover_control {
	uint64_t magic;
	uint32_t version;
	uint32_t vcpus;
	uint32_t workload;
	uint32_t go; /* 0: vCPUs halt at the gate; 1: work */
	uint32_t tsc_deadline; /* 1: LAPIC timer in TSC-deadline mode; 0: one-shot */
	uint32_t cpu_duty_pct; /* 0..100, until cpu_then_cycles after start_tsc */
	uint32_t cpu_then_duty_pct; /* 0..100, from then on */
	uint32_t reserved;
	uint64_t ns_per_cycle_q32; /* ns per TSC cycle, 32 fraction bits */
	uint64_t gate_poll_cycles;
	uint64_t start_tsc; /* the first vCPU through the gate sets it; 0 before */
	uint64_t cpu_unit_loops;
	uint64_t cpu_period_cycles;
	uint64_t cpu_then_cycles;
	uint64_t lock_hold_loops;
	uint64_t lock_think_loops;
	uint64_t barrier_work_loops;
	uint64_t sleep_period_cycles;
	uint64_t sleep_work_loops;
	uint64_t yield_work_loops;
	uint64_t io_work_loops;
	uint64_t notify_cycles; /* of spinning, between two requests to the host; 0: none */
};

struct drover_vcpu {
	uint32_t state;
	uint32_t reserved;
	uint64_t progress;
	uint64_t wake_count;
	uint64_t wake_sum_ns;
	uint64_t wake_max_ns;
	uint64_t yields;
	uint64_t answers; /* of its back end */
	uint64_t padding;
	uint64_t wake_buckets[HISTOGRAM_BUCKETS];
};

_Static_assert(sizeof(struct drover_control) == 152, "control layout");
_Static_assert(offsetof(struct drover_control, go) == 20, "control layout");
_Static_assert(offsetof(struct drover_control, ns_per_cycle_q32) == 40, "control layout");
_Static_assert(offsetof(struct drover_control, notify_cycles) == 144, "control layout");
_Static_assert(sizeof(struct drover_control) <= CONTROL_BYTES, "control page");
_Static_assert(sizeof(struct drover_vcpu) == 8256, "vcpu layout");
_Static_assert(offsetof(struct drover_vcpu, wake_buckets) == 64, "vcpu layout");

#endif
