/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * PINALLOC_PREALLOC: part of the heap becomes resident and registered before the program first
 * communicates. It is a segment (allocator/segment.h), which malloc gets when it has been
 * touched.
 */
#ifndef PIN_PREFILL_H
#define PIN_PREFILL_H

#include "allocator/segment.h"

/*
 * Sets the functions that take a segment and give it back. Called once, from the constructor.
 */
void pin_prefill_init(void *(*take)(struct pin_segment_need *need),
		      void (*give)(void *segment));

/*
 * Call when an access set was armed. The first time, makes the memory and registers it in what
 * is armed; pin_rollout_to() does it for what is armed later. Logs if there is no room.
 * Must not be called from inside malloc.
 */
void pin_prefill(void);

#endif
