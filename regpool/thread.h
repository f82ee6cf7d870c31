/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads of the library's own.
 */
#ifndef PIN_THREAD_H
#define PIN_THREAD_H

/*
 * Starts a detached thread that none of the program's signals is delivered to. The
 * name has at most 15 characters. Returns 0 or an errno value.
 */
int pin_thread_start(void *(*run)(void *), void *arg, const char *name);

/*
 * Does work(arg, 0) and work(arg, 1) at the same time, one of them in another thread if there
 * can be one; returns when both are done. For such threads, which no signal is delivered to.
 */
void pin_thread_halve(void (*work)(void *arg, unsigned half), void *arg);

#endif
