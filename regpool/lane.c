/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/lane.h"

__thread unsigned pin_lane_own;

/* Round robin, so that a few threads get a lane each. */
unsigned pin_lane_assign(void)
{
	static _Atomic unsigned next_lane;
	unsigned lane = atomic_fetch_add_explicit(&next_lane, 1, memory_order_relaxed) %
			PIN_LANES;

	pin_lane_own = lane + 1;
	return lane;
}
