/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/conflicts.h"
#include "allocator/heap.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/reserve.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <strings.h>

/* The object a function is in: another preload, or the program itself. */
static const struct link_map *home_of(void *function)
{
	struct link_map *map = NULL;
	Dl_info info;

	return dladdr1(function, &info, (void **)&map, RTLD_DL_LINKMAP) ? map : NULL;
}

static void say_whose(const struct link_map *home)
{
	if (home && !home->l_name[0])
		pin_warn("the program has a malloc of its own: its heap is not ours and is "
			 "not registered; link it without that malloc");
	else
		pin_warn("malloc is answered by %s: the heap is not ours and is not "
			 "registered; put libpinalloc.so first in LD_PRELOAD",
			 home ? home->l_name : "?");
}

/* It redirects calls, where the loader's tables do not show it. */
static bool is_under_valgrind(void)
{
	const char *preloads = pin_environment("LD_PRELOAD");

	return preloads && strstr(preloads, "/vgpreload_");
}

/*
 * The promise stands on the first page having come from the reserve. If it did
 * not, either another allocator is in front of this one, which the user can cure,
 * or the page layer was not linked in, which must not go unnoticed.
 */
static void say_foreign(void)
{
	const struct link_map *home = home_of(dlsym(RTLD_DEFAULT, "malloc"));

	if (is_under_valgrind())
		pin_warn("valgrind answers malloc, so the heap is not this library's: run it "
			 "with "
			 "--soname-synonyms=somalloc=nouserintercepts");
	else if (home == home_of((void *)pin_conflicts_heap_is_ours))
		pin_fatal("malloc does not come from the reserved range: this build is broken");
	else
		say_whose(home);
}

bool pin_conflicts_heap_is_ours(void)
{
	switch (pin_heap_ask()) {
	case PIN_HEAP_OURS:
		return true;
	case PIN_HEAP_FOREIGN:
		say_foreign();
		return false;
	default:
		/* Nothing is reserved where another one is in front, or that was said. */
		if (pin_reserve.size)
			pin_error("malloc has no memory at the start: raise ulimit -v and "
				  "ulimit -d");
		return pin_reserve.size;
	}
}

static bool is_set(const char *name, const char *value)
{
	const char *text = pin_environment(name);

	return text && !strcasecmp(text, value);
}

/* As UCX reads a switch. */
static bool is_no(const char *name)
{
	return is_set(name, "n") || is_set(name, "no") || is_set(name, "0");
}

static bool has_loaded(const char *name)
{
	void *handle = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);

	if (handle)
		dlclose(handle);
	return handle;
}

/*
 * In this mode UCX puts a malloc of its own in the place of everybody's, unless
 * something else tells it of unmapped memory, as Open MPI does: ucm_malloc_install(),
 * of UCX 1.13, which then waits for its own lock for ever, with glibc's malloc as well.
 */
void pin_conflicts_say_settings(void)
{
	if (is_set("UCX_MEM_MMAP_HOOK_MODE", "reloc") && !is_no("UCX_MEM_MALLOC_RELOC") &&
	    has_loaded("libucm.so.0"))
		pin_warn_once("UCX_MEM_MMAP_HOOK_MODE=reloc lets UCX replace malloc with its "
			      "own, which is not registered and hangs in UCX 1.13: unset it, "
			      "or set UCX_MEM_MALLOC_RELOC=n");
}
