/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel as a ground: policy/base/ground.h over sched_ext. No policy here.
 */
#ifndef DROVER_GROUND_BPF_H
#define DROVER_GROUND_BPF_H

#include "base/timer.h"

#include "interrupt.bpf.h"
#include "kvm.bpf.h"
#include "spin.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* the loader sets the number of all domains */
	__type(key, u32);
	__type(value, struct runqueue);
} domains SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, DROVER_MAX_VMS);
	__type(key, u64);   /* a process, or a cgroup and OWNER_CGROUP */
	__type(value, u32); /* slot */
} vm_slots SEC(".maps");

/* A stack of those whose queues are there (queues.bpf.h), and how many. */
u32 nr_free_slots;

struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, DROVER_MAX_VMS);
	__type(value, u32);
} free_slots SEC(".maps");

/* To rouse idle pCPUs. */
enum { TIMER_ROUSE, NR_TIMERS };

struct kernel_timer {
	struct bpf_timer timer;
	u64 at_ns; /* when it goes off */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NR_TIMERS);
	__type(key, u32);
	__type(value, struct kernel_timer);
} timers SEC(".maps");

/* Of VMs, by their slots, slot 0's of the scheduler itself, and of pCPUs (timer.h). */
#define NR_POLICY_TIMERS TIMER_TURN(DROVER_MAX_PCPUS)
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NR_POLICY_TIMERS);
	__type(key, u32);
	__type(value, struct kernel_timer);
} policy_timers SEC(".maps");

/* How long timers' callbacks have run: the kernel's statistics are of programs only. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} timers_ran_ns SEC(".maps");

/* A timer's callback that began then has done its work. */
static void timer_ran(u64 begun_ns)
{
	u32 only = 0;
	u64 *sum_ns = bpf_map_lookup_elem(&timers_ran_ns, &only);

	if (sum_ns)
		__sync_fetch_and_add(sum_ns, bpf_ktime_get_ns() - begun_ns);
}

/* To one that runs out before what goes off just now has returned the kernel wakes no pCPU. */
#define TIMER_LEAST_NS 50000ULL

/* Have it go off in so many ns. */
static void timer_start(struct kernel_timer *value, u64 now_ns, u64 in_ns, u64 flags)
{
	value->at_ns = now_ns + in_ns;
	bpf_timer_start(&value->timer, in_ns, flags);
}

/*
 * The time when it goes off. What scx_bpf_now says then may be as old as the kernel's
 * last look at this pCPU's run queue, a tick: not before the timer is due.
 */
static u64 timer_now_ns(struct kernel_timer *value)
{
	u64 now_ns = scx_bpf_now();

	return (s64)(now_ns - value->at_ns) > 0 ? now_ns : value->at_ns;
}

static u64 ground_now_ns(struct drover *d)
{
	return scx_bpf_now();
}

static u64 ground_cpu_time_ns(struct drover *d, struct task_struct *task)
{
	return task->se.sum_exec_runtime;
}

static u64 ground_hypervisor_time_ns(struct drover *d, struct task_struct *task)
{
	/* In the kernel, or in user space but not in the guest: that is the VMM. */
	return task->stime + task->utime - task->gtime;
}

static u64 ground_spun_ns(struct drover *d, struct task_struct *task)
{
	return spun_ns(task);
}

static u32 ground_task_pcpu(struct drover *d, struct task_struct *task)
{
	return scx_bpf_task_cpu(task);
}

static bool ground_may_run_on(struct drover *d, struct task_struct *task, u32 pcpu)
{
	/* Tasks that must not migrate never get here: the kernel keeps them. */
	return bpf_cpumask_test_cpu(pcpu, task->cpus_ptr);
}

static s32 ground_only_pcpu(struct drover *d, struct task_struct *task)
{
	return task->nr_cpus_allowed == 1 ? (s32)bpf_cpumask_first(task->cpus_ptr) : -1;
}

static u32 ground_waker(struct drover *d, u32 *pcpu)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct thread *t = in_interrupt() ? NULL : bpf_task_storage_get(&threads, current, NULL, 0);

	*pcpu = bpf_get_smp_processor_id();
	return t ? t->slot : DROVER_HOST_SLOT;
}

static bool ground_is_kernel_thread(struct drover *d, struct task_struct *task)
{
	return task->flags & PF_KTHREAD;
}

static bool ground_is_leaving(struct drover *d, struct task_struct *task)
{
	return task->flags & PF_EXITING;
}

