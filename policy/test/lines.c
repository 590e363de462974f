// SPDX-License-Identifier: GPL-2.0-only
#include "lines.h"

/* Whose the elements of an array are. */
enum kind { OF_ALL, OF_VM, OF_RECORD, OF_PCPU, OF_DOMAIN, OF_LIMIT, OF_TIMER };

struct area {
	const char *name;
	u64 from;
	u64 size; /* of an element */
	u64 count;
	enum kind kind;
};

#define ARRAY(structure, field, kind)                                                          \
	{#field, offsetof(struct structure, field), sizeof(((struct structure *)0)->field[0]), \
	 sizeof(((struct structure *)0)->field) / sizeof(((struct structure *)0)->field[0]), kind}

/* The last one is all that is in none of the others. */
static const struct area areas[] = {
	ARRAY(drover, vm, OF_VM),
	ARRAY(drover, vcpu, OF_RECORD),
	ARRAY(drover, vcpu_of, OF_VM),
	ARRAY(drover, pcpu, OF_PCPU),
	ARRAY(drover, speed, OF_PCPU),
	ARRAY(drover, domain, OF_DOMAIN),
	ARRAY(drover, limit, OF_LIMIT),
	ARRAY(drover, timer, OF_TIMER),
	{"drover", 0, sizeof(struct drover), 1, OF_ALL},
};

static const struct area books = ARRAY(runqueue, entity_rq, OF_VM);
static const struct area queue = {"runqueue", 0, sizeof(struct runqueue), 1, OF_DOMAIN};

struct part {
	const char *structure;
	u64 from;
	const char *name;
};

#define PART(structure, field, name) {#structure, offsetof(struct structure, field), name}
#define FIELD(field) {"drover", offsetof(struct drover, field), #field}

