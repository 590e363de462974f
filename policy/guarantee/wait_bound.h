/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The wait bound: nobody waits forever, whatever the shares say.
 *
 * Idea. Shares may be as uneven as a million to one, and then proportion alone would have a VM wait
 * for hours; the kernel throws a scheduler out that leaves a ready task waiting for 26 s, and a
 * guest that stands still for seconds believes its clock is broken. So a VM with n threads that
 * wait in a domain of p pCPUs has one of them served at least every
 *
 *	period = B(n, p) / n,	B(n, p) = n / p * 25 slices, but at least W (1 s), at most 8 W
 *
 * so that each of them, which take turns, waits for about B. Every eighth of W a pCPU looks whether
 * a VM of its domain that may run there is overdue by that, and serves the one that has waited for
 * most of its periods: whoever of it has waited longest has a *turn*, a quarter of a slice and on
 * to the tick. A turn comes before all that shares and reservations say and is not cut short by who
 * wakes, by a round or by a gang. While somebody is overdue the pCPU looks again after a slice, so
 * turns take half of its time at most. 25 slices are fifty turns: as long as B is within its limits
 * they take no more than a fiftieth. Where so many wait that all would be overdue all the time, B
 * is a slice for each thread that waits on a pCPU.
 *
 * Whoever is served by shares is served: a VM that has more than that by its shares has nothing by
 * turns. But a run that others cut short before half a turn was over counts for nothing.
 *
 * A VM that is overdue has a virtual time that means nothing here: it was counted against others,
 * elsewhere. It is brought back to the clock; and whoever is first in the domain then may be behind
 * the clock by no more than its claim (share.h).
 *
 * Threads may be kept from running by more than shares: by siblings that have run less, by an
 * affinity that few pCPUs have. So each thread that waits has a time by which it must run (due_ns:
 * B after it began to wait). Where a VM may not run on all of the domain, and in that of the host,
 * where threads wait that are of no VM yet, such threads are searched for; in any VM's queue before
 * one of it is taken, now and then. The own queue of a pCPU is
 * searched when one in it can be due: there that time is also the one at which its VM's reservation
 * is due (reserve.h), which is kept so for vCPUs that are pinned.
 *
 * What can be promised to a thread, n of its VM's waiting in its domain and m threads of others
 * there, is 2 B(n, p) + W / 4 for the looking + (1 + m / p) times the longest that a thread runs
 * unasked, a slice and a tick. (Twice, because it may come when its siblings just had their turns;
 * with several domains three times, because siblings move.) One with a single pCPU waits for W +
 * B(n, 1) + n slices and ticks, n being all that stand in that queue. (drover-core delay.rs.)
 *
 * Worked example. Shares 1 and 1000000 on one pCPU, one busy vCPU each. After one slice of 8 ms the
 * small VM is 8 s of virtual time ahead and would wait over two hours for its next. After 1 s it is
 * overdue, has a turn of 4 ms, waits 1 s: it gets 0.4 % where its shares say 0.0001 %. With 24
 * vCPUs B is 4.8 s: a turn every 200 ms.
 *
 * Limitations. It bends shares beyond about 1:100, as shown. With some 1300 threads for each
 * pCPU somebody may wait for the 26 s after which the kernel takes over. A search looks at the
 * first 256 threads of a queue.
 *
 * Why 26 s (bpf/drover.bpf.c). A stalled host waits for as long before the kernel takes over, so it
 * is as short as promises allow: the longest, where threads wait in several domains, is 3 B + W / 4
 * = 24.25 s, a limit may hold for 0.25 s more, and the rest is (1 + m / p) times U for 130 threads
 * of others for each pCPU.
 */
#ifndef DROVER_WAIT_BOUND_H
#define DROVER_WAIT_BOUND_H

#include "queue/next.h"

/* Turns take this part of the domain's time, while B is within its limits. */
#define WAIT_BOUND_TAKES_ONE_IN 50
/* B is at most so many times W. */
#define WAIT_BOUND_THREAD_FACTOR 8
/* Queues of VMs that may not run on all of a domain which are searched at a time. */
#define WAIT_BOUND_SEARCHES 16
/* A period, in units of which it is told how much of it has passed. */
#define WAIT_BOUND_PERIOD 256
/* Whoever waits, however short. */
#define WAIT_BOUND_ANY_NS (1ULL << 40)

