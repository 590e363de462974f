/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the scheduler knows: VMs, their threads, pCPUs and domains.
 *
 * Every struct here is laid out the same for BPF and for native code (the
 * static assertions at the end hold under both), because the daemon reads the
 * kernel's copy through a shared page and the simulator runs on its own.
 *
 * Times are in nanoseconds. Virtual times are nanoseconds of CPU time at 1000
 * shares: a VM with 2000 shares ages half as fast.
 */
#ifndef DROVER_TYPES_H
#define DROVER_TYPES_H

#ifdef __bpf__
/* The verifier must see the bound right where the index is used. */
#define bounded(index, count)                \
	({                                   \
		u64 __index = (index);       \
		asm("" : "+r"(__index));     \
		__index &((u64)(count) - 1); \
	})
#define ground_lock bpf_spin_lock
/*
 * A function the verifier checks once, on its own, not again for every path that leads to it. Takes
 * scalars, the one struct drover, and a task with its thread.
 */
#define BPF_GLOBAL __attribute__((noinline, weak))
#define THE_DROVER struct drover *d __arg_nonnull
#define THE_TASK struct task_struct *task __arg_trusted
#define THE_THREAD struct thread *t __arg_nonnull
/* A function with a stack frame of its own, given back when it returns. */
#define FRAMED static __attribute__((noinline))
/* A loop the verifier walks once, whatever its length. */
#define for_each_index(index, first, end) bpf_for(index, first, end)
#else
#define BPF_GLOBAL static inline
#define THE_DROVER struct drover *d
#define THE_TASK struct task_struct *task
#define THE_THREAD struct thread *t
#define FRAMED static inline
#define for_each_index(index, first, end) for ((index) = (first); (index) < (end); (index)++)
#define bounded(index, count) ((u64)(index) & ((u64)(count) - 1))
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;
struct ground_lock {
	u32 held;
};
#endif

/*
 * What always holds, checked where it matters: in the tests, the simulator and the rig, where
 * nothing else happens in the middle of an event. The kernel's program checks nothing: its pCPUs
 * change the same counts at the same time, and a moment's disagreement is no fault.
 */
#ifdef __bpf__
#define ASSERT(holds) ((void)0)
#else
void ground_assertion_failed(const char *what, const char *file, int line);
#define ASSERT(holds) ((holds) ? (void)0 : ground_assertion_failed(#holds, __FILE__, __LINE__))
#endif

/* A VM's slot number must fit into the low bits of a tournament key. */
#define DROVER_SLOT_BITS 11
#define DROVER_MAX_VMS (1 << DROVER_SLOT_BITS)
#define DROVER_MAX_PCPUS 4096
#define DROVER_MAX_DOMAINS 256
#define DROVER_MAX_POOLS 1024
#define DROVER_MAX_PARTITIONS 64
/* NUMA nodes between which distances are known. */
#define DROVER_MAX_NODES 64
/* vCPUs that are accounted one by one: on the host, and of one VM. */
#define DROVER_MAX_VCPUS 32768
#define DROVER_VM_VCPUS 1024
/* Limits: of VMs, then of pools. */
#define DROVER_LIMITS 4096
/* Counts of slots by user: users whose numbers hash alike count as one, find.h. */
#define DROVER_USER_BITS 12
/* pCPUs of one domain: a bit each in a mask. */
#define DROVER_DOMAIN_PCPUS 64

/* No pCPU, where one is looked for. */
#define PCPU_NONE (-1)
/* No domain. A VM has none until a thread of it waits or runs. */
#define DOMAIN_NONE (~0U)

/* Slot 0 is no VM: it stands for all other tasks of the host together. */
#define DROVER_HOST_SLOT 0
#define DROVER_SHARES_PER_VCPU 1000
/* Whose a slot is: a process by its number, or a cgroup by its own with this bit. */
#define OWNER_CGROUP (1ULL << 63)
/* No cgroup, but tasks of the host with a slot of their own, find.h: the kernel's threads of the
 * weight that is in the low bits, */
#define OWNER_HOST_TASKS (OWNER_CGROUP | 1ULL << 62)
/* or with this those of the user there. */
#define OWNER_USER (OWNER_HOST_TASKS | 1ULL << 61)
#define DROVER_SHARES_MAX 1000000
/* struct thread, weight: of nice 0. */
#define THREAD_NORMAL_WEIGHT 100
/* All of the time for which a limit holds a VM. */
#define LIMITED_PARTS 1024
/* With this bit they are asked for each vCPU. */
#define SHARES_PER_VCPU (1U << 31)

