/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The program `pinalloc`: its subcommands, and what they share. An ordinary program,
 * which does not link the library but has its options, its log and its verbs table.
 */
#ifndef PIN_COMMAND_H
#define PIN_COMMAND_H

#include "allocator/base.h"

/* The exit status when nothing was done: bad usage, or nothing to work on. */
#define PIN_COMMAND_FAILED 2

/* The subcommands; argv[0] is the subcommand's name. They return the exit status. */
int pin_command_report(int argc, char **argv);
int pin_command_run(int argc, char **argv);
int pin_command_check(int argc, char **argv);

/* One line "pinalloc SUBCOMMAND: …" on standard error; no newline in the format. */
void pin_command_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* realloc() that ends the program with one line when there is no memory. */
void *pin_command_realloc(void *old, size_t n_bytes) __attribute__((warn_unused_result));

/* strdup() of that kind. */
char *pin_command_strdup(const char *text) __attribute__((warn_unused_result));

/* As the library writes a size; "-" below 0, for what is not known. */
struct pin_command_text {
	char text[32];
};
struct pin_command_text pin_command_size(double n_bytes);
#define PIN_COMMAND_SIZE(n) (pin_command_size(n).text)

#endif