/* How long a thread whose turn it is runs, rounded up to the tick. */
static __always_inline u64 wait_bound_turn_ns(struct drover *d)
{
	return d->params.slice_ns / 4;
}

/* B: how long each of n threads that wait for p pCPUs waits when so many wait for each pCPU. */
static __always_inline u64 wait_bound_thread_ns(struct drover *d, u32 n, u32 p, u32 on_each)
{
	/* A turn of a quarter slice ends at the tick: half a slice in the mean. */
	u64 sweep_ns = (u64)n * (d->params.slice_ns / 2) * WAIT_BOUND_TAKES_ONE_IN / (p ?: 1);
	u64 least_ns = d->params.wait_bound_ns;

	sweep_ns = min_of(max_of(sweep_ns, least_ns), WAIT_BOUND_THREAD_FACTOR * least_ns);
	return max_of(sweep_ns, on_each * d->params.slice_ns);
}

/* --- a thread's time --- */

/* The thread begins to wait in that domain, maybe as the first of its VM. */
static __always_inline void wait_bound_enter(struct drover *d, struct thread *t, u32 domain,
					     struct entity_rq *books, bool first)
{
	u32 p = domain_at(d, domain)->nr_pcpus;

	if (first)
		books->served_ns = books->taken_ns = t->unserved_since_ns;
	t->due_ns = t->unserved_since_ns +
		    (t->affinity_full ? d->params.wait_bound_ns :
					wait_bound_thread_ns(d, books->nr_queued, p, 0));
}

/* It begins to wait for its only pCPU, one of so many. */
static __always_inline void wait_bound_enter_own(struct drover *d, struct thread *t,
						 struct pcpu *pcpu, u32 nr_pinned)
{
	struct vm *vm = vm_at(d, t->slot);

	t->due_ns = t->unserved_since_ns + wait_bound_thread_ns(d, nr_pinned, 1, nr_pinned);
	if (vm->reserve_inverse)
		share_not_after(&t->due_ns, vm->reserve_tag_ns);
	if (nr_pinned == 1 || (s64)(t->due_ns - pcpu->own_due_ns) < 0)
		pcpu->own_due_ns = t->due_ns;
}

/* Who was chosen, and stood in the queue of that domain (+ 1), begins to run: is that a turn? */
static __always_inline void wait_bound_begin(struct drover *d, struct task_struct *task,
					     struct thread *t, struct pcpu *pcpu, u32 queued_in,
					     u64 now_ns)
{
	t->taken_from = queued_in;
	t->cut_short = 0;
	t->runs_since_ns = now_ns;
	if (pcpu->order.why == ORDER_TURN)
		ground_set_slice(d, task, wait_bound_turn_ns(d));
	else if (pcpu->order.why != ORDER_CALLED)
		pcpu->order.why = ORDER_NONE;
}

static __always_inline bool wait_bound_was_brief(struct drover *d, struct thread *t, u64 now_ns)
{
	return (s64)(now_ns - t->runs_since_ns) < (s64)wait_bound_turn_ns(d) / 2;
}

/* One was taken there by shares. */
static __always_inline void wait_bound_note_taken(struct drover *d, u32 domain, u32 slot,
						  u64 now_ns)
{
	struct runqueue *rq = ground_runqueue(d, domain);

	if (rq)
		entity_rq_of(rq, slot)->taken_ns = now_ns;
}

/* It has run for long enough: its VM was served in the domain it was taken from. */
static __always_inline void wait_bound_count(struct drover *d, struct thread *t, u64 now_ns)
{
	struct runqueue *rq = t->taken_from ? ground_runqueue(d, t->taken_from - 1) : NULL;

	if (rq)
		entity_rq_of(rq, t->slot)->served_ns = now_ns;
	t->taken_from = 0;
}

/* The thread has run, and may go on. */
static __always_inline void wait_bound_goes_on(struct drover *d, struct thread *t, u64 now_ns)
{
	if (t->taken_from && !wait_bound_was_brief(d, t, now_ns))
		wait_bound_count(d, t, now_ns);
}

/*
 * It stops. Was it cut short? Who sleeps has had what it wanted; and what its own VM's limit or
 * co-scheduling takes from it, others did not.
 */
static __always_inline void wait_bound_stops(struct drover *d, struct thread *t, bool ready,
					     u64 now_ns)
{
	struct vm *vm = vm_at(d, t->slot);

	t->cut_short =
		ready && !vm->at_limit && !vm->may_idle_wait && wait_bound_was_brief(d, t, now_ns);
	if (!t->cut_short)
		wait_bound_count(d, t, now_ns);
}

