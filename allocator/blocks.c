/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/blocks.h"
#include "allocator/frames.h"
#include "allocator/heap.h"
#include "allocator/large.h"
#include "allocator/live.h"
#include "allocator/misuse.h"
#include "allocator/options.h"
#include "allocator/sample.h"

#include <errno.h>
#include <string.h>

__thread size_t pin_direct_most;

static __thread bool has_started __attribute__((tls_model("initial-exec")));

static PIN_COLD bool start_thread(void)
{
	int error = errno;

	if (!pin_start_heap() || !pin_jemalloc_begin_thread())
		return false;
	has_started = true;
	pin_direct_most = pin_is_watched ? 0 : PIN_SMALL_MOST;
	errno = error;
	return true;
}

bool pin_start_thread(void)
{
	return PIN_LIKELY(has_started) || start_thread();
}

/* --- blocks ------------------------------------------------------------------------ */

#define PERTURBED_NEW	0xa5 /* as in jemalloc */
#define PERTURBED_FREED 0x5a

static void *new_small(size_t alignment, size_t n_bytes, bool zero)
{
	void *p = NULL;

	if (PIN_LIKELY(pin_start_thread()))
		p = pin_je_mallocx(n_bytes ? n_bytes : 1, pin_flags(alignment, zero));
	pin_live_settle();
	return p;
}

static void *new_large(size_t alignment, size_t n_bytes, bool zero, bool is_picked)
{
	size_t n_used = 0;
	void *p = pin_start_heap() ? pin_large_alloc(n_bytes, alignment, &n_used) : NULL;

	if (PIN_LIKELY(p) && PIN_UNLIKELY(pin_is_watched))
		pin_sample_new(p, is_picked);
	pin_live_settle();
	if (PIN_LIKELY(p) && zero)
		pin_frames_clear(p, n_used);
	else if (PIN_UNLIKELY(pin_options.perturb) && p)
		memset(p, PERTURBED_NEW, n_bytes);
	return p;
}

void *pin_new_block(size_t alignment, size_t n_bytes, bool zero)
{
	bool is_picked = PIN_UNLIKELY(pin_is_watched) && pin_sample_due(n_bytes);
	void *p;

	if (pin_fits_small(alignment, n_bytes) && !is_picked)
		p = new_small(alignment, n_bytes, zero);
	else
		p = new_large(alignment, n_bytes, zero, is_picked);
	if (PIN_UNLIKELY(!p))
		errno = ENOMEM;
	return p;
}

static PIN_COLD void see_freed(void *p)
{
	if (pin_options.perturb)
		memset(p, PERTURBED_FREED, pin_large_usable(p));
	pin_sample_freed(pin_sample_of(p));
}

void pin_free_slowly(void *p)
{
	if (!p)
		return;
	if (!pin_is_large(p))
		pin_misuse_end(p, "free", true);
	if (PIN_UNLIKELY(pin_is_watched))
		see_freed(p);
	if (PIN_UNLIKELY(!pin_large_free(p)))
		pin_misuse_end(p, "free", true);
}