/* In the order in which they stand there. */
static const struct part parts[] = {
	PART(vm, vtime_ns, "at every switch"),
	PART(vm, running_sum, "who runs and waits"),
	PART(vm, plan, "rounds"),
	PART(vm, pressure, "coscheduled"),
	PART(vm, skew, "co-scheduling"),
	PART(vm, hold, "limit"),
	PART(vm, credit, "partition"),
	PART(vm, asked, "settings"),
	PART(vm, counters, "counters"),
	PART(runqueue, lock, "lock, first VMs"),
	PART(runqueue, by_share.node[8], "by shares"),
	PART(runqueue, by_deadline, "by deadline"),
	FIELD(params),
	FIELD(next_vm_id),
	FIELD(ground),
	FIELD(vms_found),
	FIELD(nr_unplaced),
	FIELD(slots_in_use),
	FIELD(tournament_levels),
	FIELD(pcpu_changes),
	FIELD(period),
	FIELD(nr_busy_users),
	FIELD(vm_shares),
	FIELD(nr_reserved),
	FIELD(allot_lapses),
	FIELD(round),
	FIELD(round_end_ns),
	FIELD(allotted_ns),
	FIELD(nr_coscheduled),
	FIELD(divided),
	FIELD(vcpu_hint),
	FIELD(nr_capped),
	FIELD(nr_containers),
	FIELD(cgroup_changes),
	FIELD(homes),
	FIELD(partition),
	FIELD(pcpu_of),
	FIELD(pool),
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *part_at(const char *structure, u64 offset)
{
	const char *name = "all";

	for (u32 i = 0; i < COUNT(parts); i++)
		if (!strcmp(parts[i].structure, structure) && parts[i].from <= offset)
			name = parts[i].name;
	return name;
}

static enum owner vm_or_others(bool own)
{
	return own ? OWNER_VM : OWNER_OTHERS;
}

static enum owner domain_or_abroad(struct ground *g, struct subject of, u32 domain)
{
	return domain == g->d.pcpu[of.pcpu].domain ? OWNER_DOMAIN : OWNER_ABROAD;
}

static enum owner owner_of(struct ground *g, struct subject of, enum kind kind, u32 index)
{
	switch (kind) {
	case OF_VM:
		return vm_or_others(index == of.slot);
	case OF_RECORD:
		return vm_or_others(g->d.vcpu[index].slot == of.slot);
	case OF_LIMIT: /* all of a pool use its limit */
		return index < DROVER_MAX_VMS ? vm_or_others(index == of.slot) : OWNER_ALL;
	case OF_TIMER:
		return index == TIMER_OWN ? OWNER_ALL : vm_or_others(index == of.slot);
	case OF_PCPU:
		return index == of.pcpu ? OWNER_PCPU :
					  domain_or_abroad(g, of, g->d.pcpu[index].domain);
	case OF_DOMAIN:
		return domain_or_abroad(g, of, index);
	case OF_ALL:
		break;
	}
	return OWNER_ALL;
}

/* The part with those bytes, which there is from now on. */
static struct part_written *find(struct lines *lines, struct part_written wanted)
{
	for (u32 i = 0; i < lines->nr; i++) {
		struct part_written *it = &lines->part[i];

		if (it->structure == wanted.structure && it->index == wanted.index &&
		    it->line == wanted.line && it->part == wanted.part)
			return it;
	}
	CHECK(lines->nr < LINES_MAX);
	lines->part[lines->nr] = wanted;
	return &lines->part[lines->nr++];
}

static struct part_written in_area(const struct area *area, u64 offset)
{
	u64 index = (offset - area->from) / area->size;
	u64 start = area->from + index * area->size;

	return (struct part_written){
		.structure = area->name,
		.part = part_at(area->name, offset - start),
		.index = (u32)index,
		.line = (u32)(offset / LINE_BYTES - start / LINE_BYTES),
	};
}

static bool is_in(const struct area *area, u64 offset)
{
	return offset >= area->from && offset < area->from + area->size * area->count;
}

typedef struct part_written (*locate)(struct ground *g, struct subject of, u64 offset);

/* One byte of struct drover. */
static struct part_written of_drover(struct ground *g, struct subject of, u64 offset)
{
	const struct area *area = areas;
	struct part_written it;

	while (!is_in(area, offset))
		area++;
	it = in_area(area, offset);
	it.owner = owner_of(g, of, area->kind, it.index);
	return it;
}

/* One byte of the run queues. */
static struct part_written of_runqueues(struct ground *g, struct subject of, u64 offset)
{
	u32 domain = (u32)(offset / sizeof(struct runqueue));
	enum owner owner = domain_or_abroad(g, of, domain);
	struct part_written it;

	offset %= sizeof(struct runqueue);
	it = in_area(is_in(&books, offset) ? &books : &queue, offset);
	it.owner = owner;
	if (!is_in(&books, offset))
		it.index = domain;
	else if (owner == OWNER_DOMAIN && it.index != of.slot)
		it.owner = OWNER_OTHERS;
	return it;
}

/* A write from that byte on, of `locate`'s memory: once for each line it touches. */
static void add(struct lines *lines, struct ground *g, struct subject of, u32 step,
		struct written it, u64 offset, locate locate)
{
	u64 end = offset + it.size;

	for (; offset < end; offset = (offset / LINE_BYTES + 1) * LINE_BYTES) {
		struct part_written *part = find(lines, locate(g, of, offset));

		part->writes[step]++;
		part->by = it.by;
	}
}

void lines_add(struct lines *lines, struct ground *g, struct subject of, u32 step)
{
	CHECK(write_log.nr <= WRITE_LOG_MAX);
	for (u32 i = 0; i < write_log.nr; i++) {
		struct written it = write_log.written[i];
		u64 in_drover = it.at - (uintptr_t)&g->d;
		u64 in_runqueues = it.at - (uintptr_t)g->runqueue;

		if (in_drover < sizeof(g->d))
			add(lines, g, of, step, it, in_drover, of_drover);
		else if (in_runqueues < sizeof(g->runqueue))
			add(lines, g, of, step, it, in_runqueues, of_runqueues);
	}
}

u32 lines_of(const struct lines *lines, enum owner owner)
{
	u32 count = 0;

	for (u32 i = 0; i < lines->nr; i++) {
		const struct part_written *it = &lines->part[i];
		bool counted = it->owner != owner;

		for (u32 k = 0; k < i && !counted; k++)
			counted = lines->part[k].structure == it->structure &&
				  lines->part[k].index == it->index &&
				  lines->part[k].line == it->line;
		count += !counted;
	}
	return count;
}

u32 lines_writes(const struct lines *lines, const char *part)
{
	u32 writes = 0;

	for (u32 i = 0; i < lines->nr; i++)
		for (u32 step = 0; step < LINES_STEPS && !strcmp(lines->part[i].part, part); step++)
			writes += lines->part[i].writes[step];
	return writes;
}

static const char *const owner_id[OWNERS] = {
	"its VM's", "its pCPU's", "its domain's", "global", "another VM's", "affinity_remote",
};

void lines_print_of(const struct lines *lines, enum owner owner, u32 nr_steps)
{
	for (u32 i = 0; i < lines->nr; i++) {
		const struct part_written *it = &lines->part[i];
		char name[32];

		if (it->owner != owner)
			continue;
		snprintf(name, sizeof(name), "%s[%u], %u", it->structure, it->index, it->line);
		printf("%-14s %-20s %-24s", owner_id[owner], name, it->part);
		for (u32 step = 0; step < nr_steps; step++)
			printf(" %6u", it->writes[step]);
		/* The address is where the call returns to. */
		printf("  0x%" PRIxPTR "\n", it->by - 1);
	}
}

void lines_print(const struct lines *lines, const char *const *steps)
{
	printf("%-14s %-20s %-24s", "owner_id", "struct, line", "part");
	for (u32 step = 0; step < LINES_STEPS; step++)
		printf(" %6s", steps[step]);
	printf("  written at (addr2line -ie)\n");
	for (enum owner owner = 0; owner < OWNERS; owner++)
		lines_print_of(lines, owner, LINES_STEPS);
	for (enum owner owner = 0; owner < OWNERS; owner++)
		printf("%s%s: %u", owner ? ", " : "Lines: ", owner_id[owner],
		       lines_of(lines, owner));
	printf("\n");
}
