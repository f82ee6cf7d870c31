/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The thread that registers resident memory ahead of requests. It is started when the first
 * domain is armed in eager mode, so a process without verbs has no thread of ours.
 */
#ifndef PIN_REGISTRAR_H
#define PIN_REGISTRAR_H

/*
 * Starts the thread, the first time, and wakes it, as pin_pool_changed() does from then on.
 * Must not be called from inside malloc.
 */
void pin_registrar_start(void);

#endif
