/* SPDX-License-Identifier: BSD-2-Clause */
#pragma once

#include <stdbool.h>

/*
 * From the constructor, after pin_process_init(), before the program can close a descriptor.
 * Logs one line if the report cannot be written to where PINALLOC_REPORT leads.
 */
void pin_report_init(void);

/*
 * Writes the report to where PINALLOC_REPORT says, unless this is a helper, or a child, without
 * much memory of its own (process.h). Where another process has written a report since this one
 * began, a number is added to the path, which one line says.
 *
 * The program ends: no other report is begun. Returns whether there is nothing left to write.
 * Leaves errno alone. Must not be called from inside malloc, except by a handler that ends the
 * program.
 */
bool pin_report_write_if_due(void);

/*
 * Writes the report to a path in the form PINALLOC_REPORT takes. A file appears whole or not at
 * all, in place of another. Returns 0 or -errno; -EBUSY if another thread has been writing one
 * for ten seconds, a handler has interrupted its writing, or the last one has been written.
 * Must not be called from inside malloc.
 */
int pin_report_write(const char *path);
