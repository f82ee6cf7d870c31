/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/growth.h"
#include "allocator/live.h"
#include "allocator/sites.h"
#include "allocator/timeline.h"

__thread size_t pin_growth_pending;
PIN_WRITTEN_FIRST void (*pin_growth_listener)(void);

PIN_COLD void pin_growth_account(void)
{
	size_t n_bytes = pin_growth_pending, live, most;

	pin_growth_pending = 0;
	pin_sites_grew(n_bytes);
	/* The timeline is never above the peak, which is raised when samples are up to date. */
	live = pin_live_now();
	most = (size_t)atomic_load(&pin_live_most);
	pin_timeline_grew(live < most ? live : most);
	if (pin_growth_listener)
		pin_growth_listener();
}
