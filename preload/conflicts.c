/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/conflicts.h"
#include "allocator/heap.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/reserve.h"

#include <dlfcn.h>
#include <link.h>
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

/*
 * The promise stands on the first page having come from the reserve. If it did
 * not, either another allocator is in front of this one, which the user can cure,
 * or the page layer was not linked in, which must not go unnoticed.
 */
bool pin_conflicts_heap_is_ours(void)
{
	const struct link_map *home;

	if (pin_heap_answers_malloc())
		return true;
	if (!pin_heap_has_memory()) {
		if (pin_reserve.size)
			pin_error("malloc has no memory: raise ulimit -v and ulimit -d");
		return false;
	}
	home = home_of(dlsym(RTLD_DEFAULT, "malloc"));
	if (home == home_of((void *)pin_conflicts_heap_is_ours))
		pin_fatal("malloc does not come from the reserved range: this build is broken");
	say_whose(home);
	return false;
}

static bool is_set(const char *name, const char *value)
{
	const char *text = pin_environment(name);

	return text && !strcasecmp(text, value);
}

/*
 * UCX then tries whether malloc gives memory back, to see whether it can watch it
 * (ucm_malloc_install(), UCX 1.13). Ours does not, so UCX puts its own in the place
 * of malloc in every loaded object.
 */
void pin_conflicts_say_settings(void)
{
	if (is_set("UCX_MEM_MMAP_HOOK_MODE", "reloc") && !is_set("UCX_MEM_MALLOC_RELOC", "n"))
		pin_warn_once("UCX_MEM_MMAP_HOOK_MODE=reloc makes UCX replace malloc with its "
			      "own, which is not registered: unset it, or set "
			      "UCX_MEM_MALLOC_RELOC=n");
}