/*
 * The pCPU asks: does the task (NULL: none that may go on) have a turn that is not over yet? Then
 * whoever sent for the pCPU did so before the turn began: the interrupt comes when it has. The task
 * goes on for what is left of the turn.
 */
static __always_inline bool wait_bound_turn_goes_on(struct drover *d, struct task_struct *task,
						    struct pcpu *pcpu)
{
	s64 left_ns = (s64)(pcpu->order.until_ns - pcpu->asked_ns);

	if (pcpu->order.why != ORDER_TURN)
		return false;
	if (!task || left_ns <= 0) {
		pcpu->order.why = ORDER_NONE;
		return false;
	}
	ground_set_slice(d, task, (u64)left_ns);
	return true;
}

/* --- who is overdue --- */

/* How many threads wait for each pCPU of the domain; the host's own apart, theirs is stretched by
 * all. */
BPF_GLOBAL u32 wait_bound_on_each(THE_DROVER, u32 domain)
{
	struct runqueue *rq = ground_runqueue(d, domain);
	u32 nr_slots = d->slots_in_use;
	u32 nr_waiting = 0;
	u32 slot;

	if (!rq)
		return 0;
	for_each_index(slot, 1, nr_slots)
		nr_waiting += entity_rq_of(rq, slot)->nr_queued;
	return nr_waiting / (domain_at(d, domain)->nr_pcpus ?: 1);
}

/*
 * The VM of the pCPU's domain that has waited for most of its periods, one at least, and may run
 * there; DROVER_MAX_VMS: none, and the pCPU looks again when there can be one.
 */
BPF_GLOBAL u32 wait_bound_overdue(THE_DROVER, u32 pcpu, u32 on_each)
{
	u64 now_ns = pcpu_at(d, pcpu)->asked_ns;
	u32 domain = pcpu_at(d, pcpu)->domain;
	struct runqueue *rq = ground_runqueue(d, domain);
	u32 p = domain_at(d, domain)->nr_pcpus;
	u64 again_ns = d->params.wait_bound_ns / 8;
	u32 nr_slots = d->slots_in_use;
	u32 overdue = DROVER_MAX_VMS;
	u64 most = WAIT_BOUND_PERIOD;
	u32 slot;

	if (!rq)
		return overdue;
	for_each_index(slot, 0, nr_slots) {
		struct entity_rq *books = entity_rq_of(rq, slot);
		u32 n = books->nr_queued;
		s64 waited_ns = (s64)(now_ns - books->served_ns);
		u64 period_ns, periods;

		if (!n || waited_ns <= 0 || vm_at(d, slot)->at_limit ||
		    !next_fits(d, pcpu, domain, rq, slot, NEXT_NOT_HELD))
			continue;
		period_ns = wait_bound_thread_ns(d, n, p, on_each) / n;
		periods = (u64)waited_ns * WAIT_BOUND_PERIOD / (period_ns ?: 1);
		if (periods >= most) {
			overdue = slot;
			most = periods;
		}
		if ((u64)waited_ns < period_ns)
			again_ns = min_of(again_ns, period_ns - (u64)waited_ns);
	}
	pcpu_at(d, pcpu)->overdue_check_ns = now_ns + again_ns;
	return overdue;
}

/* Of the host and of VMs that may not run on all of the domain: take a thread that is overdue
 * itself. */
BPF_GLOBAL bool wait_bound_search(THE_DROVER, u32 pcpu)
{
	u32 domain = pcpu_at(d, pcpu)->domain;
	struct runqueue *rq = ground_runqueue(d, domain);
	u32 nr_slots = d->slots_in_use;
	u32 searches = 0;
	bool taken = false;
	u32 slot;

	if (!rq)
		return false;
	for_each_index(slot, 0, nr_slots) {
		struct entity_rq *books = entity_rq_of(rq, slot);

		if (!books->nr_queued ||
		    (slot != DROVER_HOST_SLOT && !(books->marks & ENTITY_RQ_PARTIAL)) ||
		    !next_fits(d, pcpu, domain, rq, slot, NEXT_NOT_HELD))
			continue;
		taken = ground_take_due(d, ground_vm_queue(d, slot, domain),
					pcpu_at(d, pcpu)->asked_ns);
		if (taken || ++searches >= WAIT_BOUND_SEARCHES)
			break;
	}
	return taken;
}