static bool ground_blocks_rcu(struct drover *d, struct task_struct *task)
{
	return bpf_core_field_exists(task->rcu_read_unlock_special) &&
	       task->rcu_read_unlock_special.b.blocked;
}

static void ground_set_slice(struct drover *d, struct task_struct *task, u64 slice_ns)
{
	if (bpf_ksym_exists(scx_bpf_task_set_slice___new))
		scx_bpf_task_set_slice___new(task, slice_ns);
	else
		task->scx.slice = slice_ns;
}

static u64 ground_process(struct drover *d, struct task_struct *task)
{
	return task->tgid;
}

static u32 ground_exec_id(struct drover *d, struct task_struct *task)
{
	return (u32)task->self_exec_id;
}

static u32 ground_tid(struct drover *d, struct task_struct *task)
{
	return (u32)task->pid;
}

static s32 ground_vcpu_of(struct drover *d, struct task_struct *task)
{
	return vcpu_of(task);
}

static u32 ground_slot_of(struct drover *d, u64 owner_id)
{
	u32 *slot = bpf_map_lookup_elem(&vm_slots, &owner_id);

	return slot ? *slot : DROVER_HOST_SLOT;
}

static bool ground_enter(struct drover *d, u64 owner_id, u32 slot)
{
	return !bpf_map_update_elem(&vm_slots, &owner_id, &slot, BPF_NOEXIST);
}

static void ground_forget(struct drover *d, u64 owner_id)
{
	bpf_map_delete_elem(&vm_slots, &owner_id);
}

/* No container is deeper; the daemon makes none (sources/cgroup.rs). */
#define CONTAINER_DEPTH_MAX 32

/* Only cgroups with the cpu controller count, and the kernel knows them as groups of tasks. */
FRAMED u32 ground_container_of(struct drover *d, struct task_struct *task, u64 *owner_id)
{
	/* None: the kernel made the group for a session. */
	struct cgroup *of = BPF_CORE_READ(task, sched_task_group, css.cgroup);
	u32 slot = DROVER_HOST_SLOT;
	s32 level, i;

	if (!of)
		return slot;
	level = (s32)min_of((u32)BPF_CORE_READ(of, level), CONTAINER_DEPTH_MAX);
	/* From the deepest that can be a container, however deep the task is, up to below the root.
	 */
	bpf_for(i, 0, CONTAINER_DEPTH_MAX) {
		struct cgroup *above = NULL;

		if (i >= level ||
		    bpf_probe_read_kernel(&above, sizeof(above), &of->ancestors[0] + (level - i)))
			break;
		*owner_id = BPF_CORE_READ(above, kn, id) | OWNER_CGROUP;
		slot = ground_slot_of(d, *owner_id);
		if (slot != DROVER_HOST_SLOT)
			break;
	}
	return slot;
}

/* User namespaces nest no deeper. */
#define USER_DEPTH_MAX 33

/*
 * A process in a user namespace that a user made counts as that user's, whatever it is within:
 * there it may be any of many.
 */
FRAMED u32 ground_user(struct drover *d, struct task_struct *task)
{
	struct user_namespace *within = BPF_CORE_READ(task, real_cred, user_ns);
	u32 owner = 0;
	u32 i;

	bpf_for(i, 0, USER_DEPTH_MAX) {
		if (!within || !BPF_CORE_READ(within, level))
			break;
		owner = BPF_CORE_READ(within, owner.val);
		within = BPF_CORE_READ(within, parent);
	}
	return owner ?: BPF_CORE_READ(task, real_cred, uid.val);
}

static u32 ground_pop_slot(struct drover *d)
{
	u32 slot;

	if (bpf_map_pop_elem(&free_slots, &slot))
		return DROVER_HOST_SLOT;
	__sync_fetch_and_sub(&nr_free_slots, 1);
	return slot;
}

static void ground_push_slot(struct drover *d, u32 slot)
{
	if (!bpf_map_push_elem(&free_slots, &slot, BPF_ANY))
		__sync_fetch_and_add(&nr_free_slots, 1);
}

static __always_inline void insert(struct task_struct *task, u64 dsq, u64 slice_ns, u64 enq_flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_insert___v2___bool))
		scx_bpf_dsq_insert___v2___bool(task, dsq, slice_ns, enq_flags);
	else
		scx_bpf_dsq_insert___void(task, dsq, slice_ns, enq_flags);
}

