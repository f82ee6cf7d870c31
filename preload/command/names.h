/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PIN_NAMES_H
#define PIN_NAMES_H

#include <stdbool.h>
#include <stddef.h>

/*
 * The name of a frame that is a place, "/path/to/MODULE+0xOFFSET", in the forms a report
 * has: "NAME (FILE.c:LINE)" or "NAME (MODULE)". Returns false when it is no place, or the
 * module is not here, or has no name there.
 */
bool pin_frame_name(const char *frame, char *name, size_t size);

#endif
