/* SPDX-License-Identifier: BSD-2-Clause */
/* The figures of a report, expanded from figures.def, for the library and the command. */
#pragma once

enum pin_figure_flags {
	PIN_OPTIONAL = 1,   /* may be absent from an older report, or null */
	PIN_PROPERTY = 2,   /* a sum of it would mean nothing */
	PIN_IN_SECONDS = 4, /* kept in nanoseconds by the library */
	PIN_COUNTED = 8,    /* taken at any time */
	PIN_AT_RECORD = 16, /* taken for a record or a report */
	PIN_AT_REPORT = 32, /* taken for a report only */
	/* A limit of the process, or a figure of its control group or machine. */
	PIN_AROUND = PIN_OPTIONAL | PIN_PROPERTY | PIN_AT_RECORD,
};

enum pin_figure {
#define FIGURE(name, ...) PIN_FIGURE_##name,
#include "preload/figures.def"
#undef FIGURE
	PIN_FIGURES
};

struct pin_figure_key {
	const char *section, *key;
	unsigned flags; /* enum pin_figure_flags */
};
extern const struct pin_figure_key pin_figures[PIN_FIGURES];

/*
 * What is said of a phase of the program: when it began first, ended last, and had most in use;
 * sums over all its parts; what was pinned at the end of a part at most, and the most in use.
 */
enum pin_phase_figure {
	PIN_PHASE_BEGAN,
	PIN_PHASE_ENDED,
	PIN_PHASE_PEAK_AT,
	PIN_PHASE_TIME,
	PIN_PHASE_GROWN,
	PIN_PHASE_CREATED,
	PIN_PHASE_AHEAD,
	PIN_PHASE_PINNED,
	PIN_PHASE_PEAK,
	PIN_PHASE_FIGURES
};
extern const char *const pin_phase_keys[PIN_PHASE_FIGURES];
