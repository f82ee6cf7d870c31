/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds libpinalloc.so, and sets LD_PRELOAD. */
#ifndef CMD_LIBRARY_H
#define CMD_LIBRARY_H

#include "allocator/base.h"

#include <limits.h>

#define CMD_LIBRARY_NAME "libpinalloc.so"

/*
 * Finds the library that belongs to this command: next to it in the build tree, in the same
 * place relative to it as when it was installed, or in libdir. If there is none, path holds the
 * last place tried. Returns 0; -ENOENT; or -EINVAL if the path has a space or a colon, at which
 * ld.so splits LD_PRELOAD.
 */
int cmd_library_find(char path[PATH_MAX]);

/* For one line: why cmd_library_find() failed, and the cure. */
const char *cmd_library_complaint(int error);

/*
 * Puts the library first in LD_PRELOAD, for the programs this process starts, and removes other
 * copies of it there. Returns 0 or -ENOMEM.
 */
int cmd_library_preload(const char *library);

/*
 * With an audit library (rtld-audit(7)) ld.so makes room for thread-local storage before it has
 * loaded what LD_PRELOAD names, and too little for this library: no program starts. These words
 * are in what it says then; this setting is the cure.
 */
#define CMD_LIBRARY_NO_ROOM "cannot allocate memory in static TLS block"
#define CMD_LIBRARY_ROOM    "glibc.rtld.optional_static_tls=8192"

/*
 * If there is an audit library, makes GLIBC_TUNABLES have that setting, unless it has one of
 * that name, for the programs this process starts. Returns its value if it was changed, else
 * NULL.
 */
const char *cmd_library_make_room(void);

/*
 * The name, without its directory, of the entry of LD_PRELOAD at *at, and its length; NULL at
 * the end. Moves *at behind the entry.
 */
const char *cmd_library_next(const char **at, size_t *length);

#endif
