/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The wait bound: nobody waits forever, whatever the shares say.
 *
 * Idea. Shares may be as uneven as a million to one, and then proportion alone
 * would have a VM wait for hours; the kernel throws a scheduler out that leaves
 * a ready task waiting for 30 s, and a guest that stands still for seconds
 * believes its clock is broken. So every eighth of the wait bound W (1 s) the
 * books are walked, and VMs are owed turns: a VM with n threads that wait in a
 * domain of p pCPUs gets one at least every
 *
 *	period = B(n, p) / n,	B(n, p) = n / p * 200 ms, but at least W, at most 8 W
 *
 * so that each of its threads, which take turns, waits for about B. n is the most that waited
 * since the last multiple of 8 W: if turns came ever more rarely while the threads leave one by one
 * (killed, or asleep when served) the last of 15 would wait for 15/15 + 15/14 + ... = 3.3 B. A turn
 * is short, a quarter of a slice and on to the tick (4 ms in the mean at 250 Hz), comes before all
 * that shares say, is not cut short by who wakes, by a round or by a gang (by shares everybody
 * comes before whoever needs a turn), and is for whoever has waited longest. 200 ms are fifty
 * turns: as long as B is within its limits, turns take no more than a fiftieth of the domain's time
 * from others; 128 threads for each pCPU take 6.4 %. The time is charged as any other, and who is
 * served by shares is served: who gets more than that by its shares gets nothing by turns. But a
 * run that others cut short before half a turn was over (who wakes is owed more than a VM of few
 * shares) counts for nothing, and a turn that was cut so is owed again.
 *
 * Where so many wait that turns for all would leave nothing else they come more rarely: B is never
 * less than a slice for each thread that waits on a pCPU in the mean, the host's own apart (theirs
 * is stretched by all). A turn is half of that, and shares decide about the rest. (With nothing but
 * turns nobody is served by shares, nothing pays for turns, the same VMs are owed more and more,
 * and the others wait until the kernel throws the scheduler out.)
 *
 * A VM of which nobody was taken for all of W has a virtual time that means
 * nothing here: its books were made against others, elsewhere. It is forgiven, that is
 * brought back to the clock; and whoever is first in the domain then may be behind the
 * clock by no more than its claim (share.h).
 *
 * Inside one queue, where a `nice 19` task could wait behind a crowd of
 * `nice -20`, the queue is searched now and then for the thread that has waited
 * longest, and that one is served first, if it is more than W. The same in the
 * pCPUs' own queues, where one of the n threads gets a turn every B(n, 1) / n.
 *
 * What can be promised to a thread, n of its VM's waiting in its domain and m turns
 * owed to others there, is 2 B(n, p) + W / 4 for the looking + (1 + m / p) times
 * the longest that a thread runs unasked, a slice and a tick. (Twice, because it may
 * come when its siblings just had their turns; with several domains three times, because
 * siblings move.) A confined one waits for W + B(n, 1) + n slices and ticks, n being
 * all that stand in that queue. One that is confined, or freed, as it waits stands in
 * another queue from then on, and waits anew: what it may have waited by
 * then, as one of 15 confined to three pCPUs say 2.4 s, is more than the VM's bound.
 *
 * Worked example. Shares 1 and 1000000 on one pCPU, one busy vCPU each. After one
 * slice of 8 ms the small VM is 8 s of virtual time ahead and would wait over two
 * hours for its next. After 1 s it is owed a turn, runs 4 ms, waits 1 s: it gets
 * 0.4 % where its shares say 0.0001 %. With 24 vCPUs B is 4.8 s: a turn every
 * 200 ms. And 200 VMs of two vCPUs there: B is 400 slices, 3.2 s, a turn of 4 ms for each.
 *
 * What it is bad at. It bends shares beyond about 1:100, as shown. A hundred
 * such VMs on one pCPU would take 40 % of it, more take half. With some 1500 threads for each
 * pCPU somebody may wait for the 30 s after which the kernel takes over. All domains count as
 * equally wide. The search looks at the first 256 threads of a queue.
 */
#ifndef DROVER_WAIT_BOUND_H
#define DROVER_WAIT_BOUND_H

#include "queue/waiting.h"

/* Turns take this part of the domain's time, while B is within its limits. */
#define WAIT_BOUND_TAKES_ONE_IN 50
/* B is at most so many times W. */
#define WAIT_BOUND_THREAD_FACTOR 8

/* How long a thread whose turn it is runs, rounded up to the tick. */
static __always_inline u64 wait_bound_turn_ns(struct drover *d)
{
	return d->params.slice_ns / 4;
}

