/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Free extents are shared by all arenas: extents.c, which is called by jemalloc only.
 */
#ifndef PIN_EXTENTS_H
#define PIN_EXTENTS_H

/*
 * While the calling thread makes the heap grow: the pool it grows for, from 1; 0 is an
 * arena's own. The region remembers it.
 */
extern __thread unsigned pin_extents_grower __attribute__((tls_model("initial-exec")));

#endif
