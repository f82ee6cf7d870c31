/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/callers.h"
#include "allocator/file.h"
#include "allocator/log.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* By the lowest bits of their numbers. */
#define MOST 8
static _Atomic pid_t callers[MOST];

pid_t pin_callers_note(void)
{
	static __thread pid_t own __attribute__((tls_model("initial-exec")));

	if (!own)
		own = gettid();
	atomic_store_explicit(&callers[own % MOST], own, memory_order_relaxed);
	return own;
}

/* proc(5), /proc/pid/syscall: the call it sleeps in and what it was given, or "running". */
static bool is_discarding(pid_t caller, uintptr_t *start, uintptr_t *end)
{
	char path[64], text[160], *rest;

	pin_format(path, sizeof path, "/proc/self/task/%d/syscall", caller);
	if (pin_file_read(path, text, sizeof text) <= 0 ||
	    strtoul(text, &rest, 10) != SYS_madvise || rest == text)
		return false;
	*start = strtoul(rest, &rest, 16);
	*end = *start + strtoul(rest, &rest, 16);
	return true;
}

pid_t pin_callers_discarding(uintptr_t *start, uintptr_t *end)
{
	for (int i = 0; i < MOST; i++) {
		pid_t caller = atomic_load_explicit(&callers[i], memory_order_relaxed);

		if (caller && is_discarding(caller, start, end))
			return caller;
	}
	return 0;
}
