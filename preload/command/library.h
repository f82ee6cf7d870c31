/* SPDX-License-Identifier: BSD-2-Clause */
/* Where libpinalloc.so is, and the LD_PRELOAD that puts it in front. */
#ifndef PIN_LIBRARY_H
#define PIN_LIBRARY_H

#include "allocator/base.h"

#include <limits.h>

#define PIN_LIBRARY_NAME "libpinalloc.so"

/*
 * Finds the library that belongs to this command: beside it in the build tree, in
 * the same place relative to it as when it was installed, or in libdir. On failure
 * path holds the last place looked at. Returns 0; -ENOENT; or -EINVAL when the path
 * has a space or a colon, at which LD_PRELOAD would be split.
 */
int pin_library_find(char path[PATH_MAX]);

/* Why pin_library_find() failed, with the cure, for one line. */
const char *pin_library_complaint(int error);

/*
 * Sets LD_PRELOAD of this process, for the programs it starts: the library, then
 * what was there, without any other copy of the library. Returns 0 or -ENOMEM.
 */
int pin_library_preload(const char *library);

/*
 * The name, without its directory, of the LD_PRELOAD entry at *at, which is moved
 * behind it; NULL at the end. *length is that of the name.
 */
const char *pin_library_next(const char **at, size_t *length);

#endif
