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
#define SMALLEST (16 * PIN_MIB)

struct pin_reserve pin_reserve;
static _Atomic size_t carved;

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

	while (size >= SMALLEST && !(p = pin_os_reserve(size + PIN_GRANULE)))
		size = PIN_ALIGN_DOWN(size / 2, PIN_GRANULE);
	if (!p)
		return -ENOMEM;
	/* More addresses than memory is enough for anybody. */
	if (size < pin_os_ram())
		pin_warn("the heap can grow to %s at most: %s (see ulimit -v)", PIN_SIZE(size),
			 wanted < LARGEST ? "the address space is limited"
					  : "the kernel gives no larger range of addresses");
	pin_reserve.base = PIN_ALIGN_UP((uintptr_t)p, PIN_GRANULE);
	pin_reserve.size = size;
	return 0;
}

void *pin_reserve_carve(size_t n_bytes, size_t alignment)
{
	size_t length = PIN_ALIGN_UP(n_bytes, PIN_GRANULE);
	size_t from, to, start = atomic_load_explicit(&carved, memory_order_relaxed);

	if (alignment < PIN_GRANULE)
		alignment = PIN_GRANULE;
	do {
		from = PIN_ALIGN_UP(pin_reserve.base + start, alignment) - pin_reserve.base;
		to = from + length;
		if (length < n_bytes || from > pin_reserve.size ||
		    length > pin_reserve.size - from)
			return NULL;
	} while (!atomic_compare_exchange_weak(&carved, &start, to));
	if (!pin_os_commit((void *)(pin_reserve.base + from), length))
		return (void *)(pin_reserve.base + from);
	/* Given back unless somebody has taken more since; then it stays a hole. */
	atomic_compare_exchange_strong(&carved, &to, start);
	return NULL;
}
