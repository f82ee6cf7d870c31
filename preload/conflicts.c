/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/conflicts.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/reserve.h"
#include "preload/report/stacks.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

/* The object that has a function: another preload, or the program itself. */
static const struct link_map *object_of(void *function)
{
	struct link_map *map = NULL;
	Dl_info info;

	return dladdr1(function, &info, (void **)&map, RTLD_DL_LINKMAP) ? map : NULL;
}

static void warn_of_owner(const struct link_map *owner)
{
	if (owner && !owner->l_name[0])
		pin_warn("the program has a malloc of its own: its heap is not this library's "
			 "and is "
			 "not registered; link the program without that malloc");
	else
		pin_warn(PIN_SAYS_FOREIGN "%s: the heap is not this library's and is not "
					  "registered; put libpinalloc.so first in LD_PRELOAD",
			 owner ? owner->l_name : "?");
}

/* Volatile, or compilers know better: which calls are ours, and that none need be made. */
static bool answers_as_ours(void)
{
	void *volatile p = malloc(1);
	bool is_ours = pin_reserve_contains(p);

	free(p);
	return is_ours;
}

bool pin_conflicts_heap_is_ours(void)
{
	if (pin_stacks_ours((void *)malloc) || answers_as_ours())
		return true;
	warn_of_owner(object_of(dlsym(RTLD_DEFAULT, "malloc")));
	return false;
}

static bool is_loaded(const char *name)
{
	void *handle = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);

	if (handle)
		dlclose(handle);
	return handle;
}

/*
 * In this mode UCX replaces everybody's malloc with its own, unless something else tells it
 * about unmapped memory, as Open MPI does. In UCX 1.13 ucm_malloc_install() then waits for its
 * own lock for ever, with glibc's malloc as well.
 */
void pin_conflicts_check_settings(void)
{
	const char *mode = pin_environment("UCX_MEM_MMAP_HOOK_MODE");

	if (mode && !strcasecmp(mode, "reloc") &&
	    !pin_ucx_is_off(pin_environment("UCX_MEM_MALLOC_RELOC")) &&
	    is_loaded("libucm.so.0"))
		pin_warn_once("UCX_MEM_MMAP_HOOK_MODE=reloc " PIN_UCX_RELOC_FINDING
			      ": " PIN_UCX_RELOC_CURE);
}
