/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The handler only wakes a thread, which can do what a handler cannot. In a forked
 * child, which has no such thread, it does nothing; a child of vfork() would wake its
 * parent's.
 */
#include <config.h>

#include "preload/report/request.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "preload/next.h"
#include "preload/report/report.h"
#include "regpool/thread.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static _Atomic uint32_t requests;
static pid_t process;

static void on_request(int sig)
{
	(void)sig;
	if (getpid() != process)
		return;
	atomic_fetch_add(&requests, 1);
	pin_os_wake(&requests);
}

static void *run(void *unused)
{
	static const struct pin_occasion occasion = {.name = "on request"};
	uint32_t done = 0;

	for (;;) {
		uint32_t seen = atomic_load(&requests);

		if (seen != done)
			pin_report_due(&occasion);
		done = seen;
		pin_os_wait(&requests, seen);
	}
	return unused;
}

static int start(void)
{
	struct sigaction action = {.sa_handler = on_request, .sa_flags = SA_RESTART};
	int error = pin_thread_start(run, NULL, "pinalloc-report");

	process = getpid();
	if (!error && PIN_NEXT(sigaction)(pin_options.report_signal, &action, NULL))
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
	error = start();
	if (error)
		pin_warn("PINALLOC_REPORT_SIGNAL has no effect: %s", strerrordesc_np(error));
}
