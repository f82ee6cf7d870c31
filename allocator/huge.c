/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/huge.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/reserve.h"

#include <errno.h>
#include <stdatomic.h>

/* Once the pool was short: steps that alternate would be no help to anybody. */
static _Atomic bool pool_is_short;

static void say_short(size_t n_bytes)
{
	unsigned wanted = (unsigned)(n_bytes >> PIN_GRANULE_SHIFT);

	atomic_store(&pool_is_short, true);
	pin_warn_once("the heap wants %u huge page%s and the system has %u free: it grows with "
		      "ordinary ones from now on; set more apart with sysctl vm.nr_hugepages",
		      wanted, wanted == 1 ? "" : "s", (unsigned)pin_os_hugetlb_free());
}

/* Where in the heap huge pages begin, as an offset. */
static size_t begin(void)
{
	switch ((enum pin_huge)pin_options.huge) {
	case PIN_HUGE_AUTO:
		return PIN_HUGE_FROM;
	case PIN_HUGE_THP:
		return 0;
	default:
		return SIZE_MAX;
	}
}

/*
 * What a host takes back is free blocks of that very size: each new huge page is one that it
 * has to find again, for many times what the kernel alone takes to clear it (bench/allocators:
 * malloc-large with and without). Small ones mostly are what a process has just given back.
 */
static bool is_worth_it(void)
{
	return pin_options.huge != PIN_HUGE_AUTO || !pin_os_host_reclaims();
}

/*
 * All the addresses at once, when the heap gets there: pieces that threads advise and
 * touch one by one do not always become one mapping. The upper end stays as it is, for
 * what pin_reserve_carve_upper() gives.
 */
static void advise_rest(size_t end_of_piece)
{
	static atomic_bool done;
	size_t from = begin(), to = pin_reserve.size / 16 * 15;

	if (end_of_piece <= from || from >= to || atomic_load(&done) ||
	    atomic_exchange(&done, true) || !is_worth_it())
		return;
	to = PIN_ALIGN_DOWN(to, PIN_GRANULE);
	pin_os_use_huge((char *)pin_reserve.base + from, to - from);
}

/* Of the pool, or an error. */
static int commit_of_pool(char *addr, size_t n_bytes)
{
	int error = -ENOMEM;

	if (!atomic_load(&pool_is_short)) {
		error = pin_os_commit_hugetlb(addr, n_bytes);
		if (error)
			say_short(n_bytes);
	}
	if (error == -ENOMEM)
		pin_os_use_huge(addr, n_bytes);
	return error;
}

/* Of ordinary ones. In this order: the kernel then makes it one mapping with what is before it.
 */
static int commit(char *addr, size_t n_bytes)
{
	size_t end = (uintptr_t)addr + n_bytes - pin_reserve.base;
	int error = pin_os_commit(addr, n_bytes);

	if (!error && end > PIN_RESERVE_DUMPED)
		pin_os_put_into_dumps(addr, n_bytes);
	return error;
}

int pin_huge_commit(char *addr, size_t n_bytes)
{
	int error;

	if (pin_options.huge == PIN_HUGE_TLB) {
		error = commit_of_pool(addr, n_bytes);
		return error == -ENOMEM ? commit(addr, n_bytes) : error;
	}
	advise_rest((uintptr_t)addr + n_bytes - pin_reserve.base);
	return commit(addr, n_bytes);
}
