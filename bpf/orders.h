/* SPDX-License-Identifier: GPL-2.0-only */
/* What the daemon orders of the loaded scheduler, through drover_order. */
#ifndef DROVER_ORDERS_H
#define DROVER_ORDERS_H

struct vm_order {
	u32 slot;
	u32 shares; /* 0: the default for its size */
	u64 vm_id;  /* the VM meant; another in that slot is left alone */
};

#endif