static void ground_enqueue(struct drover *d, struct task_struct *task, u64 queue, u64 slice_ns,
			   u64 order)
{
	if (bpf_core_type_exists(struct scx_bpf_dsq_insert_vtime_args)) {
		struct scx_bpf_dsq_insert_vtime_args args = {
			.dsq_id = queue,
			.slice = slice_ns,
			.vtime = order,
		};

		__scx_bpf_dsq_insert_vtime(task, &args);
	} else {
		scx_bpf_dsq_insert_vtime___five(task, queue, slice_ns, order, 0);
	}
}

static void ground_run_on(struct drover *d, struct task_struct *task, u32 pcpu, u64 slice_ns,
			  bool preempt)
{
	u64 flags = preempt ? KERNEL_ENUM(scx_enq_flags, SCX_ENQ_PREEMPT) : 0;

	insert(task, KERNEL_ENUM(scx_dsq_id_flags, SCX_DSQ_LOCAL_ON) | pcpu, slice_ns, flags);
}

static u64 ground_vm_queue(struct drover *d, u32 slot, u32 domain)
{
	return (u64)slot * DROVER_MAX_DOMAINS + domain;
}

/* Beyond those of all VMs. */
static u64 ground_parked_queue(struct drover *d, u32 slot)
{
	return ground_vm_queue(d, DROVER_MAX_VMS + slot, 0);
}

static bool ground_take_first(struct drover *d, u64 queue)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local___v2___flags))
		return scx_bpf_dsq_move_to_local___v2___flags(queue, 0);
	return scx_bpf_dsq_move_to_local___plain(queue);
}

/*
 * Put threads that wait there and may run on no pCPU that is online into the local queue of that
 * one, which goes offline.
 */
