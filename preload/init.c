/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What happens when the library is loaded and when the program exits, in this order. The heap
 * itself needs none of it: it starts with the first malloc.
 */
#include <config.h>

#include "allocator/live.h"
#include "allocator/hooks.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/io.h"
#include "allocator/reserve.h"
#include "allocator/start.h"
#include "preload/report/stacks.h"
#include "preload/report/collect.h"
#include "preload/report/process.h"
#include "preload/report/record.h"
#include "preload/report/report-file.h"
#include "preload/report/write.h"
#include "regpool/domain.h"
#include "regpool/foreign.h"
#include "regpool/listeners.h"
#include "regpool/state.h"
#include "regpool/userpool.h"
#include "regpool/watch.h"

#include <dlfcn.h>
#include <fnmatch.h>
#include <stdlib.h>

/*
 * By the address of malloc: the heap need not start for that. Otherwise it is called, as
 * another's may be a wrapper that calls ours. The block is volatile, or compilers know better:
 * which calls are ours, and that none need be made.
 */
static bool heap_is_ours(void)
{
	void *volatile p;
	Dl_info owner;
	bool is_ours;

	if (pin_stacks_ours((void *)malloc))
		return true;
	p = malloc(1);
	is_ours = pin_reserve_contains(p);
	free(p);
	if (!is_ours)
		pin_warn("malloc is answered by %s: the heap is not this library's and is not "
			 "registered; put "
			 "libpinalloc.so first in LD_PRELOAD, or link the program "
			 "without a malloc of its own",
			 dladdr((void *)malloc, &owner) ? owner.dli_fname : "?");
	return is_ours;
}

/*
 * What fork() runs before it, in this order, and after it in the reverse order:
 *
 * First, regpool/fork.c deregisters what is idle, and waits for threads that register. Both may
 * call malloc, which may be another library's wrapper of ours, whose lock a handler of that
 * library takes. So this handler is installed only when verbs or a pool are first used, which
 * is after such a library's.
 *
 * Then come the handlers of others, which may allocate.
 *
 * Last, allocator/atfork.c takes the locks of looks at the loader's list of files, of the list
 * of streams, of the heap, and of walks along the stack. It is installed before all others, by
 * the first malloc or below.
 *
 * The child counts anew, what it has beside its parent, when its heap works.
 */
static void in_child(void)
{
	int saved = errno;

	pin_watch_reset();
	pin_listeners_begin_child();
	pin_report_forget_phases();
	if (pin_report_wanted) {
		pin_process_begin_anew();
		pin_live_begin_anew();
		pin_report_base_figures();
		pin_record_begin_anew();
	}
	errno = saved;
}

/* At exit, and at quick_exit. Without a report the record stays. */
__attribute__((destructor(101))) static void report_at_end(void)
{
	if (pin_report_write_if_due())
		pin_record_end();
}

/*
 * What pthread_atfork() calls, of whatever library. The constructors of those that the program
 * is linked with run before this library's.
 */
PIN_EXPORT_AS(int, __register_atfork, void (*prepare)(void), void (*parent)(void),
	      void (*child)(void), void *module)
{
	static int (*next)(void (*)(void), void (*)(void), void (*)(void), void *);

	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "__register_atfork");
	pin_atfork_init();
	return next ? next(prepare, parent, child, module) : ENOMEM;
}

/*
 * Since glibc 2.41 the loader calls constructors again if a library is opened while its
 * destructor runs. With UCX that happens: its dlopen() opens the library that calls it.
 */
__attribute__((constructor(101))) static void init_library(void)
{
	PIN_WRITTEN_FIRST static bool done;
	bool wanted, is_helper;

	if (done)
		return;
	done = true;
	pin_atfork_init();
	pin_io_stream_keep(&pin_io_standard_error);
	pin_options_init();
	/* What they are for, and must not do, is in allocator/hooks.h. */
	pin_hooks = (struct pin_hooks){
		.walk_stack = pin_stacks_walk,
		.note_memory = pin_record_note,
		.pinned = &pin_state.pinned,
		.note_touched = pin_state_changed,
		.in_child = in_child,
		.note_registered = pin_record_note_counts,
		.note_armed = pin_userpool_preallocate,
		.notify_caches = pin_listeners_notify,
		.withdraw_keys = pin_domain_withdraw,
		.settle_foreign = pin_foreign_settle,
	};
	if (pin_options_help())
		_Exit(0);
	wanted = !fnmatch(pin_options.programs, program_invocation_short_name, 0);
	pin_state_init(heap_is_ours() && wanted);
	is_helper = pin_process_init(wanted);
	if (pin_report_wanted || pin_options.sample)
		pin_report_file_init();
	/* Loading libunwind takes as long as a small command of a script. */
	if (pin_options.sample ||
	    (pin_report_wanted && (!is_helper || pin_place_text(PIN_RANK))))
		pin_stacks_start();
	pin_report_init();
	pin_record_init();
	if (pin_report_wanted)
		at_quick_exit(report_at_end);
}
