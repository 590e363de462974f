// SPDX-License-Identifier: GPL-2.0-only
/* Not itself instrumented: it would call itself. */
#include "write_log.h"

#include <string.h>

#define BY ((uintptr_t)__builtin_return_address(0))

struct write_log write_log;

void write_log_begin(void)
{
	write_log.nr = 0;
	write_log.on = true;
}

void write_log_end(void)
{
	write_log.on = false;
}

static void note(const volatile void *at, uintptr_t size, uintptr_t by)
{
	if (!write_log.on)
		return;
	if (write_log.nr < WRITE_LOG_MAX)
		write_log.written[write_log.nr] = (struct written){(uintptr_t)at, size, by};
	write_log.nr++;
}

/* --- what the compiler calls --- */

void __tsan_init(void)
{
}

void __tsan_func_entry(void *caller)
{
	(void)caller;
}

void __tsan_func_exit(void)
{
}

#define ACCESS(bytes)                                \
	void __tsan_read##bytes(void *at)            \
	{                                            \
		(void)at;                            \
	}                                            \
	void __tsan_unaligned_read##bytes(void *at)  \
	{                                            \
		(void)at;                            \
	}                                            \
	void __tsan_write##bytes(void *at)           \
	{                                            \
		note(at, bytes, BY);                 \
	}                                            \
	void __tsan_unaligned_write##bytes(void *at) \
	{                                            \
		note(at, bytes, BY);                 \
	}

ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

void *__tsan_memset(void *at, int value, uintptr_t size)
{
	note(at, size, BY);
	return memset(at, value, size);
}

void *__tsan_memcpy(void *at, const void *from, uintptr_t size)
{
	note(at, size, BY);
	return memcpy(at, from, size);
}

void *__tsan_memmove(void *at, const void *from, uintptr_t size)
{
	note(at, size, BY);
	return memmove(at, from, size);
}

/* The line is taken from all others by any of these, even if the value stays what it was. */
#define CHANGES(bits, name)                                                          \
	uint##bits##_t __tsan_atomic##bits##_##name(volatile uint##bits##_t *at,     \
						    uint##bits##_t value, int order) \
	{                                                                            \
		(void)order;                                                         \
		note(at, bits / 8, BY);                                              \
		return __atomic_##name(at, value, __ATOMIC_SEQ_CST);                 \
	}

#define __atomic_exchange(at, value, order) __atomic_exchange_n(at, value, order)

#define ATOMICS(bits)                                                                           \
	uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t *at, int order) \
	{                                                                                       \
		(void)order;                                                                    \
		return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                   \
	}                                                                                       \
	void __tsan_atomic##bits##_store(volatile uint##bits##_t *at, uint##bits##_t value,     \
					 int order)                                             \
	{                                                                                       \
		(void)order;                                                                    \
		note(at, bits / 8, BY);                                                         \
		__atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                  \
	}                                                                                       \
	uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(                              \
		volatile uint##bits##_t *at, uint##bits##_t before, uint##bits##_t after,       \
		int order, int otherwise)                                                       \
	{                                                                                       \
		(void)order;                                                                    \
		(void)otherwise;                                                                \
		note(at, bits / 8, BY);                                                         \
		return __sync_val_compare_and_swap(at, before, after);                          \
	}                                                                                       \
	CHANGES(bits, exchange)                                                                 \
	CHANGES(bits, fetch_add)                                                                \
	CHANGES(bits, fetch_sub)                                                                \
	CHANGES(bits, fetch_and)                                                                \
	CHANGES(bits, fetch_or)                                                                 \
	CHANGES(bits, fetch_xor)

ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)
