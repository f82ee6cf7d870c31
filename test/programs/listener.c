/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stands in for UCX's memory hooks: by the name of its file (libucm…) and by the function, the
 * library takes it for them. What is told goes to whoever has left a function here.
 */
#include <stdatomic.h>
#include <stddef.h>

#define SHOWN __attribute__((visibility("default")))

SHOWN void ucm_vm_munmap(void *addr, size_t length);
SHOWN extern void (*_Atomic listener_hook)(void *addr, size_t length);

void (*_Atomic listener_hook)(void *addr, size_t length);

void ucm_vm_munmap(void *addr, size_t length)
{
	void (*hook)(void *, size_t) = atomic_load(&listener_hook);

	if (hook)
		hook(addr, length);
}
