/* SPDX-License-Identifier: BSD-2-Clause */
/* What locks the allocator and jemalloc while the process is copied by fork(). */
#ifndef PIN_LOCKS_H
#define PIN_LOCKS_H

#include "allocator/base.h"

/* As pthread_atfork(), for jemalloc's one set of handlers (Makefile.am renames its call). */
int pin_locks_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void));

/*
 * Installs the handlers of fork(), once. Those installed first prepare last, so it is called
 * before any other is installed: the others may allocate and free, or wait for locks under which
 * other threads do.
 */
void pin_locks_init(void);

/*
 * The allocator's own locks: what locks them all, after jemalloc's, which are taken first also
 * where both are, and what unlocks them, in both processes.
 */
void pin_locks_set_own(void (*before)(void), void (*after)(void));

#endif
