/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/reserve.h"
#include "allocator/log.h"
#include "allocator/os.h"

#include <errno.h>
#include <stdatomic.h>

/*
 * Address space costs nothing until it is committed, so the first try is larger
 * than any machine's memory; the least is what a shell needs to run.
 */
#define LARGEST	 (16 * PIN_TIB)
#define SMALLEST (8 * PIN_MIB)

/* What is kept above for tables: more than those that go by address need. */
#define SHARE_OF_TABLES 256

/*
 * A leaf of jemalloc's page table is for a GiB. A heap that begins right before the end of one
 * needs two of them from its first growth on, which is memory and a system call in the start
 * of every program to which that happens.
 */
#define LEAF_OF_PAGE_TABLE PIN_GIB
#define NEAR_ITS_END	   (32 * PIN_MIB)

struct pin_reserve pin_reserve;

/* Addresses for tables, taken from the heap's upper end upwards. */
static struct {
	_Atomic uintptr_t start;
	uintptr_t end;
} spare;

/*
 * What is taken at both ends, in granules: the lower one in the low half. One word, so
 * that they cannot meet unseen.
 */
static _Atomic uint64_t carved;

/* With a limit, a quarter stays for the program's stacks, libraries and maps. */
static size_t first_try(void)
{
	size_t left = pin_os_address_space_left();
	size_t size = LARGEST;

	if (left != SIZE_MAX && left / 4 * 3 < size)
		size = PIN_ALIGN_DOWN(left / 4 * 3, PIN_GRANULE);
	return size;
}

static void leave_out_of_dumps(void)
{
	size_t first = pin_reserve.size < PIN_RESERVE_DUMPED ? pin_reserve.size
							     : PIN_RESERVE_DUMPED;
	uintptr_t from = pin_reserve.base + first;

	pin_os_leave_out_of_dumps((void *)from, spare.end - from);
}

/* Where the heap begins in a range; where addresses are scarce, none are left out. */
static uintptr_t first_address(uintptr_t from, size_t size)
{
	uintptr_t first = PIN_ALIGN_UP(from, PIN_GRANULE),
		  end = PIN_ALIGN_UP(first, LEAF_OF_PAGE_TABLE);

	return size == LARGEST && end - first < NEAR_ITS_END ? end : first;
}

int pin_reserve_init(void)
{
	size_t wanted = first_try(), data = pin_os_data_limit();
	size_t size = wanted;
	char *p = NULL;

	while (size >= SMALLEST &&
	       !(p = pin_os_reserve(size + size / SHARE_OF_TABLES + PIN_GRANULE)))
		size = PIN_ALIGN_DOWN(size / 2, PIN_GRANULE);
	if (!p)
		return -ENOMEM;
	/* More addresses than memory is enough for anybody; the most are more. */
	if (size < LARGEST && size < pin_os_ram())
		pin_warn("the heap can grow to %s at most: %s (see ulimit -v)", PIN_SIZE(size),
			 wanted < LARGEST ? "the address space is limited"
					  : "the kernel gives no larger range of addresses");
	pin_reserve.base = first_address((uintptr_t)p, size);
	pin_reserve.size = size;
	pin_reserve.memory = data < size ? data : size;
	atomic_store(&spare.start, pin_reserve.base + size);
	spare.end = (uintptr_t)p + size + size / SHARE_OF_TABLES + PIN_GRANULE;
	leave_out_of_dumps();
	return 0;
}

static void *addresses_elsewhere(size_t n_bytes)
{
	void *p = pin_os_reserve(n_bytes);

	if (p)
		pin_os_leave_out_of_dumps(p, n_bytes);
	return p;
}

void *pin_reserve_addresses(size_t n_bytes)
{
	uintptr_t start = atomic_load(&spare.start);

	do {
		if (n_bytes > spare.end - start)
			return addresses_elsewhere(n_bytes);
	} while (!atomic_compare_exchange_weak(&spare.start, &start, start + n_bytes));
	return (void *)start;
}

static size_t taken_below(uint64_t word)
{
	return (size_t)(word & UINT32_MAX) << PIN_GRANULE_SHIFT;
}

static size_t taken_above(uint64_t word)
{
	return (size_t)(word >> 32) << PIN_GRANULE_SHIFT;
}

static size_t left_by(uint64_t word)
{
	return pin_reserve.size - taken_below(word) - taken_above(word);
}

size_t pin_reserve_left(void)
{
	return left_by(atomic_load_explicit(&carved, memory_order_relaxed));
}

uintptr_t pin_reserve_carve_lower(size_t n_bytes)
{
	uint64_t word = atomic_load_explicit(&carved, memory_order_relaxed);
	size_t n = PIN_ALIGN_UP(n_bytes, PIN_GRANULE);

	do {
		if (n < n_bytes || n > left_by(word))
			return 0;
	} while (
		!atomic_compare_exchange_weak(&carved, &word, word + (n >> PIN_GRANULE_SHIFT)));
	return pin_reserve.base + taken_below(word);
}

/* What `carved` becomes when a piece is taken at the upper end; 0 if there is no room. */
static uint64_t take_upper(uint64_t word, size_t n_bytes, size_t alignment)
{
	size_t high = pin_reserve.size - taken_above(word);
	uintptr_t from;

	if (n_bytes > left_by(word))
		return 0;
	from = PIN_ALIGN_DOWN(pin_reserve.base + high - n_bytes, alignment);
	if (from < pin_reserve.base + taken_below(word))
		return 0;
	high -= from - pin_reserve.base;
	return word + ((uint64_t)(high >> PIN_GRANULE_SHIFT) << 32);
}

void *pin_reserve_carve_upper(size_t n_bytes, size_t alignment)
{
	uint64_t before = atomic_load_explicit(&carved, memory_order_relaxed), after;
	size_t n = PIN_ALIGN_UP(n_bytes, PIN_GRANULE);
	char *p;

	if (alignment < PIN_GRANULE)
		alignment = PIN_GRANULE;
	do {
		after = n < n_bytes ? 0 : take_upper(before, n, alignment);
		if (!after)
			return NULL;
	} while (!atomic_compare_exchange_weak(&carved, &before, after));
	p = (char *)pin_reserve.base + pin_reserve.size - taken_above(after);
	if (!pin_os_commit(p, n))
		return p;
	/* Given back unless somebody has taken more since; then it stays a hole. */
	atomic_compare_exchange_strong(&carved, &after, before);
	return NULL;
}