enum thread_kind {
	THREAD_HOST = 0,   /* a task of the host: daemon, kthread, shell */
	THREAD_VCPU = 1,   /* a vCPU: it has been seen inside KVM_RUN */
	THREAD_HELPER = 2, /* another thread of a VMM process: I/O, vhost, monitor */
	THREAD_MEMBER = 3, /* a task of a container */
};

/* How the vCPUs of a VM are kept moving together. */
enum cosched_mode {
	COSCHED_AUTO = 0,
	COSCHED_OFF = 1,
	COSCHED_STRICT = 2,
	COSCHED_RELAXED = 3,
	COSCHED_SKEW = 4,
	COSCHED_GANG = 5,
};

/* What decides in a partition which VM runs next; partition/. */
enum partition_policy {
	POLICY_SHARE = 0,
	POLICY_CREDIT = 1,
	POLICY_DEDICATED = 2,
	POLICY_ANTICIPATORY = 3,
};

/* What the daemon asks for a VM, account/orders.h. */
struct vm_settings {
	u32 shares; /* in all, or SHARES_PER_VCPU; 0: the default for its size */
	u32 reservation_mcpu; /* thousandths of a pCPU it is promised */
	u32 limit_mcpu;       /* thousandths of a pCPU it may have; 0: no limit */
	u32 vcpu_limit_mcpu;  /* and each vCPU of it, quota.h; 0: no limit */
	u32 vcpu_burst_us;    /* with that: CPU time saved up beside what comes in 100 ms */
	u32 pool;             /* index of its pool, 0 is the root */
};

/* Its vCPUs in rounds, plan.h. */
struct vm_plan {
	u64 vtime_ns; /* its virtual time when it was last planned */
	u64 held_since_ns; /* left out of plans; 0: it is not */
	u32 round; /* the last round in which it was planned */
};

/* Do its vCPUs need each other, together.h. */
struct vm_pressure {
	u64 tally_ns;        /* until when the three below are counted */
	u64 progressed_ns;   /* time in which any of its vCPUs ran */
	u64 hazard_ns;       /* of that, while a sibling was ready and did not */
	u64 pressed_ns;      /* time two or more wanted to run and not all could */
	u64 window_ns;       /* when the VM was last judged */
	u64 pressed_mark_ns; /* pressed_ns at that moment */
	u64 alone_spun_ns;   /* CPU time its vCPUs spun while a sibling waited, */
	u64 alone_since_ns;  /* since then */
	u64 used_mark_ns;    /* CPU time of its vCPUs at that moment */
	u64 spun_at_ns;      /* when that was last half of what they used */
};

/* Its vCPUs kept from drifting apart, cosched_stop.h. */
struct vm_skew {
	u64 floor_ns; /* progress of its slowest ready or running vCPU */
	u64 max_ns;  /* the largest skew ever seen */
	u64 costop_ns;         /* time its vCPUs were ready and co-stopped (%CSTP) */
	u64 nr_costops;
	u64 nr_costarts;
	u32 nr_stopped;   /* vCPUs stopped alone */
};

/* For how long its limit held it, limit.h. */
struct vm_hold {
	u64 before_ns;       /* it was at its limit for so long, before the last time */
	u64 since_ns; /* when the last time began */
	u32 shares_part; /* of that time, what shares would hold it; LIMITED_PARTS is all */
};

/* partition/credit.h */
struct vm_credit {
	s64 left_ns; /* CPU time it may still use before others */
	u32 boosted;   /* it woke with credit left; with `anticipatory`, the level */
};

/* Since its birth, for the daemon. Of these only limits read one, its CPU time. */
struct vm_counters {
	u64 vcpu_run_ns; /* CPU time */
	u64 helper_run_ns;
	u64 smt_discount_ns; /* of both, not charged: beside a busy sibling thread, charge.h */
	u64 home_run_ns; /* of both, on pCPUs of its home */
	u64 ready_ns;         /* time threads spent ready and not running (%RDY) */
	u64 longest_ready_ns; /* the longest single such wait since settled_ns */
	u64 settled_ns;       /* when its settings last changed */
	u64 limited_ns; /* time its threads were ready and its limit alone held them (%MLMTD) */
	u64 nr_starvation_boosts; /* times the wait bound stepped in (wait_bound.h) */
	u64 yields_asked; /* by a vCPU for a sibling, yield.h */
	u64 yields_granted;
	u64 yields_throttled;
	u64 yields_wasted;
	u32 affinity_changes; /* threads confined or freed */
	u32 weight_changes; /* threads whose nice value or class changed */
};

