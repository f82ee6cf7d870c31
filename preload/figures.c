/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/figures.h"

uint32_t pin_figures_hash(void)
{
	uint32_t hash = PIN_FIGURES;

	for (int i = 0; i < PIN_FIGURES; i++)
		for (const char *c = pin_figures[i].key; *c; c++)
			hash = (hash ^ (uint8_t)*c) * 0x01000193;
	return hash;
}

const struct pin_figure_key pin_figures[PIN_FIGURES] = {
#define FIGURE(name, section, key, flags, ...) [PIN_FIGURE_##name] = {#section, #key, (flags)},
#include "preload/figures.def"
#undef FIGURE
};
