/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stacks, walked by libunwind: the only user of it. A frame is not an address but a module and
 * an offset in it, so that it stays right when the module is unloaded, and is the same in all
 * processes of a job. Frames of this library are left out.
 */
#pragma once

#include "allocator/base.h"

/*
 * Loads libunwind, and has the heap's growth and samples noted with their stacks. Without
 * libunwind, or _dl_find_object(), one line says that there are none. From the constructor: it
 * allocates and takes the loader's lock.
 */
void pin_stacks_start(void);

/*
 * The caller's stack: at most n frames, innermost first; returns how many, or -1 without
 * pin_stacks_start(). It ends before code that is in no module (compiled at run time) and
 * behind code without unwind tables.
 *
 * Thread-safe, async-signal-safe, and safe inside malloc as long as the heap's locks are free:
 * it allocates nothing and takes no lock that user code may hold. It reads nothing outside the
 * modules' tables but what the kernel says is readable.
 */
int pin_stacks_walk(void **frames, int n);

/* The number of the frame's module, and its offset there; 0 and the address: in none. */
unsigned pin_stacks_module(const void *frame, uint64_t *offset);

/* Code in further modules is known by its address only. */
#define PIN_MODULES 1024

/* What frames have been in, with numbers from 1 to less than pin_n_modules. */
extern struct pin_module {
	const char *path;
	char build_id[41];		/* in hexadecimal, or "" */
	const char *start, *end, *name; /* as the loader has them */
	uintptr_t bias;
	const void *tables; /* .eh_frame_hdr, or NULL */
	bool is_last;	    /* was seen later than any other at these addresses */
} pin_modules[PIN_MODULES];
extern _Atomic unsigned pin_n_modules;

/* Whether code is this library's. */
bool pin_stacks_ours(const void *code);
