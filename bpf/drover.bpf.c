// SPDX-License-Identifier: GPL-2.0-only
/*
 * Drover in the kernel: sched_ext's events handed to the policy.
 *
 * Glue only. What a thread, VM or pCPU is due is decided in ../policy; here the
 * kernel's callbacks become the policy's events, in the order of a thread's
 * life, with the ops table last. How a wake-up travels through these rooms is
 * told in docs/architecture.md.
 *
 * All normal tasks are taken, not only vCPUs: in partial mode the fair class
 * ranks above sched_ext, and any busy host task would starve the VMs.
 */
#include "kernel.h"

#include "drover.h"

#include "ground.bpf.h"

char _license[] SEC("license") = "GPL";

/* The whole state; the daemon maps it, reads counters, and never writes. */
struct drover drover;

#include "queues.bpf.h"

/* Why the kernel ended us, for the daemon to tell. */
struct {
	s32 kind;
	s64 code;
	char reason[128];
	char message[512];
	char dump[32768];
} exit_info;

static struct thread *thread_of(struct task_struct *p)
{
	return bpf_task_storage_get(&threads, p, NULL, 0);
}

/* A thread enters the scheduler's care. */

SEC("struct_ops.s/drover_init_task")
s32 BPF_PROG(drover_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct thread *t = bpf_task_storage_get(&threads, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!t)
		return -12; /* ENOMEM */
	t->weight = 100;
	t->exec_id = ground_exec_id(&drover, p);
	return 0;
}

SEC("struct_ops/drover_enable")
void BPF_PROG(drover_enable_op, struct task_struct *p)
{
	struct thread *t = thread_of(p);

	if (t)
		drover_enable(&drover, p, t, p->scx.weight);
}

SEC("struct_ops/drover_set_weight")
void BPF_PROG(drover_set_weight, struct task_struct *p, u32 weight)
{
	struct thread *t = thread_of(p);

	if (t)
		drover_reweigh(&drover, t, weight);
}

SEC("struct_ops/drover_set_cpumask")
void BPF_PROG(drover_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	struct thread *t = thread_of(p);

	if (t)
		affinity_change(&drover, p, t);
}

/* It wakes, is queued, is chosen. */

SEC("struct_ops/drover_select_cpu")
s32 BPF_PROG(drover_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct thread *t = thread_of(p);
	enum drover_wakes wakes;
	s32 cpu;

	if (!t)
		return prev_cpu;
	cpu = (s32)drover_select(&drover, p, t, &wakes);
	if (wakes != WAKES_TO_WAIT)
		insert(p, KERNEL_ENUM(scx_dsq_id_flags, SCX_DSQ_LOCAL), drover.params.slice_ns,
		       wakes == WAKES_ON_IDLE ? 0 : KERNEL_ENUM(scx_enq_flags, SCX_ENQ_PREEMPT));
	return cpu;
}

SEC("struct_ops/drover_enqueue")
void BPF_PROG(drover_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct thread *t = thread_of(p);
	bool selected = enq_flags & KERNEL_ENUM(scx_enq_flags, SCX_ENQ_CPU_SELECTED);
	bool woken = enq_flags & KERNEL_ENUM(scx_enq_flags, SCX_ENQ_WAKEUP);

	if (!t)
		return;
	drover_stopped(&drover, p, t);
	/* The kernel skips select_cpu for threads of one pCPU, and in some races. */
	if (woken && !selected)
		drover_woken(&drover, t, (u32)scx_bpf_task_cpu(p));
	drover_place(&drover, p, t, woken && !selected);
}

SEC("struct_ops/drover_dispatch")
void BPF_PROG(drover_dispatch_op, s32 cpu, struct task_struct *prev)
{
	struct thread *t = NULL;

	/* The kernel also names a thread that has just gone to sleep here. */
	if (prev && (prev->scx.flags & KERNEL_ENUM(scx_ent_flags, SCX_TASK_QUEUED)))
		t = thread_of(prev);
	drover_dispatch(&drover, cpu, prev, t);
}

/* It runs and stops. */

SEC("struct_ops/drover_running")
void BPF_PROG(drover_running_op, struct task_struct *p)
{
	struct thread *t = thread_of(p);

	if (t)
		drover_running(&drover, p, t, scx_bpf_task_cpu(p));
}

