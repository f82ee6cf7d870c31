/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Proves that a thread waits in vain: for a mutex whose owner sleeps in a call that replaces
 * watched pages, until that thread goes on.
 */
#ifndef PIN_STUCK_H
#define PIN_STUCK_H

#include "allocator/base.h"

#include <sys/types.h>

/*
 * The thread that owns the mutex this thread sleeps for, if it sleeps in such a call; otherwise
 * 0, also if that cannot be told. Opens files in /proc, so it must be called by a thread with a
 * descriptor table of its own.
 */
pid_t pin_stuck_behind(pid_t thread);

#endif
