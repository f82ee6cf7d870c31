/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/start.h"
#include "allocator/mutex.h"
#include "allocator/large.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/pages.h"
#include "allocator/reserve.h"
#include "allocator/span.h"

#include <string.h>

PIN_WRITTEN_FIRST bool pin_is_traced;

static bool has_addresses(void)
{
	if ((size_t)getpagesize() > JE_PAGE) {
		pin_error("the pages of this kernel have %d bytes: build pinalloc with a "
			  "jemalloc configured for those, or start a kernel with pages of %zu",
			  getpagesize(), JE_PAGE);
		return false;
	}
	if (!pin_reserve_init() && !pin_pages_init())
		return true;
	pin_error("cannot reserve address space for the heap: raise ulimit -v");
	return false;
}

bool pin_start_memory(void)
{
	PIN_WRITTEN_FIRST static bool tried, succeeded;

	if (PIN_LIKELY(tried))
		return succeeded;
	tried = true;
	pin_os_small_statics();
	pin_options_init();
	pin_is_traced = pin_options.sample || pin_options.perturb ||
			strcmp(pin_options.report, "off") != 0;
	succeeded = has_addresses();
	return succeeded;
}

#define SPARE (64 * PIN_KIB)

PIN_WRITTEN_FIRST static void *_Atomic spare;

static bool keep_spare(void)
{
	size_t n_used;

	spare = pin_large_alloc(SPARE, 1, PIN_WAY_PLAIN, &n_used);
	return spare;
}

void pin_start_give_spare(void)
{
	void *block = atomic_exchange(&spare, NULL);

	/* Another free() of the process does not know it. */
	if (block)
		pin_large_free(block);
}

PIN_WRITTEN_FIRST static _Atomic bool is_ready;

static PIN_COLD void start(void)
{
	if (!pin_start_memory())
		return;
	is_ready = true;
	if (!keep_spare())
		pin_error("malloc has no memory at the start: raise ulimit -v and ulimit -d");
	/* The first growth serves the library itself, and any program: nobody asks for its
	 * stack. */
	pin_span_grown = 0;
}

bool pin_start_heap(void)
{
	PIN_WRITTEN_FIRST static struct pin_mutex lock = {.rank = PIN_RANK_START};

	if (PIN_LIKELY(is_ready))
		return true;
	/* Threads may allocate with a malloc of the program's own until they call this. */
	pin_mutex_lock(&lock);
	if (!is_ready)
		start();
	pin_mutex_unlock(&lock);
	return is_ready;
}
