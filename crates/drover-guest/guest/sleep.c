/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Workload `sleep`: wake at fixed moments, note how late, work a little. Progress = wake-ups.
 *
 * The moments are a grid of one period, the vCPUs spread evenly over it: with 2 vCPUs and 2 ms, one
 * wakes at 0, 2, 4 ms, the other at 1, 3, 5 ms. A moment that passed while we were still late or
 * busy is left out, not made up for, and lateness is always counted from the moment asked for.
 */
#include "guest.h"
#include "histogram.h"
#include "machine.h"

static void note_lateness(const struct vcpu *vcpu, uint64_t late_ns)
{
	volatile struct drover_vcpu *stats = vcpu->stats;

	stats->wake_buckets[histogram_index(late_ns)]++;
	stats->wake_sum_ns += late_ns;
	if (late_ns > stats->wake_max_ns)
		stats->wake_max_ns = late_ns;
	stats->wake_count++;
}

/* Clocks of vCPUs agree on any sane host; where not, start from our own rather than sleep for ever.
 */
static uint64_t first_deadline(const struct vcpu *vcpu, uint32_t rank, uint32_t parties)
{
	uint64_t period_cycles = vcpu->control->sleep_period_cycles;
	uint64_t start_tsc = vcpu->control->start_tsc;
	uint64_t now_tsc = read_tsc();

	if (start_tsc > now_tsc || now_tsc - start_tsc > 1000 * period_cycles)
		start_tsc = now_tsc;
	return start_tsc + period_cycles + period_cycles * rank / parties;
}

void workload_sleep(const struct vcpu *vcpu, uint32_t rank, uint32_t parties)
{
	uint64_t period_cycles = vcpu->control->sleep_period_cycles;
	uint64_t deadline_tsc = first_deadline(vcpu, rank, parties);
	uint64_t woke_tsc;

	for (;;) {
		while (deadline_tsc <= read_tsc())
			deadline_tsc += period_cycles;
		woke_tsc = sleep_until(vcpu, deadline_tsc);
		note_lateness(vcpu, cycles_to_ns(vcpu, woke_tsc - deadline_tsc));
		vcpu->stats->progress++;
		work(vcpu->control->sleep_work_loops);
	}
}
