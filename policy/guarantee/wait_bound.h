/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Deadlines: which thread must run by when, whatever its VM's shares; and the wait bound: no thread
 * waits forever.
 *
 * Idea. Two things make a VM's threads urgent: its reservation is due (share.h), or one of them
 * has waited for as long as a thread may (the wait bound, below). Both are moments in real time, so
 * each domain has a second tournament, in which a waiting VM stands at the earlier of the two. A
 * pCPU that asks for work reads its root first. Mostly no deadline has come, and shares decide.
 * Otherwise the VM with the earliest deadline is served.
 *
 * A VM's deadline mostly moves later: it is served elsewhere, the thread that was due first is
 * taken by shares, or none of its threads waits any more. Its leaf then still has the earlier time.
 * It is corrected when it is at the root and that time has come, so that threads can come and go
 * without a write here. When a deadline moves earlier (a thread comes that kept its own, a
 * reservation grows) the leaf is written at once.
 *
 * Worked example. It is 5,000 ms. VM 3 has 100 % reserved and its tag is at 4,998; VM 4 waits since
 * 4,100, its deadline is 5,100; VM 5's, which has waited since 3,999, is 4,999. The pCPU takes
 * VM 3. 8 ms later VM 3's tag is at 5,006, its leaf still says 4,998: it is put right, and VM 5 has
 * a turn.
 *
 * Limitations. Nothing happens at the moment of a deadline: it is seen when a pCPU next asks, a
 * slice later at worst. A thread that is due and may not run on the pCPU that asks costs that one a
 * search.
 *
 * The wait bound. Shares may be as uneven as a million to one, and then proportion alone would have
 * a VM wait for hours; the kernel throws a scheduler out that leaves a ready task waiting for 26 s,
 * and a guest that stands still for seconds believes its clock is broken. So every thread that
 * waits has a deadline: B after it began, where n threads of its VM wait in a domain of p pCPUs
 *
 *	B(n, p) = n / p * 25 slices, but at least W (1 s), at most 8 W
 *
 * and a VM has one W after any thread of it was last taken. At its deadline a thread
 * has a *turn*, before all that shares say, not cut short by a wake-up, by a round or by a gang. A
 * timer ends it, and has the pCPU ask when it may give the next.
 *
 * Turns take a fiftieth of each pCPU's time, however many are due. A turn is a quarter of a slice,
 * and the pCPU that gave it gives the next after fifty times as long. Where more are due than have
 * such turns, deadlines are missed, and turns become shorter: by so much as the one that is served
 * is late, once that is more than W / 16. So the crowd that makes them short has the short ones.
 * A thread that is late by 4 W is served whatever it costs others, up to half of the time: the
 * kernel would throw the scheduler out.
 *
 * A thread that has run was served, for whatever reason. But a run that others cut short before
 * half a turn was over counts for nothing: the thread keeps its deadline.
 *
 * If no thread of a VM was taken in the domain for W while others of it run, its virtual time says
 * nothing there: it was counted against other VMs, on other pCPUs. It is set back to the domain's
 * clock. (A VM that runs nowhere has had what it is ahead by.) The VM that is first in the domain
 * then may be behind the clock by no more than its claim (share.h).
 *
 * What can be promised to a thread, n of its VM's waiting in its domain and m threads of others
 * there, is 2 B(n, p) + W / 4 + (1 + m / p) times the longest that a thread runs unasked, a slice
 * and a tick. (Twice, because it may come when its siblings just had their turns; with several
 * domains three times, because siblings move. W / 4: counts may be wrong for as long while
 * pCPUs come and go. With m VMs of one thread that are all due, turns are W / 50 * p / m long, so
 * the one that is served is late by m / p * 6 ms.) One with a single pCPU waits for W + B(n, 1) + n
 * slices and ticks, n being all that wait for that pCPU alone. (drover-core delay.rs.)
 *
 * Worked example. Shares 1 and 1000000 on one pCPU, one busy vCPU each. After one slice of 8 ms the
 * small VM is 8 s of virtual time ahead and would wait over two hours for its next. After 1 s it
 * has a turn of 2 ms, waits 1 s: it gets 0.2 % where its shares say 0.0001 %. With 1000 such VMs
 * each has a turn of 20 us in each second, were no turn 50 us at least: so each has one in 2.5 s.
 *
 *	late      0 .. 62 ms   0.25 s   1 s      2.5 s   4 s ...
 *	turn      2 ms         0.5 ms   0.13 ms  50 us   50 us
 *	the next  100 ms       25 ms    6 ms     2.5 ms  0.1 ms
 *
 * Limitations. It bends shares beyond about 1:50, as shown. Turns of one wide VM come in bursts.
 * A search looks at the first 256 threads of a queue; in longer ones threads stand in the order in
 * which they came (waiting.h), so that the first are the latest.
 *
 * Why 26 s (bpf/drover.bpf.c). A stalled host waits for as long before the kernel takes over, so it
 * is as short as promises allow: the longest, where threads wait in several domains, is 3 B + W / 4
 * = 24.25 s, a limit may hold for 0.25 s more, and the rest is (1 + m / p) times U for 130 threads
 * of others for each pCPU. With more it is the 4 W that hold: 8 W, 4 W, and 50 us for each thread.
 */
