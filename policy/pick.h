/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Picking: what a pCPU runs next.
 *
 * Idea. A pCPU that asks compares three candidates: the least served VM of its
 * cell, the first thread of its own queue (confined threads), and the thread
 * that runs now, if it would go on. The least virtual time wins. Before that it
 * glances at one other cell, now this, now that, and takes from there
 * when that cell's VM is further behind than a migration is worth. That glance
 * is the whole of load balancing between cells: virtual time is global, so the
 * cell with too much work is the one whose VMs fall behind. Likewise among the
 * threads of one VM: before one is taken from its queue here, its queue in the
 * glanced cell is asked for a sibling that has run less by a slice. Confined
 * threads stand in pCPUs' own queues, and those of a VM confined to three of four
 * pCPUs may stand four here and one there; so a pCPU glances at eight of these queues,
 * too, and takes from one longer than its own. A pCPU that finds nobody looks
 * everywhere before it goes idle.
 *
 * Worked example. Cell 0 has one VM at 40 ms, cell 1 three VMs at 28 ms. A pCPU
 * of cell 0 glances at cell 1: 28 + steal_gain (8 ms) < 40, so it takes a thread
 * of cell 1, which from then on waits in cell 0.
 *
 * What it is bad at. With C cells an imbalance is seen after about C picks, some
 * C * 8 ms. It knows distance only as "my cell" and "another".
 */
#ifndef DROVER_PICK_H
#define DROVER_PICK_H

#include "rotate.h"
#include "wait_bound.h"

#define PICK_TRIES 6
#define PICK_CROWD_LOOKS 8

/* Glances follow no rhythm: one that beats with the turns of VMs always sees the same. */
static __always_inline void pick_next_glance(struct pcpu *pcpu)
{
	pcpu->glance = pcpu->glance * 1664525 + 1013904223;
}

/* The other cell that pCPU glances at now; there are two cells at least. */
static __always_inline u32 pick_glanced(struct drover *d, u32 pcpu)
{
	u32 others = d->params.nr_cells - 1;
	u32 step = 1 + (others ? (pcpu_at(d, pcpu)->glance >> 16) % others : 0);

	return (pcpu_at(d, pcpu)->cell + step) % d->params.nr_cells;
}

enum picked {
	PICKED_NONE,
	PICKED_NONE_BUT_HELD, /* of those who wait some are held */
	PICKED_RUNNING, /* who runs goes on */
	PICKED_WAITING, /* somebody was taken */
};

/* The VM's queue in that cell, or in the glanced one if a sibling there has run less. */
CHECKED_APART u64 pick_queue_of(THE_DROVER, u32 pcpu, u32 cell_index, u32 slot)
{
	u64 here = ground_vm_queue(d, slot, cell_index);
	u64 there;
	u64 here_order = 0;
	u64 there_order = 0;
	u32 other;
	struct cell *cell;

	other = pick_glanced(d, pcpu);
	cell = ground_cell(d, other);
	if (other == cell_index || !cell || !books_of(cell, slot)->nr_queued)
		return here;
	there = ground_vm_queue(d, slot, other);
	if (!ground_first_order(d, there, &there_order) ||
	    !ground_first_order(d, here, &here_order))
		return here;
	return (s64)(here_order - there_order) > (s64)d->params.slice_ns ? there : here;
}

static __always_inline void pick_note_served(struct drover *d, u32 pcpu, u32 cell_index, u32 slot)
{
	struct cell *cell = ground_cell(d, cell_index);

	round_note(d, pcpu, slot);
	if (cell)
		books_of(cell, slot)->taken_ns = pcpu_at(d, pcpu)->asked_ns;
}

/* Take a thread of that VM. */
CHECKED_APART bool pick_from_vm(THE_DROVER, u32 pcpu, u32 cell_index, u32 slot)
{
	u64 here = ground_vm_queue(d, slot, cell_index);
	u64 queue = d->params.nr_cells < 2 ? here : pick_queue_of(d, pcpu, cell_index, slot);

	if (!wait_bound_serve(d, &vm_at(d, slot)->overdue_check_ns, queue,
			      pcpu_at(d, pcpu)->asked_ns) &&
	    !ground_take_first(d, queue)) {
		/* A sibling there, not confined while pCPUs were offline, may not run here. */
		if (queue == here || !ground_take_first(d, here))
			return false;
	}
	pick_note_served(d, pcpu, cell_index, slot);
	return true;
}

