/* SPDX-License-Identifier: BSD-2-Clause */
/* Locks jemalloc and the heap while fork() copies the process. */
#ifndef PIN_ATFORK_H
#define PIN_ATFORK_H

#include "allocator/base.h"

/* As pthread_atfork(), for jemalloc's one set of handlers (Makefile.am renames its call). */
int pin_atfork_jemalloc(void (*prepare)(void), void (*parent)(void), void (*child)(void));

/*
 * Installs the handlers of fork(), once. Handlers that are installed first prepare last, so the
 * library calls this before any other library installs handlers: those may allocate and free,
 * or wait for locks under which other threads do.
 */
void pin_atfork_init(void);

#endif
