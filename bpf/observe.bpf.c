// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where the time of vCPUs goes, whichever scheduler is in charge.
 *
 * Idea. At any moment the thread of a vCPU is in one of three states: it runs; it
 * is ready, which is woken or preempted, and does not run; or it waits, halted or
 * for anything else. The kernel's tracepoints tell of each change, under any
 * scheduler, and nothing is replaced. So a vCPU has a sum for each state, and the
 * moment when the present one began. The sums cannot but add up: all of them are
 * the time from when the vCPU was found to that moment. Who reads and finds
 * another sum came in the middle of a change, and reads again.
 *
 * A vCPU is found when it is met inside KVM_RUN (kvm.bpf.h): at a switch, or when
 * the books are read, because a vCPU alone on its pCPU may not switch for hours. The
 * other threads of its process, vhost's too, are its helpers, found when the books
 * are read. From then on a thread has its books until it ends, in the guest or not.
 * The kernel keeps them with the thread, so that a switch of any other thread costs
 * next to nothing.
 *
 * Worked example. Two busy vCPUs take turns of 4 ms on one pCPU. Each switch ends
 * a run of one and a wait of the other. After 80 ms both have run for 40 ms and
 * have been ready for 40 ms: %RUN 50, %RDY 50, %WAIT 0.
 *
 * I/O delays (io.bpf.h says which wake-ups are I/O) are the times from such a
 * wake-up to the run that it asked for.
 *
 * A wake-up is told before the kernel looks whether the thread still runs. One that
 * is told of as running may be past its last chance to stay: then its switch comes
 * after its wake-up, and it is taken to wait. As nobody runs without being woken, it was
 * ready all that time, which is put right when it runs.
 *
 * Limitations. What a thread was charged (%USED) is known when it stops; as
 * long as it runs all of that time counts. A thread that is found while it leaves
 * KVM_RUN may count as running until it next runs and stops. A helper that begins after
 * one reading is found at the next.
 */
#include "kernel.h"

#include "kvm.bpf.h"

#include "io.bpf.h"

#include "events.bpf.h"

char _license[] SEC("license") = "GPL";

/* The number is a power of two for the verifier's sake. */
enum state { RUNNING, READY, WAITING, NR_STATES = 4 };

/* Number of a helper, which is no vCPU. */
#define HELPER (~0ull)

struct times {
	u64 found_ns; /* 0: not filled in yet */
	u64 since_ns; /* when its state began */
	u64 state;
	u64 sum_ns[NR_STATES]; /* time in each state until then */
	u64 used_ns; /* CPU time it was charged, of runs that are over */
};

/* Of one thread. */
struct books {
	struct times times;
	u64 charged_ns; /* what its thread had been charged in its life when its last run ended */
	u64 number;
	u32 taken; /* a pCPU fills it in, or has */
	bool io; /* the wake-up that it is to run after is I/O */
	struct delays delays;
};

/* What a reader gets of each (crates/drover-observe/src/observer.rs), as of `at_ns`; its delays
 * follow where there is something to read. */
struct reading {
	u64 process;
	u64 thread;
	u64 number;
	u64 found_ns;
	u64 at_ns; /* 0: there is nothing to read: the kernel had no memory for its books */
	u64 running_ns;
	u64 ready_ns;
	u64 waiting_ns;
	u64 used_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct books);
} threads SEC(".maps");

static struct books *books_kept(struct task_struct *task)
{
	struct books *books;

	/* Most threads have nothing kept with them. */
	if (!task->bpf_storage)
		return NULL;
	books = bpf_task_storage_get(&threads, task, NULL, 0);
	return books && books->times.found_ns ? books : NULL;
}

/* Begin the books of a thread in that state. Two pCPUs may try at once: one of them does. */
static struct books *books_begin(struct task_struct *task, u64 number, u32 state)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct books *books;

	books = bpf_task_storage_get(&threads, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!books || __sync_lock_test_and_set(&books->taken, 1))
		return NULL;
	books->charged_ns = task->se.sum_exec_runtime;
	books->number = number;
	books->times.since_ns = now_ns;
	books->times.state = state;
	barrier();
	books->times.found_ns = now_ns;
	return books;
}

static u32 state_of(struct task_struct *task)
{
	return task->on_cpu ? RUNNING : task->__state ? WAITING : READY;
}

/* The books of the thread, if it is of a VM; begun now, in that state, if it is a vCPU that had
 * none. */
static struct books *books_of(struct task_struct *task, u32 state)
{
	struct books *books = books_kept(task);
	struct task_struct *leader;
	s32 number;

	if (books && books->number != HELPER)
		return books;
	number = vcpu_of(task);
	if (number < 0)
		return books;
	if (books) {
		/* It became a vCPU. */
		books->number = (u32)number;
		return books;
	}
	/* By these its process is known as a VM. */
	leader = task->group_leader;
	if (leader && leader != task && !books_kept(leader))
		books_begin(leader, HELPER, state_of(leader));
	return books_begin(task, (u32)number, state);
}