/* Take a thread of the cell's least served VM, or of one that is owed a turn. */
CHECKED_APART bool pick_from_cell(THE_DROVER, u32 pcpu, u32 cell_index, u64 key)
{
	u32 slot = tournament_slot(key);

	if (!d->nr_choosy || cosched_admits(d, pcpu, cell_index, slot, 0)) {
		if (wait_bound_owes_turn(d, cell_index, slot))
			return wait_bound_serve_turn(d, pcpu, cell_index, slot);
		share_clock_follow(d, vm_at(d, slot)->vtime_ns);
		if (pick_from_vm(d, pcpu, cell_index, slot))
			return true;
	}
	refused_add(d, pcpu, cell_index, slot);
	return false;
}

/* The round says that VM: a thread of it that waits here, if any. */
CHECKED_APART bool pick_stay(THE_DROVER, u32 pcpu, u32 home, u32 slot)
{
	struct cell *cell = ground_cell(d, home);

	return cell && books_of(cell, slot)->nr_queued && pick_from_vm(d, pcpu, home, slot);
}

/* A thread of the pCPU's own queue that has waited beyond the bound. */
CHECKED_APART bool pick_overdue(THE_DROVER, u32 pcpu)
{
	struct pcpu *here = pcpu_at(d, pcpu);
	u32 nr_pinned = here->nr_pinned;

	if (!nr_pinned || !wait_bound_serve(d, &here->overdue_check_ns, ground_pcpu_queue(d, pcpu),
					    here->asked_ns))
		return false;
	here->overdue_check_ns = here->asked_ns + wait_bound_period_ns(d, nr_pinned, 1, nr_pinned);
	here->begins_turn = 1;
	return true;
}

/* A sibling of the running thread, in the glanced cell, that has run less by a slice. */
CHECKED_APART bool pick_sibling(THE_DROVER, u32 pcpu, u32 slot, u64 vruntime_ns)
{
	u32 other = pick_glanced(d, pcpu);
	struct cell *cell = ground_cell(d, other);
	u64 order = 0;

	if (!cell || !books_of(cell, slot)->nr_queued ||
	    !ground_first_order(d, ground_vm_queue(d, slot, other), &order))
		return false;
	if ((s64)(vruntime_ns - order) <= (s64)d->params.slice_ns)
		return false;
	return ground_take_first(d, ground_vm_queue(d, slot, other));
}

/* The running thread's VM goes on: with that thread, unless a sibling has run less. */
static __always_inline u32 pick_go_on(struct drover *d, u32 pcpu, u32 running, u64 vruntime_ns)
{
	if (d->params.nr_cells < 2 || !pick_sibling(d, pcpu, running, vruntime_ns))
		return PICKED_RUNNING;
	return PICKED_WAITING;
}

/* A cell other than mine whose least served VM is far behind `key`. */
CHECKED_APART bool pick_from_neighbour(THE_DROVER, u32 pcpu, u64 key)
{
	u64 gain = (d->params.steal_gain_ns >> TOURNAMENT_TIME_SHIFT) << DROVER_SLOT_BITS;
	u32 other = pick_glanced(d, pcpu);
	bool found = false;
	u32 try;

	if (d->params.nr_cells < 2)
		return false;
	/* Behind a VM that waits for its siblings stand others. */
	for_each_index(try, 0, PICK_TRIES) {
		u64 theirs = share_least_served_for(d, pcpu, other);

		if (theirs == TOURNAMENT_NOBODY || !tournament_before(theirs + gain, key))
			break;
		found = pick_from_cell(d, pcpu, other, theirs);
		if (found)
			break;
	}
	return found;
}

/* Of the VMs of the cell neither refused nor held for their siblings, the least served one's key.
 */
