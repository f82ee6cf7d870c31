/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * jemalloc's other source of memory, the data segment that sbrk(2) extends. It is replaced
 * like the page layer (pages.c), because that memory is outside of the reserve. It never
 * provides any, whatever MALLOC_CONF or mallctl("arena.<i>.dss") say.
 *
 * Prototypes follow jemalloc 5.3.0, include/jemalloc/internal/extent_dss.h.
 */
#include <config.h>

#include "allocator/jemalloc.h"

const char *je_opt_dss = "disabled";
const char *je_dss_prec_names[] = {"disabled", "primary", "secondary", "N/A"};

/* enum dss_prec_t: disabled. */
#define DISABLED 0

int je_extent_dss_prec_get(void)
{
	return DISABLED;
}

/* false is success: a MALLOC_CONF that sets it is not reported as an error. */
bool je_extent_dss_prec_set(int precedence)
{
	(void)precedence;
	return false;
}

void *je_extent_alloc_dss(void *thread, void *arena, void *addr, size_t size, size_t alignment,
			  bool *zero, bool *commit)
{
	(void)thread;
	(void)arena;
	(void)addr;
	(void)size;
	(void)alignment;
	(void)zero;
	(void)commit;
	return NULL;
}

bool je_extent_in_dss(void *addr)
{
	(void)addr;
	return false;
}

bool je_extent_dss_mergeable(void *a, void *b)
{
	(void)a;
	(void)b;
	return true;
}

void je_extent_dss_boot(void)
{
}
