/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/listeners.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "regpool/libfabric.h"
#include "regpool/pool.h"
#include "regpool/watch.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>

typedef void release_function(void *addr, size_t length);
typedef void opal_function(void *addr, size_t length, bool from_alloc);

/* According to the sources of UCX 1.2 to 1.19 and Open MPI 1.5 to 5.0. */
static const struct known_libraries {
	const char *library; /* prefix of its file name */
	const char *function;
} known_libraries[] = {
	{"libucm", "ucm_vm_munmap"},
	{"libopen-pal", "opal_mem_hooks_release_hook"},
	{"libfabric", "fi_open"},
};
enum { UCX, OPEN_MPI, LIBFABRIC };

/* A Python wheel or a plugin may bring a second copy. */
#define MOST 8

static struct listener {
	int kind;
	uintptr_t base; /* load address of its file */
	void *function;
} listeners[MOST];
static _Atomic unsigned n_listeners;
static _Atomic bool has_open_mpi;

/*
 * Where the code lies that registers memory. libfabric's providers may be files of their own.
 * One list is looked at while the other is made.
 */
static struct registrars {
	unsigned n;
	struct {
		int kind;
		uintptr_t start, end;
	} at[2 * MOST];
} registrars[2];
static struct registrars *_Atomic known_registrars = &registrars[0];

/* Loaded files that may be caches. The loader keeps the names while they are loaded. */
struct candidates {
	struct registrars *registrars;
	unsigned n;
	uintptr_t bases[MOST];
	char names[MOST][512];
};

static const char *name_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static int kind_of(const char *path)
{
	const char *name = name_of(path);

	for (size_t i = 0; i < PIN_ARRAY_SIZE(known_libraries); i++)
		if (!strncmp(name, known_libraries[i].library,
			     strlen(known_libraries[i].library)))
			return (int)i;
	return -1;
}

static int count_loaded(struct dl_phdr_info *info, size_t size, void *loaded)
{
	(void)size;
	*(unsigned long long *)loaded = info->dlpi_adds;
	return 1;
}

static bool is_listener(uintptr_t base)
{
	for (unsigned i = 0; i < n_listeners; i++)
		if (listeners[i].base == base)
			return true;
	return false;
}

static int registrar_of(const char *path)
{
	const char *name = name_of(path);

	if (!strncmp(name, "libuct", strlen("libuct")))
		return UCX;
	return !strncmp(name, "libfabric", strlen("libfabric")) || strstr(name, "-fi.so")
		       ? LIBFABRIC
		       : -1;
}

/* Those that were found are looked for again: they may have been unloaded meanwhile. */
static void add_registrar(struct registrars *list, const struct dl_phdr_info *info, int kind)
{
	uintptr_t end = 0;

	if (list->n == PIN_ARRAY_SIZE(list->at))
		return;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];

		if (part->p_type == PT_LOAD && part->p_vaddr + part->p_memsz > end)
			end = part->p_vaddr + part->p_memsz;
	}
	list->at[list->n].kind = kind;
	list->at[list->n].start = info->dlpi_addr;
	list->at[list->n].end = info->dlpi_addr + end;
	list->n++;
}

static int collect_candidates(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct candidates *candidates = arg;

	(void)size;
	if (info->dlpi_name && registrar_of(info->dlpi_name) >= 0)
		add_registrar(candidates->registrars, info, registrar_of(info->dlpi_name));
	if (info->dlpi_name && kind_of(info->dlpi_name) >= 0 && !is_listener(info->dlpi_addr) &&
	    candidates->n < MOST && strlen(info->dlpi_name) < sizeof candidates->names[0]) {
		candidates->bases[candidates->n] = info->dlpi_addr;
		strcpy(candidates->names[candidates->n++], info->dlpi_name);
	}
	return 0;
}

/*
 * Open MPI's own cache aborts the process if the memory starts where a registration in use does
 * (gc_add() in rcache_grdma_module.c, mca_rcache_base_mem_cb(); 4.1 and 5.0). As the range may
 * be larger than what has gone, it is extended down by one byte, where no registration starts.
 */
static void notify_open_mpi(opal_function *release, char *addr, size_t length)
{
	release(addr - 1, length + 1, false);
}

