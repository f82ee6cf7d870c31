/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Settings with which the library cannot keep its promise. They are looked for when they
 * matter, and reported in one line with the cure. The texts here are shared with `pinalloc
 * check`.
 */
#ifndef PIN_CONFLICTS_H
#define PIN_CONFLICTS_H

#include "allocator/base.h"

#include <strings.h>

/* Beginnings of the messages when malloc is not ours, or has nothing. */
#define PIN_SAYS_FOREIGN "malloc is answered by "

/* UCX_MEM_MMAP_HOOK_MODE=reloc, unless UCX_MEM_MALLOC_RELOC is off. */
#define PIN_UCX_RELOC_FINDING                                                             \
	"lets UCX replace malloc with its own, which is not registered and hangs in UCX " \
	"1.13"
#define PIN_UCX_RELOC_CURE "unset it, or set UCX_MEM_MALLOC_RELOC=n"

/* Whether the value of a variable, which may be NULL, switches something off in UCX. */
static inline bool pin_ucx_is_off(const char *value)
{
	return value &&
	       (!strcasecmp(value, "n") || !strcasecmp(value, "no") || !strcasecmp(value, "0"));
}

/*
 * Whether malloc is ours, by its address: the heap need not start for that. Otherwise it is
 * called, as another's may be a wrapper that calls ours; if it is not ours, logs whose it is.
 * From the constructor.
 */
bool pin_conflicts_heap_is_ours(void);

/* Logs, once, settings of the environment that conflict with ours. When a device is opened. */
void pin_conflicts_check_settings(void);

#endif