CHECKED_APART u64 pick_least_not_held(THE_DROVER, u32 pcpu, u32 cell_index)
{
	struct cell *cell = ground_cell(d, cell_index);
	u32 nr_slots = d->slots_in_use;
	u64 best = TOURNAMENT_NOBODY;
	u32 slot;

	if (!cell)
		return best;
	for_each_index(slot, 0, nr_slots) {
		u64 key = tournament_leaf(&cell->by_share, slot);

		if (tournament_before(key, best) && !vm_at(d, slot)->held_since_ns &&
		    !refused_has(d, pcpu, cell_index, slot))
			best = key;
	}
	return best;
}

/* Of the VMs of the cell held for their siblings since later than that, the one held longest. */
CHECKED_APART u32 pick_longest_held(THE_DROVER, u32 cell_index, u64 after_ns)
{
	struct cell *cell = ground_cell(d, cell_index);
	u32 nr_slots = d->slots_in_use;
	u32 longest = DROVER_HOST_SLOT;
	u64 longest_ns = ~0ULL;
	u32 slot;

	if (!cell)
		return longest;
	for_each_index(slot, 1, nr_slots) {
		u64 held_ns = vm_at(d, slot)->held_since_ns;

		if (held_ns <= after_ns || held_ns >= longest_ns ||
		    tournament_leaf(&cell->by_share, slot) == TOURNAMENT_NOBODY)
			continue;
		longest = slot;
		longest_ns = held_ns;
	}
	return longest;
}

/* All that may run here are held: those held longest may be free to start by now. */
CHECKED_APART bool pick_held(THE_DROVER, u32 pcpu, u32 cell_index)
{
	struct cell *cell = ground_cell(d, cell_index);
	bool found = false;
	u64 after_ns = 0;
	u32 try;

	for_each_index(try, 0, PICK_TRIES) {
		u32 slot = pick_longest_held(d, cell_index, after_ns);
		u64 key = cell ? tournament_leaf(&cell->by_share, slot) : TOURNAMENT_NOBODY;

		if (slot == DROVER_HOST_SLOT || key == TOURNAMENT_NOBODY)
			break;
		after_ns = vm_at(d, slot)->held_since_ns;
		found = pick_from_cell(d, pcpu, cell_index, key);
		if (found)
			break;
	}
	return found;
}

/* The first VMs of the cell are held: take one that is not, and comes before `before`. */
CHECKED_APART bool pick_beside_held(THE_DROVER, u32 pcpu, u32 cell_index, u64 before)
{
	bool found = false;
	u32 try;

	for_each_index(try, 0, PICK_TRIES) {
		u64 key = pick_least_not_held(d, pcpu, cell_index);

		if (!tournament_before(key, before))
			break;
		found = pick_from_cell(d, pcpu, cell_index, key);
		if (found)
			break;
	}
	return found;
}

/* Nobody is left but those that are held, or come after them. */
static __always_inline bool pick_rest_of(struct drover *d, u32 pcpu, u32 cell_index)
{
	return pick_beside_held(d, pcpu, cell_index, TOURNAMENT_NOBODY) ||
	       pick_held(d, pcpu, cell_index);
}

/* Anybody of that cell; several are asked, because some may be in flight. */
static __always_inline bool pick_from_foreign(struct drover *d, u32 pcpu, u32 other)
{
	bool found = false;
	u32 try;

	refused_forget(d, pcpu);
	for_each_index(try, 0, PICK_TRIES) {
		u64 key = share_least_served_for(d, pcpu, other);

		if (key == TOURNAMENT_NOBODY)
			break;
		found = pick_from_cell(d, pcpu, other, key);
		if (found)
			break;
	}
	return found || (d->nr_choosy && pick_rest_of(d, pcpu, other));
}

/* Nothing here: anything, anywhere, that may run here. */
CHECKED_APART bool pick_anywhere(THE_DROVER, u32 pcpu, u32 home)
{
	u32 nr_cells = d->params.nr_cells;
	u32 nr_pcpus = d->params.nr_pcpus;
	u32 step;

	for_each_index(step, 1, nr_cells) {
		if (pick_from_foreign(d, pcpu, (home + step) % nr_cells))
			return true;
	}
	if (!d->nr_confined_waiting)
		return false;
	for_each_index(step, 1, nr_pcpus) {
		u32 other = (pcpu + step) % nr_pcpus;

		if (pcpu_at(d, other)->nr_pinned &&
		    ground_take_first(d, ground_pcpu_queue(d, other)))
			return true;
	}
	return false;
}

