/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/callers.h"
#include "allocator/file.h"
#include "allocator/log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
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
 * The system call a thread sleeps in and its first two arguments, from /proc/pid/syscall, see
 * proc(5); -1 if it runs.
 */
static long call_of(pid_t thread, uintptr_t arguments[2])
{
	char path[64], text[160], *rest;
	long call;

	pin_format(path, sizeof path, "/proc/self/task/%d/syscall", thread);
	if (pin_file_read(path, text, sizeof text) <= 0)
		return -1;
	call = strtol(text, &rest, 10);
	if (rest == text)
		return -1;
	arguments[0] = strtoul(rest, &rest, 16);
	arguments[1] = strtoul(rest, &rest, 16);
	return call;
}

struct pin_discarder pin_callers_discarding(void)
{
	uintptr_t arguments[2];

	for (int i = 0; i < MOST; i++) {
		pid_t caller = atomic_load_explicit(&callers[i], memory_order_relaxed);

		if (caller && call_of(caller, arguments) == SYS_madvise)
			return (struct pin_discarder){
				caller, {arguments[0], arguments[0] + arguments[1]}};
	}
	return (struct pin_discarder){0, {0, 0}};
}

/* By the kernel's function it sleeps in: userfaultfd_event_wait_completion(). */
static bool awaits_reader(pid_t thread)
{
	static const char expected[] = "userfaultfd_event";
	char path[64], text[64];

	pin_format(path, sizeof path, "/proc/self/task/%d/wchan", thread);
	return pin_file_read(path, text, sizeof text) > 0 &&
	       !strncmp(text, expected, sizeof expected - 1);
}

pid_t pin_callers_behind(pid_t thread)
{
	const pthread_mutex_t *mutex;
	uintptr_t arguments[2];

	if (call_of(thread, arguments) != SYS_futex)
		return 0;
	/* Another kind of lock may end with its page. */
	mutex = (const pthread_mutex_t *)arguments[0];
	if (arguments[0] % PIN_PAGE > PIN_PAGE - sizeof *mutex)
		return 0;
	return awaits_reader(mutex->__data.__owner) ? mutex->__data.__owner : 0;
}
