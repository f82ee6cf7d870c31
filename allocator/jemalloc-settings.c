/* SPDX-License-Identifier: BSD-2-Clause */
/* What jemalloc is told by settings, and what it asks of the system when it starts. */
#include <config.h>

#include "allocator/jemalloc.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/start.h"

#include <string.h>

/*
 * Without "retain" and decay times jemalloc gives back at once what it does not need
 * (jemalloc.c).
 *   oversize_threshold       no separate arena for large blocks
 *   background_thread, hpa   features that return memory
 *   san_guard_*              inaccessible pages between blocks cannot be pinned
 *   prof                     blocks are sampled where they are handed out (sample.c)
 *   percpu_arena             5.2.1 does not notice that the number of a processor may be larger
 *                            than how many there are
 *   tcache_max               large blocks are ours
 *   slab_sizes               fewer blocks to a slab are free together sooner, so that others
 *                            get its pages: of phases of other sizes each (bench/allocators,
 *                            phases-bands) 2.2 times live memory stays, with jemalloc's 2.7;
 *                            and more where a slab has one or two blocks, as of 2, 4 and 8 KiB:
 *                            nearly each malloc would make a slab (cross-thread: 1.6 times as
 *                            long)
 *   tcache_nslots_*          caches hold more than jemalloc's by default: measured to be best
 *                            (bench/allocators)
 */
#define GIVE_BACK                                                              \
	"retain:false,dirty_decay_ms:0,muzzy_decay_ms:0,oversize_threshold:0," \
	"dss:disabled,background_thread:false,percpu_arena:disabled,"          \
	"slab_sizes:80-96:1|160-768:1|896-896:2|1280-1280:1|1536-1792:2|"      \
	"2048-2048:4|4096-4096:8|8192-8192:8" JE_SETTINGS

/*
 * jemalloc takes its settings from here, from the target of a link, and from a variable, in
 * this order; the latter two it asks of the functions below. It is local (pinalloc.map): an
 * older jemalloc that a program is linked with would complain of keys that it does not know.
 */
const char *malloc_conf = GIVE_BACK;

/*
 * What a user has set, by MALLOC_ARENA_MAX and then by MALLOC_CONF, where jemalloc asks for the
 * target of a link. jemalloc makes a text of it that ends behind what this returns; a program
 * can begin with a call that starts jemalloc, and not the heap. Needs little stack.
 */
ssize_t pin_settings_of_user(const char *path, char *buf, size_t size)
{
	const char *text = pin_environment("MALLOC_CONF");
	char arenas[32] = "";

	(void)path;
	pin_start_memory();
	if (!text && !pin_options.arena_max && !pin_options.perturb)
		return -1;
	if (pin_options.arena_max)
		pin_format(arenas, sizeof arenas, ",narenas:%zu", pin_options.arena_max);
	return (ssize_t)pin_format(buf, size, "retain:false%s%s%s%s", arenas,
				   pin_options.perturb ? ",junk:true" : "",
				   text && *text ? "," : "", text ? text : "");
}

/* And this last, so that no user setting makes the heap larger than it need be. */
char *pin_settings_last(const char *name)
{
	static char settings[] = GIVE_BACK;

	(void)name;
	return settings;
}

/*
 * jemalloc looks at the processors that are set, whatever this returns: where it fails, they
 * are eight, which makes 32 arenas.
 */
int pin_settings_processors(pid_t pid, size_t size, cpu_set_t *set)
{
	memset(set, 0, size);
	if (!sched_getaffinity(pid, size, set))
		return 0;
	memset(set, 0xff, 1);
	return -1;
}

/* jemalloc 5.2.1 asks for the processors by sysconf(3), which opens files. */
long pin_settings_sysconf(int name)
{
	cpu_set_t set;

	if (name != _SC_NPROCESSORS_ONLN)
		return sysconf(name);
	pin_settings_processors(0, sizeof set, &set);
	return CPU_COUNT(&set);
}

/*
 * Nothing would come of writing the others: hooks would get memory that is not the heap, decay
 * times would keep free pages from large blocks, and what the profiler is told goes nowhere.
 */
static bool is_followed(const size_t *mib, size_t length)
{
	static const char *const names[] = {
		"epoch",	"thread.arena",	  "thread.tcache.enabled",
		"tcache.flush", "tcache.destroy", "arenas.lookup"};
	size_t known[8], n = 8;

	for (size_t i = 0; i < PIN_ARRAY_SIZE(names); i++, n = 8)
		if (!pin_je_mallctlnametomib(names[i], known, &n) && n == length &&
		    !memcmp(mib, known, n * sizeof *mib))
			return true;
	return false;
}

int pin_settings_by_mib(const size_t *mib, size_t length, void *old, size_t *old_size,
			void *value, size_t size)
{
	if (value && !is_followed(mib, length))
		return EPERM;
	return pin_je_mallctlbymib(mib, length, old, old_size, value, size);
}
