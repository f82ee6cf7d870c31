/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Notifies the registration caches of UCX, Open MPI and libfabric when memory goes away, as far
 * as the process has loaded them, through functions that they export:
 *
 *   ucm_vm_munmap(addr, length)                              UCX, since 1.2
 *   opal_mem_hooks_release_hook(addr, length, from_alloc)    Open MPI: all its caches
 *   an imported memory monitor (libfabric.h)                 libfabric, since 1.14
 *
 * The library links to none of them. Those that were found are never unloaded.
 */
#ifndef PIN_LISTENERS_H
#define PIN_LISTENERS_H

#include "allocator/base.h"

/*
 * Looks for caches that were loaded since the last call, and has watch.c notify them. Called
 * before each registration of watched memory: no cache can hold one from before. Cheap if
 * nothing was loaded. Takes the loader's locks. Thread-safe. Must not be called from inside
 * malloc.
 */
void pin_listeners_find(void);

#endif
