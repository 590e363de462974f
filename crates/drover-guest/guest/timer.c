/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sleep until a moment of the TSC, with the local APIC's timer.
 *
 * In TSC-deadline mode the moment itself is armed. In one-shot mode a distance is: KVM's APIC bus
 * runs at 1 GHz, so at divider 1 a count is a nanosecond. A vCPU preempted between reading the
 * clock and arming a one-shot timer wakes that much late, which is why the deadline is preferred.
 */
#include "guest.h"
#include "machine.h"

#define X2APIC_EOI 0x80b
#define X2APIC_SPURIOUS 0x80f
#define X2APIC_LVT_TIMER 0x832
#define X2APIC_INITIAL_COUNT 0x838
#define X2APIC_DIVIDE 0x83e
#define MSR_TSC_DEADLINE 0x6e0

#define TIMER_VECTOR 0x20
#define SPURIOUS_VECTOR 0x2f
#define LVT_MODE_TSC_DEADLINE (2u << 17)
#define APIC_ENABLE 0x100
#define DIVIDE_BY_1 0xb
#define ONE_SHOT_MAX_NS 1000000000ull

uint64_t cycles_to_ns(const struct vcpu *vcpu, uint64_t cycles)
{
	return (uint64_t)(((unsigned __int128)cycles * vcpu->control->ns_per_cycle_q32) >> 32);
}

void timer_init(const struct vcpu *vcpu)
{
	uint32_t mode = vcpu->control->tsc_deadline ? LVT_MODE_TSC_DEADLINE : 0;

	write_msr(X2APIC_SPURIOUS, APIC_ENABLE | SPURIOUS_VECTOR);
	write_msr(X2APIC_DIVIDE, DIVIDE_BY_1);
	write_msr(X2APIC_LVT_TIMER, mode | TIMER_VECTOR);
}

static void timer_arm(const struct vcpu *vcpu, uint64_t deadline_tsc)
{
	uint64_t now_tsc, wait_ns;

	if (vcpu->control->tsc_deadline) {
		write_msr(MSR_TSC_DEADLINE, deadline_tsc);
		return;
	}
	now_tsc = read_tsc();
	wait_ns = deadline_tsc > now_tsc ? cycles_to_ns(vcpu, deadline_tsc - now_tsc) : 0;
	if (wait_ns > ONE_SHOT_MAX_NS)
		wait_ns = ONE_SHOT_MAX_NS;
	/* A count of 0 would stop the timer instead of firing at once. */
	write_msr(X2APIC_INITIAL_COUNT, wait_ns + 1);
}

/* Who halted acknowledges what woke it. */
void end_interrupt(void)
{
	write_msr(X2APIC_EOI, 0);
}

/*
 * Any interrupt ends a halt, the timer's may come early: only the clock says when we are done. The
 * clock is read before the interrupt is acknowledged, which costs an exit of its own.
 */
uint64_t sleep_until(const struct vcpu *vcpu, uint64_t deadline_tsc)
{
	uint64_t now_tsc = read_tsc();

	while (now_tsc < deadline_tsc) {
		timer_arm(vcpu, deadline_tsc);
		halt();
		now_tsc = read_tsc();
		end_interrupt();
	}
	return now_tsc;
}
