/* SPDX-License-Identifier: BSD-2-Clause */
/* Which process this is, and whether it is one that reports. */
#pragma once

#include "preload/report/collect.h"
#include "preload/report/report-file.h"

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

/* A process is of the family of its leader, or has one of its own, from when it began, and
 * other programs may have been executed before this one. */
struct pin_report_claim pin_process_claim(void);

/* Whether it has asked for registrations; not its parent before it was forked. */
bool pin_process_has_registered(void);

/* What a shell may hold before it executes a program. */
#define PIN_LITTLE (2 * PIN_MIB)

/*
 * Whether this process is to report. A minor one, which is a forked child or a helper, whose
 * parent has the library and the same rank, does so only if it has registered memory or held
 * more than a little, without what the parent had. A helper reports if each process has a path
 * of its own (%p), too. All functions are async-signal-safe.
 */
bool pin_process_is_due(void);

/* Fills in host, program, process, rank and job. */
void pin_process_identify(struct pin_report *report);
