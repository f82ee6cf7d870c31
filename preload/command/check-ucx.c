/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The UCX of this host, as far as its settings depend on its version. Since 1.16 it has one
 * cache of registrations, UCX_RCACHE_*, in UCP. Before, that of its InfiniBand part,
 * UCX_IB_REG_METHODS and UCX_IB_RCACHE_*, caches whatever UCP's does.
 */
#include <config.h>

#include "preload/command/check.h"
#include "preload/conflicts.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#define ONE_CACHE_SINCE 16 /* UCX 1.16 */

enum { NO_UCX, LATER_UCX = 255 };

/* Ends with the minor version, which all agree on that the major one is 1. */
static _Noreturn void become_probe(void)
{
	void (*ask)(unsigned *, unsigned *, unsigned *);
	unsigned major = 0, minor = NO_UCX, release;
	int null = open("/dev/null", O_RDWR);
	void *ucp;

	dup2(null, STDOUT_FILENO);
	dup2(null, STDERR_FILENO);
	ucp = dlopen("libucp.so.0", RTLD_LAZY);
	*(void **)&ask = ucp ? dlsym(ucp, "ucp_get_version") : NULL;
	if (ask)
		ask(&major, &minor, &release);
	_exit(major > 1 ? LATER_UCX : (int)minor);
}

/* In a process of its own, because UCX installs signal handlers when it is loaded. */
static int ask_version(void)
{
	pid_t child = fork();
	int status;

	if (!child)
		become_probe();
	return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status)
		       ? WEXITSTATUS(status)
		       : NO_UCX;
}

/* The minor version of the UCX that programs of this shell load. */
static int version(void)
{
	static int known = -1;

	if (known < 0)
		known = ask_version();
	return known;
}

bool cmd_check_ucx_has_one_cache(void)
{
	return version() >= ONE_CACHE_SINCE;
}

bool cmd_check_ucx_has_two_caches(void)
{
	return version() != NO_UCX && version() < ONE_CACHE_SINCE;
}

/* Without UCX here, any switch counts. */
bool cmd_check_ucx_caches(void)
{
	const char *methods = getenv("UCX_IB_REG_METHODS");
	bool ucp_is_off = pin_ucx_is_off(getenv("UCX_RCACHE_ENABLE"));
	bool ib_is_off = methods && *methods && !strcasestr(methods, "rcache");

	return !(ib_is_off && !cmd_check_ucx_has_one_cache()) &&
	       !(ucp_is_off && !cmd_check_ucx_has_two_caches());
}