static void enter(struct times *times, u32 state)
{
	u64 now_ns = bpf_ktime_get_ns();

	/* Clocks of pCPUs differ by a little. */
	if ((s64)(now_ns - times->since_ns) > 0) {
		times->sum_ns[times->state & (NR_STATES - 1)] += now_ns - times->since_ns;
		times->since_ns = now_ns;
	}
	times->state = state;
}

static void stop(struct books *books, struct task_struct *task, bool preempt)
{
	/* One that is preempted on its way to sleep is ready all the same. */
	bool ready = preempt || !task->__state;

	books->times.used_ns += task->se.sum_exec_runtime - books->charged_ns;
	books->charged_ns = task->se.sum_exec_runtime;
	/* If it was woken while it ran it did not sleep. */
	if (ready)
		books->io = false;
	enter(&books->times, ready ? READY : WAITING);
}

static void run(struct books *books)
{
	u64 since_ns = books->times.since_ns;

	/* It was woken on its way to sleep. */
	if (books->times.state == WAITING)
		books->times.state = READY;
	enter(&books->times, RUNNING);
	if (books->io)
		delays_add(&books->delays, books->times.since_ns - since_ns);
	books->io = false;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(observe_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct books *books = books_of(prev, RUNNING);

	event_add(next, preempt || !prev->__state ? EVENT_LEFT_READY : 0);
	if (books)
		stop(books, prev, preempt);
	books = books_of(next, READY);
	if (books)
		run(books);
	return 0;
}

static void wake(struct task_struct *task, bool interrupt)
{
	struct books *books = books_of(task, WAITING);
	struct task_struct *waker;
	struct books *of_waker;

	if (!books || books->times.state == READY)
		return;
	waker = bpf_get_current_task_btf();
	of_waker = books_kept(waker);
	books->io = is_io(task, books->number != HELPER, waker, of_waker,
			  of_waker && of_waker->number != HELPER, interrupt);
	if (books->times.state != WAITING)
		return;
	event_add(task, EVENT_WOKEN);
	enter(&books->times, READY);
}

SEC("tp_btf/sched_waking")
int BPF_PROG(observe_waking, struct task_struct *task)
{
	wake(task, in_interrupt());
	return 0;
}

/* For kernels that do not tell of interrupts; one of the two is loaded. */
SEC("tp_btf/sched_waking")
int BPF_PROG(observe_blind, struct task_struct *task)
{
	wake(task, false);
	return 0;
}

/* Copy the books as they were between two changes. */
static bool times_copy(const struct times *times, struct times *copy)
{
	u32 try;

	for (try = 0; try < 8; try++) {
		__builtin_memcpy(copy, times, sizeof(*copy));
		if (copy->found_ns + copy->sum_ns[RUNNING] + copy->sum_ns[READY] +
			    copy->sum_ns[WAITING] ==
		    copy->since_ns)
			return true;
		barrier();
	}
	return false;
}

static void read_times(const struct times *times, struct reading *reading)
{
	struct times copy;
	u64 passed_ns;

	if (!times_copy(times, &copy))
		return;
	reading->found_ns = copy.found_ns;
	reading->at_ns = bpf_ktime_get_ns();
	passed_ns = reading->at_ns - copy.since_ns;
	/* It has changed since we looked. */
	if ((s64)passed_ns < 0) {
		reading->at_ns = copy.since_ns;
		passed_ns = 0;
	}
	reading->running_ns = copy.sum_ns[RUNNING] + (copy.state == RUNNING ? passed_ns : 0);
	reading->ready_ns = copy.sum_ns[READY] + (copy.state == READY ? passed_ns : 0);
	reading->waiting_ns = copy.sum_ns[WAITING] + (copy.state == WAITING ? passed_ns : 0);
	reading->used_ns = copy.used_ns + (copy.state == RUNNING ? passed_ns : 0);
}

/* The books of a thread that is to be read: a helper's begin now. */
static struct books *books_to_read(struct task_struct *task)
{
	struct books *books = books_of(task, state_of(task));
	struct task_struct *leader = task->group_leader;

	if (books || vcpu_of(task) >= 0 || !leader || !books_kept(leader))
		return books;
	return books_begin(task, HELPER, state_of(task));
}

/* Runs for each thread of the host when user space reads the books. */
SEC("iter/task")
int observe_read(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct reading reading = {};
	struct books *books;

	if (!task)
		return 0;
	books = books_to_read(task);
	if (!books && vcpu_of(task) < 0)
		return 0;
	reading.process = task->tgid;
	reading.thread = task->pid;
	if (books) {
		reading.number = books->number;
		read_times(&books->times, &reading);
	}
	bpf_seq_write(ctx->meta->seq, &reading, sizeof(reading));
	if (books && reading.at_ns)
		bpf_seq_write(ctx->meta->seq, &books->delays, sizeof(books->delays));
	return 0;
}
