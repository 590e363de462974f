/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A ground without a kernel: policy/base/ground.h on virtual time.
 *
 * Tasks, queues, pCPUs and the set of idle pCPUs, and no more. Who tells the
 * policy of events is fake_kernel.h, or the test itself.
 *
 * As in the kernel, a task that the policy places is there, and a kick is felt,
 * when the policy has returned.
 *
 * A misuse that makes the real kernel throw the scheduler out (running a task
 * where it may not run, placing it twice) fails the test.
 */
#ifndef DROVER_TEST_FAKE_GROUND_H
#define DROVER_TEST_FAKE_GROUND_H

#include "check.h"

#include "../drover.h"

#define MS 1000000ULL
#define US 1000ULL
#define SECOND 1000000000ULL

#define FAKE_TASKS 96
#define FAKE_PCPUS 16
#define FAKE_DOMAINS 4
#define FAKE_PROCESSES 32
#define FAKE_USERS 64
#define FAKE_CGROUPS 8
#define ALL_PCPUS (~0ULL)
#define NO_QUEUE (~0ULL)
#define NEVER (~0ULL)

enum task_state {
	TASK_NONE = 0, /* this task does not exist */
	TASK_ASLEEP,
	TASK_WAKING, /* its pCPU was chosen, it is in no queue yet */
	TASK_READY,
	TASK_RUNNING,
};

struct task_struct {
	struct thread thread;
	enum task_state state;
	u32 tgid;
	u32 user;
	u32 exec_id;
	u32 cgroup; /* 0: the root */
	u64 allowed; /* the pCPUs it may run on, a bit each */
	u32 pcpu;    /* runs or last ran there */
	bool selected; /* waking: the policy has been asked where to */
	bool locked; /* the kernel is handling it: nobody else may */
	bool leaving; /* it is being killed */
	bool blocks_rcu;
	bool kernel_thread;
	bool in_kvm_run;
	u32 vcpu_id;
	u64 slice_ns;
	u64 cpu_time_ns;
	u64 hypervisor_ns; /* of that, spent outside the guest */
	u64 spun_ns;       /* since it was switched to */
	u64 counted_to_ns; /* its CPU time is counted up to then */
	u64 queue;
	u64 order;
	s64 arrival; /* among equals of a queue; below 0: came to preempt */
	/* where the policy has put it, not there yet */
	u64 to_queue;
	u64 to_order;
	u32 to_pcpu;
	bool to_preempt;
	/* what the test would have it do */
	u64 burst_ns; /* runs that long, then */
	u64 sleep_ns; /* sleeps that long, and so on; burst NEVER: always busy */
	u64 period_ns; /* or, if not 0, sleeps to the end of a period, if it has not passed */
	u64 period_end_ns;
	u64 burst_left_ns;
	u64 wakes_at_ns;
	/* what the test measures, on its own books */
	u64 nr_runs;
	u64 ready_at_ns;
	u64 longest_wait_ns;
};

struct fake_pcpu {
	struct task_struct *current;
	struct task_struct *next; /* chosen, not switched to yet */
	bool online;
	bool idle;      /* free for a waker to claim */
	bool resched;   /* shall ask for work */
	bool switching; /* has asked, and not switched yet */
	bool was_busy;  /* a task ran here until this switch */
	bool locked;    /* the kernel is in it: nobody else may be */
	u64 kick_at_ns; /* a kick that is late arrives then; 0: none is */
	bool preempted; /* and takes the slice away */
};

struct ground {
	struct drover d;
	struct runqueue runqueue[FAKE_DOMAINS];
	struct fake_pcpu pcpu[FAKE_PCPUS];
	struct task_struct task[FAKE_TASKS];
	u64 now_ns;
	u32 waker; /* the VM whose thread wakes others; 0: none does */
	u32 waker_pcpu; /* and where that runs */
	u32 asking; /* the pCPU that asks for work */
	bool place_anew; /* who was to run next on a pCPU is placed anew */
	s64 arrivals;
	u32 nr_kicks;
	u64 kicks; /* on their way, a bit for each pCPU */
	u32 nr_preempts;
	u64 preempts; /* likewise; these take the slice away, too */
	u64 kicks_late_ns; /* at most; each by a random part of that */
	u64 next_rouse_ns;
	u64 next_allot_ns; /* NEVER: the test allots itself */
	u64 timer_ns[FAKE_PROCESSES]; /* by slot; NEVER: not set */
	u64 turn_timer_ns[FAKE_PCPUS]; /* by pCPU */
	u32 speed[FAKE_PCPUS]; /* what was asked for last, of 1024 */
	u64 next_tick_ns;
	u32 slot_of[FAKE_PROCESSES]; /* the VM of each process, by tgid; 0: none */
	u32 slot_of_cgroup[FAKE_CGROUPS]; /* the container each is; 0: none */
	u32 slot_of_nice[THREAD_NORMAL_WEIGHT]; /* of the kernel's threads, by weight; 0: none */
	u32 slot_of_user[FAKE_USERS]; /* of users' tasks, by the low bits of their numbers; 0: none
				       */
	u32 cgroup_above[FAKE_CGROUPS]; /* 0: the root, which is no container */
	bool slot_taken[FAKE_PROCESSES];
	u32 nr_slots; /* slots beyond are none; slot 0 counts */
	/* Called where another pCPU may act meanwhile; NULL: none does. */
	void (*meanwhile)(struct ground *g);
};

/* A ground with that many pCPUs, evenly spread over the domains; one at a time. */
struct ground *fake_ground(u32 nr_pcpus, u32 nr_domains);

/* The same; each domain is a NUMA node with one cache, the others as far as any. */
struct ground *fake_nodes(u32 nr_pcpus, u32 nr_nodes);

/* Two pCPUs in a row make a core, each a thread of it. */
void fake_cores(struct ground *g);

/* A task, asleep, of the host, that may run everywhere. */
struct task_struct *fake_task(struct ground *g);

/* The first in the queue that may run there, or, for FAKE_PCPUS, anywhere; or NULL. */
struct task_struct *fake_first(struct ground *g, u64 queue, u32 pcpu);
u32 fake_queue_length(struct ground *g, u64 queue);
/* The queue of those that run on that pCPU next. */
u64 fake_local_queue(u32 pcpu);
/* What the policy said of the task, or of pCPUs to be kicked, takes effect. */
void fake_put(struct ground *g, struct task_struct *task);
void fake_deliver_kicks(struct ground *g);
/* Those that are late arrive, if it is time. */
void fake_deliver_late_kicks(struct ground *g);
bool fake_allowed(struct ground *g, struct task_struct *task, u32 pcpu);
void fake_count_cpu_time(struct ground *g, struct task_struct *task);

#endif