/* The key of the first thread in the pCPU's own queue, or NOBODY. */
CHECKED_APART u64 pick_own_key(THE_DROVER, u32 pcpu)
{
	u64 vtime_ns = 0;

	if (!pcpu_at(d, pcpu)->nr_pinned ||
	    !ground_first_order(d, ground_pcpu_queue(d, pcpu), &vtime_ns))
		return TOURNAMENT_NOBODY;
	return tournament_key(vtime_ns, 0);
}

/*
 * A pCPU that rested was woken for somebody, and takes somebody else: let another that rests
 * look.
 */
CHECKED_APART int pick_pass_on(THE_DROVER, u32 pcpu)
{
	u32 nr_pcpus = d->params.nr_pcpus ?: 1;
	u32 step;

	for_each_index(step, 1, nr_pcpus) {
		u32 other = (pcpu + step) % nr_pcpus;

		if (!pcpu_at(d, other)->online || !pcpu_at(d, other)->rests)
			continue;
		ground_kick(d, bounded(other, DROVER_MAX_PCPUS));
		break;
	}
	return 0;
}

/*
 * The virtual time that all have reached who wait in pCPUs' own queues, or run. One that is just
 * being switched is in neither: what the look before found counts, too.
 */
CHECKED_APART int pick_follow_confined(THE_DROVER)
{
	s64 nobody_ns = (s64)(~0ULL >> 1);
	u64 clock_ns = d->vtime_now_ns;
	s64 before_ns = (s64)(d->confined_reached_ns - clock_ns);
	s64 ahead_ns = nobody_ns;
	u32 i;

	for_each_index(i, 0, d->params.nr_pcpus) {
		u32 slot = pcpu_at(d, i)->running_slot;
		u64 first_ns;

		if (pcpu_at(d, i)->nr_pinned &&
		    ground_first_order(d, ground_pcpu_queue(d, i), &first_ns))
			ahead_ns = least_signed(ahead_ns, (s64)(first_ns - clock_ns));
		if (slot < DROVER_MAX_VMS && slot != DROVER_HOST_SLOT)
			ahead_ns =
				least_signed(ahead_ns, (s64)(vm_at(d, slot)->vtime_ns - clock_ns));
	}
	if (ahead_ns == nobody_ns)
		return 0;
	d->confined_reached_ns = clock_ns + (u64)ahead_ns;
	share_clock_follow(d, clock_ns + (u64)least_signed(before_ns, ahead_ns));
	return 0;
}

/*
 * A confined thread was taken. Where all who wait are confined, nobody else moves the clock; once
 * in a slice is enough.
 */
static __always_inline void pick_move_clock(struct drover *d, u64 now_ns)
{
	u64 moved_ns = d->confined_moved_ns;

	if (now_ns - moved_ns >= d->params.slice_ns &&
	    __sync_val_compare_and_swap(&d->confined_moved_ns, moved_ns, now_ns) == moved_ns)
		pick_follow_confined(d);
}

/*
 * The first of the own queue of `from`. Where others wait, of any cell, the pCPU may have been
 * woken for one of these.
 */
static __always_inline bool pick_confined(struct drover *d, u32 pcpu, u32 from)
{
	if (!ground_take_first(d, ground_pcpu_queue(d, from)))
		return false;
	pick_move_clock(d, pcpu_at(d, pcpu)->asked_ns);
	if (pcpu_at(d, pcpu)->rests && d->nr_waiting > d->nr_confined_waiting)
		pick_pass_on(d, pcpu);
	return true;
}

/*
 * From the own queue of another pCPU, if it is longer than this one's and its first
 * thread comes before `key`. Where counts do not divide, the odd one so goes round.
 */