SEC("struct_ops/drover_tick")
void BPF_PROG(drover_tick_op, struct task_struct *p)
{
	struct thread *t = thread_of(p);

	if (t)
		drover_tick(&drover, p, t);
}

SEC("struct_ops/drover_stopping")
void BPF_PROG(drover_stopping_op, struct task_struct *p, bool runnable)
{
	struct thread *t = thread_of(p);

	/*
	 * With slice left it is preempted by a task of a higher class, and the kernel would keep it
	 * in the local queue of this pCPU. From there 6.18 cannot place it anew (cpu_release):
	 * while a BPF program runs, current looks like a task that must not migrate. So it would
	 * get a new slice each time, and others no turn. Without a slice it is enqueued like
	 * any other.
	 */
	if (runnable)
		ground_set_slice(&drover, p, 0);
	if (t)
		drover_stopping(&drover, p, t, scx_bpf_task_cpu(p), runnable);
}

SEC("struct_ops/drover_quiescent")
void BPF_PROG(drover_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct thread *t = thread_of(p);

	if (t)
		drover_stopped(&drover, p, t);
}

SEC("struct_ops/drover_yield")
bool BPF_PROG(drover_yield_op, struct task_struct *from, struct task_struct *to)
{
	struct thread *t = thread_of(from);
	struct thread *target = to ? thread_of(to) : NULL;

	if (!t || (to && !target))
		return false;
	return drover_yield(&drover, from, t, to, target);
}

/* It leaves: for another scheduling class, or for good. */

SEC("struct_ops/drover_disable")
void BPF_PROG(drover_disable, struct task_struct *p)
{
	struct thread *t = thread_of(p);

	if (t)
		drover_leaving(&drover, p, t);
}

SEC("struct_ops/drover_exit_task")
void BPF_PROG(drover_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct thread *t = thread_of(p);

	if (t)
		find_forget(&drover, t);
}

/*
 * Cgroups come, go and change. What they say is the daemon's to read (drover-host, containers.rs):
 * here it is told when to. But a limit is in force from when it is written.
 */

static void note_cgroups(void)
{
	__sync_fetch_and_add(&drover.cgroup_changes, 1);
}

SEC("struct_ops.s/drover_cgroup_init")
s32 BPF_PROG(drover_cgroup_init, struct cgroup *cgroup, struct scx_cgroup_init_args *args)
{
	note_cgroups();
	return 0;
}

SEC("struct_ops.s/drover_cgroup_exit")
void BPF_PROG(drover_cgroup_exit, struct cgroup *cgroup)
{
	note_cgroups();
}

SEC("struct_ops/drover_cgroup_move")
void BPF_PROG(drover_cgroup_move, struct task_struct *p, struct cgroup *from, struct cgroup *to)
{
	struct thread *t = thread_of(p);

	if (t)
		drover_moved(&drover, p, t);
	note_cgroups();
}

SEC("struct_ops/drover_cgroup_set_weight")
void BPF_PROG(drover_cgroup_set_weight, struct cgroup *cgroup, u32 weight)
{
	note_cgroups();
}

SEC("struct_ops/drover_cgroup_set_bandwidth")
void BPF_PROG(drover_cgroup_set_bandwidth, struct cgroup *cgroup, u64 period_us, u64 quota_us,
	      u64 burst_us)
{
	struct task_struct *writer = bpf_get_current_task_btf();

	order_cgroup_limit(&drover, BPF_CORE_READ(cgroup, kn, id), ground_user(&drover, writer),
			   quota_us, period_us);
	note_cgroups();
}

/* pCPUs come, go and rest. */

SEC("struct_ops/drover_update_idle")
void BPF_PROG(drover_update_idle, s32 cpu, bool idle)
{
	drover_idle(&drover, cpu, idle);
}

SEC("struct_ops/drover_cpu_release")
void BPF_PROG(drover_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	drover_pcpu_taken(&drover, cpu);
}

SEC("struct_ops/drover_cpu_acquire")
void BPF_PROG(drover_cpu_acquire, s32 cpu, struct scx_cpu_acquire_args *args)
{
	drover_pcpu_returned(&drover, cpu);
}

SEC("struct_ops/drover_cpu_online")
void BPF_PROG(drover_cpu_online, s32 cpu)
{
	drover_pcpu_online(&drover, cpu);
}