/*
 * One VM: the scheduled thing. Also a container, which has no vCPUs (find.h), and slot 0, the
 * host's own tasks. Fields that are used together stand in the same cache lines.
 */
struct vm {
	/* at every switch */
	u64 vtime_ns;          /* CPU time charged, divided by shares */
	u64 vruntime_floor_ns; /* where a thread that arrives begins */
	u64 thread_clock_ns; /* the clock of its threads, share.h */
	u64 share_inverse;     /* (1000 << 20) / shares: charging multiplies */
	u64 reserve_tag_ns;    /* its reservation is served up to that real time, share.h */
	u64 reserve_inverse; /* (1000 << 20) / mcpu reserved: charging multiplies; 0: none */
	u32 nr_vcpus;
	u32 nr_threads; /* threads attached; the slot is free again at 0 */
	u32 capped;     /* under a limit: the next pool above with one, + 1; 0: under none */
	u32 at_limit;   /* may not run */
	u32 coscheduled; /* its vCPUs are kept together, by the plan of each round, plan.h */
	u32 vcpus_running;
	u64 running_sum; /* how many threads run, and since when not charged, share.h */
	u32 nr_waiting;    /* threads ready and not running, in all queues */
	u32 vcpus_waiting;
	u32 nr_confined;   /* threads that may not run in all of its partition */
	u32 nr_parked;        /* vCPUs that have used up their own limit, quota.h */
	u32 spins; /* its vCPUs spin for those that wait: in auto it is a gang, together.h */
	u32 boosted; /* the record of the vCPU that was yielded to, yield.h; 0: none */
	u32 partition; /* where its threads run, if they may */
	u32 domain;       /* where a thread of it last waited or ran */
	u64 waited_ns; /* until when a thread of it waited for half a slice or longer */
	u64 slept_at_ns; /* when its last thread slept */
	struct vm_plan plan;
	struct vm_pressure pressure;
	struct vm_skew skew;
	struct vm_hold hold;
	struct vm_credit credit;
	/* what it is owed */
	struct vm_settings asked;
	u32 cosched_mode; /* enum cosched_mode */
	u32 shares;       /* in force now */
	u32 size; /* vCPUs that ran lately: what default shares count, vm.h */
	/* what it is owed now, should it want all, in millionths of a pCPU; 0: by shares, allot.h
	 */
	u32 entitled_ucpu;
	u32 least_awake;   /* threads at any time since it was last measured, allot.h */
	/* who it is */
	u64 id; /* never reused, so that a late order finds none; 0: the slot is free */
	u64 owner_id; /* the VMM's process, or a container's cgroup (OWNER_CGROUP); 0: no more */
	u64 used_mark_ns; /* of a user: CPU time at the end of the last period, vm.h */
	u32 home;         /* where its memory lies, home.h; 0: none is known */
	u32 vcpu_places;  /* how many places in vcpu_of were ever used */
	struct vm_counters counters;
} __attribute__((aligned(64)));

enum vcpu_state {
	VCPU_NONE = 0, /* a free record */
	VCPU_HALTED = 1,
	VCPU_READY = 2,
	VCPU_RUNNING = 3,
};

enum vcpu_counts {
	VCPU_COUNTS_NOW = 1,
	VCPU_COUNTED = 2,
};

