/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The thread that registers what is in memory ahead of the requests. It exists only once a
 * domain was armed in eager mode: a process without verbs has no thread of ours.
 */
#ifndef PIN_REGISTRAR_H
#define PIN_REGISTRAR_H

/*
 * Starts it, the first time; from then on it looks when pin_pool_changed() is called, as this
 * does. Not from inside malloc.
 */
void pin_registrar_start(void);

#endif