/*
 * The kernel no longer asks for a pCPU that goes offline, and waits until its run queue is empty.
 * Other pCPUs take threads that may run on them; none takes the rest. The kernel moves these
 * itself, and breaks their affinity, when they are in the pCPU's local queue.
 */
static void let_stranded_go(u32 cpu)
{
	u32 slot, domain;

	bpf_for(slot, 0, drover.slots_in_use) {
		bpf_for(domain, 0, drover.params.nr_domains) {
			struct runqueue *rq = ground_runqueue(&drover, domain);

			if (rq && entity_rq_of(rq, slot)->nr_queued)
				take_stranded(&drover, ground_vm_queue(&drover, slot, domain), cpu);
		}
	}
}

SEC("struct_ops/drover_cpu_offline")
void BPF_PROG(drover_cpu_offline, s32 cpu)
{
	drover_pcpu_offline(&drover, cpu);
	let_stranded_go(cpu);
}

/* The scheduler as a whole. */

/*
 * While a pCPU comes or goes its run queue is offline and the kernel does not ask us. From 6.18 to
 * 7.2 it then goes idle beside the last thread there when the slice of that is spent: it queues
 * the thread as SCX_OPS_ENQ_LAST says, and sends itself no interrupt. When that is the thread which
 * brings the pCPU online, nothing else would ever wake it.
 */
static void kick_who_come_or_go(void)
{
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	u32 cpu;

	bpf_for(cpu, 0, drover.params.nr_pcpus) {
		if (!pcpu_at(&drover, cpu)->online && bpf_cpumask_test_cpu(cpu, online))
			ground_kick(&drover, cpu);
	}
	scx_bpf_put_cpumask(online);
}

static int rouse(void *map, u32 *key, struct kernel_timer *value)
{
	u64 begun_ns = bpf_ktime_get_ns();

	drover_kick_idle(&drover);
	kick_who_come_or_go();
	keep_slots_spare();
	timer_start(value, timer_now_ns(value), drover.params.wait_bound_ns / 8, 0);
	timer_ran(begun_ns);
	return 0;
}

static int go_off(void *map, u32 *key, struct kernel_timer *value)
{
	u64 begun_ns = bpf_ktime_get_ns();

	drover_timer(&drover, *key, timer_now_ns(value));
	timer_ran(begun_ns);
	return 0;
}

static s32 begin_policy_timers(void)
{
	u32 i;

	bpf_for(i, 0, NR_POLICY_TIMERS) {
		struct kernel_timer *timer = bpf_map_lookup_elem(&policy_timers, &i);

		if (!timer)
			return -3; /* ESRCH */
		bpf_timer_init(&timer->timer, &policy_timers, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&timer->timer, go_off);
	}
	return 0;
}

static s32 begin_timers(void)
{
	u32 rouses = TIMER_ROUSE;
	struct kernel_timer *value = bpf_map_lookup_elem(&timers, &rouses);

	if (!value || begin_policy_timers())
		return -3; /* ESRCH */
	bpf_timer_init(&value->timer, &timers, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&value->timer, rouse);
	timer_start(value, scx_bpf_now(), drover.params.wait_bound_ns / 8, 0);
	return 0;
}

/* Since the loader looked some may have come or gone; from now on the kernel tells. */
static void note_online(void)
{
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	u32 cpu;

	bpf_for(cpu, 0, drover.params.nr_pcpus)
		pcpu_at(&drover, cpu)->online = bpf_cpumask_test_cpu(cpu, online);
	scx_bpf_put_cpumask(online);
}

SEC("struct_ops.s/drover_init")
s32 BPF_PROG(drover_init)
{
	s32 err = create_queues();

	if (err)
		return err;
	note_online();
	drover_start(&drover);
	return begin_timers();
}

SEC("struct_ops/drover_exit")
void BPF_PROG(drover_exit, struct scx_exit_info *info)
{
	exit_info.code = info->exit_code;
	bpf_probe_read_kernel_str(exit_info.reason, sizeof(exit_info.reason), info->reason);
	bpf_probe_read_kernel_str(exit_info.message, sizeof(exit_info.message), info->msg);
	bpf_probe_read_kernel_str(exit_info.dump, sizeof(exit_info.dump), info->dump);
	exit_info.kind = info->kind;
}

/* Orders of the daemon. */

