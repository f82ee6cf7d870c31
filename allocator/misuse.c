/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/misuse.h"
#include "allocator/classes.h"
#include "allocator/log.h"
#include "allocator/pages.h"
#include "allocator/span.h"

#include <stdlib.h>

void (*pin_misuse_caller)(char *buf, size_t size);

struct block {
	uintptr_t start;
	size_t size;
};

static unsigned kind_of(uint32_t page)
{
	return pin_pages.kinds[page];
}

/* The block of a class that contains p: the one that begins before it in its page. */
static bool find_small(const void *p, uint32_t page, unsigned class, struct block *block)
{
	size_t phase = pin_pages.records[page].phase * PIN_QUANTUM;
	size_t offset = (uintptr_t)p & (PIN_UNIT - 1), size = pin_class_sizes[class];

	if (offset < phase)
		return false;
	block->size = size;
	block->start = (uintptr_t)p - (offset - phase) % size;
	return true;
}

/* The block in use, or kept, that p is in. Many pages say nothing of themselves. */
static bool find_block(const void *p, struct block *block)
{
	const struct pin_span *span = pin_span_find(p, 1);
	uint32_t last = span ? pin_page_of(p) : 0, page = last, first;

	if (!span)
		return false;
	first = pin_page_of((void *)span->start);
	if (kind_of(page) - 1u < PIN_CLASSES && find_small(p, page, kind_of(page) - 1u, block))
		return true;
	while (page > first && kind_of(page) == PIN_KIND_NONE)
		page--;
	if (kind_of(page) >= PIN_KIND_FREE || kind_of(page) == PIN_KIND_NONE)
		return false;
	if (kind_of(page) - 1u < PIN_CLASSES) {
		block->size = pin_class_sizes[kind_of(page) - 1u];
		block->start = (uintptr_t)pin_page_at(page) +
			       pin_pages.records[page].phase * PIN_QUANTUM;
		while (block->start + block->size < (uintptr_t)pin_page_at(page + 1))
			block->start += block->size;
	} else {
		block->size = (size_t)pin_pages.records[page].length << PIN_UNIT_SHIFT;
		block->start = (uintptr_t)pin_page_at(page);
	}
	return (uintptr_t)p - block->start < block->size;
}

/* What is wrong with p. */
static void describe(const void *p, bool frees, char *buf, size_t size)
{
	struct block block = {0, 0};
	bool found = find_block(p, &block);
	size_t offset = found ? (uintptr_t)p - block.start : 0;
	bool is_slice = found && pin_kind_of((void *)block.start) == PIN_KIND_SEGMENT;

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

static _Noreturn void say(const char *function, const void *p, const char *what,
			  const char *when)
{
	char caller[256] = "?";

	if (pin_misuse_caller)
		pin_misuse_caller(caller, sizeof caller);
	pin_log_line("%s(%p): %s; %s %s (see MISUSE in pinalloc(7))", function, (void *)p, what,
		     when, caller);
	abort();
}

_Noreturn PIN_COLD void pin_misuse_end(const void *p, const char *function, bool frees)
{
	char what[128];

	describe(p, frees, what, sizeof what);
	say(function, p, what, "called at");
}

_Noreturn PIN_COLD void pin_misuse_end_size(const void *p, size_t size, size_t given,
					    const char *function)
{
	char what[128];

	pin_format(what, sizeof what, "wrong size, of a block of %zu bytes and not %zu", size,
		   given);
	say(function, p, what, "called at");
}

PIN_COLD void pin_misuse_end_later(const void *p)
{
	char what[128];

	describe(p, true, what, sizeof what);
	say("free", p, what, "noticed in a later call at");
}