CHECKED_APART bool pick_from_crowd(THE_DROVER, u32 pcpu, u64 key)
{
	u32 mine = pcpu_at(d, pcpu)->nr_pinned;
	u32 nr_pcpus = d->params.nr_pcpus ?: 1;
	u32 from = pcpu_at(d, pcpu)->glance >> 12;
	bool found = false;
	u32 step;

	for_each_index(step, 0, PICK_CROWD_LOOKS) {
		u32 other = (from + step) % nr_pcpus;

		if (other == pcpu || pcpu_at(d, other)->nr_pinned <= mine ||
		    !tournament_before(pick_own_key(d, other), key))
			continue;
		found = pick_confined(d, pcpu, other);
		if (found)
			break;
	}
	return found;
}

/*
 * A pCPU that rested takes the confined thread that it was woken for, whoever waits in its
 * cell: the pCPU that was woken for that one, which may run anywhere, may not be one where
 * the confined thread may run.
 */
CHECKED_APART bool pick_woken_for(THE_DROVER, u32 pcpu)
{
	u32 queue = __sync_lock_test_and_set(&pcpu_at(d, pcpu)->woken_for, 0);

	return queue && pcpu_at(d, pcpu)->rests && pick_confined(d, pcpu, queue - 1);
}

/*
 * The same as pick_pass_on where VMs wait until they may start, and were not queued just now: a
 * pCPU takes their vCPUs instead of whom it was woken for.
 */
static __always_inline void pick_pass_on_beside_held(struct drover *d, u32 pcpu)
{
	if (d->nr_choosy && pcpu_at(d, pcpu)->rests &&
	    share_least_served(d, pcpu_at(d, pcpu)->cell) != TOURNAMENT_NOBODY)
		pick_pass_on(d, pcpu);
}

/* Threads left in the queues of pCPUs that went offline: whoever can, takes them. */
CHECKED_APART bool pick_orphan(THE_DROVER)
{
	bool taken = false;
	bool left = false;
	u32 i;

	/* Before looking: a pCPU that goes meanwhile says so again. */
	__sync_lock_test_and_set(&d->orphans, 0);
	for_each_index(i, 0, d->params.nr_pcpus) {
		if (pcpu_at(d, i)->online || !pcpu_at(d, i)->nr_pinned)
			continue;
		left = true;
		taken = ground_take_first(d, ground_pcpu_queue(d, i));
		if (taken)
			break;
	}
	if (left)
		d->orphans = 1;
	return taken;
}

/*
 * A thread whose VM is due by its reservation, of this cell or of the glanced one.
 * `running_key`: the VM that runs here, if that is due itself; it gives way to one
 * that is due for longer, and to a sibling.
 */
CHECKED_APART bool pick_due(THE_DROVER, u32 pcpu, u32 home, u64 running_key)
{
	u32 glance = pcpu_at(d, pcpu)->glance % d->params.nr_cells;
	bool found = false;
	u32 try;

	for_each_index(try, 0, PICK_TRIES) {
		u64 key = reserve_first_due(d, pcpu, home);
		u64 theirs =
			glance == home ? TOURNAMENT_NOBODY : reserve_first_due(d, pcpu, glance);
		bool here = !tournament_before(theirs, key);
		u64 first = here ? key : theirs;
		u32 slot = tournament_slot(first);

		if (first == TOURNAMENT_NOBODY ||
		    (tournament_before(running_key, first) && slot != tournament_slot(running_key)))
			break;
		found = (!d->nr_choosy || cosched_admits(d, pcpu, here ? home : glance, slot, 0)) &&
			ground_take_first(d, ground_vm_queue(d, slot, here ? home : glance));
		if (found) {
			pick_note_served(d, pcpu, here ? home : glance, slot);
			break;
		}
		refused_add(d, pcpu, here ? home : glance, slot);
	}
	/* Who is paid by now may be the least served all the same. */
	refused_forget(d, pcpu);
	return found;
}

/* The earliest of what the pCPU could run; NOBODY if there is nothing. */
static __always_inline u64 pick_earliest(u64 a, u64 b)
{
	return tournament_before(a, b) ? a : b;
}