static void notify_listener(const struct listener *listener, void *addr, size_t length)
{
	switch (listener->kind) {
	case UCX:
		((release_function *)listener->function)(addr, length);
		break;
	case OPEN_MPI:
		notify_open_mpi((opal_function *)listener->function, addr, length);
		break;
	default:
		pin_libfabric_notify(addr, length);
	}
}

static void notify_all(uintptr_t start, size_t length)
{
	unsigned n = atomic_load_explicit(&n_listeners, memory_order_acquire);

	for (unsigned i = 0; i < n; i++)
		notify_listener(&listeners[i], (void *)start, length);
}

/* The handle is kept, so that the library is not unloaded while another thread calls it. */
static void add_listener(const char *path, uintptr_t base)
{
	int kind = kind_of(path);
	void *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
	void *function = handle ? dlsym(handle, known_libraries[kind].function) : NULL;

	if (!function || n_listeners == MOST) {
		if (handle)
			dlclose(handle);
		return;
	}
	listeners[n_listeners] = (struct listener){kind, base, function};
	pin_watch_subscribe(notify_all);
	if (kind == LIBFABRIC)
		pin_libfabric_import(function);
	if (kind == OPEN_MPI)
		atomic_store(&has_open_mpi, true);
	atomic_fetch_add_explicit(&n_listeners, 1, memory_order_release);
	pin_info("%s is notified of memory that goes away: %s", path,
		 known_libraries[kind].function);
}

/*
 * dlopen() must not be called inside dl_iterate_phdr(): they take the loader's locks in
 * different orders. And not for caches already known: a constructor, which holds the loader's
 * lock, may be waiting for this thread.
 */
static void find_new_listeners(struct candidates *candidates)
{
	candidates->n = 0;
	candidates->registrars = &registrars[known_registrars == &registrars[0]];
	candidates->registrars->n = 0;
	dl_iterate_phdr(collect_candidates, candidates);
	atomic_store(&known_registrars, candidates->registrars);
	for (unsigned i = 0; pin_options.watch && i < candidates->n; i++)
		add_listener(candidates->names[i], candidates->bases[i]);
}

/*
 * No lock: who finds it set comes from a constructor of a library that the other thread waits
 * for, or at the same time. What it registers may be for a cache that is not found yet.
 */
static _Atomic bool is_finding;

static void find_listeners(void)
{
	static _Atomic unsigned long long n_loads_seen;
	static struct candidates candidates;
	unsigned long long loaded = 0;

	dl_iterate_phdr(count_loaded, &loaded);
	if (loaded == n_loads_seen || atomic_exchange(&is_finding, true))
		return;
	find_new_listeners(&candidates);
	n_loads_seen = loaded;
	atomic_store(&is_finding, false);
}

bool pin_listeners_find(void)
{
	if (pin_pool_off() == PIN_CHILD || pin_pool_is_excluded())
		return false;
	find_listeners();
	return pin_options.watch &&
	       (is_finding || atomic_load_explicit(&n_listeners, memory_order_acquire));
}

static bool is_in(const void *caller, int kind)
{
	const struct registrars *list = atomic_load(&known_registrars);

	for (unsigned i = 0; i < list->n; i++)
		if (list->at[i].kind == kind && (uintptr_t)caller >= list->at[i].start &&
		    (uintptr_t)caller < list->at[i].end)
			return true;
	return false;
}

bool pin_listeners_forget_first(const void *caller)
{
	return !is_finding && (!has_open_mpi || is_in(caller, UCX));
}

bool pin_listeners_needs_unique_keys(const void *caller)
{
	return is_in(caller, LIBFABRIC);
}

void pin_listeners_forget(uintptr_t start, size_t length)
{
	unsigned n = atomic_load_explicit(&n_listeners, memory_order_acquire);

	for (unsigned i = 0; i < n; i++)
		if (listeners[i].kind == UCX)
			notify_listener(&listeners[i], (void *)start, length);
}

void pin_listeners_note_registered(struct pin_pages range, const struct pin_ticket *ticket)
{
	pin_libfabric_note_registered(range, ticket);
}
