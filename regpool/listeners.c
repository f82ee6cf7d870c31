/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/listeners.h"
#include "allocator/log.h"
#include "regpool/libfabric.h"
#include "regpool/watch.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

typedef void release_function(void *addr, size_t length);
typedef void opal_function(void *addr, size_t length, bool from_alloc);

/* By the sources of UCX 1.2 to 1.19 and Open MPI 1.5 to 5.0. */
static const struct known {
	const char *library; /* what its file's name begins with */
	const char *function;
} known[] = {
	{"libucm", "ucm_vm_munmap"},
	{"libopen-pal", "opal_mem_hooks_release_hook"},
	{"libfabric", "fi_open"},
};
enum { UCX, OPEN_MPI, LIBFABRIC };

/* A wheel or a module may bring a second copy. */
#define MOST 8

static struct listener {
	int kind;
	uintptr_t base; /* where its file is loaded */
	void *function;
} listeners[MOST];
static _Atomic unsigned n_listeners;

/* Names of loaded files that may have one; the loader keeps them as long as they are loaded. */
struct candidates {
	unsigned n;
	uintptr_t bases[MOST];
	char names[MOST][512];
};

static int kind_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;

	for (size_t i = 0; i < PIN_ARRAY_SIZE(known); i++)
		if (!strncmp(name, known[i].library, strlen(known[i].library)))
			return (int)i;
	return -1;
}

static int count_loaded(struct dl_phdr_info *info, size_t size, void *loaded)
{
	(void)size;
	*(unsigned long long *)loaded = info->dlpi_adds;
	return 1;
}

static bool is_known(uintptr_t base)
{
	for (unsigned i = 0; i < n_listeners; i++)
		if (listeners[i].base == base)
			return true;
	return false;
}

static int collect(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct candidates *candidates = arg;

	(void)size;
	if (info->dlpi_name && kind_of(info->dlpi_name) >= 0 && !is_known(info->dlpi_addr) &&
	    candidates->n < MOST && strlen(info->dlpi_name) < sizeof candidates->names[0]) {
		candidates->bases[candidates->n] = info->dlpi_addr;
		strcpy(candidates->names[candidates->n++], info->dlpi_name);
	}
	return 0;
}

/* The handle is kept: a function that is called from another thread may not go away. */
static void add(const char *path, uintptr_t base)
{
	int kind = kind_of(path);
	void *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
	void *function = handle ? dlsym(handle, known[kind].function) : NULL;

	if (!function || n_listeners == MOST) {
		if (handle)
			dlclose(handle);
		return;
	}
	listeners[n_listeners] = (struct listener){kind, base, function};
	pin_watch_subscribe(pin_listeners_tell);
	if (kind == LIBFABRIC)
		pin_libfabric_import(function);
	atomic_fetch_add_explicit(&n_listeners, 1, memory_order_release);
	pin_info("%s is told of memory that goes: %s", path, known[kind].function);
}

/*
 * No dlopen() inside dl_iterate_phdr(): they take the loader's locks in another order. And none
 * for what is known: a constructor, which has the loader's lock, may wait for this thread.
 */
static void find(struct candidates *candidates)
{
	candidates->n = 0;
	dl_iterate_phdr(collect, candidates);
	for (unsigned i = 0; i < candidates->n; i++)
		add(candidates->names[i], candidates->bases[i]);
}

void pin_listeners_find(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static _Atomic unsigned long long seen;
	static struct candidates candidates;
	unsigned long long loaded = 0;

	dl_iterate_phdr(count_loaded, &loaded);
	/* Whoever finds it locked is in a constructor of what another thread loads, or beside
	 * one. */
	if (loaded == seen || pthread_mutex_trylock(&lock))
		return;
	find(&candidates);
	seen = loaded;
	pthread_mutex_unlock(&lock);
}

/*
 * Open MPI's own cache ends the process when memory goes that begins where a registration in
 * use does (gc_add() in rcache_grdma_module.c, mca_rcache_base_mem_cb(); 4.1 and 5.0). What is
 * told here may be more than what has gone, so it is told from a byte before, where none
 * begins.
 */
static void tell_open_mpi(opal_function *release, char *addr, size_t length)
{
	release(addr - 1, length + 1, false);
}

static void tell(const struct listener *listener, void *addr, size_t length)
{
	switch (listener->kind) {
	case UCX:
		((release_function *)listener->function)(addr, length);
		break;
	case OPEN_MPI:
		tell_open_mpi((opal_function *)listener->function, addr, length);
		break;
	default:
		pin_libfabric_tell(addr, length);
	}
}

void pin_listeners_tell(uintptr_t start, size_t length)
{
	unsigned n = atomic_load_explicit(&n_listeners, memory_order_acquire);

	for (unsigned i = 0; i < n; i++)
		tell(&listeners[i], (void *)start, length);
}
