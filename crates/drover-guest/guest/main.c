/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A micro VM: no devices, no kernel, one program on each vCPU.
 *
 * Every vCPU comes from boot.S with its index, waits at the gate until the control page says go,
 * and runs its workload until the VMM ends the VM. Work and progress are what the host can take
 * away and see; nothing here depends on anything but the control page and the clock, so that a
 * virtual host with an exact clock repeats a run bit for bit.
 */
#include "guest.h"
#include "machine.h"

#define STEAL_RECORD_BYTES 64
#define MIX_KINDS 4

static volatile struct drover_vcpu *stats_of(uint32_t index)
{
	uint64_t first = STATS_ADDRESS + CONTROL_BYTES;

	return (volatile struct drover_vcpu *)(first + index * sizeof(struct drover_vcpu));
}

/* Halting between looks keeps a waiting VM nearly free of cost to those already measured. */
static void wait_at_gate(const struct vcpu *vcpu)
{
	volatile struct drover_control *control = vcpu->control;
	uint64_t nobody = 0;

	vcpu->stats->state = VCPU_AT_GATE;
	while (!control->go)
		sleep_until(vcpu, read_tsc() + control->gate_poll_cycles);
	__atomic_compare_exchange_n(&control->start_tsc, &nobody, read_tsc(), 0, __ATOMIC_ACQ_REL,
				    __ATOMIC_ACQUIRE);
	vcpu->stats->state = VCPU_WORKING;
}

/* vCPUs 0, 4, 8... are busy, 1, 5... lock, 2, 6... sleep, 3, 7... meet at a barrier. */
static void workload_mix(const struct vcpu *vcpu)
{
	uint32_t kind = vcpu->index % MIX_KINDS;
	uint32_t rank = vcpu->index / MIX_KINDS;
	uint32_t parties = (vcpu->control->vcpus - kind + MIX_KINDS - 1) / MIX_KINDS;

	switch (kind) {
	case 0:
		workload_cpu(vcpu);
		break;
	case 1:
		workload_lock(vcpu);
		break;
	case 2:
		workload_sleep(vcpu, rank, parties);
		break;
	default:
		workload_barrier(vcpu, parties);
	}
}

void guest_main(uint32_t index)
{
	struct vcpu vcpu = {
		.index = index,
		.control = (volatile struct drover_control *)STATS_ADDRESS,
		.stats = stats_of(index),
		.steal_ns = (const volatile uint64_t *)(STEAL_ADDRESS + index * STEAL_RECORD_BYTES),
	};

	timer_init(&vcpu);
	wait_at_gate(&vcpu);
	switch (vcpu.control->workload) {
	case WORKLOAD_CPU:
		workload_cpu(&vcpu);
		break;
	case WORKLOAD_LOCK:
		workload_lock(&vcpu);
		break;
	case WORKLOAD_BARRIER:
		workload_barrier(&vcpu, vcpu.control->vcpus);
		break;
	case WORKLOAD_SLEEP:
		workload_sleep(&vcpu, index, vcpu.control->vcpus);
		break;
	case WORKLOAD_YIELD:
		workload_yield(&vcpu, vcpu.control->vcpus);
		break;
	case WORKLOAD_IO:
		workload_io(&vcpu);
		break;
	case WORKLOAD_MIX:
		workload_mix(&vcpu);
		break;
	}
}
