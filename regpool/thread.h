/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The library's own threads. They do not keep the process from ending: if its main() has ended
 * with pthread_exit(3), it ends with the last other thread.
 */
#ifndef PIN_THREAD_H
#define PIN_THREAD_H

/*
 * Starts a detached thread that blocks all signals, and is no real-time thread. The name has at
 * most 15 characters. Returns 0 or an errno value.
 */
int pin_thread_start(void *(*run)(void *), void *arg, const char *name);

/* Call before `run` returns, if it does. */
void pin_thread_note_end(void);

/*
 * Runs work(arg, 0) and work(arg, 1) in parallel, one of them in another thread if one can be
 * created. Returns when both are done. The caller must block all signals, as the new thread
 * inherits its mask.
 */
void pin_thread_halve(void (*work)(void *arg, unsigned half), void *arg);

#endif
