/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The heap's start, with the first call of a function of malloc's family or of jemalloc's; and
 * a spare block, which the heap keeps for when memory has run out.
 */
#pragma once

#include "allocator/base.h"

/*
 * Reads the options, reserves the heap's addresses and prepares its tables. Returns false if
 * there are no addresses; tried only once. The first call must be over before a second thread
 * makes one: the library's constructor sees to that.
 */
bool pin_start_memory(void);

/*
 * Starts the heap, with the first call of any function that allocates. False if there are no
 * addresses.
 */
bool pin_start_heap(void);

/*
 * Frees the spare block, so that a call that must allocate can when memory has run out. Nobody
 * touches the block, so it costs only addresses.
 */
void pin_start_give_spare(void);

/*
 * Whether blocks are sampled or filled, or a report will tell which stacks the heap grew by:
 * then no call goes straight to jemalloc. Constant after the start.
 */
extern PIN_HIDDEN bool pin_is_traced;

/* As pthread_atfork(), for jemalloc's one set of handlers (Makefile.am renames its call). */
int pin_atfork_jemalloc(void (*prepare)(void), void (*parent)(void), void (*child)(void));

/*
 * Installs the handlers of fork(), once. Handlers that are installed first prepare last, so the
 * library calls this before any other library installs handlers: those may allocate and free,
 * or wait for locks under which other threads do.
 */
void pin_atfork_init(void);
