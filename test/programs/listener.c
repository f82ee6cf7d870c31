/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A stand-in for UCX's memory hooks, Open MPI's and libfabric's memory monitor: the library
 * recognises it by its file name (libucm…, libopen-pal…, libfabric…) and one of its functions.
 * Notifications go to the function that a program has registered here.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#if __has_include(<rdma/fi_ext.h>)
#include <rdma/fabric.h>
#include <rdma/fi_ext.h>
#define HAS_FABRIC
#endif

#define SHOWN __attribute__((visibility("default")))

SHOWN void ucm_vm_munmap(void *addr, size_t length);
typedef void *register_function(void *pd, void *addr, size_t length, int access);
SHOWN void *listener_register(register_function *call, void *pd, void *addr, size_t length,
			      int access);
SHOWN void opal_mem_hooks_release_hook(void *addr, size_t length, bool from_alloc);
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

void opal_mem_hooks_release_hook(void *addr, size_t length, bool from_alloc)
{
	(void)from_alloc;
	ucm_vm_munmap(addr, length);
}

#ifdef HAS_FABRIC
SHOWN int fi_open(uint32_t version, const char *name, void *attr, size_t attr_len,
		  uint64_t flags, struct fid **fid, void *context);
SHOWN bool listener_subscribe(const void *addr, size_t length);

static struct fid_mem_monitor *_Atomic monitor;

static void notify(struct fid_mem_monitor *it, const void *addr, size_t length)
{
	(void)it;
	ucm_vm_munmap((void *)addr, length);
}

/* A monitor is imported; the first cache starts it. */
static int import(struct fid *fid, struct fid *imported, uint64_t flags)
{
	static struct fi_ops_mem_notify operations = {sizeof operations, notify};

	(void)fid;
	(void)flags;
	monitor = (struct fid_mem_monitor *)imported;
	monitor->import_ops = &operations;
	return monitor->export_ops->start(monitor);
}

int fi_open(uint32_t version, const char *name, void *attr, size_t attr_len, uint64_t flags,
	    struct fid **fid, void *context)
{
	static struct fi_ops operations = {.size = sizeof operations, .bind = import};
	static struct fid cache = {.ops = &operations};

	(void)version, (void)name, (void)attr, (void)attr_len, (void)flags, (void)context;
	*fid = &cache;
	return 0;
}

/* Whether a registration may be cached. */
bool listener_subscribe(const void *addr, size_t length)
{
	return monitor && !monitor->export_ops->subscribe(monitor, addr, length);
}
#endif