/* Is the VM held for its siblings, and not for as long as anybody is? */
static __always_inline bool pick_is_held(struct drover *d, u32 pcpu, u32 slot)
{
	struct vm *vm = vm_at(d, slot);

	return vm->held_since_ns && !cosched_held_too_long(d, vm, pcpu_at(d, pcpu)->asked_ns);
}

/*
 * Whom reservations put before any by shares, if anybody: one that waits and was taken,
 * or the running VM. Turns (wait_bound.h) and the pCPU's own queue come by shares.
 */
CHECKED_APART u32 pick_by_reserve(THE_DROVER, u32 pcpu, u32 running_slot)
{
	struct vm *running = vm_at(d, running_slot);
	u32 home = pcpu_at(d, pcpu)->cell;
	struct cell *cell = ground_cell(d, home);
	u64 first = cell ? tournament_best(d, &cell->by_share) : TOURNAMENT_NOBODY;
	u64 now_ns = pcpu_at(d, pcpu)->asked_ns;
	bool due = reserve_is_due(running, now_ns);

	/* A turn that cannot be taken, its VM being held, keeps nobody waiting. */
	if (first != TOURNAMENT_NOBODY && wait_bound_owes_turn(d, home, tournament_slot(first)) &&
	    !pick_is_held(d, pcpu, tournament_slot(first)))
		return PICKED_NONE;
	if (pick_due(d, pcpu, home,
		     due ? reserve_key(d, running, running_slot, now_ns) : TOURNAMENT_NOBODY))
		return PICKED_WAITING;
	if (due && tournament_before(tournament_key(running->vtime_ns, running_slot),
				     pick_own_key(d, pcpu)))
		return PICKED_RUNNING;
	return PICKED_NONE;
}

/* Is the VM that has run there behind that virtual time by all it gets in a round? */
static __always_inline bool pick_is_behind(struct drover *d, u32 pcpu, u32 running, u64 vtime_ns)
{
	struct vm *vm = vm_at(d, running);
	u64 now_ns = share_vtime_now(vm, pcpu_at(d, pcpu)->asked_ns);
	u64 round_ns = share_weigh(vm, d->params.slice_ns * share_nr_running(vm));

	return running < DROVER_MAX_VMS && (s64)(vtime_ns - now_ns) > (s64)round_ns;
}

/*
 * Must the VM of the round give way to who waits here, or to the `running` VM? Elsewhere was
 * decided without these: to one that had received less when the round began. Where the pCPU
 * was given to it already, to one that has received less by all the VM gets in a round. To the
 * running VM only if it lacks a round of its own: VMs that take turns are never quite level.
 */
CHECKED_APART bool pick_gives_way(THE_DROVER, u32 pcpu, u32 stay, u32 running)
{
	u32 home = pcpu_at(d, pcpu)->cell;
	struct vm *vm = vm_at(d, stay);
	bool given = pcpu_at(d, pcpu)->round == d->round;
	u64 had_ns = given ? d->params.slice_ns : round_elapsed_ns(d, pcpu);
	u64 round_ns = share_weigh(vm, had_ns * (share_nr_running(vm) + 1));
	u64 vtime_ns = share_vtime_now(vm, pcpu_at(d, pcpu)->asked_ns) - round_ns;
	u64 waiting = share_least_served_for(d, pcpu, home);
	u64 best;

	/* Its own leaf may be behind; that is not somebody else. */
	if (tournament_slot(waiting) == stay && !wait_bound_owes_turn(d, home, stay))
		waiting = TOURNAMENT_NOBODY;
	best = pick_earliest(pick_own_key(d, pcpu), waiting);
	return tournament_before(best, tournament_key(vtime_ns, stay)) ||
	       (running != stay && pick_is_behind(d, pcpu, running, vtime_ns));
}

/* Does a sibling wait here that has run less than the running thread? */
CHECKED_APART bool pick_sibling_is_behind(THE_DROVER, u32 home, u32 slot, u64 vruntime_ns)
{
	struct cell *cell = ground_cell(d, home);
	u64 order = 0;

	return cell && books_of(cell, slot)->nr_queued &&
	       ground_first_order(d, ground_vm_queue(d, slot, home), &order) &&
	       (s64)(order - vruntime_ns) < 0;
}

