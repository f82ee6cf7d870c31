/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What happens when the library is loaded and when the program ends, in order.
 * The heap itself needs none of it: it starts with the first malloc.
 */
#include <config.h>

#include "allocator/extents.h"
#include "allocator/log.h"
#include "allocator/misuse.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/sample.h"
#include "allocator/sites.h"
#include "allocator/stream.h"
#include "allocator/timeline.h"
#include "preload/report/backtrace.h"
#include "preload/conflicts.h"
#include "preload/report/ending.h"
#include "preload/next.h"
#include "preload/report/report.h"
#include "preload/report/request.h"
#include "regpool/pool.h"
#include "regpool/prefill.h"
#include "regpool/verify.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>

static void help_if_wanted(void)
{
	if (!pin_options_help_wanted())
		return;
	pin_options_help();
	_Exit(0);
}

static bool program_matches(void)
{
	return !fnmatch(pin_options.restrict_to, program_invocation_short_name, 0);
}

__attribute__((constructor(101))) static void start(void)
{
	bool wanted;

	pin_os_small_statics();
	pin_stream_keep(&pin_standard_error);
	pin_next_find();
	pin_options_init();
	pin_fatal_hook = pin_backtrace_say;
	pin_misuse_caller = pin_backtrace_caller;
	help_if_wanted();
	wanted = program_matches();
	pin_timeline_set_pinned(&pin_pool.pinned);
	pin_sites_tell(pin_backtrace_keep);
	pin_pool_init(pin_conflicts_heap_is_ours() && wanted);
	/* Not before: most processes never grow beyond what the last line took. */
	pin_sites_start(pin_backtrace_walk);
	pin_sample_start();
	if (pin_sample_is_on())
		pin_backtrace_use_trails();
	pin_prefill_init(pin_extents_reserve);
	pin_verify_init();
	pin_report_init(wanted);
	pin_ending_init();
	pin_request_init();
}

__attribute__((destructor(101))) static void end(void)
{
	static const struct pin_occasion occasion = {.name = "at exit", .last = true};

	pin_verify_at_exit();
	pin_report_due(&occasion);
}
