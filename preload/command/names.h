/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef CMD_NAMES_H
#define CMD_NAMES_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Finds the name of a frame that is a place, "/path/to/MODULE+0xOFFSET", in the forms of a
 * report: "NAME (FILE.c:LINE)" or "NAME (MODULE)". Returns false if the frame is not a place,
 * or the module is not on this host or has no name there.
 */
bool cmd_frame_name(const char *frame, char *name, size_t size);

#endif
