/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The signal handler only wakes a thread, which may do what a handler may not. In a child it
 * does nothing: a forked child has no such thread, a child of vfork() would wake its parent's.
 */
#include <config.h>

#include "preload/report/request.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "preload/report/process.h"
#include "preload/report/report.h"
#include "regpool/threads.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static _Atomic uint32_t requests;
static pid_t process;

static void wake_writer(int sig)
{
	(void)sig;
	if (getpid() != process)
		return;
	atomic_fetch_add(&requests, 1);
	pin_os_wake(&requests);
}

static void *write_requested(void *unused)
{
	uint32_t done = 0;

	for (;;) {
		uint32_t seen = atomic_load(&requests);

		if (seen != done)
			pin_report_write_if_due("on request", false);
		done = seen;
		pin_os_wait(&requests, seen);
	}
	return unused;
}

static int start_writer(void)
{
	struct sigaction action = {.sa_handler = wake_writer, .sa_flags = SA_RESTART};
	int error = pin_thread_start(write_requested, NULL, "pinalloc-report");

	process = getpid();
	if (!error && sigaction(pin_options.report_signal, &action, NULL))
		error = errno;
	return error;
}

void pin_request_init(void)
{
	int error;

	if (!pin_options.report_signal)
		return;
	if (!pin_report_wanted) {
		if (!strcmp(pin_options.report, "off"))
			pin_warn(
				"PINALLOC_REPORT_SIGNAL has no effect without PINALLOC_REPORT, "
				"which says where the report goes");
		return;
	}
	error = start_writer();
	if (error)
		pin_warn("PINALLOC_REPORT_SIGNAL has no effect: %s", strerrordesc_np(error));
}
