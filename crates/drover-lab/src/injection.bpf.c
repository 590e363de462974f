/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Makes a vCPU that is entered with an injected interrupt leave again at once.
 * Why, and how it helps: injection.rs.
 */
#include "../../../bpf/kernel.h"
#include <bpf/bpf_helpers.h>

#define EVENT_VALID (1u << 31)

/* Where the trace event has the word that says what is injected, bytes. */
const volatile __u32 intr_info_offset;

SEC("tp/kvm/kvm_entry")
int leave_after_injection(void *event)
{
	__u32 intr_info = 0;

	bpf_probe_read_kernel(&intr_info, sizeof(intr_info), event + intr_info_offset);
	/*
	 * Interrupts are off here, so the kernel puts the sending off by interrupting
	 * itself: that interrupt waits, and ends the guest's turn. Nobody gets signal 0.
	 */
	if (intr_info & EVENT_VALID)
		bpf_send_signal(0);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
