/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The options, expanded from options.def, and the only code that reads the environment. It is
 * parsed once, in the first allocation, without allocating.
 */
#pragma once

#include "allocator/base.h"

/* In the order of PINALLOC_REGISTER's values. */
enum pin_mode { PIN_MODE_EAGER, PIN_MODE_LAZY, PIN_MODE_OFF };

/* In the order of PINALLOC_HUGEPAGE's values. */
enum pin_huge_kind {
	PIN_HUGE_DENSE,
	PIN_HUGE_SYSTEM,
	PIN_HUGE_THP,
	PIN_HUGE_TLB,
	PIN_HUGE_OFF
};

/* In the order of PINALLOC_WATCH's values. Code tests whether it is 0: off comes first. */
enum pin_watch { PIN_WATCH_OFF, PIN_WATCH_ON, PIN_WATCH_STRICT };

/* Bits of PINALLOC_ACCESS; regpool/ translates them to IBV_ACCESS_*. */
enum pin_access {
	PIN_ACCESS_LOCAL = 1,
	PIN_ACCESS_WRITE = 2,
	PIN_ACCESS_READ = 4,
	PIN_ACCESS_ATOMIC = 8,
	PIN_ACCESS_ALL = 15,
};

/*
 * The value of pin_options.max_pinned for "auto": a share of memory that regpool/budget.c
 * works out.
 */
#define PIN_PINNED_AUTO (SIZE_MAX - 1)

/* Constant after parsing. */
struct pin_options {
	int log;	    /* enum pin_log_level */
	const char *report; /* a path, "stderr", or "off"; less than PATH_MAX */
	size_t sample;	    /* bytes, 0 for off */
	int mode;	    /* enum pin_mode */
	unsigned access;    /* enum pin_access bits */
	int watch;	    /* enum pin_watch */
	size_t max_pinned;  /* bytes, SIZE_MAX for no cap, or PIN_PINNED_AUTO */
	size_t prealloc;    /* bytes */
	int huge;	    /* enum pin_huge_kind */
	const char *programs;
	size_t arena_max;
	size_t top_pad; /* bytes */
	size_t perturb;
};
extern struct pin_options pin_options;

/*
 * Parses the environment the first time there is one. A value that cannot be parsed, or a
 * PINALLOC_ name that is not in the table, is reported in one line, and the default stays.
 * Not thread-safe: called by pin_start_memory(), and again from the constructor, for then there
 * is an environment.
 */
void pin_options_init(void);

/*
 * Parses one option into pin_options, as if its variable were set to this text. Returns 0;
 * -EINVAL if the text is invalid, which changes nothing; -ENOENT if there is no option of
 * that name. Not thread-safe: for programs that read options before there is a heap.
 */
int pin_options_set(const char *name, const char *text);

/* How many ranks a launcher or batch system has started on this node, as it says; else 1. */
size_t pin_options_ranks(void);

/* Writes the table to standard output if PINALLOC_HELP asks for it. Returns whether it does. */
bool pin_options_help(void);

/*
 * The value of an environment variable that is not an option, such as a rank set by an MPI
 * launcher; NULL if it is unset, and always in a set-user-ID program. Async-signal-safe.
 */
const char *pin_environment(const char *name);

/*
 * Parses a size such as "0", "64M" or "1G": digits, then optionally one of K, M, G and T, and B
 * or iB behind it, in either case; at most PTRDIFF_MAX bytes, so that rounding up does not wrap
 * around. Returns 0 or -EINVAL; *n_bytes is written only on success.
 */
int pin_parse_size(const char *text, size_t *n_bytes);
