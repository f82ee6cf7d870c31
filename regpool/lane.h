/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counters that every registration touches exist once a lane, each on a cache
 * line of its own, and a thread keeps to one lane: threads on different lanes
 * never write to the same line. What counts is always the sum over the lanes.
 */
#ifndef PIN_LANE_H
#define PIN_LANE_H

#include "allocator/base.h"

#include <stdatomic.h>

#define PIN_LANES 8

#define PIN_LANE_ALIGNED __attribute__((aligned(64)))

/* Internal: 0, or the thread's lane + 1. */
extern __thread unsigned pin_lane_own __attribute__((tls_model("initial-exec")));

/* Gives the thread a lane. */
unsigned pin_lane_assign(void);

/* The calling thread's lane, 0 … PIN_LANES - 1. */
static inline unsigned pin_lane(void)
{
	return PIN_LIKELY(pin_lane_own) ? pin_lane_own - 1 : pin_lane_assign();
}

#endif
