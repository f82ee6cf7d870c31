/* SPDX-License-Identifier: BSD-2-Clause */
/* Where this installation is: its directories, found from the path of this command. */
#ifndef CMD_PLACE_H
#define CMD_PLACE_H

#include "allocator/base.h"

#include <limits.h>

/* The directory of this command, with symbolic links followed; "." if it cannot be read. */
void cmd_place_own(char directory[PATH_MAX]);

/*
 * A directory of the installation, such as LIBDIR: in the same place relative to this command
 * as when it was installed, so that an installation can be moved, or tried under DESTDIR. With
 * symbolic links followed if it is there.
 */
void cmd_place_find(const char *installed, char directory[PATH_MAX]);

#endif
