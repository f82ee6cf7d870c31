/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The program `pinalloc`: its subcommands, and what they share. An ordinary program, which does
 * not link the library but has its options, its log and its verbs table. What is its own begins
 * with cmd_.
 *
 *   report   report.c: options; load.c: reads one file, running.c a record, with rank.c, and
 *            names.c for stacks; job.c and sites.c: merge them; text.c with table.c, json.c,
 *            plot.c with gnuplot.c: the forms of the result
 *   run      run.c
 *   check    check.c: the list of checks; check-*.c: the checks; finding.c: what they find
 *   all      main.c: the table of subcommands; common.c: the functions below
 *   both     library.c: where the library is; reach.c: whether it gets into a program;
 *            defaults.c: the options, and the site's defaults
 */
#ifndef CMD_COMMAND_H
#define CMD_COMMAND_H

#include "allocator/base.h"

#include <jansson.h>

/* Exit statuses: nothing came of it; and wrong usage, EX_USAGE of sysexits.h. */
#define CMD_FAILED 2
#define CMD_USAGE  64

/* The subcommands; argv[0] is the subcommand's name. They return the exit status. */
int cmd_report(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_check(int argc, char **argv);

/* The running subcommand's name; NULL before it is known. */
extern const char *cmd_name;

/* Prints "pinalloc SUBCOMMAND: …" to standard error, cleaned. No newline in the format. */
void cmd_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * Complains of an option for which getopt_long() has returned '?' or ':'; `shorts` are the
 * short options it was given, with ":" in front. The values of long options begin at CMD_LONG,
 * so that optopt tells them from short ones. Returns CMD_USAGE.
 */
int cmd_refuse(int option, const char *shorts, char **argv);
#define CMD_LONG 256

/* Complains of a value, and says which it takes. Returns CMD_USAGE. */
int cmd_refuse_value(const char *name, const char *value, const char *takes);

/*
 * Replaces control characters by question marks, in place: a terminal must not obey a file or
 * its name, and a line must stay one. Returns the text.
 */
char *cmd_clean(char *text);

/* realloc() and strdup() that never return NULL: they end the program with one line. */
void *cmd_realloc(void *old, size_t n_bytes) __attribute__((warn_unused_result));
char *cmd_strdup(const char *text) __attribute__((warn_unused_result));

/* Prints that line, and ends the program. */
_Noreturn void cmd_no_memory(void);

/* Replaces bytes that are not UTF-8 by question marks, in place. Returns the text. */
char *cmd_utf8(char *text);

/* A JSON string. Bytes that are not UTF-8, as names and variables may have, become "?". */
json_t *cmd_json(const char *text);

/* Whether a text ends so, with something before it. */
bool cmd_ends_in(const char *text, const char *end);

/* The ending of a noun for that number. */
static inline const char *cmd_plural(double n)
{
	return n == 1 ? "" : "s";
}

/* A short text, returned by value. */
struct cmd_text {
	char text[96];
};

/* So many of them, as "1 rank" and "2 processes". */
struct cmd_text cmd_counted(double n, const char *noun);
#define CMD_COUNTED(n, noun) (cmd_counted((double)(n), noun).text)

/* A size as the library writes it; "-" below 0, which stands for unknown. */
struct cmd_text cmd_size(double n_bytes);
#define CMD_SIZE(n) (cmd_size(n).text)

/* The first characters of a text in UTF-8, at most `most` bytes (up to 64), and dots if cut. */
struct cmd_text cmd_shortened(const char *from, size_t most);
#define CMD_SHORTENED(from, most) (cmd_shortened(from, most).text)

#endif
