/* SPDX-License-Identifier: BSD-2-Clause */
/* What the library and `pinalloc check` say of settings that leave the heap unregistered. */
#ifndef PIN_CONFLICTS_H
#define PIN_CONFLICTS_H

#include <stdbool.h>
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

#endif