/* Accounting of one vCPU, vcpu.h. */
struct vcpu {
	u64 progress_ns;     /* guest time, and halted time as far as it counts */
	u64 lag_ns;          /* cumulative skew, as ESX 2 and 3 had it */
	u64 lag_mark_ns;     /* ready: the VM's progressed_ns when that began */
	u64 hypervisor_ns;   /* time in the hypervisor that was taken off so far */
	u64 costop_since_ns; /* 0: not co-stopped */
	u64 costop_ns;
	u64 costop_mark_ns; /* ready: costop_ns when that began */
	u64 nr_costops;
	u64 skew_max_ns; /* the furthest it was ever ahead of a ready sibling */
	u64 hazard_ns;   /* time it was ready while a sibling ran */
	u64 used_ns;     /* CPU time since its birth */
	u64 used_mark_ns; /* the same when this period began, vm.h */
	u32 counts; /* for its VM's size: in this period, in the last, enum vcpu_counts */
	u32 pcpu;  /* running: where; ready: near which it waits */
	u16 slot;
	u16 vcpu_id; /* KVM's: an APIC id, there may be gaps */
	u32 home; /* if its VM has several, home.h */
	u32 tid;  /* its thread, by the number that the host knows it by */
	u32 state; /* enum vcpu_state; after all that is cleared before it, vcpu.h */
} __attribute__((aligned(64)));

/* One pool of VMs and further pools, pool.h; pool 0 is the root, always there. */
struct pool {
	u32 live;
	u32 parent;
	u32 limit_mcpu; /* 0: no limit */
	u32 capped_by;  /* it or the nearest pool above that has a limit; 0: none */
};

/* One thread, of a VM or of the host. */
struct thread {
	u64 vruntime_ns;    /* its own CPU time, for order among siblings */
	u64 charged_ns;     /* how much of the kernel's CPU time was charged */
	u64 begun_ns;       /* running: since when not charged */
	u64 ready_since_ns; /* 0: not waiting */
	u64 due_ns; /* must run by then; kept where its last run was cut short; 0: it had its run */
	u64 runs_since_ns; /* running: since when without a stop */
	u64 may; /* pCPUs of may_in where it may run, by their place there, affinity.h */
	u32 slot; /* its VM, DROVER_HOST_SLOT for the host */
	u32 kind; /* enum thread_kind */
	u32 queued_in; /* domain it waits in + 1; 0: none */
	u32 pinned_at; /* waiting: its only pCPU and that one's place, affinity.h; 0: it is not
			  counted */
	u32 vms_seen; /* drover.vms_found when its process was last looked up */
	u32 weight; /* by its nice value, 100 = nice 0 */
	u32 may_in; /* the domain that `may` is of, + 1; 0: not looked at yet */
	u32 pinned_cpu; /* the only pCPU where it may run, + 1; 0: there are several */
	u32 affinity_full; /* it may run on all pCPUs of its VM's partition that are online */
	u32 affinity_remote; /* it may run in other domains than may_in */
	u32 unplaced; /* a vCPU without a slot for its VM, find.h */
	u32 affinity_seq; /* drover.pcpu_changes when affinity was last looked at */
	u32 exec_id; /* how often its process had executed a program, find.h */
	u32 record; /* of a vCPU: its place in drover.vcpu; 0: none */
	u32 yield_tick; /* pcpu.ticks + 1 when it had its last directed yield */
	u32 yielded; /* that is not known to have been of use */
	u32 partition; /* the one it is served in: its VM's, if it may run there, affinity.h */
	u64 held_mark_ns; /* for how long its VM had been held when its wait began */
	/* quota.h */
	u64 paid_ns; /* until when what it ran is paid for */
	u64 parked_until_ns; /* 0: it is not */
	u64 parked_since_ns;
	u64 spun_ns; /* running: how long it was seen to spin, as far as that is counted */
};

enum order_why {
	ORDER_NONE = 0,
	ORDER_WOKEN = 1, /* the pCPU was told to ask, wake.h */
	ORDER_TURN = 2, /* one that was overdue, now taken; what can wait does not preempt it */
	ORDER_TAKEN = 3, /* a task of a higher class runs: none of ours */
	ORDER_YIELD = 4, /* a sibling, or another VM (`yield_to`), yield.h */
	ORDER_SENT = 5, /* one that woke and preempts, on its way here, wake.h */
	ORDER_BEGUN = 6, /* the same, which runs: only one that is due preempts it */
};

/* Which thread must run next on a pCPU. While there is an order, no other pCPU gives another. */
struct order {
	u32 why; /* enum order_why */
	u32 yield_to; /* the record of the vCPU asked for; 0: any sibling; YIELD_TO_OTHERS */
	u64 until_ns; /* when a turn is over */
};

