/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The program `pinalloc`: its subcommands, and what they share. An ordinary program, which does
 * not link the library but has its options, its log and its verbs table. Its own names begin
 * with cmd_.
 */
#pragma once

#include "allocator/base.h"

#include <jansson.h>
#include <limits.h>

/* --- common.c -------------------------------------------------------------------- */

/* Exit statuses: the command failed; and wrong usage, EX_USAGE of sysexits.h. */
#define CMD_FAILED 2
#define CMD_USAGE  64

/* The subcommands; argv[0] is the subcommand's name. They return the exit status. */
int cmd_report(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_check(int argc, char **argv);

/* For check, which runs this command under the library: whether malloc is of its argument. */
#define CMD_PROBE "--malloc-is-of"
int cmd_probe(int argc, char **argv);

/* "pinalloc SUBCOMMAND", once that is known. */
extern const char *cmd_name;

/* Prints "pinalloc SUBCOMMAND: …" to standard error, cleaned. No newline in the format. */
void cmd_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * Replaces control characters, and bytes that are not UTF-8, by question marks, in place: a
 * terminal must not obey a file or its name, and a line must stay one. Returns the text.
 */
char *cmd_clean(char *text);

/* realloc() and strdup() that never return NULL: they end the program with one line. */
void *cmd_realloc(void *old, size_t n_bytes) __attribute__((warn_unused_result));
char *cmd_strdup(const char *text) __attribute__((warn_unused_result));

/* Prints that line, and ends the program. */
_Noreturn void cmd_no_memory(void);

/* Whether a text has this end, with something before it. */
bool cmd_ends_in(const char *text, const char *end);

/* A short text, returned by value. */
struct cmd_text {
	char text[96];
};

/* A number with its noun, as "1 rank" and "2 processes". */
struct cmd_text cmd_counted(double n, const char *noun);
#define CMD_COUNTED(n, noun) (cmd_counted((double)(n), noun).text)

/* A size as the library writes it; "-" below 0, which stands for unknown. */
struct cmd_text cmd_size(double n_bytes);
#define CMD_SIZE(n) (cmd_size(n).text)

/*
 * At most so many bytes of a text, 8 to 90: of a longer one dots replace the middle. Quotes
 * become others, which gnuplot leaves alone.
 */
struct cmd_text cmd_shortened(const char *from, size_t most);
#define CMD_SHORTENED(from, most) (cmd_shortened(from, most).text)

/*
 * Runs a function in a child, which it may change, hold up or end, and keeps the beginning of
 * what it prints, errors included, as one text. The child ends when the function returns, or
 * after half a minute. Returns its wait status, or -1 if there is none, which the text says.
 */
int cmd_try(void (*run)(const void *arg), const void *arg, char *text, size_t size);

/* --- run.c ------------------------------------------------------------------------- */

/*
 * Reads the command line of run or check, whose usage has `args`: sets the variables that its
 * options stand for. Returns the command with its arguments, or NULL. Ends the program on a
 * wrong one.
 */
char **cmd_command_line(int argc, char **argv, const char *args, const char *doc);

/* --- library.c ------------------------------------------------------------------- */

#define CMD_LIBRARY_NAME "libpinalloc.so"

/* The path of this command; NULL if it cannot be found. */
char *cmd_own_path(char path[PATH_MAX]);

/*
 * Finds a file of this installation, which may have been moved or be under DESTDIR: in the
 * build tree at `built`/`name`, else at `installed`/`name`, both relative to this command.
 * Returns false if it is in neither; then path holds the last place tried.
 */
bool cmd_find(char path[PATH_MAX], const char *built, const char *installed, const char *name);

/* Finds the library. Returns NULL, or for one line why it cannot be used, and the cure. */
const char *cmd_library_find(char path[PATH_MAX]);

/*
 * Puts the library first in LD_PRELOAD, for the programs this process starts, and removes other
 * copies of it there. NULL only removes them.
 */
void cmd_library_preload(const char *library);

/* Finds a command as execvp(3) does. Returns 0 or -errno, as exec would fail. */
int cmd_program_find(const char *command, char path[PATH_MAX]);

struct cmd_program {
	char finding[PATH_MAX + 256]; /* the path, and what is wrong with it */
	const char *cure;
	bool is_sanitized; /* the library must not be preloaded */
};

/*
 * Asks the loader about a program, which is not run.
 * Returns 0 if a preload should work; otherwise fills in `program` and returns 1 if the library
 * is of no use in it, or -errno if it cannot be read.
 */
int cmd_program_look(const char *path, struct cmd_program *program);
