/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel as Drover sees it: the few types, enums and kfuncs it uses.
 *
 * Only the fields read are declared; libbpf relocates them at load time, so the
 * object runs on any kernel that still has them. A declaration with a suffix
 * after ___ stands for the kernel's symbol without it: that is how two versions
 * of a kfunc are offered, of which the loader keeps the one that exists.
 */
#ifndef DROVER_KERNEL_H
#define DROVER_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_STACK = 23,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

/* Of task_struct.flags: in do_exit(), and a thread of the kernel. */
#define PF_EXITING 0x00000004
#define PF_KTHREAD 0x00200000

/* Of task_struct.__state: any signal wakes it. */
#define TASK_INTERRUPTIBLE 0x00000001

#define BPF_ANY 0
#define BPF_NOEXIST 1
#define BPF_F_NO_PREALLOC (1U << 0)
#define BPF_F_TIMER_CPU_PIN (1ULL << 1)
#define BPF_F_MMAPABLE (1U << 10)
#define BPF_LOCAL_STORAGE_GET_F_CREATE (1ULL << 0)
#define CLOCK_MONOTONIC 1

struct bpf_spin_lock {
	__u32 val;
};
struct bpf_timer {
	__u64 opaque[2];
} __attribute__((aligned(8)));
struct bpf_wq {
	__u64 opaque[2];
} __attribute__((aligned(8)));

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct hlist_node {
	struct hlist_node *next;
};
struct hlist_head {
	struct hlist_node *first;
};
struct cpumask {
};
struct sched_entity {
	u64 sum_exec_runtime;
};
struct sched_ext_entity {
	u64 slice;
	u64 dsq_vtime;
	u32 flags;
	u32 weight;
};
struct kernfs_node {
	u64 id;
};
struct cgroup {
	int level; /* 0: the root */
	struct kernfs_node *kn;
	struct cgroup *ancestors[1]; /* by level, itself the last */
};
struct cgroup_subsys_state {
	struct cgroup *cgroup;
};
struct task_group {
	struct cgroup_subsys_state css;
	struct task_group *parent;
};
struct kuid {
	u32 val;
};
struct user_namespace {
	struct user_namespace *parent;
	int level; /* 0: the host's */
	struct kuid owner;
};
struct cred {
	struct kuid uid;
	struct user_namespace *user_ns;
};
union rcu_special { /* of preemptible RCU only */
	struct {
		u8 blocked;
	} b;
};
struct task_struct {
	unsigned int __state;
	unsigned int flags;
	unsigned int on_cpu; /* unsigned: some kernels have a narrower one */
	int pid;
	int tgid;
	int nr_cpus_allowed;
	int prio;
	u64 utime;
	u64 stime;
	u64 gtime;
	const struct cpumask *cpus_ptr;
	struct sched_entity se;
	struct sched_ext_entity scx;
	struct hlist_head preempt_notifiers;
	struct task_struct *group_leader;
	const struct cred *real_cred;
	u64 self_exec_id;
	struct task_group *sched_task_group;
	struct bpf_local_storage *bpf_storage;
	union rcu_special rcu_read_unlock_special;
};
struct bpf_local_storage {
};
struct preempt_notifier {
	struct hlist_node link;
};
typedef struct {
	int counter;
} atomic_t;
struct kvm_timer {
	atomic_t pending;
};
struct kvm_lapic {
	struct kvm_timer lapic_timer;
};
struct kvm_vcpu_arch {
	struct kvm_lapic *apic;
};
struct kvm_vcpu {
	struct preempt_notifier preempt_notifier;
	int vcpu_id;
	bool wants_to_run;
	struct kvm_vcpu_arch arch;
};
/* Of kvm_intel and kvm_amd. */
struct vcpu_vmx {
	unsigned int ple_window;
};
struct vmcb_control_area {
	u16 pause_filter_count;
};
struct vmcb {
	struct vmcb_control_area control;
};
struct vcpu_svm {
	struct vmcb *vmcb;
};
struct seq_file {
};
struct bpf_iter_meta {
	struct seq_file *seq;
};
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};
struct scx_init_task_args {
	bool fork;
};
struct scx_cpu_acquire_args {
};
struct scx_cpu_release_args {
};
struct scx_exit_task_args {
	bool cancelled;
};
struct scx_cgroup_init_args {
};
enum scx_exit_kind { SCX_EXIT_NONE };
struct scx_exit_info {
	enum scx_exit_kind kind;
	s64 exit_code;
	const char *reason;
	char *msg;
	char *dump;
};

#pragma clang attribute pop

/* Passed to the kernel whole, so not relocated. */
struct bpf_iter_num {
	u64 opaque[1];
} __attribute__((aligned(8)));
struct bpf_iter_scx_dsq {
	u64 opaque[6];
} __attribute__((aligned(8)));
struct scx_bpf_dsq_insert_vtime_args {
	u64 dsq_id;
	u64 slice;
	u64 vtime;
	u64 enq_flags;
};

