/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The subcommands of pinalloc(1). Each takes its own name as argv[0] and returns
 * the exit status.
 */
#ifndef PIN_COMMAND_H
#define PIN_COMMAND_H

int pin_command_run(int argc, char **argv);
int pin_command_check(int argc, char **argv);

#endif
