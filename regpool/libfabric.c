/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/libfabric.h"

#ifdef HAVE_RDMA_FI_EXT_H

#include "allocator/log.h"
#include "allocator/options.h"
#include "regpool/watch.h"

#include <errno.h>
#include <rdma/fabric.h>
#include <rdma/fi_ext.h>
#include <stdatomic.h>
#include <string.h>

typedef int open_function(uint32_t version, const char *name, void *attr, size_t attr_len,
			  uint64_t flags, struct fid **fid, void *context);

/* The first version of the interface in which the monitor can be replaced. */
#define INTERFACE FI_VERSION(1, 14)

/*
 * Set when libfabric's first cache is there. What a notification looks at is initialized by the
 * first fi_getinfo(), which a program that has libfabric loaded need not call.
 */
static _Atomic bool started;

static int start_monitor(struct fid_mem_monitor *monitor)
{
	(void)monitor;
	atomic_store(&started, true);
	return 0;
}

static void stop_monitor(struct fid_mem_monitor *monitor)
{
	(void)monitor;
}

/* The registration that libfabric asks about next, by the thread that made it. */
static __thread struct {
	struct pin_pages range;
	struct pin_ticket ticket;
} registered __attribute__((tls_model("initial-exec")));

void pin_libfabric_note_registered(struct pin_pages range, const struct pin_ticket *ticket)
{
	registered.range = ticket ? range : (struct pin_pages){0, 0};
	registered.ticket = ticket ? *ticket : (struct pin_ticket){0, 0};
}

static bool may_cache_heap(const void *addr, size_t length)
{
	return pin_watch_is_on() && !pin_watch_heap_is_changing() &&
	       !pin_granules_any_replaced(pin_range_of(addr, length));
}

/*
 * Called under libfabric's lock, for a registration that is to be cached: whether it is watched
 * and nothing there was replaced since.
 */
static int monitor_subscribe(struct fid_mem_monitor *monitor, const void *addr, size_t length)
{
	struct pin_pages range = pin_pages_of(addr, length);
	bool may;

	(void)monitor;
	if (pin_reserve_contains(addr))
		may = may_cache_heap(addr, length);
	else
		may = range.start >= registered.range.start &&
		      range.end <= registered.range.end &&
		      pin_ranges_are_unchanged(&registered.ticket);
	return may ? 0 : -ENOTSUP;
}

static void monitor_unsubscribe(struct fid_mem_monitor *monitor, const void *addr,
				size_t length)
{
	(void)monitor;
	(void)addr;
	(void)length;
}

/* libfabric was notified of anything that is not valid any more. */
static bool is_valid(struct fid_mem_monitor *monitor, const void *addr, size_t length)
{
	(void)monitor;
	(void)addr;
	(void)length;
	return true;
}

static struct fi_ops_mem_monitor operations = {
	.size = sizeof operations,
	.start = start_monitor,
	.stop = stop_monitor,
	.subscribe = monitor_subscribe,
	.unsubscribe = monitor_unsubscribe,
	.valid = is_valid,
};

static struct fid_mem_monitor monitor = {
	.fid = {.fclass = FI_CLASS_MEM_MONITOR},
	.export_ops = &operations,
};

static bool is_disabled(void)
{
	const char *wanted = pin_environment("FI_MR_CACHE_MONITOR");

	return wanted && !strcmp(wanted, "disabled");
}

void pin_libfabric_import(void *fi_open_function)
{
	struct fid *cache;
	int error;

	if (is_disabled() || !pin_watch_start(NULL))
		return;
	if (((open_function *)fi_open_function)(INTERFACE, "mr_cache", NULL, 0, 0, &cache,
						NULL))
		return;
	error = fi_import_fid(cache, &monitor.fid, 0);
	pin_info("libfabric's cache %s",
		 error ? "has another monitor" : "is notified of memory that goes away");
	if (error)
		fi_close(cache);
}

void pin_libfabric_notify(const void *addr, size_t length)
{
	if (atomic_load(&started))
		monitor.import_ops->notify(&monitor, addr, length);
}

#else

void pin_libfabric_import(void *fi_open_function)
{
	(void)fi_open_function;
}

void pin_libfabric_notify(const void *addr, size_t length)
{
	(void)addr;
	(void)length;
}

void pin_libfabric_note_registered(struct pin_pages range, const struct pin_ticket *ticket)
{
	(void)range;
	(void)ticket;
}

#endif
