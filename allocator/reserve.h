/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The range of addresses that contains the heap. It is reserved once, without memory behind
 * it, and given to spans from its start upwards (span.h). So one comparison tells whether
 * an address is in it, and the heap is only a few kernel mappings. (With hugetlb pages, which
 * the kernel does not merge, each growth step is one.)
 */
#pragma once

#include "allocator/base.h"

#include <stdatomic.h>

/* Written once, before the first allocation; read without a lock. */
struct pin_reserve {
	uintptr_t base; /* a multiple of PIN_GRANULE */
	size_t size;	/* bytes */
	size_t memory;	/* bytes of it that can get memory: at most RLIMIT_DATA */
};
extern struct pin_reserve pin_reserve;

/*
 * The first part of the heap, which most programs do not outgrow, is always included in core
 * dumps. Beyond it only memory in use is, and the tables next to the heap never are.
 */
#define PIN_RESERVE_DUMPED (32 * PIN_MIB)

/*
 * Reserves as much address space as RLIMIT_AS and the kernel allow. Returns 0 or -ENOMEM.
 * Called once, by pin_start_memory().
 */
int pin_reserve_init(void);

/*
 * Takes n_bytes of addresses, rounded up to PIN_GRANULE, behind those taken before. They have
 * no memory yet. Returns 0 if none are left. Thread-safe, lock-free.
 */
uintptr_t pin_reserve_carve(size_t n_bytes);

/*
 * Returns n_bytes of addresses, in whole pages, outside of the heap, as pin_os_reserve()
 * does: next to the heap, which takes no system call, or elsewhere if those are used up. NULL
 * if there are none. They have small pages, because little of them is used. Thread-safe, never
 * allocates.
 */
void *pin_reserve_addresses(size_t n_bytes);

/*
 * Returns n_bytes of zeroed, writable memory next to the heap, in whole pages, at a multiple of
 * `alignment`, a power of two and at least a page: for data other than blocks, so that all
 * blocks are next to each other. NULL if the addresses there are used up or the kernel has no
 * memory. Thread-safe, lock-free, never allocates.
 */
void *pin_reserve_memory(size_t n_bytes, size_t alignment);

static inline bool pin_reserve_contains(const void *addr)
{
	return (uintptr_t)addr - pin_reserve.base < pin_reserve.size;
}

/* The number of the granule that contains an address of the heap. */
static inline size_t pin_granule_of(uintptr_t addr)
{
	return (addr - pin_reserve.base) >> PIN_GRANULE_SHIFT;
}

/*
 * A flat array whose address space is reserved at once and whose memory is committed as
 * needed. Elements never move, so readers need no lock. It does not use malloc, so it can
 * grow inside malloc.
 */
struct pin_table {
	char *base;	     /* NULL until there are elements */
	size_t element_size; /* bytes */
	size_t most;	     /* elements */
	size_t each;	     /* and at most one for so many bytes of the heap; 0: any number */
	_Atomic size_t committed; /* elements that may be accessed */
};
#define PIN_TABLE(type, most, each) ((struct pin_table){NULL, sizeof(type), most, each, 0})

/*
 * Makes elements [0, n) accessible; new ones are zero. Returns 0, or -ENOMEM if there may not
 * be so many or the kernel refuses. Thread-safe, never allocates.
 */
int pin_table_ensure(struct pin_table *table, size_t n);

/*
 * Element i, which must be accessible, as a type * whose size is the table's element_size. A
 * macro, so that fast look-ups use a constant size.
 */
#define pin_table_at(table, type, i) ((type *)(void *)(table)->base + (i))
