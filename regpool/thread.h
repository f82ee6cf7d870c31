/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The library's own threads, which do not end: so a process whose main() ends with
 * pthread_exit(3) does not, either.
 */
#ifndef PIN_THREAD_H
#define PIN_THREAD_H

/*
 * Starts a detached thread that blocks all signals, and is no real-time thread. The name has at
 * most 15 characters. Returns 0 or an errno value.
 */
int pin_thread_start(void *(*run)(void *), void *arg, const char *name);

#endif
