/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A stand-in for UCX's memory hooks: the library recognises it by its file name (libucm…) and
 * its function. Notifications go to the function that a program has registered here.
 */
#include <stdatomic.h>
#include <stddef.h>

#define SHOWN __attribute__((visibility("default")))

SHOWN void ucm_vm_munmap(void *addr, size_t length);
typedef void *register_function(void *pd, void *addr, size_t length, int access);
SHOWN void *listener_register(register_function *call, void *pd, void *addr, size_t length,
			      int access);
SHOWN extern void (*_Atomic listener_hook)(void *addr, size_t length);

void (*_Atomic listener_hook)(void *addr, size_t length);

void ucm_vm_munmap(void *addr, size_t length)
{
	void (*hook)(void *, size_t) = atomic_load(&listener_hook);

	if (hook)
		hook(addr, length);
}

/* Called by this file, as UCX's registrations are. */
void *listener_register(register_function *call, void *pd, void *addr, size_t length,
			int access)
{
	void *volatile result = call(pd, addr, length, access);

	return result;
}
