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

/* Indexed by thread id modulo MOST. */
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

/*
 * Reads /proc/pid/syscall, see proc(5): the system call the thread sleeps in and its arguments,
 * or "running".
 */
static bool find_madvise(pid_t caller, struct pin_pages *pages)
{
	char path[64], text[160], *rest;

	pin_format(path, sizeof path, "/proc/self/task/%d/syscall", caller);
	if (pin_file_read(path, text, sizeof text) <= 0 ||
	    strtoul(text, &rest, 10) != SYS_madvise || rest == text)
		return false;
	pages->start = strtoul(rest, &rest, 16);
	pages->end = pages->start + strtoul(rest, &rest, 16);
	return true;
}

struct pin_discarder pin_callers_discarding(void)
{
	struct pin_discarder found = {0, {0, 0}};

	for (int i = 0; i < MOST; i++) {
		pid_t caller = atomic_load_explicit(&callers[i], memory_order_relaxed);

		if (caller && find_madvise(caller, &found.pages)) {
			found.thread = caller;
			break;
		}
	}
	return found;
}