/* Who was chosen, and stood in the queue of that domain (+ 1), begins to run: is that a turn? */
static __always_inline void wait_bound_begin(struct drover *d, struct task_struct *task,
					     struct thread *t, struct pcpu *pcpu, u32 queued_in,
					     u64 now_ns)
{
	u64 turn_ns = wait_bound_turn_ns(d);

	t->taken_from = queued_in;
	t->cut_short = 0;
	t->runs_since_ns = now_ns;
	pcpu->turn_ends_ns = pcpu->begins_turn ? now_ns + turn_ns : 0;
	if (pcpu->begins_turn)
		ground_set_slice(d, task, turn_ns);
	pcpu->begins_turn = 0;
}

static __always_inline bool wait_bound_was_brief(struct drover *d, struct thread *t, u64 now_ns)
{
	return (s64)(now_ns - t->runs_since_ns) < (s64)wait_bound_turn_ns(d) / 2;
}

/* Its run counts in the books of the domain it was taken from, once. A turn was paid for before. */
static __always_inline void wait_bound_count(struct drover *d, struct thread *t, struct pcpu *pcpu)
{
	struct domain *domain = t->taken_from ? ground_domain(d, t->taken_from - 1) : NULL;
	bool in_turn = pcpu->turn_ends_ns;

	t->taken_from = 0;
	/* Of two at once one may go uncounted. */
	if (domain && in_turn == t->cut_short)
		books_of(domain, t->slot)->served += in_turn ? -1 : 1;
}

/* The thread has run, and may go on: it was served if that was long enough. */
static __always_inline void wait_bound_goes_on(struct drover *d, struct thread *t,
					       struct pcpu *pcpu, u64 now_ns)
{
	if (t->taken_from && !wait_bound_was_brief(d, t, now_ns))
		wait_bound_count(d, t, pcpu);
}

/*
 * It stops. Was it cut short? Who sleeps has had what it wanted; and what its own VM's limit or
 * co-scheduling takes from it, others did not.
 */
static __always_inline void wait_bound_stops(struct drover *d, struct thread *t, struct pcpu *pcpu,
					     bool ready, u64 now_ns)
{
	struct vm *vm = vm_at(d, t->slot);

	t->cut_short = ready && !vm->at_limit && !vm->choosy && wait_bound_was_brief(d, t, now_ns);
	wait_bound_count(d, t, pcpu);
}

/*
 * The pCPU asks: does the task (NULL: none that may go on) have a turn that is not over yet? Then
 * whoever sent for the pCPU did so before the turn began: the interrupt comes when it has. The task
 * goes on for what is left of the turn.
 */
static __always_inline bool wait_bound_turn_goes_on(struct drover *d, struct task_struct *task,
						    struct pcpu *pcpu)
{
	s64 left_ns = (s64)(pcpu->turn_ends_ns - pcpu->asked_ns);

	if (!task || !pcpu->turn_ends_ns || left_ns <= 0) {
		pcpu->turn_ends_ns = 0;
		return false;
	}
	ground_set_slice(d, task, (u64)left_ns);
	return true;
}

/*
 * B: how long each of n threads that wait for p pCPUs waits, when shares say longer and so
 * many wait for each pCPU in the mean.
 */
static __always_inline u64 wait_bound_thread_ns(struct drover *d, u32 n, u32 p, u32 on_each)
{
	/* A turn of a quarter slice ends at the tick: half a slice in the mean. */
	u64 sweep_ns = (u64)n * (d->params.slice_ns / 2) * WAIT_BOUND_TAKES_ONE_IN / (p ?: 1);
	u64 least_ns = d->params.wait_bound_ns;

	sweep_ns = least_of(most_of(sweep_ns, least_ns), WAIT_BOUND_THREAD_FACTOR * least_ns);
	return most_of(sweep_ns, on_each * d->params.slice_ns);
}

/* How often one of the n gets a turn. */
static __always_inline u64 wait_bound_period_ns(struct drover *d, u32 n, u32 p, u32 on_each)
{
	return wait_bound_thread_ns(d, n, p, on_each) / (n ?: 1) ?: 1;
}

/* How many threads wait for each pCPU in the mean; for a VM without the host's own. */
static __always_inline u32 wait_bound_on_each(struct drover *d, u32 slot)
{
	u32 of_host = slot == DROVER_HOST_SLOT ? 0 : vm_at(d, DROVER_HOST_SLOT)->nr_waiting;
	u32 nr_waiting = d->nr_waiting;

	return nr_waiting > of_host ? (nr_waiting - of_host) / (d->nr_online ?: 1) : 0;
}

/* Is the VM owed a turn in that domain? */
static __always_inline bool wait_bound_owes_turn(struct drover *d, u32 domain_index, u32 slot)
{
	struct domain *domain = ground_domain(d, domain_index);

	return domain && books_of(domain, slot)->turns;
}