#ifndef DROVER_WAIT_BOUND_H
#define DROVER_WAIT_BOUND_H

#include "base/order.h"
#include "base/timer.h"
#include "queue/affinity.h"
#include "share/share.h"

/* Turns take this part of a pCPU's time, */
#define WAIT_BOUND_TAKES_ONE_IN 50
/* but for threads that are late by so many times W: then they take half of it. */
#define WAIT_BOUND_LATE_FACTOR 4
/* B is at most so many times W. */
#define WAIT_BOUND_THREAD_FACTOR 8
/* While none is later than that part of W turns have their full length. */
#define WAIT_BOUND_ON_TIME_PART 16
/* No turn is shorter: to switch takes some us. */
#define WAIT_BOUND_TURN_MIN_NS 50000LL
/* Of a turn that is over, the pCPU may ask so early. */
#define WAIT_BOUND_EARLY_NS 10000LL

/* How long a thread runs whose turn comes so late. */
static __always_inline u64 wait_bound_turn_ns(struct drover *d, s64 late_ns)
{
	u64 whole_ns = d->params.slice_ns / 4;
	s64 on_time_ns = (s64)(d->params.wait_bound_ns / WAIT_BOUND_ON_TIME_PART);

	if (late_ns <= on_time_ns)
		return whole_ns;
	return max_of(whole_ns * (u64)on_time_ns / (u64)late_ns, (u64)WAIT_BOUND_TURN_MIN_NS);
}

/* B: how long each of n threads that wait for p pCPUs waits. */
static __always_inline u64 wait_bound_thread_ns(struct drover *d, u32 n, u32 p)
{
	/* Twice as long as turns take: half of them are for others. */
	u64 sweep_ns = (u64)n * (d->params.slice_ns / 2) * WAIT_BOUND_TAKES_ONE_IN / (p ?: 1);
	u64 least_ns = d->params.wait_bound_ns;

	return min_of(max_of(sweep_ns, least_ns), WAIT_BOUND_THREAD_FACTOR * least_ns);
}

/*
 * The thread, which is counted, begins to wait in that domain, maybe as the first of its VM. True:
 * it must run before all of its siblings that wait there.
 */
static __always_inline bool wait_bound_enter(struct drover *d, struct thread *t, u32 domain,
					     struct entity_rq *entity, bool first)
{
	u32 n = t->pinned_cpu ? pcpu_at(d, t->pinned_cpu - 1)->nr_pinned : entity->nr_queued;
	u32 p = t->pinned_cpu ? 1 : domain_at(d, domain)->nr_pcpus;
	u64 now_ns = ground_now_ns(d);

	if (!t->due_ns)
		t->due_ns = now_ns + wait_bound_thread_ns(d, n, p);
	if (first)
		entity->served_ns = now_ns;
	else if ((s64)(t->due_ns - entity->due_ns) >= 0)
		return false;
	entity->due_ns = t->due_ns;
	return true;
}

static __always_inline u64 wait_bound_earlier(u64 a, u64 b)
{
	return (s64)(a - b) < 0 ? a : b;
}

/* When one of the VM's threads that wait there must run. */
static __always_inline u64 wait_bound_due_ns(struct drover *d, struct entity_rq *entity)
{
	return wait_bound_earlier(entity->due_ns, entity->served_ns + d->params.wait_bound_ns);
}

/* --- the tournament of deadlines --- */

/* Where the VM stands by its deadline among those that wait there; nowhere while it may not run. */
static __always_inline u64 deadline_key(struct drover *d, u32 domain, u32 slot, u64 now_ns)
{
	struct runqueue *rq = ground_runqueue(d, domain);
	struct vm *vm = vm_at(d, slot);
	u64 due_ns;

	if (!rq || vm->at_limit || !entity_rq_of(rq, slot)->nr_queued)
		return TOURNAMENT_NONE;
	due_ns = wait_bound_due_ns(d, entity_rq_of(rq, slot));
	if (vm->reserve_inverse)
		due_ns = wait_bound_earlier(due_ns, reserve_due_ns(d, vm, now_ns));
	return tournament_key(due_ns, slot);
}

/* The deadline of the VM in that domain may have moved back. */
BPF_GLOBAL int deadline_settle(THE_DROVER, u32 domain, u32 slot)
{
	u64 key = deadline_key(d, domain, slot, ground_now_ns(d));
	struct runqueue *rq = ground_runqueue(d, domain);

	if (rq && tournament_before(key, tournament_leaf(&rq->by_deadline, slot)))
		tournament_settle(d, domain, slot | BY_DEADLINE, TOURNAMENT_NONE, key);
	return 0;
}

