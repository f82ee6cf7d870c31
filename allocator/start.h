/* SPDX-License-Identifier: BSD-2-Clause */
/* The heap's start, with the first call of a function of malloc's family or of jemalloc's. */
#ifndef PIN_START_H
#define PIN_START_H

#include "allocator/base.h"

/*
 * Reads the options, reserves the heap's addresses and prepares its tables. Returns false if
 * there are no addresses; tried only once. The first call must be over before a second thread
 * makes one: the library's constructor sees to that.
 */
bool pin_start_memory(void);

/*
 * Whether each call of malloc and free has something to be done: allocations are sampled, or
 * filled (MALLOC_PERTURB_). Constant after the start.
 */
extern PIN_HIDDEN bool pin_is_watched;

#endif
