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
 * the books are read, because a vCPU alone on its pCPU may not switch for hours. From then
 * on it has its books until its thread ends, in the guest or not.
 *
 * Worked example. Two busy vCPUs take turns of 4 ms on one pCPU. Each switch ends
 * a run of one and a wait of the other. After 80 ms both have run for 40 ms and
 * have been ready for 40 ms: %RUN 50, %RDY 50, %WAIT 0.
 *
 * What it is bad at. What a thread was charged (%USED) is known when it stops; as
 * long as it runs all of that time counts. A thread that is found while it leaves
 * KVM_RUN may count as running until it next runs and stops.
 */
#include "kernel.h"

#include "kvm.bpf.h"

char _license[] SEC("license") = "GPL";

/* The number is a power of two for the verifier's sake. */
enum state { RUNNING, READY, WAITING, NR_STATES = 4 };

/* Of one vCPU. */
struct books {
	u64 found_ns;
	u64 since_ns; /* when its state began */
	u64 state;
	u64 sum_ns[NR_STATES]; /* time in each state until then */
	u64 used_ns; /* CPU time it was charged, of runs that are over */
	u64 charged_ns; /* what its thread had been charged in its life then */
	u64 number;
};

/* What a reader gets of each (crates/drover-observe/src/observer.rs), as of `at_ns`. */
struct reading {
	u64 process;
	u64 thread;
	u64 number;
	u64 at_ns; /* 0: a vCPU for which there is no room */
	u64 running_ns;
	u64 ready_ns;
	u64 waiting_ns;
	u64 used_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, u32); /* thread */
	__type(value, struct books);
} vcpus SEC(".maps");

/* Begin the books of a vCPU in that state. Two pCPUs may try at once: one of them does. */
static struct books *books_begin(struct task_struct *task, u32 number, u32 state)
{
	u64 now_ns = bpf_ktime_get_ns();
	u32 thread = task->pid;
	struct books books = {
		.found_ns = now_ns,
		.since_ns = now_ns,
		.state = state,
		.charged_ns = task->se.sum_exec_runtime,
		.number = number,
	};

	bpf_map_update_elem(&vcpus, &thread, &books, BPF_NOEXIST);
	return bpf_map_lookup_elem(&vcpus, &thread);
}

/* The books of the thread, if it is a vCPU; begun now, in that state, if it had none. */
static struct books *books_of(struct task_struct *task, u32 state)
{
	u32 thread = task->pid;
	struct books *books;
	s32 number;

	if (task->flags & PF_KTHREAD)
		return NULL;
	books = bpf_map_lookup_elem(&vcpus, &thread);
	if (books)
		return books;
	number = vcpu_of(task);
	return number < 0 ? NULL : books_begin(task, (u32)number, state);
}

static void enter(struct books *books, u32 state)
{
	u64 now_ns = bpf_ktime_get_ns();

	/* Clocks of pCPUs differ by a little. */
	if ((s64)(now_ns - books->since_ns) > 0) {
		books->sum_ns[books->state & (NR_STATES - 1)] += now_ns - books->since_ns;
		books->since_ns = now_ns;
	}
	books->state = state;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(observe_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct books *books = books_of(prev, RUNNING);

	if (books) {
		books->used_ns += prev->se.sum_exec_runtime - books->charged_ns;
		books->charged_ns = prev->se.sum_exec_runtime;
		/* One that is preempted on its way to sleep is ready all the same. */
		enter(books, preempt || !prev->__state ? READY : WAITING);
	}
	books = books_of(next, READY);
	if (books)
		enter(books, RUNNING);
	return 0;
}

/* It need not have slept: one that runs or is ready is told of as well. */
SEC("tp_btf/sched_wakeup")
int BPF_PROG(observe_wakeup, struct task_struct *task)
{
	struct books *books = books_of(task, WAITING);

	if (books && books->state == WAITING)
		enter(books, READY);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(observe_exit, struct task_struct *task)
{
	u32 thread = task->pid;

	bpf_map_delete_elem(&vcpus, &thread);
	return 0;
}

/* Copy the books as they were between two changes. */
static bool books_copy(const struct books *books, struct books *copy)
{
	u32 try;

	for (try = 0; try < 8; try++) {
		__builtin_memcpy(copy, books, sizeof(*copy));
		if (copy->found_ns + copy->sum_ns[RUNNING] + copy->sum_ns[READY] +
			    copy->sum_ns[WAITING] ==
		    copy->since_ns)
			return true;
		barrier();
	}
	return false;
}

static void read_books(const struct books *books, struct reading *reading)
{
	struct books copy;
	u64 passed_ns;

	if (!books || !books_copy(books, &copy))
		return;
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

/* Runs for each thread of the host when user space reads the books. */
SEC("iter/task")
int observe_read(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct reading reading = {};
	struct books *books;
	u32 state;

	if (!task)
		return 0;
	state = task->on_cpu ? RUNNING : task->__state ? WAITING : READY;
	books = books_of(task, state);
	if (!books && vcpu_of(task) < 0)
		return 0;
	reading.process = task->tgid;
	reading.thread = task->pid;
	reading.number = books ? books->number : 0;
	read_books(books, &reading);
	bpf_seq_write(ctx->meta->seq, &reading, sizeof(reading));
	return 0;
}
