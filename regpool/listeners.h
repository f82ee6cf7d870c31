/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who keeps registrations and has to hear when memory has gone: UCX, Open MPI and libfabric, in
 * whatever of them the process has loaded, by the functions they export for that:
 *
 *   ucm_vm_munmap(addr, length)                          UCX, since 1.2
 *   opal_mem_hooks_release_hook(addr, length, from_alloc)    Open MPI: all its caches
 *   an imported memory monitor (libfabric.h)             libfabric, since 1.14
 *
 * The library links to none of them. What has been found stays loaded.
 */
#ifndef PIN_LISTENERS_H
#define PIN_LISTENERS_H

#include "allocator/base.h"

/*
 * Looks for those that were loaded since the last time: where memory gets registered, as nobody
 * can have a registration before. Cheap when nothing was loaded. Takes the loader's locks; not
 * from inside malloc.
 */
void pin_listeners_find(void);

/*
 * Tells all of them that [start, start + length) has gone. They may take locks of their own and
 * deregister. Errors are not reported. Thread-safe.
 */
void pin_listeners_tell(uintptr_t start, size_t length);

#endif
