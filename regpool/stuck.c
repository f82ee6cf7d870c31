/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/stuck.h"
#include "allocator/file.h"
#include "allocator/log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

/*
 * The system call a thread sleeps in and its first argument, from /proc/pid/syscall, see
 * proc(5); -1 if it runs.
 */
static long call_of(pid_t thread, uintptr_t *argument)
{
	char path[64], text[160], *rest;
	long call;

	pin_format(path, sizeof path, "/proc/self/task/%d/syscall", thread);
	if (pin_file_read(path, text, sizeof text) <= 0)
		return -1;
	call = strtol(text, &rest, 10);
	if (rest == text)
		return -1;
	*argument = strtoul(rest, NULL, 16);
	return call;
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

pid_t pin_stuck_behind(pid_t thread)
{
	const pthread_mutex_t *mutex;
	uintptr_t argument = 0;

	if (call_of(thread, &argument) != SYS_futex)
		return 0;
	/* Another kind of lock may end with its page. */
	mutex = (const pthread_mutex_t *)argument;
	if (argument % PIN_PAGE > PIN_PAGE - sizeof *mutex)
		return 0;
	return awaits_reader(mutex->__data.__owner) ? mutex->__data.__owner : 0;
}
