/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/misuse.h"
#include "allocator/log.h"
#include "allocator/pages.h"
#include "allocator/span.h"

#include <stdlib.h>

PIN_WRITTEN_FIRST void (*pin_misuse_caller)(char *buf, size_t size);

struct block {
	uintptr_t start;
	size_t size;
};

/* Whether a block in use, a segment or a slice begins with the page. */
static bool begins(uint32_t page)
{
	unsigned kind = pin_page_kind(page);

	return kind == PIN_KIND_LARGE ? pin_page_state(page) == PIN_STATE_TAKEN
				      : kind > PIN_KIND_LARGE;
}

/* The block in use that p is in. A large one's first page says of what kind it is. */
static bool find_block(const void *p, struct block *block)
{
	const struct pin_span *span = pin_span_find(p, 1);
	uint32_t page = span ? pin_page_of(p) : 0, least;

	if (!span || pin_page_kind(page) == PIN_KIND_SMALL)
		return false;
	least = pin_page_of((void *)span->start);
	while (page > least && !begins(page))
		page--;
	block->size = (size_t)pin_pages.records[page].length << PIN_UNIT_SHIFT;
	block->start = (uintptr_t)pin_page_at(page);
	return begins(page) && (uintptr_t)p - block->start < block->size;
}

/* What is wrong with p. */
static void describe(const void *p, bool frees, char *buf, size_t size)
{
	struct block block = {0, 0};
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
			   offset, block.size, (void *)block.start);
	else
		pin_format(buf, size, "%s, the block is free already",
			   frees ? "double free" : "use after free");
}

static _Noreturn void say(const char *function, const void *p, const char *what)
{
	char caller[256] = "?";

	if (pin_misuse_caller)
		pin_misuse_caller(caller, sizeof caller);
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