/*
 * The VM is overdue there, and served now. If nobody of it was taken by shares for all of W bring
 * it back to the clock, and hold the first to its claim.
 */
BPF_GLOBAL int wait_bound_forgive(THE_DROVER, u32 slot, u32 domain, u64 now_ns)
{
	struct vm *vm = vm_at(d, slot);
	struct runqueue *rq = ground_runqueue(d, domain);
	u64 clock_ns = *share_clock(d, domain);
	u32 first;

	if (!rq)
		return 0;
	entity_rq_of(rq, slot)->served_ns = now_ns;
	if (now_ns - entity_rq_of(rq, slot)->taken_ns < d->params.wait_bound_ns)
		return 0;
	entity_rq_of(rq, slot)->taken_ns = now_ns;
	share_not_after(&vm->vtime_ns, clock_ns);
	vm->nr_starvation_boosts++;
	tournament_settle(d, domain, slot, TOURNAMENT_NOBODY, share_key(d, domain, slot));
	first = tournament_slot(tournament_best(d, &rq->by_share));
	share_bound_claim(vm_at(d, first), clock_ns, share_claim_max_ns(d, vm_at(d, first)));
	return 0;
}

/* Serve one in the pCPU's own queue that must run by now. */
static __always_inline bool wait_bound_serve_own(struct drover *d, u32 pcpu)
{
	struct pcpu *here = pcpu_at(d, pcpu);

	if (!here->nr_pinned || (s64)(here->asked_ns - here->own_due_ns) < 0)
		return false;
	/* Who is served is in nobody's way for long: those of the domain have every second slice.
	 */
	here->own_due_ns = here->asked_ns + d->params.slice_ns;
	return ground_take_due(d, ground_pcpu_queue(d, pcpu), here->asked_ns);
}

/* Take a thread of the VM that is overdue there. */
BPF_GLOBAL bool wait_bound_take_overdue(THE_DROVER, u32 pcpu)
{
	u32 domain = pcpu_at(d, pcpu)->domain;
	u64 now_ns = pcpu_at(d, pcpu)->asked_ns;
	u32 slot = wait_bound_overdue(d, pcpu, wait_bound_on_each(d, domain));

	if (slot >= DROVER_MAX_VMS)
		return false;
	wait_bound_forgive(d, slot, domain, now_ns);
	return ground_take_due(d, ground_vm_queue(d, slot, domain), now_ns + WAIT_BOUND_ANY_NS);
}

/*
 * Serve a thread of the pCPU's domain that waits beyond the bound, if it is time to look: of VMs
 * that are overdue and of threads that are by themselves now one comes first, now the other.
 */
static __always_inline bool wait_bound_serve_domain(struct drover *d, u32 pcpu)
{
	struct pcpu *here = pcpu_at(d, pcpu);
	u32 search_first;
	bool served;

	if ((s64)(here->asked_ns - here->overdue_check_ns) < 0)
		return false;
	search_first = here->search_first;
	served = (search_first && wait_bound_search(d, pcpu)) || wait_bound_take_overdue(d, pcpu) ||
		 (!search_first && wait_bound_search(d, pcpu));
	if (!served)
		return false;
	here->search_first = !search_first;
	here->overdue_check_ns = here->asked_ns + d->params.slice_ns;
	return true;
}

/* Give a turn to a thread that waits beyond the bound, if it is time to look. */
static __always_inline bool wait_bound_serve(struct drover *d, u32 pcpu)
{
	struct pcpu *here = pcpu_at(d, pcpu);

	if (!wait_bound_serve_own(d, pcpu) && !wait_bound_serve_domain(d, pcpu))
		return false;
	here->order.until_ns = here->asked_ns + wait_bound_turn_ns(d);
	here->order.why = ORDER_TURN;
	return true;
}

/* Of that VM's queue take one that waits beyond the bound, if it is time to look for one. */
static __always_inline bool wait_bound_serve_sibling(struct drover *d, struct vm *vm, u64 queue,
						     u64 now_ns)
{
	if ((s64)(now_ns - vm->overdue_check_ns) < 0)
		return false;
	if (ground_take_due(d, queue, now_ns))
		return true;
	vm->overdue_check_ns = now_ns + d->params.wait_bound_ns / 8;
	return false;
}

#endif
