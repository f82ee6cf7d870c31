/* SPDX-License-Identifier: BSD-2-Clause */
/* The figures of a report, expanded from figures.def, for the library and the command. */
#ifndef PIN_FIGURES_H
#define PIN_FIGURES_H

enum pin_figure_flags { PIN_OPTIONAL = 1, PIN_PROPERTY = 2, PIN_IN_SECONDS = 4 };

enum pin_figure {
#define FIGURE(name, section, key, flags, sentence) PIN_FIGURE_##name,
#include "preload/figures.def"
#undef FIGURE
	PIN_FIGURES
};

struct pin_figure_key {
	const char *section, *key;
	unsigned flags; /* enum pin_figure_flags */
};

#endif
