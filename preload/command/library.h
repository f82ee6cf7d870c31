/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where this installation is, found from the path of this command, so that it can be moved, or
 * tried under DESTDIR; and the environment that preloads its library.
 */
#ifndef CMD_LIBRARY_H
#define CMD_LIBRARY_H

#include "allocator/base.h"

#include <limits.h>

#define CMD_LIBRARY_NAME "libpinalloc.so"

/* A path of this command's file: without /proc, the one that it was started by. */
const char *cmd_library_own(void);

/*
 * A directory of the installation, such as LIBDIR: in the same place relative to this command
 * as when it was installed. With symbolic links followed if it is there.
 */
void cmd_library_place(const char *installed, char directory[PATH_MAX]);

/*
 * Finds the library that belongs to this command: next to it in the build tree, in its place
 * relative to it, or in libdir. Returns NULL, or for one line why it cannot be used, and the
 * cure; if there is none, path holds the last place tried. ld.so splits LD_PRELOAD at spaces
 * and colons.
 */
const char *cmd_library_find(char path[PATH_MAX]);

/*
 * Puts the library first in LD_PRELOAD, for the programs this process starts, and removes other
 * copies of it there.
 */
void cmd_library_preload(const char *library);

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

#endif
