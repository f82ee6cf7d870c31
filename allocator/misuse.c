/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/misuse.h"
#include "allocator/log.h"
#include "allocator/pages.h"
#include "allocator/span.h"

#include <link.h>
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

/*
 * The module of the call is in the loader's list, which is read without the loader's lock:
 * another thread may hold the lock for ever. Code is between the module's header and _DYNAMIC.
 */
_Noreturn PIN_COLD void pin_misuse_end(const void *p, bool frees, const char *function,
				       const void *caller)
{
	char what[128], program[256] = "";
	uintptr_t call = (uintptr_t)caller - 1;
	const struct link_map *map = _r_debug.r_map;
	const char *name = program;

	while (map && (call < map->l_addr || call >= (uintptr_t)map->l_ld))
		map = map->l_next;
	if (map && *map->l_name)
		name = map->l_name;
	else if (map && readlink("/proc/self/exe", program, sizeof program - 1) < 0)
		name = "?";
	describe(p, frees, what, sizeof what);
	pin_log_line("%s(%p): %s; called at %s%s0x%lx (see MISUSE in pinalloc(7))", function,
		     (void *)p, what, name, map ? "+" : "", call - (map ? map->l_addr : 0));
	abort();
}
