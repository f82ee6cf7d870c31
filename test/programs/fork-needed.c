/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Preloaded after the library: makes it believe that the kernel is older than 5.12 and does not
 * copy pinned pages at fork(). The library finds the verbs with dlvsym(); for two names it gets
 * functions of this file, which return what libibverbs returns on such a kernel. Everything
 * else is real.
 */
#include <config.h>

#include "regpool/ibverbs.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool initialized;
static __typeof__(&ibv_fork_init) real_fork_init;

static enum ibv_fork_status is_fork_initialized(void)
{
	return initialized ? IBV_FORK_ENABLED : IBV_FORK_DISABLED;
}

static int fork_init(void)
{
	int error = real_fork_init();

	initialized |= !error;
	return error;
}

/* Not static, so that it is found in place of the C library's. */
__attribute__((visibility("default"))) void *dlvsym(void *handle, const char *name,
						    const char *version)
{
	static void *(*next)(void *, const char *, const char *);
	void *found;

	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "dlvsym");
	if (!next)
		abort();
	found = next(handle, name, version);
	if (!strcmp(name, "ibv_is_fork_initialized"))
		return (void *)is_fork_initialized;
	if (strcmp(name, "ibv_fork_init") || !found)
		return found;
	*(void **)&real_fork_init = found;
	return (void *)fork_init;
}
