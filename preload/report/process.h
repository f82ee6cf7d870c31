/* SPDX-License-Identifier: BSD-2-Clause */
/* Which process this is, and whether it is one that reports. */
#pragma once

#include "preload/report/collect.h"

/* Whether PINALLOC_REPORT asks this program for a report. Set by pin_process_init(). */
extern bool pin_report_wanted;

/*
 * Notes which process this is and when it began. `wanted` is false if PINALLOC_PROGRAMS leaves
 * the program out: then it writes no report by itself. Returns whether it may report and is a
 * helper.
 */
bool pin_process_init(bool wanted);

/* In a child, from its handler of fork(). */
void pin_process_begin_anew(void);

/* Whether this is that process, or a child that was forked; not one of vfork() or clone(). */
bool pin_process_is_ours(void);

/* The process that has forked this one, which has not executed a program since; else 0. */
pid_t pin_process_parent(void);

/*
 * When the process began, which may have executed other programs before this one, in
 * nanoseconds since 1970.
 */
uint64_t pin_process_began(void);

/* Whether it has asked for registrations; not its parent before it was forked. */
bool pin_process_has_registered(void);

/* A forked child reports if it has held more. */
#define PIN_CHILD_MUCH (16 * PIN_MIB)

/*
 * Whether this process is to report. A forked child, and the helper of a script, whose parent
 * has the library and the same rank, report only if they have registered memory or held much,
 * without what the parent had. A helper reports if each process has a path of its own (%p),
 * too. All functions are async-signal-safe.
 */
bool pin_process_is_due(void);

/* Fills in host, program, process, rank and job. */
void pin_process_identify(struct pin_report *report);