/* One physical CPU (a hardware thread). */
struct pcpu {
	u32 domain;
	u32 running_slot; /* VM now running here; DROVER_MAX_VMS: none */
	u32 nr_pinned; /* threads waiting that may run here only */
	u32 online;
	u32 place; /* among the pCPUs of its domain */
	u32 steal_cursor; /* which other domain it looks at next, pick.h */
	u32 round; /* the last round in which it was given to a VM, plan.h */
	u32 planned; /* that VM */
	u32 ticks; /* counts those that found a thread running */
	u32 sibling; /* the other hardware thread of its core, + 1; 0: there is none */
	u32 smt_neighbour; /* the VM that ran there at the last tick of the thread here, spread.h */
	u32 migrate_to; /* the running thread goes to that pCPU, claimed for it, + 1, spread.h */
	u32 away; /* the running thread has another home, or none, home.h */
	struct order order; /* which thread must run next */
	u64 running_vruntime_ns; /* of the thread that runs here, less the time when that was: with
				    now it is what it has by now */
	u64 next_turn_ns; /* it gives no turn before then, wait_bound.h */
	u64 debit_at_ns; /* credit.h: when the running thread is next charged */
	u64 asked_ns; /* when it last asked what to run: the time of all of that pick */
	u64 busy; /* for how long a thread has run here, charge.h */
	u64 shared; /* what `busy` of the sibling was when the running thread was last charged */
} __attribute__((aligned(64))); /* no line is written by two pCPUs at every switch */

/*
 * A domain: the pCPUs that share one run queue of VMs, an LLC mostly. All of them write to it.
 */
struct domain {
	u64 clock_ns; /* virtual time of the least served VM that waits here, share.h */
	u64 all; /* a bit for each of its pCPUs, by their places */
	u64 idle; /* those that are idle, idle.h */
	u32 first; /* its pCPUs in drover.pcpu_of: the first, */
	u32 nr_pcpus; /* and how many */
	u32 partition; /* all of its pCPUs are in that one */
	u32 node; /* the NUMA node of all its pCPUs, + 1; 0: there is none, or several */
	u32 llc; /* the last-level cache they share, by a number of its own, + 1; 0: not known */
	u32 came_to; /* the pCPU to which a thread last came from another LLC, + 1, spread.h */
	u64 came_ns; /* when it came, or one last left */
} __attribute__((aligned(64)));

/* A set of domains with a policy of its own; partition 0 is always there, partition.h. */
struct partition {
	u64 slice_ns; /* how long a thread runs before it is asked again */
	u64 account_at_ns; /* credit.h: when credit is next given out */
	u64 active_shares; /* credit.h: of those it was given to last */
	s64 balance_ns; /* credit.h: what these had then */
	u32 policy; /* enum partition_policy */
	u32 nr_online; /* pCPUs */
	u32 nr_counted; /* pCPUs found online so far, while they are counted anew */
};

/* Which VM wakes a VM mostly, waker.h. */
struct waker {
	u32 slot; /* the VM that does; if there are votes */
	u32 votes; /* that it is that one */
	u32 wakes; /* by VMs, as far as they were looked at */
	u32 near; /* of these, within an LLC */
};

/* Which of the VMs that wait is first, tournament.h. */
struct tournament {
	u64 node[2 * DROVER_MAX_VMS];
};

/* What a domain knows of one VM: its threads that wait there. */
struct entity_rq {
	u64 served_ns; /* when one was last taken, or the first came */
	u64 due_ns; /* none of them must run before then, wait_bound.h */
	u64 may; /* pCPUs of the domain where some of them may run, affinity.h */
	u32 nr_queued; /* threads waiting */
	u32 remote; /* some of them may run in other domains, too */
	u32 nr_pinned; /* of these, those of one pCPU, */
	u32 pinned[DROVER_DOMAIN_PCPUS]; /* and by the places of those pCPUs */
	u64 last_vruntime_ns; /* in a crowd: of the thread that stands last, waiting.h */
} __attribute__((aligned(64)));

/*
 * The run queue of a domain: which VM is next. The lock guards the tournaments only; nothing is
 * called while it is held.
 */
struct runqueue {
	struct ground_lock lock;
	union {
		struct {
			struct tournament by_share; /* the least served is first */
			struct tournament
				by_deadline; /* the earliest deadline is first, wait_bound.h */
		};
		struct tournament by[2];
	};
	struct entity_rq entity_rq[DROVER_MAX_VMS];
};

