/* SPDX-License-Identifier: BSD-2-Clause */
/* What a report holds, and its two forms. */
#ifndef PIN_REPORT_FORMAT_H
#define PIN_REPORT_FORMAT_H

#include "allocator/heap.h"
#include "preload/output.h"

#include <limits.h>
#include <sys/types.h>

struct pin_report {
	char host[HOST_NAME_MAX + 1];
	const char *program;
	pid_t pid;
	long rank, nranks; /* -1 outside an MPI job */
	uint64_t elapsed_ns;
	struct pin_heap_stats heap;
	uint32_t regions;
	size_t rss_peak;      /* bytes */
	size_t memlock_limit; /* bytes, SIZE_MAX for none */
};

/* Figures of the pool are read while writing; they are atomics. */
void pin_report_text(const struct pin_report *report, struct pin_output *out);

/* Schema 1, described in pinalloc(7). */
void pin_report_json(const struct pin_report *report, struct pin_output *out);

#endif
