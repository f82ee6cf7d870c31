/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The program `pinalloc`: its subcommands, and what they share. An ordinary program,
 * which does not link the library but has its options, its log and its verbs table.
 *
 *   report   report.c: options; load.c: one file, with names.c for its stacks; job.c and
 *            sites.c: what all say together; text.c with table.c, json.c, plot.c with
 *            gnuplot.c: what is shown of it
 *   run      run.c
 *   check    check.c: the list and the findings; check-*.c: the checks
 *   all      main.c: the table of them; common.c: the functions below
 *   both     library.c: where the library is; reach.c: whether it gets into a program
 */
#ifndef PIN_COMMAND_H
#define PIN_COMMAND_H

#include "allocator/base.h"

#include <jansson.h>

/* The exit status when nothing was done: bad usage, or nothing to work on. */
#define PIN_COMMAND_FAILED 2

/* The subcommands; argv[0] is the subcommand's name. They return the exit status. */
int pin_command_report(int argc, char **argv);
int pin_command_run(int argc, char **argv);
int pin_command_check(int argc, char **argv);

/* The subcommand that runs, as it was called; NULL before there is one. */
extern const char *pin_command_name;

/* One line "pinalloc SUBCOMMAND: …" on standard error, cleaned; no newline in the format. */
void pin_command_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * The line for what getopt_long() gave as '?' or ':', with the short options it was given,
 * ":" in front. Long options have values from PIN_COMMAND_LONG up, so that optopt tells them
 * from short ones. Returns PIN_COMMAND_FAILED.
 */
int pin_command_refuse(int option, const char *shorts, char **argv);
#define PIN_COMMAND_LONG 256

/* "--NAME=VALUE is not understood", and what it takes. Returns PIN_COMMAND_FAILED. */
int pin_command_refuse_value(const char *name, const char *value, const char *takes);

/*
 * In place, control characters become question marks: a terminal must not obey what a file
 * or its name says, and a line is one. Returns the text.
 */
char *pin_command_clean(char *text);

/* realloc() that ends the program with one line when there is no memory. */
void *pin_command_realloc(void *old, size_t n_bytes) __attribute__((warn_unused_result));

/* strdup() of that kind. */
char *pin_command_strdup(const char *text) __attribute__((warn_unused_result));

/* That line, and the end. */
_Noreturn void pin_command_no_memory(void);

/* In place, bytes that are no UTF-8 become question marks. Returns the text. */
char *pin_command_utf8(char *text);

/* A JSON string; bytes that are no UTF-8, as names and variables may have, are "?" in it. */
json_t *pin_command_json(const char *text);

/* Whether a text ends so, and has something before. */
bool pin_command_ends_in(const char *text, const char *end);

/* What is behind a noun after that many. */
static inline const char *pin_command_plural(double n)
{
	return n == 1 ? "" : "s";
}

/* Room for what is shown of one thing. */
struct pin_command_text {
	char text[96];
};

/* As the library writes a size; "-" below 0, for what is not known. */
struct pin_command_text pin_command_size(double n_bytes);
#define PIN_COMMAND_SIZE(n) (pin_command_size(n).text)

/* Of a text in UTF-8 no more than so many bytes, up to 64: whole characters, and dots. */
struct pin_command_text pin_command_shortened(const char *from, size_t most);
#define PIN_COMMAND_SHORTENED(from, most) (pin_command_shortened(from, most).text)

#endif
