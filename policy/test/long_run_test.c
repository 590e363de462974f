// SPDX-License-Identifier: GPL-2.0-only
/* Properties of the long run: shares, and the longest wait, of random hosts. */
#include "fake_kernel.h"

#define MOST_VMS 5

struct random_vm {
	u32 nr_vcpus;
	u32 shares;
	double owed_pcpus;
};

/*
 * What busy VMs are owed: in proportion to shares, but nobody more pCPUs than it
 * has vCPUs; what one cannot use goes to the others in proportion.
 */
static void owe(struct random_vm *vm, u32 nr_vms, double pcpus)
{
	bool full[MOST_VMS] = {};

	for (u32 round = 0; round < nr_vms; round++) {
		double sum = 0, left = pcpus;

		for (u32 i = 0; i < nr_vms; i++) {
			sum += full[i] ? 0 : vm[i].shares;
			left -= full[i] ? vm[i].nr_vcpus : 0;
		}
		for (u32 i = 0; i < nr_vms; i++)
			if (!full[i])
				vm[i].owed_pcpus = left * vm[i].shares / sum;
		for (u32 i = 0; i < nr_vms; i++) {
			if (full[i] || vm[i].owed_pcpus < vm[i].nr_vcpus)
				continue;
			vm[i].owed_pcpus = vm[i].nr_vcpus;
			full[i] = true;
		}
	}
}

static struct ground *a_random_ground(void)
{
	u32 nr_pcpus = check_random_in(1, 8);

	return fake_ground(nr_pcpus, nr_pcpus > 1 ? check_random_in(1, 2) : 1);
}

static void busy_vms_get_what_their_shares_say(void)
{
	for (u32 run = 0; run < 60; run++) {
		struct ground *g = a_random_ground();
		u32 nr_vms = check_random_in(2, MOST_VMS);
		struct random_vm vm[MOST_VMS];

		for (u32 i = 0; i < nr_vms; i++) {
			vm[i].nr_vcpus = check_random_in(1, 8);
			vm[i].shares = 100 * check_random_in(1, 80);
			kernel_busy_vm(g, i + 1, vm[i].nr_vcpus, vm[i].shares);
		}
		owe(vm, nr_vms, g->d.params.nr_pcpus);
		kernel_run(g, 8 * SECOND);
		for (u32 i = 0; i < nr_vms; i++)
			CHECK_SAYING((double)kernel_cpu_time_ns(g, i + 1) / 8e9 >
					     vm[i].owed_pcpus - 0.01 * g->d.params.nr_pcpus,
				     "run %u: VM of %u vCPUs, %u shares got %.3f pCPUs, owed %.3f",
				     run, vm[i].nr_vcpus, vm[i].shares,
				     (double)kernel_cpu_time_ns(g, i + 1) / 8e9, vm[i].owed_pcpus);
	}
}

static void siblings_get_equal_time(void)
{
	for (u32 run = 0; run < 120; run++) {
		struct ground *g = a_random_ground();
		u32 nr_vcpus = check_random_in(2, 10);
		u32 nr_others = check_random_in(1, 8);
		u64 least_ns = NEVER, most_ns = 0;

		kernel_busy_vm(g, 1, nr_vcpus, 100 * check_random_in(1, 80));
		kernel_busy_vm(g, 2, nr_others, 100 * check_random_in(1, 80));
		kernel_run(g, 8 * SECOND);
		for (u32 i = 0; i < nr_vcpus; i++) {
			u64 cpu_ns = g->task[i].cpu_time_ns;

			least_ns = cpu_ns < least_ns ? cpu_ns : least_ns;
			most_ns = cpu_ns > most_ns ? cpu_ns : most_ns;
		}
		CHECK_SAYING(most_ns - least_ns <= least_ns / 20 + 100 * MS,
			     "run %u: %u pCPUs, %u domains: vCPUs of one VM got %" PRIu64
			     " to %" PRIu64 " ms",
			     run, g->d.params.nr_pcpus, g->d.params.nr_domains,
			     (uint64_t)(least_ns / MS), (uint64_t)(most_ns / MS));
	}
}