BPF_GLOBAL int take_stranded(THE_DROVER, u64 queue, u32 pcpu)
{
	u64 there = KERNEL_ENUM(scx_dsq_id_flags, SCX_DSQ_LOCAL_ON) | pcpu;
	struct bpf_iter_scx_dsq it;
	u32 i;

	if (!bpf_iter_scx_dsq_new(&it, queue, 0)) {
		bpf_for(i, 0, 1 << 20) {
			struct task_struct *p = bpf_iter_scx_dsq_next(&it);

			if (!p)
				break;
			if (affinity_find(d, p, AFFINITY_ANY, AFFINITY_ANY, true, 0) == PCPU_NONE)
				scx_bpf_dsq_move(&it, p, there, 0);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return 0;
}

/*
 * The pid of the task to be taken, or 0: the vCPU with that record, or (0) the thread that must run
 * first. Of the others the first that must run is noted.
 */
static s32 find_task(u64 queue, u64 until_ns, u32 record, u64 *next_ns)
{
	struct bpf_iter_scx_dsq it;
	s32 pid = 0;
	u32 i;

	if (!bpf_iter_scx_dsq_new(&it, queue, 0)) {
		bpf_for(i, 0, GROUND_SEARCH_MAX) {
			struct task_struct *p = bpf_iter_scx_dsq_next(&it);
			struct thread *t;
			u64 stays_ns;
			bool found;

			if (!p)
				break;
			t = bpf_task_storage_get(&threads, p, NULL, 0);
			if (!t)
				continue;
			stays_ns = t->due_ns;
			found = (record ? t->record == record : (s64)(until_ns - t->due_ns) >= 0) &&
				bpf_cpumask_test_cpu(bpf_get_smp_processor_id(), p->cpus_ptr);
			if (found) {
				/* What was found before, if anything, stays. */
				stays_ns = pid ? until_ns + 1 : *next_ns;
				until_ns = t->due_ns - 1;
				pid = p->pid;
			}
			if ((s64)(stays_ns - *next_ns) < 0)
				*next_ns = stays_ns;
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return pid;
}

BPF_GLOBAL bool take_task(u64 queue, s32 pid)
{
	u64 here = KERNEL_ENUM(scx_dsq_id_flags, SCX_DSQ_LOCAL);
	struct bpf_iter_scx_dsq it;
	bool taken = false;
	u32 i;

	if (!bpf_iter_scx_dsq_new(&it, queue, 0)) {
		bpf_for(i, 0, GROUND_SEARCH_MAX) {
			struct task_struct *p = bpf_iter_scx_dsq_next(&it);

			if (!p)
				break;
			if (p->pid != pid)
				continue;
			taken = scx_bpf_dsq_move(&it, p, here, 0);
			break;
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return taken;
}

static bool ground_take_due(struct drover *d, u64 queue, u64 until_ns, u64 *next_ns)
{
	s32 pid = find_task(queue, until_ns, 0, next_ns);

	return pid && take_task(queue, pid);
}

static bool ground_take_vcpu(struct drover *d, u64 queue, u32 record)
{
	u64 next_ns = 0;
	s32 pid = find_task(queue, 0, record, &next_ns);

	return pid && take_task(queue, pid);
}

static void ground_drain(struct drover *d, u64 queue, u64 slice_ns)
{
	u64 local = KERNEL_ENUM(scx_dsq_id_flags, SCX_DSQ_LOCAL_ON);
	struct bpf_iter_scx_dsq it;
	u32 i;

	if (!bpf_iter_scx_dsq_new(&it, queue, 0)) {
		bpf_for(i, 0, 1 << 20) {
			struct task_struct *p = bpf_iter_scx_dsq_next(&it);
			struct thread *t;
			s32 to;

			if (!p)
				break;
			t = bpf_task_storage_get(&threads, p, NULL, 0);
			to = t ? drain_to(d, p, t) : PCPU_NONE;
			if (to == PCPU_NONE)
				continue;
			scx_bpf_dsq_move_set_slice(&it, slice_ns);
			scx_bpf_dsq_move(&it, p, local | (u32)to, 0);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
}

static bool ground_first_order(struct drover *d, u64 queue, u32 pcpu, u64 *order)
{
	struct bpf_iter_scx_dsq it;
	bool found = false;
	u32 i;

	if (!bpf_iter_scx_dsq_new(&it, queue, 0)) {
		bpf_for(i, 0, GROUND_SEARCH_MAX) {
			struct task_struct *p = bpf_iter_scx_dsq_next(&it);

			if (!p)
				break;
			if (!bpf_cpumask_test_cpu(pcpu, p->cpus_ptr))
				continue;
			*order = p->scx.dsq_vtime;
			found = true;
			break;
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return found;
}

/*
 * A kick is sent by an interrupt to oneself. On a pCPU that is going offline it
 * would be lost, and would block all later ones there, the kernel's own too.
 */
static bool may_kick(struct drover *d)
{
	return d->pcpu[bounded(bpf_get_smp_processor_id(), DROVER_MAX_PCPUS)].online;
}

static bool ground_claim(struct drover *d, struct task_struct *task, u32 pcpu)
{
	return may_kick(d) && bpf_cpumask_test_cpu(pcpu, task->cpus_ptr) &&
	       scx_bpf_test_and_clear_cpu_idle(pcpu);
}

static void ground_kick(struct drover *d, u32 pcpu)
{
	if (may_kick(d))
		scx_bpf_kick_cpu(pcpu, 0);
}

static void ground_preempt(struct drover *d, u32 pcpu)
{
	if (may_kick(d))
		scx_bpf_kick_cpu(pcpu, KERNEL_ENUM(scx_kick_flags, SCX_KICK_PREEMPT));
}

static void ground_set_speed(struct drover *d, u32 pcpu, u32 speed)
{
	scx_bpf_cpuperf_set(pcpu, speed);
}

static void ground_place_anew(struct drover *d)
{
	if (bpf_ksym_exists(scx_bpf_reenqueue_local___v2___anywhere))
		scx_bpf_reenqueue_local___v2___anywhere();
	else
		scx_bpf_reenqueue_local___release();
}

static void ground_timer(struct drover *d, u32 timer, u64 at_ns, u64 now_ns)
{
	struct kernel_timer *value = bpf_map_lookup_elem(&policy_timers, &timer);
	s64 in_ns = (s64)(at_ns - now_ns);

	if (in_ns < (s64)TIMER_LEAST_NS)
		in_ns = TIMER_LEAST_NS;
	if (value)
		timer_start(value, now_ns, in_ns, BPF_F_TIMER_CPU_PIN);
}

static struct runqueue *ground_runqueue(struct drover *d, u32 domain)
{
	return bpf_map_lookup_elem(&domains, &domain);
}

static void ground_lock_runqueue(struct runqueue *rq)
{
	bpf_spin_lock(&rq->lock);
}

static void ground_unlock_runqueue(struct runqueue *rq)
{
	bpf_spin_unlock(&rq->lock);
}

#endif
