/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Workload `io`: work, ask the device, halt until it has answered. Progress = answers.
 *
 * The device is a thread of the VMM (src/back_end.rs): a doorbell wakes it, an interrupt the vCPU.
 * Interrupts are off but for the halt, so an answer that came after the look is not missed.
 */
#include "guest.h"
#include "machine.h"

void workload_io(const struct vcpu *vcpu)
{
	uint64_t asked = 0;

	for (;;) {
		work(vcpu->control->io_work_loops);
		write_port(IO_PORTS + vcpu->index, 0);
		asked++;
		while (__atomic_load_n(&vcpu->stats->answers, __ATOMIC_ACQUIRE) != asked) {
			halt();
			end_interrupt();
		}
		vcpu->stats->progress++;
	}
}