/* What may be used of the limit of a VM or pool, limit.h. */
struct limit {
	u64 paid_ns; /* the tag of its bucket, bucket.h */
	u64 dealt_ns; /* a VM's in a pool with a limit: the same, of what it is owed there */
	u64 seen_ns; /* a VM's: CPU time of its threads, as far as it was charged */
	u32 burst_us; /* CPU time the bucket holds beside what comes in 100 ms */
};

/* How much a pCPU is used, speed.h. */
struct speed {
	u64 busy_since_ns; /* 0: it is idle */
	u64 began_ns; /* this window */
	u64 busy_ns; /* in it, not counting since busy_since_ns */
	u32 last; /* the part of the last window in which it was busy, of 1024 */
	u32 asked; /* the part of its full speed that was asked for last */
} __attribute__((aligned(64))); /* each is written by one pCPU */

/* timer.h */
struct timer {
	u64 at_ns; /* when it is to go off; 0: not at all */
	u64 armed_ns; /* what the ground was told last; 0: it has gone off */
	u32 busy;
};

/* Set before the scheduler starts. */
struct params {
	u64 slice_ns; /* how long a thread runs before it is asked again */
	u64 wake_credit_ns; /* CPU time a VM may save up by sleeping */
	u64 claim_bound_ns; /* CPU time a VM may be owed, for each of its threads */
	u64 preempt_gain_ns; /* virtual time a waker must be behind to preempt */
	u64 steal_gain_ns; /* virtual time another domain's VM must be behind */
	u64 wait_bound_ns; /* no ready VM waits longer than this */
	u64 skew_max_ns; /* how far vCPUs of a VM may drift apart before a co-stop */
	u64 hold_max_ns; /* no VM waits longer for its vCPUs to start together */
	u64 judge_window_ns; /* how often it is asked which VMs need their vCPUs together */
	u64 shared_core_permille; /* charged of the time beside a busy sibling thread */
	u32 nr_pcpus;
	u32 nr_domains; /* grows when a spare domain comes into use, account/orders.h */
};

/* The whole scheduler; every policy function gets it. */
struct drover {
	struct params params;
	u64 next_vm_id;
	u64 ground; /* for the ground's own use */
	u32 vms_found; /* counts VMs ever found, and containers that came or went: look again */
	u32 nr_unplaced; /* vCPUs served as tasks of the host: no slot was free */
	u32 slots_in_use; /* no slot at or above this was ever used */
	u32 tournament_levels; /* how much of the tournament is played */
	u32 pcpu_changes; /* counts pCPUs that came or went */
	u32 period; /* in which vCPUs run that count for the sizes of their VMs, vm.h */
	u32 nr_busy_users; /* users whose tasks ran in the last one */
	u32 vm_shares; /* of all VMs together, the host apart */
	u32 nr_reserved; /* VMs with a reservation */
	u32 allot_lapses; /* times nothing was allotted for too long, allot.h */
	u32 round; /* counts rounds, plan.h */
	u64 round_end_ns;
	u64 allotted_ns; /* when weights were last allotted; 0: all have plain shares, allot.h */
	u32 nr_coscheduled; /* VMs kept together */
	u32 divided; /* some pCPUs are in a partition other than 0 */
	u32 vcpu_hint; /* where to look for a free record next */
	u32 nr_capped; /* VMs under a limit */
	u32 nr_containers; /* threads look for none where there is none */
	u32 cgroup_changes; /* counts what changed about cgroups, for the daemon */
	u32 homes; /* some VM has, or had, a home */
	u32 drains; /* walks to come, drain.h */
	u32 drain_cursor; /* where the next drained thread looks for a pCPU first */
	struct vm vm[DROVER_MAX_VMS];
	struct pcpu pcpu[DROVER_MAX_PCPUS];
	struct domain domain[DROVER_MAX_DOMAINS];
	struct partition partition[DROVER_MAX_PARTITIONS];
	u32 pcpu_of[DROVER_MAX_PCPUS]; /* those of one domain side by side, topology.h */
	u8 node_hops[DROVER_MAX_NODES][DROVER_MAX_NODES]; /* 2 and more; 0: as far as any */
	u8 near_of[DROVER_MAX_DOMAINS][DROVER_MAX_DOMAINS]; /* the others, the nearest first */
	struct pool pool[DROVER_MAX_POOLS];
	struct vcpu vcpu[DROVER_MAX_VCPUS];
	u32 vcpu_of[DROVER_MAX_VMS][DROVER_VM_VCPUS]; /* records of each VM's vCPUs */
	struct limit limit[DROVER_LIMITS]; /* of VMs, then of pools */
	struct waker waker[DROVER_MAX_VMS]; /* of VMs */
	struct speed speed[DROVER_MAX_PCPUS];
	struct timer timer[DROVER_MAX_VMS]; /* of VMs; slot 0: the scheduler's own */
	/* find.h */
	u32 slots_held; /* by all VMs and containers */
	u32 crowded_user; /* refused one: has as many as are left; 0: none since one is free */
	u32 user_of[DROVER_MAX_VMS]; /* the user that is charged for each slot that is held */
	u32 slots_of[1 << DROVER_USER_BITS]; /* held by each user, by a hash of its number */
};

