/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/misuse.h"
#include "allocator/hooks.h"
#include "allocator/log.h"
#include "allocator/pages.h"
#include "allocator/span.h"

#include <stdlib.h>

/* The block in use that p is in. A large one's first page says of what kind it is. */
static bool find_block(const void *p, struct pin_range *block)
{
	const struct pin_span *span = pin_span_find(p, 1);

	if (span)
		*block = pin_block_at_or_below((uintptr_t)p, span->start);
	return (uintptr_t)p < block->end;
}

/* What is wrong with p. */
static void describe(const void *p, bool frees, char *buf, size_t size)
{
	struct pin_range block = {0, 0};
	bool found = find_block(p, &block);
	size_t offset = found ? (uintptr_t)p - block.start : 0;
	bool is_slice = found && pin_kind_of((void *)block.start) > PIN_KIND_LARGE;

	if (!found && !pin_span_find(p, 1))
		pin_format(buf, size, "invalid pointer, it is not of this heap");
	else if (is_slice)
		pin_format(buf, size,
			   "invalid pointer, it is in a pool's memory: see "
			   "pinalloc_pool_free() in pinalloc(3)");
	else if (offset)
		pin_format(buf, size, "invalid pointer, %zu bytes into the block of %zu at %p",
			   offset, block.end - block.start, (void *)block.start);
	else
		pin_format(buf, size, "%s, the block is free already",
			   frees ? "double free" : "use after free");
}

static _Noreturn void say(const char *function, const void *p, const char *what)
{
	char caller[256] = "?";

	pin_hook(find_caller, caller, sizeof caller);
	pin_log_line("%s(%p): %s; called at %s (see MISUSE in pinalloc(7))", function,
		     (void *)p, what, caller);
	abort();
}

_Noreturn PIN_COLD void pin_misuse_end(const void *p, const char *function, bool frees)
{
	char what[128];

	describe(p, frees, what, sizeof what);
	say(function, p, what);
}

_Noreturn PIN_COLD void pin_misuse_end_size(const void *p, size_t size, size_t given,
					    const char *function)
{
	char what[128];

	pin_format(what, sizeof what, "wrong size, of a block of %zu bytes and not %zu", size,
		   given);
	say(function, p, what);
}