/*
 * Does the running thread give way to the best that waits? To a sibling always; where
 * all pCPUs ask at once, only to one that has run less: whoever asked last would else
 * put the same thread out each time.
 */
static __always_inline bool pick_yields(struct drover *d, u32 home, u64 running_key,
					u64 vruntime_ns, u64 own_key, u64 cell_key)
{
	u32 running = tournament_slot(running_key);

	if (own_key != TOURNAMENT_NOBODY && !tournament_before(running_key, own_key))
		return true;
	if (cell_key == TOURNAMENT_NOBODY)
		return false;
	if (tournament_slot(cell_key) == running)
		return !vm_at(d, running)->together ||
		       pick_sibling_is_behind(d, home, running, vruntime_ns);
	return !tournament_before(running_key, cell_key);
}

/* Somebody elsewhere who comes before `key` by enough. */
static __always_inline bool pick_from_elsewhere(struct drover *d, u32 pcpu, u64 key)
{
	return pick_from_neighbour(d, pcpu, key) ||
	       (d->nr_confined_waiting && pick_from_crowd(d, pcpu, key));
}

/* A vCPU of that VM, wherever one waits, this cell first. */
CHECKED_APART bool pick_wherever(THE_DROVER, u32 pcpu, u32 slot)
{
	u32 home = pcpu_at(d, pcpu)->cell;
	u32 nr_cells = d->params.nr_cells;
	bool found = false;
	u32 step;

	for_each_index(step, 0, nr_cells) {
		u32 other = (home + step) % nr_cells;
		struct cell *cell = ground_cell(d, other);

		found = cell && books_of(cell, slot)->nr_queued &&
			pick_from_vm(d, pcpu, other, slot);
		if (found)
			break;
	}
	return found;
}

/* Another pCPU has called this one to a VM whose vCPUs start together (cosched.h). */
CHECKED_APART bool pick_called(THE_DROVER, u32 pcpu)
{
	u32 slot = __sync_lock_test_and_set(&pcpu_at(d, pcpu)->called_slot, 0);

	return slot && pick_wherever(d, pcpu, slot);
}

/* The key of the VM that would go on there; NOBODY: there is none. */
static __always_inline u64 pick_running_key(struct drover *d, u32 pcpu, u32 slot)
{
	if (slot >= DROVER_MAX_VMS)
		return TOURNAMENT_NOBODY;
	return tournament_key(share_vtime_now(vm_at(d, slot), pcpu_at(d, pcpu)->asked_ns), slot);
}

/*
 * The first VMs of the cell are held: whoever is not, there or in the pCPU's own queue, comes
 * before the pCPU goes idle, and before the running thread if that has had more.
 */
CHECKED_APART bool pick_around_held(THE_DROVER, u32 pcpu, u32 slot)
{
	u32 home = pcpu_at(d, pcpu)->cell;
	u64 running_key = pick_running_key(d, pcpu, slot);
	u64 own_key = pick_own_key(d, pcpu);

	if (pick_beside_held(d, pcpu, home, pick_earliest(own_key, running_key)) ||
	    (tournament_before(own_key, running_key) && pick_confined(d, pcpu, pcpu)))
		return true;
	return running_key == TOURNAMENT_NOBODY && pick_rest_of(d, pcpu, home);
}

/* The round's VM, if the round has given the pCPU to one. */
CHECKED_APART u32 pick_by_round(THE_DROVER, u32 pcpu, u32 slot, u64 vruntime_ns)
{
	u32 home = pcpu_at(d, pcpu)->cell;
	u32 stay = round_stay(d, pcpu, slot);
	bool goes_on = pcpu_at(d, pcpu)->round == d->round;

	if (stay >= DROVER_MAX_VMS || pick_gives_way(d, pcpu, stay, slot))
		return PICKED_NONE;
	if (stay == slot && ((goes_on && !rotate_is_due(d, vm_at(d, slot))) ||
			     !pick_sibling_is_behind(d, home, slot, vruntime_ns)))
		return pick_go_on(d, pcpu, slot, vruntime_ns);
	if (pick_stay(d, pcpu, home, stay))
		return PICKED_WAITING;
	/* One that is wider than a cell may stand elsewhere with more than fit there. */
	if (stay != slot && round_spans(d, vm_at(d, stay)) && vm_at(d, stay)->nr_waiting &&
	    pick_wherever(d, pcpu, stay))
		return PICKED_WAITING;
	return stay == slot ? pick_go_on(d, pcpu, slot, vruntime_ns) : PICKED_NONE;
}

