/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef CMD_GNUPLOT_H
#define CMD_GNUPLOT_H

#include <stdio.h>

/*
 * Runs gnuplot on a script that draws to standard output, and puts that into the file, whole or
 * not at all. Returns 0, or -1 after a line that says why not.
 */
int cmd_gnuplot_run(FILE *script, const char *path);

#endif
