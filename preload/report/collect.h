/* SPDX-License-Identifier: BSD-2-Clause */
/* What a report says, taken from the process, and the forms it can be written in. */
#pragma once

#include "allocator/cgroup.h"
#include "allocator/live.h"
#include "allocator/log.h"
#include "allocator/sites.h"
#include "allocator/timeline.h"
#include "preload/figures.h"
#include "preload/report/rank.h"
#include "regpool/state.h"

#include <limits.h>
#include <sys/types.h>

/* Stacks in a report: the largest ones. */
#define PIN_REPORT_SITES 20

/* A part of the program's life, by its name (pinalloc_mark()); if it comes again, all such
 * parts. */
#define PIN_PHASES     64
#define PIN_PHASE_NAME 48

struct pin_phase {
	char name[PIN_PHASE_NAME];
	int64_t of[PIN_PHASE_FIGURES]; /* times by pin_os_now_ns() */
};

struct pin_report {
	char host[HOST_NAME_MAX + 1];
	const char *program;
	const char *trigger; /* what it is written for: "at exit" */
	char job[PIN_JOB_ID];
	uint64_t started; /* since 1970, in milliseconds */
	uint64_t ticks;	  /* the process's start time in proc(5); 0: not known */
	uint64_t leader_ticks;
	pid_t pid, parent; /* 0: it was not forked */
	pid_t leader;	   /* the process that began the rank; 0: this one */
	long rank, nranks; /* -1 outside an MPI job */
	uint64_t began_ns, elapsed_ns;
	int64_t figures[PIN_FIGURES]; /* in bytes, nanoseconds and numbers; -1: not known */
	size_t n_sites, n_moments, n_phases;
	struct pin_report_site {
		size_t bytes, count;
		void *const *frames; /* innermost first, without the library's */
		size_t n_frames;
	} sites[PIN_REPORT_SITES];
	struct pin_moment moments[PIN_TIMELINE_MOMENTS + 2]; /* with the peak, and now */
	/* The first is what is no phase, and the last all beyond so many. */
	struct pin_phase phases[PIN_PHASES + 2];
	struct pin_cgroup cgroup; /* for the figures, as they are taken */
};

/* In a child: what is counted now is its parent's. */
void pin_report_base_figures(void);

/* The most that was in the program's blocks beside what its parent had. Async-signal-safe. */
size_t pin_report_peak_beside(void);

/*
 * Ends the phase that goes on, and begins this one; none if its name is NULL or empty. Returns
 * -ENOSPC if it counts with those beyond PIN_PHASES, else 0. Thread-safe, never allocates.
 */
int pin_report_mark(const char *phase);

/* In a child, from its handler of fork(): there are none. */
void pin_report_forget_phases(void);

/* How many phases there are, with the first, which is none. */
extern _Atomic size_t pin_report_n_phases;

/* Requests with this outcome, beside its parent's. */
uint64_t pin_report_requests(enum pin_reason reason);

/*
 * Fills in what changes while the process runs: of the figures those of PIN_COUNTED,
 * PIN_AT_RECORD and PIN_AT_REPORT in `when`; the timeline, the phases and the sites.
 */
void pin_report_collect(struct pin_report *report, unsigned when);

/* The form for programs: schema 3, described in pinalloc(7). */
void pin_report_json(const struct pin_report *report, struct pin_output *out);
