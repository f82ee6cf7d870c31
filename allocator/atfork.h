/* SPDX-License-Identifier: BSD-2-Clause */
/* What locks the allocator and jemalloc while the process is copied by fork(). */
#ifndef PIN_ATFORK_H
#define PIN_ATFORK_H

#include "allocator/base.h"

/* As pthread_atfork(), for jemalloc's one set of handlers (Makefile.am renames its call). */
int pin_atfork_jemalloc(void (*prepare)(void), void (*parent)(void), void (*child)(void));

/*
 * Installs the handlers of fork(), once. Those installed first prepare last, so it is called
 * before any other is installed: the others may allocate and free, or wait for locks under
 * which other threads do.
 */
void pin_atfork_init(void);

#endif
