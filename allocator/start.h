/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The heap's start, with the first call of a function of malloc's family or of jemalloc's, and
 * a block in reserve.
 */
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
 * Starts the heap, with the first call of any function that allocates. False if there are no
 * addresses.
 */
bool pin_start_heap(void);

/*
 * Frees a block that the heap keeps from its start on, for what must allocate when memory has
 * run out. Nobody touches it, so it costs only addresses.
 */
void pin_start_give_spare(void);

/*
 * Whether each call of malloc and free has something to be done: allocations are sampled, or
 * filled (MALLOC_PERTURB_). Constant after the start.
 */
extern PIN_HIDDEN bool pin_is_watched;

#endif
