/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The loaded module that an address is in, and its unwind tables. All are thread-safe,
 * async-signal-safe and safe inside malloc: no allocation, no lock, no system call.
 *
 * glibc knows them by _dl_find_object(), since 2.35. With an older one only the modules are
 * known with which the process has started: others may be unloaded at any time.
 */
#ifndef PIN_MODULE_H
#define PIN_MODULE_H

#include "allocator/base.h"

struct pin_module {
	const char *start, *end, *bias;
	const char *path;   /* valid as long as it is loaded; empty: the program itself */
	const void *header; /* .eh_frame_hdr, or NULL */
};

/* False if the address is in no module that is known. */
bool pin_module_find(const void *code, struct pin_module *module);

/* The unwinder's view of a table entry, by the order it has in libgcc. */
struct pin_module_bases {
	const void *text, *data, *function;
};

#if !HAVE__DL_FIND_OBJECT
/* In place of libgcc's own, which would take the loader's lock: the entry for the code, or
 * NULL. */
const void *pin_module_unwind_entry(const void *code, struct pin_module_bases *bases);
#endif

#endif
