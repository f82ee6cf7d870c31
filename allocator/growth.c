/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/growth.h"
#include "allocator/live.h"
#include "allocator/sites.h"
#include "allocator/timeline.h"

__thread size_t pin_growth_pending;

PIN_COLD void pin_growth_account(void)
{
	size_t n_bytes = pin_growth_pending, live;

	pin_growth_pending = 0;
	pin_sites_grew(n_bytes);
	/* The timeline must not be above the peak, which does not know this thread's latest. */
	live = pin_live_now();
	pin_live_look_back((int64_t)live);
	pin_timeline_grew(live);
}
