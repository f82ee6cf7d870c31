/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/huge.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/pages.h"
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
	else if (pin_options.huge == PIN_HUGE_THP || pin_options.huge == PIN_HUGE_OFF)
		advise_all();
	return error == -ENOMEM ? commit_ordinary(addr, n_bytes) : error;
}

/* --- where memory is dense ------------------------------------------------------------- */

#define N_PAGES ((int64_t)(PIN_GRANULE >> PIN_UNIT_SHIFT)) /* of a granule */

/*
 * The credit's share of what is touched. Whoever takes a small block nearly always writes to
 * it: so of a slab that proves sparse at least a quarter is touched all the same, the first
 * page of each block. Buffers and stacks may stay empty.
 */
#define SHARE_OF_SLABS	6
#define SHARE_OF_OTHERS 12

/* As many pages of a granule are resident if only its last blocks are not written to yet. */
#define MOST (N_PAGES - N_PAGES / 16)

/* Each piece is two mappings: it begins only if it can have this share of what was touched. */
#define SHARE_OF_PIECE 128

/* Pages of the heap. A smaller one is not looked at: system call filters may forbid mincore(2).
 */
#define LEAST ((size_t)16 * PIN_MIB / PIN_UNIT)

static int64_t n_resident(uint32_t page)
{
	unsigned char is_there[N_PAGES];
	int64_t n = 0;

	if (pin_os_resident(pin_page_at(page), N_PAGES, is_there))
		return 0;
	for (int64_t i = 0; i < N_PAGES; i++)
		n += is_there[i] & 1;
	return n;
}

/* What the granule shows is taken to be so in all that were handed out since the last look. */
static void look(struct pin_huge *huge, int64_t share, uint32_t page)
{
	int64_t n = n_resident(huge->probe), lost = N_PAGES - n;
	int64_t earned = n / share > lost ? n / share : 0;

	if (n < MOST && page < huge->probe + 2 * N_PAGES)
		return; /* once more, one granule later */
	huge->credit += huge->n_left * earned + huge->n_asked * (earned - lost);
	huge->n_asked = huge->n_left = huge->probe = 0;
}

void pin_huge_enter(struct pin_huge *huge, bool is_slab, uint32_t page, uint32_t end,
		    size_t n_touched)
{
	uint32_t left = 0;
	int64_t least;

	page = (uint32_t)PIN_ALIGN_UP(page, N_PAGES);
	if (page >= end || pin_options.huge != PIN_HUGE_DENSE || PIN_PAGE != PIN_UNIT)
		return;
	if (n_touched < LEAST)
		huge->probe = 0;
	if (huge->probe)
		look(huge, is_slab ? SHARE_OF_SLABS : SHARE_OF_OTHERS, page);
	least = huge->n_asked ? 0 : (int64_t)n_touched / SHARE_OF_PIECE;
	for (; page < end; page += N_PAGES) {
		if (huge->credit >= least && huge->credit >= (huge->n_asked + 1) * N_PAGES &&
		    !pin_os_advise(pin_page_at(page), PIN_GRANULE, PIN_HUGE_PAGES)) {
			huge->n_asked++;
		} else {
			huge->n_left++;
			left = page;
		}
	}
	/* The last one: what is written up to there is written before, too. */
	if (left && !huge->probe)
		huge->probe = left;
}
