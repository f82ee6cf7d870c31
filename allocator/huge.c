/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/reserve.h"

#include <stdatomic.h>

/*
 * Set for good when the pool has been short once: alternating kinds of pages would help
 * nobody.
 */
static _Atomic bool pool_is_short;

/*
 * Advises all addresses at once: pieces that threads advise and touch one by one do not always
 * become one mapping.
 */
static void advise_all(void)
{
	static atomic_bool done;

	if (atomic_load(&done) || atomic_exchange(&done, true))
		return;
	pin_os_advise((char *)pin_reserve.base, pin_reserve.size,
		      pin_options.huge == PIN_HUGE_THP ? PIN_HUGE_PAGES : PIN_SMALL_PAGES);
}

/* Commits pages of the pool, or returns an error. */
static int commit_from_pool(char *addr, size_t n_bytes)
{
	int error = -ENOMEM;

	if (!pool_is_short)
		error = pin_os_commit_hugetlb(addr, n_bytes, PIN_GRANULE);
	if (error && !atomic_exchange(&pool_is_short, true))
		pin_warn("the heap needs %zu huge pages, but the system has %zu free: it "
			 "grows with transparent ones from now on; increase vm.nr_hugepages",
			 n_bytes >> PIN_GRANULE_SHIFT, pin_os_hugetlb_free(PIN_GRANULE));
	if (error == -ENOMEM)
		pin_os_advise(addr, n_bytes, PIN_HUGE_PAGES);
	return error;
}

/*
 * Commits ordinary pages. Commit first: then the kernel merges them with the mapping before
 * them.
 */
static int commit_ordinary(char *addr, size_t n_bytes)
{
	size_t end = (uintptr_t)addr + n_bytes - pin_reserve.base;
	int error = pin_os_commit(addr, n_bytes);

	if (!error && end > PIN_RESERVE_DUMPED)
		pin_os_advise(addr, n_bytes, PIN_DUMPED);
	return error;
}

int pin_huge_commit(char *addr, size_t n_bytes)
{
	int error = -ENOMEM;

	if (pin_options.huge == PIN_HUGE_TLB)
		error = commit_from_pool(addr, n_bytes);
	else if (pin_options.huge != PIN_HUGE_SYSTEM)
		advise_all();
	return error == -ENOMEM ? commit_ordinary(addr, n_bytes) : error;
}
