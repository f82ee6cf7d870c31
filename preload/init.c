/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What happens when the library is loaded and when the program ends, in order.
 * The heap itself needs none of it: it starts with the first malloc.
 */
#include <config.h>

#include "allocator/heap.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/reserve.h"
#include "preload/backtrace.h"
#include "preload/report.h"
#include "regpool/pool.h"

#include <dlfcn.h>
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

/* The file that answers to a name: another preload, or the program itself. */
static const char *home_of(void *symbol)
{
	Dl_info info;

	return dladdr(symbol, &info) && info.dli_fname ? info.dli_fname : "?";
}

/*
 * The promise stands on the first page having come from the reserve. If it did
 * not, either another allocator is in front of this one, which the user can cure,
 * or the page layer was not linked in, which must not go unnoticed.
 */
static bool heap_is_ours(void)
{
	const char *home, *self;

	if (pin_heap_answers_malloc())
		return true;
	if (!pin_heap_has_memory()) {
		if (pin_reserve.size)
			pin_error("malloc has no memory: raise ulimit -v and ulimit -d");
		return false;
	}
	home = home_of(dlsym(RTLD_DEFAULT, "malloc"));
	self = home_of((void *)heap_is_ours);
	if (home == self)
		pin_fatal("malloc does not come from the reserved range: this build is broken");
	pin_warn("malloc is answered by %s: the heap is not ours and is not registered; put "
		 "libpinalloc.so first in LD_PRELOAD",
		 home);
	return false;
}

static bool program_matches(void)
{
	return !fnmatch(pin_options.restrict_to, program_invocation_short_name, 0);
}

__attribute__((constructor(101))) static void start(void)
{
	bool wanted;

	pin_options_init();
	pin_fatal_hook = pin_backtrace_say;
	help_if_wanted();
	wanted = program_matches();
	pin_pool_init(heap_is_ours() && wanted);
	pin_report_init(wanted);
}

__attribute__((destructor(101))) static void end(void)
{
	pin_report_at_exit();
}
