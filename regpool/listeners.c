/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/listeners.h"
#include "regpool/files.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "regpool/granule.h"
#include "regpool/state.h"
#include "regpool/threads.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#ifdef HAVE_RDMA_FI_EXT_H
#include <rdma/fabric.h>
#include <rdma/fi_ext.h>
#endif

typedef void release_function(void *addr, size_t length);
typedef void opal_function(void *addr, size_t length, bool from_alloc);

/*
 * Found in the name of a library's file, according to the sources of UCX 1.2 to 1.22 and Open
 * MPI 1.5 to 6.0. What only registers, for UCX and libfabric, may be in files of its own.
 */
static const struct known_library {
	const char *name;
	enum { UCX, OPEN_MPI, LIBFABRIC } kind;
	const char *function; /* NULL if it only registers */
} known_libraries[] = {
	{"libucm", UCX, "ucm_vm_munmap"},
	{"libuct", UCX, NULL},
	{"libopen-pal", OPEN_MPI, "opal_mem_hooks_release_hook"},
	{"libfabric", LIBFABRIC, "fi_open"},
	{"-fi.so", LIBFABRIC, NULL},
};

/*
 * Those that were found, of which there may be several copies: a Python wheel or a plugin
 * brings its own. They stay loaded from then on, so that no other has their addresses.
 */
static struct library {
	struct library *next;
	const struct known_library *known;
	struct pin_range range;
	void *function; /* NULL if it is not notified */
} * _Atomic libraries;
static _Atomic bool has_open_mpi, has_any; /* of those that are notified */
static bool is_child;

static const struct library *library_of(uintptr_t address)
{
	for (struct library *it = libraries; it; it = it->next)
		if (pin_range_has_address(it->range, address))
			return it;
	return NULL;
}

/* Functions that others call get what they do not need. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* --- libfabric's memory monitor ------------------------------------------------------- */

static __thread struct pin_range kept __attribute__((tls_model("initial-exec")));
static __thread uint32_t kept_at __attribute__((tls_model("initial-exec")));

void pin_listeners_note_kept(struct pin_range range, uint32_t messages)
{
	kept = range;
	kept_at = messages;
}

#ifdef HAVE_RDMA_FI_EXT_H

/*
 * It is imported unless the program has imported another, or one of libfabric's own is running.
 * It replaces memhooks, which misses calls that bypass libc, libfabric's userfaultfd monitor,
 * which cannot watch what this library watches already, and kdreg2, which libfabric prefers
 * since 2.4 where it was built with it. If another provider's cache runs kdreg2 already, memory
 * is watched twice, and both are right.
 */
typedef int open_function(uint32_t version, const char *name, void *attr, size_t attr_len,
			  uint64_t flags, struct fid **fid, void *context);

/*
 * Set when libfabric's first cache is there. What a notification looks at is initialized by the
 * first fi_getinfo(), which a program that has libfabric loaded need not call.
 */
static _Atomic bool has_cache;

static int start_monitor(struct fid_mem_monitor *monitor)
{
	atomic_store(&has_cache, true);
	return 0;
}

static void stop_monitor(struct fid_mem_monitor *monitor)
{
}

/*
 * Called under libfabric's lock, for a registration that is to be cached: whether it is watched
 * and nothing there was replaced since.
 */
static int subscribe(struct fid_mem_monitor *monitor, const void *addr, size_t length)
{
	struct pin_range range = pin_range_of(addr, length);
	bool may = pin_range_has(kept, range) &&
		   pin_watch_arrived[PIN_WATCH_FOREIGN] == kept_at;

	if (pin_reserve_contains(addr))
		may = pin_watch_is_on() && !pin_watch_heap_is_changing() &&
		      !pin_granules_any(range, PIN_IS_REPLACED);
	return may ? 0 : -ENOTSUP;
}

static void unsubscribe(struct fid_mem_monitor *monitor, const void *addr, size_t length)
{
}

/* libfabric was notified of anything that is not valid any more. */
static bool is_valid(struct fid_mem_monitor *monitor, const void *addr, size_t length)
{
	return true;
}

static struct fi_ops_mem_monitor operations = {
	.size = sizeof operations,
	.start = start_monitor,
	.stop = stop_monitor,
	.subscribe = subscribe,
	.unsubscribe = unsubscribe,
	.valid = is_valid,
};
static struct fid_mem_monitor monitor = {
	.fid = {.fclass = FI_CLASS_MEM_MONITOR},
	.export_ops = &operations,
};

/* Not if the user has disabled the cache. The version is the first that can import monitors. */
static void import_monitor(open_function *fi_open)
{
	const char *wanted = pin_environment("FI_MR_CACHE_MONITOR");
	struct fid *cache;

	if ((wanted && !strcmp(wanted, "disabled")) || !pin_watch_start() ||
	    fi_open(FI_VERSION(1, 14), "mr_cache", NULL, 0, 0, &cache, NULL))
		return;
	if (fi_import_fid(cache, &monitor.fid, 0))
		fi_close(cache);
}

