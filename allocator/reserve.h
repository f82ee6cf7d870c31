/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The one range of addresses the heap lives in. It is reserved once, without
 * memory behind it, and handed out upwards (span.h): an address outside is known to be
 * foreign after one compare, and the whole heap is a handful of kernel mappings. (With
 * hugetlb pages, which the kernel does not join, each growth step is one.)
 */
#ifndef PIN_RESERVE_H
#define PIN_RESERVE_H

#include "allocator/base.h"

/* Written once, before the first allocation; read by everyone without a lock. */
struct pin_reserve {
	uintptr_t base; /* a multiple of PIN_GRANULE */
	size_t size;	/* bytes */
	size_t memory;	/* bytes of it there can be memory for: less than RLIMIT_DATA */
};
extern struct pin_reserve pin_reserve;

/*
 * So much of the heap's beginning goes into core dumps whether it is in use or not, which most
 * programs never leave; of the rest what is in use, and none of the tables at the other end.
 */
#define PIN_RESERVE_DUMPED (32 * PIN_MIB)

/*
 * Reserves as much as RLIMIT_AS and the kernel allow. Returns 0 or -ENOMEM.
 * Not thread-safe: called under jemalloc's initialisation lock.
 */
int pin_reserve_init(void);

/*
 * Takes n_bytes of addresses at the lower end, rounded up to PIN_GRANULE, behind what was
 * taken there before. Returns 0 when there are no more. Thread-safe, lock-free.
 */
uintptr_t pin_reserve_take(size_t n_bytes);

/* Bytes of addresses that are left between both ends. Lock-free. */
size_t pin_reserve_left(void);

/*
 * Takes n_bytes of zeroed, writable memory at the upper end, aligned to PIN_GRANULE and to
 * `alignment` (a power of two): for what is not blocks, so that those stay next to each other,
 * and on small pages, as little of it is used. Returns NULL when the range is used up or the
 * kernel has no memory to commit. Thread-safe, lock-free, never allocates.
 */
void *pin_reserve_carve_upper(size_t n_bytes, size_t alignment);

/*
 * n_bytes of addresses, whole pages, that are not the heap's, as pin_os_reserve() gives
 * them: next to the heap, where they take no system call, or elsewhere when those are
 * used up. Thread-safe, never allocates.
 */
void *pin_reserve_addresses(size_t n_bytes);

static inline bool pin_reserve_contains(const void *addr)
{
	return (uintptr_t)addr - pin_reserve.base < pin_reserve.size;
}

#endif
