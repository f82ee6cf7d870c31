/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/reserve.h"
#include "allocator/huge.h"
#include "allocator/log.h"
#include "allocator/os.h"

#include <errno.h>
#include <stdatomic.h>

/*
 * Address space costs nothing until it is committed, so the first try is larger
 * than any machine's memory; the least is what a shell needs to run.
 */
#define LARGEST	 (16 * PIN_TIB)
#define SMALLEST (16 * PIN_MIB)

/* What is kept below for tables: more than those of regions and large blocks need. */
#define SHARE_OF_TABLES 256

struct pin_reserve pin_reserve;

/* Addresses for tables, taken from the heap's lower end downwards. */
static struct {
	uintptr_t start;
	_Atomic uintptr_t end;
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

int pin_reserve_init(void)
{
	size_t wanted = first_try();
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
	pin_reserve.base = PIN_ALIGN_UP((uintptr_t)p + size / SHARE_OF_TABLES, PIN_GRANULE);
	pin_reserve.size = size;
	spare.start = (uintptr_t)p;
	atomic_store(&spare.end, pin_reserve.base);
	return 0;
}

void *pin_reserve_addresses(size_t n_bytes)
{
	uintptr_t end = atomic_load(&spare.end);

	do {
		if (n_bytes > end - spare.start)
			return pin_os_reserve(n_bytes);
	} while (!atomic_compare_exchange_weak(&spare.end, &end, end - n_bytes));
	return (void *)(end - n_bytes);
}

/* A piece, by its offset, and what `carved` is before and after it is taken. */
struct piece {
	size_t from, length;
	uint64_t before, after;
};

static size_t taken_below(uint64_t word)
{
	return (size_t)(word & UINT32_MAX) << PIN_GRANULE_SHIFT;
}

static size_t taken_above(uint64_t word)
{
	return (size_t)(word >> 32) << PIN_GRANULE_SHIFT;
}

/* Whether the free range between both ends has such a piece at its lower one. */
static bool find_lower(struct piece *piece, size_t alignment)
{
	size_t low = taken_below(piece->before);
	size_t high = pin_reserve.size - taken_above(piece->before);
	size_t from = PIN_ALIGN_UP(pin_reserve.base + low, alignment) - pin_reserve.base;

	piece->from = from;
	piece->after = piece->before + ((from + piece->length - low) >> PIN_GRANULE_SHIFT);
	return from <= high && piece->length <= high - from;
}

/* The same at its upper end. */
static bool find_upper(struct piece *piece, size_t alignment)
{
	size_t low = taken_below(piece->before);
	size_t high = pin_reserve.size - taken_above(piece->before);
	uintptr_t from;

	if (piece->length > high - low)
		return false;
	from = PIN_ALIGN_DOWN(pin_reserve.base + high - piece->length, alignment);
	if (from < pin_reserve.base + low)
		return false;
	piece->from = from - pin_reserve.base;
	piece->after = piece->before +
		       ((uint64_t)((high - piece->from) >> PIN_GRANULE_SHIFT) << 32);
	return true;
}

static bool take(struct piece *piece, size_t n_bytes, size_t alignment,
		 bool (*find)(struct piece *piece, size_t alignment))
{
	if (alignment < PIN_GRANULE)
		alignment = PIN_GRANULE;
	piece->length = PIN_ALIGN_UP(n_bytes, PIN_GRANULE);
	piece->before = atomic_load_explicit(&carved, memory_order_relaxed);
	do {
		if (piece->length < n_bytes || !find(piece, alignment))
			return false;
	} while (!atomic_compare_exchange_weak(&carved, &piece->before, piece->after));
	return true;
}

/* Given back unless somebody has taken more since; then it stays a hole. */
static void untake(struct piece *piece)
{
	atomic_compare_exchange_strong(&carved, &piece->after, piece->before);
}

void *pin_reserve_carve(size_t n_bytes, size_t alignment)
{
	struct piece piece;
	int error = -EEXIST;
	char *p = NULL;

	/* A piece that another mapping has got into is left to it. */
	while (error == -EEXIST) {
		if (!take(&piece, n_bytes, alignment, find_lower))
			return NULL;
		p = (char *)pin_reserve.base + piece.from;
		error = pin_huge_commit(p, piece.length);
	}
	if (!error)
		return p;
	untake(&piece);
	return NULL;
}

void *pin_reserve_carve_upper(size_t n_bytes, size_t alignment)
{
	struct piece piece;
	char *p;

	if (!take(&piece, n_bytes, alignment, find_upper))
		return NULL;
	p = (char *)pin_reserve.base + piece.from;
	if (!pin_os_commit(p, piece.length))
		return p;
	untake(&piece);
	return NULL;
}
