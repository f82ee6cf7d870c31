/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counters that every registration changes have one copy for each lane, on a cache line of its
 * own. A thread keeps to one lane, so threads on different lanes never write to the same line.
 * The value of a counter is the sum over all lanes.
 */
#ifndef PIN_LANE_H
#define PIN_LANE_H

#include "allocator/base.h"

#include <stdatomic.h>

#define PIN_LANES 8

#define PIN_LANE_ALIGNED __attribute__((aligned(64)))

/* Internal: the thread's lane + 1, or 0 if it has none yet. */
extern __thread unsigned pin_lane_own __attribute__((tls_model("initial-exec")));

/* Internal: assigns a lane to the calling thread and returns it. */
unsigned pin_lane_assign(void);

/* The calling thread's lane, from 0 to PIN_LANES - 1. Lock-free. */
static inline unsigned pin_lane(void)
{
	return PIN_LIKELY(pin_lane_own) ? pin_lane_own - 1 : pin_lane_assign();
}

#endif
