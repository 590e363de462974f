/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Speed: how fast each pCPU is asked to run, for the kernel's governor schedutil.
 *
 * Idea. The kernel's own scheduler asks for as much of a pCPU's speed as the pCPU is used, and a
 * quarter more. The kernel does not do that for a sched_ext scheduler: the kernel asks for full
 * speed once, and a pCPU that is used for a tenth of its time would never be slower. So each pCPU
 * counts for how long it was busy in windows of 8 ms, and asks for five quarters of the larger of
 * two parts: of the last window, and of this one once a quarter of it is over. It asks at the tick
 * and when it ceases to be idle, and only for what differs by a sixteenth.
 *
 * Worked example. A vCPU works for 1 ms of every 10: an eighth of full speed is asked for. (On a
 * slower pCPU it is busy for longer, and asks for more: at a third of full speed that is level.)
 * Then it computes on. Its pCPU asks for full speed at the first tick that comes 2 ms or later.
 *
 * Limitations. A thread that was busy for long, and slept, is slow for up to a tick and 2 ms: the
 * kernel's own scheduler remembers what each task used. With a governor of another kind, or the
 * processor's own, nothing is asked. What a pCPU of a hybrid processor can do counts nowhere.
 */
#ifndef DROVER_SPEED_H
#define DROVER_SPEED_H

#include "base/ground.h"

#define SPEED_WINDOW_NS 8000000ULL
/* Full speed. */
#define SPEED_FULL 1024
/* So much is asked for beyond what was used, in quarters of that. */
#define SPEED_QUARTERS 5
#define SPEED_STEP (SPEED_FULL / 16)

static __always_inline struct speed *speed_of(struct drover *d, u32 at)
{
	return &d->speed[bounded(at, DROVER_MAX_PCPUS)];
}

/* The pCPU is busy from now on, or idle. */
static __always_inline void speed_note(struct drover *d, u32 at, bool busy, u64 now_ns)
{
	struct speed *s = speed_of(d, at);

	if (s->busy_since_ns && (s64)(now_ns - s->busy_since_ns) > 0)
		s->busy_ns += now_ns - s->busy_since_ns;
	s->busy_since_ns = busy ? now_ns : 0;
}

/* What part of that time it was busy, of SPEED_FULL. */
static __always_inline u32 speed_part(u64 busy_ns, u64 passed_ns)
{
	return (u32)min_of(busy_ns * SPEED_FULL / passed_ns, SPEED_FULL);
}

/* What is to be asked for now. A window that is over is the last one from now on. */
static __always_inline u32 speed_wanted(struct speed *s, u64 now_ns)
{
	u64 passed_ns = now_ns - s->began_ns;
	u32 used = s->last;

	if (passed_ns >= SPEED_WINDOW_NS / 4)
		used = (u32)max_of(used, speed_part(s->busy_ns, passed_ns));
	if (passed_ns >= SPEED_WINDOW_NS) {
		used = s->last = speed_part(s->busy_ns, passed_ns);
		s->began_ns = now_ns;
		s->busy_ns = 0;
	}
	return (u32)min_of(used * SPEED_QUARTERS / 4, SPEED_FULL);
}

/* The pCPU, which is busy, ticks, or has just ceased to be idle: it asks for as much as it uses. */
BPF_GLOBAL int speed_ask(THE_DROVER, u32 at, u64 now_ns)
{
	struct speed *s = speed_of(d, at);
	u32 wanted;
	s32 more;

	speed_note(d, at, true, now_ns);
	wanted = speed_wanted(s, now_ns);
	more = (s32)(wanted - s->asked);
	if (more < SPEED_STEP && more > -SPEED_STEP && (wanted != SPEED_FULL || !more))
		return 0;
	s->asked = wanted;
	ground_set_speed(d, bounded(at, DROVER_MAX_PCPUS), wanted);
	return 0;
}

#endif