static void no_busy_pcpu_second_is_lost(void)
{
	for (u32 run = 0; run < 30; run++) {
		struct ground *g = a_random_ground();
		u32 nr_pcpus = g->d.params.nr_pcpus;

		kernel_busy_vm(g, 1, nr_pcpus, 100 * check_random_in(1, 80));
		kernel_busy_vm(g, 2, check_random_in(1, 8), 100 * check_random_in(1, 80));
		kernel_run(g, SECOND);
		CHECK_EQ(kernel_cpu_time_ns(g, 1) + kernel_cpu_time_ns(g, 2), nr_pcpus * SECOND);
	}
}

/* The longest that a thread runs unasked: a slice, and to the tick. */
#define UNASKED_NS (11 * MS)

/*
 * The delay docs/specification.md promises a thread of n siblings, one of nr_all on p pCPUs of each
 * domain, written down once more: 2 B + W / 4 + (1 + nr_all / p) U, with B = n / p * 200 ms,
 * between W, 1 s, and 8 W; in a crowd at least 7 ms for each of all, divided among all pCPUs; and
 * three times B where there are several domains.
 */
static u64 longest_ns(const struct ground *g, u32 n, u32 nr_all, u32 p)
{
	u64 times = g->d.params.nr_domains > 1 ? 3 : 2;
	u64 crowd_ns = 7 * MS * nr_all / g->d.params.nr_pcpus;
	u64 each_ns = 200 * MS * n / p;

	if (each_ns < SECOND)
		each_ns = SECOND;
	if (each_ns > 8 * SECOND)
		each_ns = 8 * SECOND;
	if (each_ns < crowd_ns)
		each_ns = crowd_ns;
	return times * each_ns + SECOND / 4 + UNASKED_NS + UNASKED_NS * nr_all / p;
}

/* The longest wait of any thread of the VM, the one it is in now too. */
static u64 longest_wait_ns(struct ground *g, u32 tgid)
{
	u64 longest_ns = 0;

	for (u32 i = 0; i < FAKE_TASKS; i++) {
		struct task_struct *task = &g->task[i];
		u64 wait_ns = task->longest_wait_ns;

		if (task->state == TASK_NONE || task->tgid != tgid)
			continue;
		if (task->state == TASK_READY && g->now_ns - task->ready_at_ns > wait_ns)
			wait_ns = g->now_ns - task->ready_at_ns;
		longest_ns = wait_ns > longest_ns ? wait_ns : longest_ns;
	}
	return longest_ns;
}

static void nobody_waits_beyond_the_bound(void)
{
	for (u32 run = 0; run < 40; run++) {
		struct ground *g = a_random_ground();
		u32 p = g->d.params.nr_pcpus / g->d.params.nr_domains;
		u32 nr_vcpus[MOST_VMS + 1] = {};
		u32 nr_all = 0;

		for (u32 tgid = 1; tgid <= MOST_VMS; tgid++) {
			nr_vcpus[tgid] = check_random_in(1, 16);
			nr_all += nr_vcpus[tgid];
			kernel_busy_vm(g, tgid, nr_vcpus[tgid], 1U << check_random_in(0, 19));
		}
		kernel_run(g, 20 * SECOND);
		for (u32 tgid = 1; tgid <= MOST_VMS; tgid++) {
			u64 most_ns = longest_ns(g, nr_vcpus[tgid], nr_all, p);
			u64 wait_ns = longest_wait_ns(g, tgid);

			CHECK_SAYING(
				wait_ns <= most_ns,
				"run %u: %u pCPUs, %u domains, VM of %u of %u vCPUs, %u shares: "
				"one waited %" PRIu64 " ms of %" PRIu64,
				run, g->d.params.nr_pcpus, g->d.params.nr_domains, nr_vcpus[tgid],
				nr_all, kernel_vm(g, tgid)->shares, (uint64_t)(wait_ns / MS),
				(uint64_t)(most_ns / MS));
		}
	}
}

int main(void)
{
	RUN(busy_vms_get_what_their_shares_say);
	RUN(siblings_get_equal_time);
	RUN(no_busy_pcpu_second_is_lost);
	RUN(nobody_waits_beyond_the_bound);
	return check_done();
}
