/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PIN_GNUPLOT_H
#define PIN_GNUPLOT_H

#include <stdio.h>

/*
 * Runs gnuplot on a script that draws to standard output, and puts that into the
 * file, whole or not at all. Returns 0, or -1 when a line has said why not.
 */
int pin_gnuplot_run(FILE *script, const char *path);

#endif
