/* SPDX-License-Identifier: GPL-2.0-only */
/* What the daemon orders of the loaded scheduler. It has checked that the whole makes sense. */
#ifndef DROVER_ORDERS_H
#define DROVER_ORDERS_H

/* Through drover_order. */
struct vm_order {
	u32 slot;
	u32 shares; /* 0: the default for its size */
	u64 vm_id;  /* the VM meant; another in that slot is left alone */
	u32 reservation_mcpu;
	u32 limit_mcpu; /* 0: no limit */
	u32 pool;
	u32 cosched_mode; /* enum cosched_mode */
};

/* Through drover_pool_order. */
struct pool_order {
	u32 pool;
	u32 live; /* 0: remove it */
	u32 parent;
	u32 shares;
	u32 reservation_mcpu;
	u32 limit_mcpu; /* 0: no limit */
};

#endif
