/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/start.h"
#include "allocator/jemalloc.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/pages.h"
#include "allocator/reserve.h"

#include <string.h>
#include <unistd.h>

PIN_WRITTEN_FIRST bool pin_is_watched;

static bool has_addresses(void)
{
	if ((size_t)getpagesize() > JE_PAGE) {
		pin_error(PIN_SAYS_OTHER_PAGES
			  " %d bytes: build pinalloc with a jemalloc "
			  "configured for those, or start a kernel with pages of %zu",
			  getpagesize(), JE_PAGE);
		return false;
	}
	if (!pin_reserve_init() && !pin_pages_init())
		return true;
	pin_error(PIN_SAYS_NO_ADDRESSES " for the heap: raise ulimit -v");
	return false;
}

bool pin_start_memory(void)
{
	PIN_WRITTEN_FIRST static bool tried, succeeded;

	if (PIN_LIKELY(tried))
		return succeeded;
	tried = true;
	pin_os_small_statics();
	pin_options_init();
	pin_is_watched = pin_options.sample || pin_options.perturb ||
			 strcmp(pin_options.report, "off") != 0;
	succeeded = has_addresses();
	return succeeded;
}