/* It is the VM's turn: whoever of it has waited longest in that domain runs there next. */
CHECKED_APART bool wait_bound_serve_turn(THE_DROVER, u32 pcpu, u32 domain_index, u32 slot)
{
	struct domain *domain = ground_domain(d, domain_index);
	struct books *books;
	u32 turns;
	bool served;

	if (!domain)
		return false;
	books = books_of(domain, slot);
	turns = books->turns;
	if (!turns)
		return false;
	served = ground_take_overdue(d, ground_vm_queue(d, slot, domain_index), ground_now_ns(d));
	/* Those that could not be taken are on their way already. */
	books->turns = served ? turns - 1 : 0;
	if (served)
		pcpu_at(d, pcpu)->begins_turn = 1;
	/* Left where turns stand, its leaf would hide those of others from who looks for one. */
	if (!books->turns)
		waiting_settle(d, domain_index, slot);
	return served;
}

/*
 * Serve a thread of the queue that waits beyond the bound, if it is time to look
 * for one. As long as there are such threads, the next pick looks again.
 */
static __always_inline bool wait_bound_serve(struct drover *d, u64 *check_ns, u64 queue, u64 now_ns)
{
	if ((s64)(now_ns - *check_ns) < 0)
		return false;
	if (ground_take_overdue(d, queue, now_ns - d->params.wait_bound_ns))
		return true;
	*check_ns = now_ns + d->params.wait_bound_ns / 8;
	return false;
}

/* The VM has waited there for too long: forgive it, and hold the first to its claim. */
CHECKED_APART int wait_bound_forgive(THE_DROVER, u32 slot, u32 domain_index, u64 now_ns)
{
	struct vm *vm = vm_at(d, slot);
	struct domain *domain = ground_domain(d, domain_index);
	u32 first;

	if (!domain)
		return 0;
	if ((s64)(vm->vtime_ns - d->vtime_now_ns) > 0)
		vm->vtime_ns = d->vtime_now_ns;
	vm->nr_forgiven++;
	books_of(domain, slot)->taken_ns = now_ns;
	first = tournament_slot(tournament_best(d, &domain->by_share));
	share_bound_claim(d, vm_at(d, first), share_claim_max_ns(d, vm_at(d, first)));
	return 0;
}

/*
 * The most threads of the VM that were found waiting there since the last multiple of 8 W, within
 * which B is but in a crowd. Its low half is their number, its high half says which multiple.
 */
static __always_inline u32 wait_bound_crowd(struct drover *d, struct books *books, u64 now_ns)
{
	u64 longest_ns = WAIT_BOUND_THREAD_FACTOR * d->params.wait_bound_ns ?: 1;
	u32 since = (u32)(now_ns / longest_ns) << 16;
	u32 n = (u32)least_of(books->nr_queued, 0xffff);

	if ((books->crowd & 0xffff0000) != since || (books->crowd & 0xffff) < n)
		books->crowd = since | n;
	return books->crowd & 0xffff;
}

/* When threads of the VM were served pays for turns, what is left is owed. Returns how many are. */
static __always_inline u32 wait_bound_settle_turns(struct drover *d, struct books *books, u32 slot,
						   u64 now_ns)
{
	u32 p = d->params.nr_pcpus / (d->params.nr_domains ?: 1);
	u32 nr_queued = books->nr_queued;
	u64 period_ns = wait_bound_period_ns(d, wait_bound_crowd(d, books, now_ns), p,
					     wait_bound_on_each(d, slot));
	u64 owed;

	books->paid_ns += (u64)books->served * period_ns;
	books->served = 0;
	if ((s64)(now_ns - books->paid_ns) < 0)
		books->paid_ns = now_ns;
	owed = (now_ns - books->paid_ns) / period_ns;
	if (!owed)
		return 0;
	books->paid_ns += owed * period_ns;
	owed += books->turns;
	books->turns = owed < nr_queued ? (u32)owed : nr_queued;
	return books->turns;
}

/* Look at one VM's books in one domain. */
CHECKED_APART int wait_bound_check_domain(THE_DROVER, u32 slot, u32 domain_index, u64 now_ns)
{
	struct domain *domain = ground_domain(d, domain_index);
	struct books *books;

	if (!domain)
		return 0;
	books = books_of(domain, slot);
	if (!books->nr_queued || !wait_bound_settle_turns(d, books, slot, now_ns))
		return 0;
	if ((s64)(now_ns - books->taken_ns) >= (s64)d->params.wait_bound_ns)
		wait_bound_forgive(d, slot, domain_index, now_ns);
	waiting_settle(d, domain_index, slot);
	return 0;
}

/* Walk one VM's books; to be called for every slot, several times a bound. */
static __always_inline void wait_bound_check(struct drover *d, u32 slot, u64 now_ns)
{
	u32 i;

	if (vm_at(d, slot)->state != VM_LIVE || !vm_at(d, slot)->nr_waiting)
		return;
	for_each_index(i, 0, d->params.nr_domains)
		wait_bound_check_domain(d, slot, i, now_ns);
}

#endif