/* Promise the VM that much from now on; 0: nothing. Its leaves stand where it waits. */
BPF_GLOBAL int deadline_promise(THE_DROVER, u32 slot, u32 mcpu)
{
	struct vm *vm = vm_at(d, slot);
	u64 before = vm->reserve_inverse;
	u32 i;

	reserve_set(d, vm, mcpu);
	if (vm->reserve_inverse == before)
		return 0;
	for_each_index(i, 0, d->params.nr_domains)
		deadline_settle(d, i, slot);
	return 0;
}

/* How long until the first deadline in that domain comes; so long at most, also where one has come:
 * a VM that may not run on the pCPU that asks shortens no slice. */
BPF_GLOBAL u64 deadline_within_ns(THE_DROVER, u32 domain, u64 most_ns)
{
	struct runqueue *rq = ground_runqueue(d, domain);
	u64 key = rq ? tournament_best(d, &rq->by_deadline) : TOURNAMENT_NONE;
	u64 due_ns = key >> DROVER_SLOT_BITS << TOURNAMENT_TIME_SHIFT;
	s64 left_ns = (s64)(due_ns - ground_now_ns(d));

	return key == TOURNAMENT_NONE || left_ns <= 0 ? most_ns : min_of((u64)left_ns, most_ns);
}

/* --- runs and turns --- */

/* The chosen thread begins to run: is that a turn? */
BPF_GLOBAL int wait_bound_begin(THE_DROVER, THE_TASK, THE_THREAD, u32 at, u64 now_ns)
{
	struct pcpu *pcpu = pcpu_at(d, at);
	s64 left_ns;

	t->runs_since_ns = now_ns;
	/* The pCPU has not asked since the thread was sent to preempt: it does not give way again
	 * to the next one that wakes, or to a round, before it has had a turn. */
	if (order_is(pcpu, ORDER_SENT)) {
		order_give(pcpu, ORDER_BEGUN);
		pcpu->order.until_ns = now_ns + wait_bound_turn_ns(d, 0);
	}
	if (!order_is_turn(pcpu)) {
		order_give(pcpu, ORDER_NONE);
		return 0;
	}
	/* It may have been on its way for longer than its turn was to last. */
	left_ns = max_signed((s64)(pcpu->order.until_ns - now_ns), WAIT_BOUND_TURN_MIN_NS);
	pcpu->order.until_ns = now_ns + (u64)left_ns;
	ground_set_slice(d, task, (u64)left_ns);
	if (order_is(pcpu, ORDER_TURN))
		ground_timer(d, TIMER_TURN(at), pcpu->order.until_ns, now_ns);
	return 0;
}

/* The timer of turns on that pCPU goes off: one ends, or the next may begin. */
static __always_inline void wait_bound_timer(struct drover *d, u32 at, u64 now_ns)
{
	struct pcpu *pcpu = pcpu_at(d, at);
	u64 due_ns = order_is(pcpu, ORDER_TURN) ? pcpu->order.until_ns : pcpu->next_turn_ns;

	if ((s64)(due_ns - now_ns) <= WAIT_BOUND_EARLY_NS)
		ground_preempt(d, at);
}

/*
 * It stops. Was it cut short? A thread that sleeps has had what it wanted; and what its own VM's
 * limit or co-scheduling takes from it, others did not.
 */
static __always_inline void wait_bound_stops(struct drover *d, struct thread *t, bool ready,
					     u64 now_ns)
{
	struct vm *vm = vm_at(d, t->slot);
	s64 late_ns = t->due_ns ? (s64)(t->runs_since_ns - t->due_ns) : 0;
	u64 half_ns = wait_bound_turn_ns(d, late_ns) / 2;
	bool brief = (s64)(now_ns - t->runs_since_ns) < (s64)half_ns;

	if (!ready || !brief || vm->at_limit || vm_may_wait(vm))
		t->due_ns = 0;
}

/* The thread that is taken there next has a turn, which comes so late. */
static __always_inline void wait_bound_begin_turn(struct drover *d, struct pcpu *pcpu, s64 late_ns)
{
	u64 turn_ns = wait_bound_turn_ns(d, late_ns);
	bool too_late = late_ns > (s64)(WAIT_BOUND_LATE_FACTOR * d->params.wait_bound_ns);

	order_give(pcpu, ORDER_TURN);
	pcpu->order.until_ns = pcpu->asked_ns + turn_ns;
	pcpu->next_turn_ns = pcpu->asked_ns + turn_ns * (too_late ? 2 : WAIT_BOUND_TAKES_ONE_IN);
}

#endif