enum scx_dsq_id_flags {
	SCX_DSQ_LOCAL = 1,
	SCX_DSQ_LOCAL_ON = 2,
	SCX_DSQ_LOCAL_CPU_MASK = 3,
};
enum scx_enq_flags {
	SCX_ENQ_WAKEUP = 1,
	SCX_ENQ_PREEMPT = 2,
	SCX_ENQ_CPU_SELECTED = 4,
};
enum scx_ent_flags {
	SCX_TASK_QUEUED = 1,
};
enum scx_kick_flags {
	SCX_KICK_IDLE = 1,
	SCX_KICK_PREEMPT = 2,
};
enum scx_pick_idle_cpu_flags {
	SCX_PICK_IDLE_CORE = 1,
};
enum scx_ops_flags {
	SCX_OPS_KEEP_BUILTIN_IDLE = 1 << 0,
	SCX_OPS_ENQ_LAST = 1 << 1,
	SCX_OPS_ALLOW_QUEUED_WAKEUP = 1 << 5,
};

/* The running kernel's value of an enum constant, not the one written above. */
#define KERNEL_ENUM(type, name) ((u64)bpf_core_enum_value(enum type, name))

struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	void (*quiescent)(struct task_struct *p, u64 deq_flags);
	void (*tick)(struct task_struct *p);
	bool (*yield)(struct task_struct *from, struct task_struct *to);
	void (*set_weight)(struct task_struct *p, u32 weight);
	void (*set_cpumask)(struct task_struct *p, const struct cpumask *cpumask);
	void (*update_idle)(s32 cpu, bool idle);
	void (*cpu_acquire)(s32 cpu, struct scx_cpu_acquire_args *args);
	void (*cpu_release)(s32 cpu, struct scx_cpu_release_args *args);
	s32 (*init_task)(struct task_struct *p, struct scx_init_task_args *args);
	void (*exit_task)(struct task_struct *p, struct scx_exit_task_args *args);
	void (*enable)(struct task_struct *p);
	void (*disable)(struct task_struct *p);
	s32 (*cgroup_init)(struct cgroup *cgrp, struct scx_cgroup_init_args *args);
	void (*cgroup_exit)(struct cgroup *cgrp);
	void (*cgroup_move)(struct task_struct *p, struct cgroup *from, struct cgroup *to);
	void (*cgroup_set_weight)(struct cgroup *cgrp, u32 weight);
	void (*cgroup_set_bandwidth)(struct cgroup *cgrp, u64 period_us, u64 quota_us,
				     u64 burst_us);
	void (*cpu_online)(s32 cpu);
	void (*cpu_offline)(s32 cpu);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	u64 flags;
	u32 timeout_ms;
	char name[128];
};

bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *cpumask) __ksym;
u32 bpf_cpumask_first(const struct cpumask *cpumask) __ksym;
struct task_struct *bpf_task_from_pid(s32 pid) __ksym;
void bpf_task_release(struct task_struct *p) __ksym;

int bpf_wq_init(struct bpf_wq *wq, void *p__map, unsigned int flags) __ksym;
int bpf_wq_set_callback(struct bpf_wq *wq, int (*callback_fn)(void *map, int *key, void *value),
			unsigned int flags) __ksym __weak;
int bpf_wq_set_callback_impl(struct bpf_wq *wq,
			     int (*callback_fn)(void *map, int *key, void *value),
			     unsigned int flags, void *aux__prog) __ksym __weak;
int bpf_wq_start(struct bpf_wq *wq, unsigned int flags) __ksym;

s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __ksym;
bool scx_bpf_dsq_insert___v2___bool(struct task_struct *p, u64 dsq_id, u64 slice,
				    u64 enq_flags) __ksym __weak;
void scx_bpf_dsq_insert___void(struct task_struct *p, u64 dsq_id, u64 slice,
			       u64 enq_flags) __ksym __weak;
bool __scx_bpf_dsq_insert_vtime(struct task_struct *p,
				struct scx_bpf_dsq_insert_vtime_args *args) __ksym __weak;
void scx_bpf_dsq_insert_vtime___five(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime,
				     u64 enq_flags) __ksym __weak;
bool scx_bpf_dsq_move_to_local___v2___flags(u64 dsq_id, u64 enq_flags) __ksym __weak;
bool scx_bpf_dsq_move_to_local___plain(u64 dsq_id) __ksym __weak;
bool scx_bpf_task_set_slice___new(struct task_struct *p, u64 slice) __ksym __weak;
struct task_struct *scx_bpf_dsq_peek(u64 dsq_id) __ksym __weak;
int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags) __ksym;
struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) __ksym;
void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) __ksym;
void scx_bpf_dsq_move_set_slice(struct bpf_iter_scx_dsq *it, u64 slice) __ksym;
bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id,
		      u64 enq_flags) __ksym;
void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;
void scx_bpf_cpuperf_set(s32 cpu, u32 perf) __ksym;
const struct cpumask *scx_bpf_get_online_cpumask(void) __ksym;
void scx_bpf_put_cpumask(const struct cpumask *cpumask) __ksym;
void scx_bpf_reenqueue_local___v2___anywhere(void) __ksym __weak;
u32 scx_bpf_reenqueue_local___release(void) __ksym __weak;
bool scx_bpf_test_and_clear_cpu_idle(s32 cpu) __ksym;
s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
u64 scx_bpf_now(void) __ksym;
void scx_bpf_error_bstr(char *fmt, unsigned long long *data, u32 data_len) __ksym;

#endif