/* The least served. */
CHECKED_APART u32 pick_by_shares(THE_DROVER, u32 pcpu, u32 slot, u64 vruntime_ns)
{
	u32 home = pcpu_at(d, pcpu)->cell;
	u64 running_key = pick_running_key(d, pcpu, slot);
	bool held = false;
	u32 try;

	for_each_index(try, 0, PICK_TRIES) {
		u64 key = share_least_served_for(d, pcpu, home);
		u64 own_key = pick_own_key(d, pcpu);
		u64 best = pick_earliest(own_key, key);

		if (pick_from_elsewhere(d, pcpu, pick_earliest(best, running_key)))
			return PICKED_WAITING;
		if (running_key != TOURNAMENT_NOBODY &&
		    !pick_yields(d, home, running_key, vruntime_ns, own_key, key)) {
			/* Chosen again, and that often nobody else would move the clock. */
			if (rotate_is_due(d, vm_at(d, slot)))
				share_clock_to(d, vm_at(d, slot)->vtime_ns);
			return pick_go_on(d, pcpu, slot, vruntime_ns);
		}
		if (best == TOURNAMENT_NOBODY)
			break;
		if (best == own_key ? pick_confined(d, pcpu, pcpu) :
				      pick_from_cell(d, pcpu, home, key))
			return PICKED_WAITING;
		held |= vm_at(d, tournament_slot(key))->held_since_ns != 0;
	}
	return held ? PICKED_NONE_BUT_HELD : PICKED_NONE;
}

/* What does not wait for anybody's share. */
CHECKED_APART bool pick_at_once(THE_DROVER, u32 pcpu)
{
	return pick_overdue(d, pcpu) || (d->orphans && pick_orphan(d)) ||
	       (pcpu_at(d, pcpu)->woken_for && pick_woken_for(d, pcpu)) ||
	       (pcpu_at(d, pcpu)->called_slot && pick_called(d, pcpu));
}

/*
 * Choose for that pCPU. `slot` is the VM of the thread that would go on there and
 * `vruntime_ns` that thread's, charged up to now; DROVER_MAX_VMS when there is none.
 * Returns true when the pCPU shall go on with it.
 */
static __always_inline bool pick_next(struct drover *d, u32 pcpu, u32 slot, u64 vruntime_ns)
{
	u32 chooses = __sync_lock_test_and_set(&pcpu_at(d, pcpu)->chooses, 0);
	u32 picked = PICKED_NONE;

	/* On its way offline it still runs what must run there, and takes nothing else. */
	if (!pcpu_at(d, pcpu)->online)
		return !ground_take_first(d, ground_pcpu_queue(d, pcpu));
	if (pick_at_once(d, pcpu))
		return false;
	refused_forget(d, pcpu);
	pick_next_glance(pcpu_at(d, pcpu));
	if (d->nr_reserved)
		picked = pick_by_reserve(d, pcpu, slot < DROVER_MAX_VMS ? slot : DROVER_HOST_SLOT);
	if (picked == PICKED_NONE && d->nr_together && !chooses)
		picked = pick_by_round(d, pcpu, slot, vruntime_ns);
	if (picked == PICKED_NONE)
		picked = pick_by_shares(d, pcpu, slot, vruntime_ns);
	if (picked == PICKED_NONE_BUT_HELD && pick_around_held(d, pcpu, slot))
		return false;
	if (picked == PICKED_NONE || picked == PICKED_NONE_BUT_HELD)
		return !pick_anywhere(d, pcpu, pcpu_at(d, pcpu)->cell);
	return picked == PICKED_RUNNING;
}

#endif