static void notify_libfabric(uintptr_t start, size_t length)
{
	if (atomic_load(&has_cache))
		monitor.import_ops->notify(&monitor, (void *)start, length);
}
#else
#define open_function			void
#define import_monitor(fi_open)		(void)(fi_open)
#define notify_libfabric(start, length) (void)(start)
#endif

/* --- all of them ------------------------------------------------------------------------ */

/*
 * Open MPI's own cache aborts the process if the memory starts where a registration in use does
 * (gc_add() in rcache_grdma_module.c, mca_rcache_base_mem_cb(); 4.1 to 6.0). As the range may
 * be larger than what has gone, it is extended down by one byte, where no registration starts.
 */
static void notify_library(const struct library *it, uintptr_t start, size_t length)
{
	if (it->known->kind == UCX)
		((release_function *)it->function)((void *)start, length);
	else if (it->known->kind == OPEN_MPI)
		((opal_function *)it->function)((void *)(start - 1), length + 1, false);
	else
		notify_libfabric(start, length);
}

void pin_listeners_notify(uintptr_t start, size_t length)
{
	atomic_fetch_add(&pin_watched.notified, has_any);
	for (struct library *it = libraries; it; it = it->next)
		if (it->function)
			notify_library(it, start, length);
}

void pin_listeners_invalidate(uintptr_t start, size_t length, const void *caller)
{
	const struct library *its = is_child ? library_of((uintptr_t)caller) : NULL;

	if (is_child && !(its && its->known->kind == UCX))
		return;
	for (struct library *it = libraries; it; it = it->next)
		if (it->function && it->known->kind == UCX)
			notify_library(it, start, length);
}

/*
 * A loaded file that is to be in the list. The loader keeps its name while it is loaded. It is
 * not opened while the loader lists them: dlopen() takes the loader's locks in another order.
 */
static struct {
	struct library library;
	char path[PATH_MAX];
} found;

static const struct known_library *known_library(const char *path)
{
	const char *slash = strrchr(path, '/');

	for (size_t i = 0; i < PIN_ARRAY_SIZE(known_libraries); i++)
		if (strstr(slash ? slash : path, known_libraries[i].name))
			return &known_libraries[i];
	return NULL;
}

static int find_library(struct dl_phdr_info *info, size_t size, void *unused)
{
	const struct known_library *known = info->dlpi_name ? known_library(info->dlpi_name)
							    : NULL;
	struct pin_range range = pin_files_range(info);

	if (!known || library_of(range.start) || strlen(info->dlpi_name) >= PATH_MAX)
		return false;
	strcpy(found.path, info->dlpi_name);
	found.library = (struct library){.known = known, .range = range};
	return true;
}

/*
 * The handle is kept, so that the library stays loaded. Returns false if it is just being
 * unloaded.
 */
static bool add_found(void)
{
	const struct known_library *known = found.library.known;
	void *handle = dlopen(found.path, RTLD_LAZY | RTLD_NOLOAD);
	struct library *new = handle ? malloc(sizeof *new) : NULL;

	if (!new)
		return false;
	*new = found.library;
	new->next = libraries;
	if (pin_options.watch && known->function)
		new->function = dlsym(handle, known->function);
	if (new->function && known->kind == LIBFABRIC)
		import_monitor((open_function *)new->function);
	has_open_mpi |= new->function && known->kind == OPEN_MPI;
	atomic_store(&libraries, new);
	if (new->function) {
		has_any = true;
		pin_info("%s is notified of memory that goes away", found.path);
	}
	return true;
}

/*
 * No lock: who finds it set comes from a constructor of a library that the other thread waits
 * for, or at the same time. What it registers may be for a cache that is not found yet.
 */
static _Atomic bool is_finding;

/*
 * Libraries already known are not opened again: a constructor, which holds the loader's lock,
 * may be waiting for this thread.
 */
static void find_listeners(void)
{
	static _Atomic uint32_t seen;
	uint32_t now = pin_files_state();
	bool is_there;

	if (!now || now == seen || atomic_exchange(&is_finding, true))
		return;
	PIN_SHIELDED;
	do {
		PIN_LOCKED(&pin_loader_lock);
		is_there = dl_iterate_phdr(find_library, NULL);
	} while (is_there && add_found());
	if (!is_there)
		seen = now;
	atomic_store(&is_finding, false);
}

void pin_listeners_begin_child(void)
{
	is_child = true;
	is_finding = false;
	pin_files_begin_child();
}

bool pin_listeners_find(void)
{
	if (!pin_options.watch && pin_state_off())
		return false;
	find_listeners();
	return pin_options.watch && (is_finding || has_any);
}

bool pin_listeners_insert_later(const void *caller)
{
	const struct library *its = has_open_mpi ? library_of((uintptr_t)caller) : NULL;

	return is_finding || (has_open_mpi && !(its && its->known->kind == UCX));
}

bool pin_listeners_needs_unique_keys(const void *caller)
{
	const struct library *its = library_of((uintptr_t)caller);

	return its && its->known->kind == LIBFABRIC;
}
