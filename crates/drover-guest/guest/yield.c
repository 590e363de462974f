/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Workload `yield`: the vCPUs hand a token round. Who has it works and hands it on; who waits for
 * it asks the host to run the one that has it, again and again until it is back. Progress = tokens
 * handed on; `yields` = how often the host was asked.
 *
 * On one pCPU nobody moves unless the host does as asked: then one yield for each token is all it
 * takes. Without any work the loop is as tight as a guest can make it: what a hostile one would do.
 */
#include "guest.h"
#include "machine.h"

static _Alignas(64) uint32_t holder;

void workload_yield(const struct vcpu *vcpu, uint32_t parties)
{
	for (;;) {
		uint32_t has_it = __atomic_load_n(&holder, __ATOMIC_ACQUIRE);

		if (has_it != vcpu->index) {
			vcpu->stats->yields++;
			yield_to(has_it);
			continue;
		}
		work(vcpu->control->yield_work_loops);
		__atomic_store_n(&holder, (vcpu->index + 1) % parties, __ATOMIC_RELEASE);
		vcpu->stats->progress++;
	}
}