SEC("syscall")
int drover_order(struct vm_order *order)
{
	return order_vm(&drover, order) ? 0 : -3; /* ESRCH */
}

SEC("syscall")
int drover_container_order(struct container_order *order)
{
	return order_container(&drover, order) ? 0 : -11; /* EAGAIN */
}

SEC("syscall")
int drover_pool_order(struct pool_order *order)
{
	return order_pool(&drover, order) ? 0 : -22; /* EINVAL */
}

SEC("syscall")
int drover_partition_order(struct partition_order *order)
{
	return order_partition(&drover, order) ? 0 : -22; /* EINVAL */
}

SEC("syscall")
int drover_pcpu_order(struct pcpu_order *order)
{
	return order_pcpu(&drover, order) ? 0 : -22; /* EINVAL */
}

SEC("syscall")
int drover_home_order(struct home_order *order)
{
	return order_home(&drover, order) ? 0 : -3; /* ESRCH */
}

/*
 * What VMs used, and what is allotted to them, by their slots (allot.h). The daemon reads and
 * writes it through its mapping, and has it filled or put in force as a whole.
 */
struct measured measured[DROVER_MAX_VMS];
struct allotment allotted[DROVER_MAX_VMS];

SEC("syscall")
int drover_measure(void *unused)
{
	u64 now_ns = ground_now_ns(&drover);
	u32 slot;

	bpf_for(slot, 0, drover.slots_in_use)
		allot_measure(&drover, slot, &measured[bounded(slot, DROVER_MAX_VMS)], now_ns);
	return 0;
}

SEC("syscall")
int drover_allot(void *unused)
{
	u32 slot;

	bpf_for(slot, 0, drover.slots_in_use)
		allot_obey(&drover, slot, &allotted[bounded(slot, DROVER_MAX_VMS)]);
	allot_begin(&drover, ground_now_ns(&drover));
	return 0;
}

SEC("syscall")
int drover_allot_end(void *unused)
{
	allot_end(&drover);
	return 0;
}

/* For the lab's fault tests: end as a broken scheduler would. */
SEC("syscall")
int drover_break(void *unused)
{
	char message[] = "broken on request";
	unsigned long long no_data[1] = {};

	scx_bpf_error_bstr(message, no_data, 0);
	return 0;
}

SEC(".struct_ops.link")
struct sched_ext_ops drover_ops = {
	.select_cpu = (void *)drover_select_cpu,
	.enqueue = (void *)drover_enqueue,
	.dispatch = (void *)drover_dispatch_op,
	.running = (void *)drover_running_op,
	.stopping = (void *)drover_stopping_op,
	.quiescent = (void *)drover_quiescent,
	.tick = (void *)drover_tick_op,
	.yield = (void *)drover_yield_op,
	.set_weight = (void *)drover_set_weight,
	.set_cpumask = (void *)drover_set_cpumask,
	.update_idle = (void *)drover_update_idle,
	.cpu_acquire = (void *)drover_cpu_acquire,
	.cpu_release = (void *)drover_cpu_release,
	.init_task = (void *)drover_init_task,
	.exit_task = (void *)drover_exit_task,
	.enable = (void *)drover_enable_op,
	.disable = (void *)drover_disable,
	.cgroup_init = (void *)drover_cgroup_init,
	.cgroup_exit = (void *)drover_cgroup_exit,
	.cgroup_move = (void *)drover_cgroup_move,
	.cgroup_set_weight = (void *)drover_cgroup_set_weight,
	.cgroup_set_bandwidth = (void *)drover_cgroup_set_bandwidth,
	.cpu_online = (void *)drover_cpu_online,
	.cpu_offline = (void *)drover_cpu_offline,
	.init = (void *)drover_init,
	.exit = (void *)drover_exit,
	/*
	 * Queued wake-ups: the waker does not wait for the run queue of the pCPU it
	 * wakes, which matters where that pCPU is itself a vCPU that may not run.
	 * The last thread is enqueued, too: a co-stopped vCPU leaves its pCPU idle.
	 */
	.flags = SCX_OPS_KEEP_BUILTIN_IDLE | SCX_OPS_ALLOW_QUEUED_WAKEUP | SCX_OPS_ENQ_LAST,
	/* guarantee/wait_bound.h says why. */
	.timeout_ms = 26000,
	.name = "drover",
};
