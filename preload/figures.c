/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/figures.h"

const struct pin_figure_key pin_figures[PIN_FIGURES] = {
#define FIGURE(name, section, key, flags, label, ...) \
	[PIN_FIGURE_##name] = {#section, #key, label, (flags)},
#include "preload/figures.def"
#undef FIGURE
};
