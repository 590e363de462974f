/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Workload `cpu`: busy for duty_pct of each period, halted for the rest; from a given moment on
 * with another duty. Progress = units of cpu_unit_loops.
 *
 * The busy part is counted in CPU time the host really gave us (clock minus steal time), not in
 * time that passed: a vCPU that wants 50 % and is made to wait still wants its 50 %. With a 10 ms
 * period at 50 %, a vCPU that waits 3 ms of the first 8 has then received 5 ms and halts for 2.
 * What does not fit into a period is not owed in the next: demand never exceeds duty_pct.
 * A vCPU with nothing to do does not wake for each period: under emulation that alone takes 3 %
 * of a pCPU. Nor does one that is always busy look at the clock after each unit: emulated pCPUs
 * take turns at theirs, and how they fall in with each other made a unit cost up to 1.7 times as
 * much.
 */
#include "guest.h"
#include "machine.h"

#define UNITS_A_LOOK 32

static void one_unit(const struct vcpu *vcpu)
{
	work(vcpu->control->cpu_unit_loops);
	vcpu->stats->progress++;
}

static void busy_part(const struct vcpu *vcpu, uint64_t busy_ns)
{
	uint64_t start_tsc = read_tsc();
	uint64_t start_steal_ns = *vcpu->steal_ns;
	uint64_t passed_ns = 0, stolen_ns = 0;

	while (passed_ns < busy_ns + stolen_ns) {
		one_unit(vcpu);
		passed_ns = cycles_to_ns(vcpu, read_tsc() - start_tsc);
		stolen_ns = *vcpu->steal_ns - start_steal_ns;
	}
}

static uint32_t duty_pct_now(const struct vcpu *vcpu)
{
	volatile struct drover_control *control = vcpu->control;
	uint64_t start_tsc = control->start_tsc, now_tsc = read_tsc();
	uint64_t passed_cycles = now_tsc > start_tsc ? now_tsc - start_tsc : 0;

	return passed_cycles < control->cpu_then_cycles ? control->cpu_duty_pct :
							  control->cpu_then_duty_pct;
}

/* When that ends; never, as far as anybody waits, once it has changed. */
static uint64_t duty_changes_tsc(const struct vcpu *vcpu)
{
	volatile struct drover_control *control = vcpu->control;
	uint64_t changes_tsc = control->start_tsc + control->cpu_then_cycles;
	uint64_t now_tsc = read_tsc();

	return changes_tsc > now_tsc ? changes_tsc : now_tsc + 1000 * control->cpu_period_cycles;
}

void workload_cpu(const struct vcpu *vcpu)
{
	uint64_t period_cycles = vcpu->control->cpu_period_cycles;
	uint64_t period_ns = cycles_to_ns(vcpu, period_cycles);
	uint64_t next_tsc = read_tsc();
	uint32_t duty_pct;

	for (;;) {
		duty_pct = duty_pct_now(vcpu);
		if (duty_pct >= 100) {
			for (uint32_t unit = 0; unit < UNITS_A_LOOK; unit++)
				one_unit(vcpu);
			next_tsc = read_tsc();
			continue;
		}
		if (!duty_pct) {
			next_tsc = sleep_until(vcpu, duty_changes_tsc(vcpu));
			continue;
		}
		next_tsc += period_cycles;
		busy_part(vcpu, period_ns * duty_pct / 100);
		if (read_tsc() < next_tsc)
			sleep_until(vcpu, next_tsc);
		else
			next_tsc = read_tsc();
	}
}
