/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The order of a pCPU: what is decided already about what runs there next.
 *
 * Idea. A pCPU mostly picks for itself (pick.h). Five others may have a say before it does: a
 * thread that wakes and preempts, the plan of a round, a turn for an overdue thread, a running
 * thread that yields, and the kernel, which takes the pCPU for a real-time task. Each pCPU has one
 * order, so that two of them do not send it different ways. Only order_give writes which it is:
 *
 *  order  who gives it        it may replace     it ends when
 *  WOKEN  others, see below   NONE, BEGUN (due)  the pCPU asks
 *  SENT   wake                NONE, BEGUN (due)  the thread begins: BEGUN
 *  BEGUN  wait_bound          SENT               the pCPU asks after until_ns
 *  TURN   the pCPU's pick     all but TAKEN      the pCPU asks after until_ns
 *  YIELD  the running thread  any                the pCPU has picked
 *  TAKEN  the kernel          any                the kernel gives the pCPU back
 *
 * WOKEN comes from a wake-up, the plan, a limit or quota that ends, and a thread that goes home or
 * elsewhere. While an order stands no other pCPU gives one, but for a VM that is due by its
 * reservation: it cuts short the turn of a thread that woke.
 *
 * Worked example. At 0 us a vCPU wakes and preempts on pCPU 2: SENT. At 1 us another wakes: pCPU 2
 * has an order, so it looks elsewhere. At 3 us the first begins: BEGUN, until 2,003 us. At 1,000 us
 * a round begins, and leaves pCPU 2 alone. At 2,003 us it asks, and picks: NONE.
 *
 * Limitations. Two pCPUs may give one at the same moment; the later stays. Both have sent an
 * interrupt, and the pCPU picks among both threads.
 */
#ifndef DROVER_ORDER_H
#define DROVER_ORDER_H

#include "base/types.h"

static __always_inline bool order_is(const struct pcpu *pcpu, enum order_why why)
{
	return pcpu->order.why == why;
}

/* Does the running thread have a turn (wait_bound.h)? */
static __always_inline bool order_is_turn(const struct pcpu *pcpu)
{
	return order_is(pcpu, ORDER_TURN) || order_is(pcpu, ORDER_BEGUN);
}

/* May that be given to the pCPU now? The table above. */
static __always_inline bool order_may(const struct pcpu *pcpu, enum order_why why)
{
	switch (why) {
	case ORDER_WOKEN:
	case ORDER_SENT:
		return order_is(pcpu, ORDER_NONE) || order_is(pcpu, ORDER_BEGUN);
	case ORDER_BEGUN:
		return order_is(pcpu, ORDER_SENT);
	case ORDER_TURN:
		return !order_is(pcpu, ORDER_TAKEN);
	default:
		return true;
	}
}

/* ORDER_NONE: it has been followed, or came to nothing. A turn's end is set beside. */
static __always_inline void order_give(struct pcpu *pcpu, enum order_why why)
{
	ASSERT(order_may(pcpu, why));
	pcpu->order.why = why;
}

#endif
