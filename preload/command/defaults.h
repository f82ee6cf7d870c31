/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The options, as the command has them; and the site's defaults for them: a file of lines
 * NAME=VALUE that `pinalloc run` and `pinalloc check` read. The library does not, because every
 * process that starts would have to look for it.
 */
#ifndef CMD_DEFAULTS_H
#define CMD_DEFAULTS_H

#include "allocator/base.h"

#include <limits.h>

/* The rows of options.def. */
extern const struct cmd_option {
	const char *name, *initial, *values, *doc;
} cmd_options[];

enum {
#define OPTION(field, ...) CMD_OPTION_##field,
#include "allocator/options.def"
	CMD_N_OPTIONS
};

/* The row of that name, or CMD_N_OPTIONS. */
size_t cmd_option_find(const char *name);

/* A line of the file. */
struct cmd_default {
	char place[PATH_MAX + 32]; /* the path, with the number of the line behind it */
	const char *name, *value;  /* of an option; NULL if the line does not hold */
	char finding[512];	   /* what is wrong with it, or "" */
	const char *cure;
};

/* Where the file is. In a static buffer. */
const char *cmd_defaults_path(void);

/*
 * Reads the file, if there is one, and tells of each line but empty ones and comments, and of
 * the file itself if it cannot be read. Values are checked, by pin_options_set(). What is told
 * is gone when tell() returns.
 */
void cmd_defaults_read(void (*tell)(const struct cmd_default *it));

#endif
