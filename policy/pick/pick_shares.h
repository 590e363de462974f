/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Picking by shares: the least served, and balancing between domains.
 *
 * Idea. The pCPU compares the least served VM of its domain that may run here (next.h) and the
 * thread that runs now, if it would go on. The least virtual time wins. Before that it glances at
 * one other domain, now this, now that, and takes from there when that domain's VM is further
 * behind than a migration is worth: steal_gain for each hop (topology.h). That glance is the whole
 * of load balancing between domains: virtual time is the VM's wherever it runs, so the domain with
 * too much work is the one whose VMs fall behind. A pCPU that finds none looks everywhere before
 * it goes idle. VMs that wait at home are dearer (home.h).
 *
 * Worked example. Domain 0 has one VM at 40 ms, domain 1 three VMs at 28 ms. A pCPU
 * of domain 0 glances at domain 1: 28 + steal_gain (8 ms) < 40, so it takes a thread
 * of domain 1, which from then on waits in domain 0.
 *
 * Limitations. With C domains an imbalance is seen after about C picks, some
 * C * 8 ms.
 */
#ifndef DROVER_PICK_SHARES_H
#define DROVER_PICK_SHARES_H

#include "pick/pick_vm.h"
#include "place/home.h"

/*
 * Take a thread of that domain which may run here: of the least served VM of those that come before
 * that key. NOBODY: of any.
 */
BPF_GLOBAL bool pick_first(THE_DROVER, u32 pcpu, u32 domain, u64 before)
{
	u64 after = TOURNAMENT_NOBODY;
	bool found = false;
	u32 try;

	for_each_index(try, 0, PICK_TRIES) {
		u64 key = next_vm(d, pcpu, domain, after, 0);

		if (!tournament_before(key, before))
			break;
		found = !home_keeps(d, pcpu, domain, key, before) &&
			pick_from_domain(d, pcpu, domain, key);
		if (found)
			break;
		after = key;
	}
	return found;
}

/* One of the glanced domain, if its VM is far behind `key`: the further, the more. */
static __always_inline bool pick_from_neighbour(struct drover *d, u32 pcpu, u64 key)
{
	u32 other = topology_glanced(d, pcpu);
	u64 gain = key == TOURNAMENT_NOBODY ? 0 : home_gain_in_keys(d, pcpu, other);

	return pick_first(d, pcpu, other, key - gain);
}

/* Nothing here: anything, anywhere, that may run here. */
BPF_GLOBAL bool pick_anywhere(THE_DROVER, u32 pcpu)
{
	u32 nr_domains = d->params.nr_domains;
	u32 home = pcpu_at(d, pcpu)->domain;
	bool found = false;
	u32 step;

	for_each_index(step, 1, nr_domains) {
		found = pick_first(d, pcpu, topology_near(d, home, step), TOURNAMENT_NOBODY);
		if (found)
			break;
	}
	return found;
}

/*
 * Does the running thread give way to the best that waits? To a sibling always. Where tasks have
 * nice values, or all pCPUs ask at once, only to a sibling that has run less: otherwise the pCPU
 * that asks last would preempt the same thread each time.
 */
static __always_inline bool pick_yields(struct drover *d, u32 pcpu, u64 running_key,
					u64 vruntime_ns, u64 key)
{
	u32 running = tournament_slot(running_key);

	if (tournament_slot(key) == running)
		return (vm_is_process(vm_at(d, running)) && !vm_at(d, running)->coscheduled) ||
		       pick_sibling_is_behind(d, pcpu, running, vruntime_ns);
	return !tournament_before(running_key, key);
}

/* The least served. */
BPF_GLOBAL u32 pick_by_shares(THE_DROVER, u32 pcpu, u32 slot, u64 vruntime_ns)
{
	u32 home = pcpu_at(d, pcpu)->domain;
	u64 running_key = pick_running_key(d, pcpu, slot);
	u64 after = TOURNAMENT_NOBODY;
	u32 try;

	for_each_index(try, 0, PICK_TRIES) {
		u64 key = next_vm(d, pcpu, home, after, 0);

		if (d->params.nr_domains > 1 && !try &&
		    pick_from_neighbour(d, pcpu,
					tournament_before(key, running_key) ? key : running_key))
			return PICKED_WAITING;
		if (running_key != TOURNAMENT_NOBODY &&
		    (key == TOURNAMENT_NOBODY ||
		     !pick_yields(d, pcpu, running_key, vruntime_ns, key))) {
			share_clock_follow(d, home, slot);
			return pick_go_on(d, pcpu, slot, vruntime_ns);
		}
		if (key == TOURNAMENT_NOBODY)
			break;
		if (pick_from_domain(d, pcpu, home, key))
			return PICKED_WAITING;
		after = key;
	}
	return PICKED_NONE;
}

#endif