_Static_assert(sizeof(struct vm) == 512, "struct vm: same in BPF and native code");
_Static_assert(sizeof(struct thread) == 168, "struct thread: same in BPF and native code");
_Static_assert(sizeof(struct vcpu) == 128, "struct vcpu: same in BPF and native code");
_Static_assert(sizeof(struct pool) == 16, "struct pool: same in BPF and native code");
_Static_assert(sizeof(struct limit) == 32, "struct limit: same in BPF and native code");
_Static_assert(sizeof(struct entity_rq) == 320, "struct entity_rq: same in BPF and native code");
_Static_assert(sizeof(struct pcpu) == 128, "struct pcpu: same in BPF and native code");
_Static_assert(sizeof(struct params) == 88, "struct params: same in BPF and native code");

static __always_inline u64 min_of(u64 a, u64 b)
{
	return a < b ? a : b;
}

static __always_inline u64 max_of(u64 a, u64 b)
{
	return a > b ? a : b;
}

static __always_inline s64 min_signed(s64 a, s64 b)
{
	return a < b ? a : b;
}

static __always_inline s64 max_signed(s64 a, s64 b)
{
	return a > b ? a : b;
}

/* Raise it to that, if it is less. Others may do so at the same moment. */
static __always_inline void atomic_max(u32 *value, u32 least)
{
	u32 try;

	/* Each try that fails means that another has raised it. */
	for_each_index(try, 0, DROVER_MAX_VMS) {
		u32 now = *(volatile u32 *)value;

		if (now >= least || __sync_val_compare_and_swap(value, now, least) == now)
			break;
	}
}

static __always_inline struct vm *vm_at(struct drover *d, u32 slot)
{
	return &d->vm[bounded(slot, DROVER_MAX_VMS)];
}

static __always_inline struct pcpu *pcpu_at(struct drover *d, u32 pcpu)
{
	return &d->pcpu[bounded(pcpu, DROVER_MAX_PCPUS)];
}

static __always_inline struct domain *domain_at(struct drover *d, u32 domain)
{
	return &d->domain[bounded(domain, DROVER_MAX_DOMAINS)];
}

static __always_inline struct entity_rq *entity_rq_of(struct runqueue *rq, u32 slot)
{
	return &rq->entity_rq[bounded(slot, DROVER_MAX_VMS)];
}

/* May its mode have it wait beside an idle pCPU? */
static __always_inline bool vm_may_wait(const struct vm *vm)
{
	return vm->cosched_mode >= COSCHED_STRICT || vm->spins;
}

/* Are they tasks of the host that have a slot of their own? */
static __always_inline bool owner_is_host_tasks(u64 owner_id)
{
	return (owner_id & OWNER_HOST_TASKS) == OWNER_HOST_TASKS;
}

static __always_inline bool owner_is_user(u64 owner_id)
{
	return (owner_id & OWNER_USER) == OWNER_USER;
}

/* A task of the host or of a container: it has a nice value. */
static __always_inline bool thread_is_task(const struct thread *t)
{
	return t->kind == THREAD_HOST || t->kind == THREAD_MEMBER;
}

/* Has a VM been found, or did a container come or go, since it was last looked up whose that task
 * is? */
static __always_inline bool thread_looks_anew(const struct drover *d, const struct thread *t)
{
	return thread_is_task(t) && t->vms_seen != *(const volatile u32 *)&d->vms_found;
}

#endif
