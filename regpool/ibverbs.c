/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/ibverbs.h"
#include "allocator/log.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/*
 * The copies of libibverbs that were called, by the loader's handle. A copy is never forgotten:
 * what it has opened may still be in use.
 */
#define MOST_COPIES 8
static struct copy {
	void *handle;
	struct pin_ibverbs table;
} copies[MOST_COPIES];
static _Atomic unsigned n_copies;

/* The copy that is called where no other is known to be meant. */
static const struct pin_ibverbs *_Atomic in_use;

/* What other copies have opened. */
#define MOST_CONTEXTS 64
static struct {
	const struct ibv_context *_Atomic context;
	const struct pin_ibverbs *verbs;
} others[MOST_CONTEXTS];
static _Atomic unsigned n_others;

/*
 * Looked up by file name with RTLD_NOLOAD, because RTLD_NEXT finds nothing if the program
 * loaded it with RTLD_LOCAL, as UCX does. The versions are those of libibverbs.map.in; without
 * a version dlsym() could return the functions of ABI 1.0, which use other structures.
 */
static const struct {
	const char *name, *version;
	size_t offset;
	bool optional;
} symbols[] = {
#define SYMBOL(name, version, optional)                                                        \
	{                                                                                      \
		"ibv_" #name, "IBVERBS_" version, offsetof(struct pin_ibverbs, name), optional \
	}
	/* clang-format off */
	SYMBOL(reg_mr_iova2, "1.8", false),
	SYMBOL(dereg_mr, "1.1", false),
	SYMBOL(rereg_mr, "1.1", false),
	SYMBOL(alloc_pd, "1.1", false),
	SYMBOL(dealloc_pd, "1.1", false),
	SYMBOL(open_device, "1.1", false),
	SYMBOL(close_device, "1.1", false),
	SYMBOL(query_device, "1.1", false),
	SYMBOL(create_cq, "1.1", true),
	SYMBOL(resize_cq, "1.1", true),
	SYMBOL(create_qp, "1.1", true),
	SYMBOL(create_srq, "1.1", true),
	SYMBOL(create_ah, "1.1", true),
	SYMBOL(get_device_list, "1.1", false),
	SYMBOL(fork_init, "1.1", false),
	SYMBOL(dontfork_range, "1.1", false),
	SYMBOL(dofork_range, "1.1", false),
	SYMBOL(import_pd, "1.10", true),
	SYMBOL(unimport_pd, "1.10", true),
	SYMBOL(reg_dmabuf_mr, "1.12", true),
	SYMBOL(is_fork_initialized, "1.13", true),
	SYMBOL(reg_mr_ex, "1.15", true),
	SYMBOL(reg_buf_mr, "1.17", true),
	/* clang-format on */
	/* An internal function, whose version differs in each release. */
	{"verbs_uninit_context", NULL, offsetof(struct pin_ibverbs, uninit_context), true},
#undef SYMBOL
};

struct found {
	char path[PATH_MAX];
};

/* Python wheels have a copy of their own under another name, as libibverbs-1a2b3c4d.so.1. */
static bool is_copy(const char *path)
{
	const char *slash = strrchr(path, '/');

	return !strncmp(slash ? slash + 1 : path, "libibverbs", strlen("libibverbs"));
}

static int find_copy(struct dl_phdr_info *object, size_t size, void *arg)
{
	struct found *found = arg;

	(void)size;
	if (!object->dlpi_name || !is_copy(object->dlpi_name) ||
	    strlen(object->dlpi_name) >= sizeof found->path)
		return 0;
	strcpy(found->path, object->dlpi_name);
	return 1;
}

static void *open_loaded(void)
{
	void *handle = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
	struct found found;

	if (!handle && dl_iterate_phdr(find_copy, &found))
		handle = dlopen(found.path, RTLD_LAZY | RTLD_NOLOAD);
	return handle;
}

static void resolve(void *handle, struct pin_ibverbs *table)
{
	for (size_t i = 0; i < PIN_ARRAY_SIZE(symbols); i++) {
		const char *version = symbols[i].version;
		void *p = version ? dlvsym(handle, symbols[i].name, version)
				  : dlsym(handle, symbols[i].name);

		if (!p && !symbols[i].optional)
			pin_fatal(
				"libibverbs.so.1 has no %s@%s: it is too old for this program",
				symbols[i].name, symbols[i].version);
		*(void **)((char *)table + symbols[i].offset) = p;
	}
}

static const struct pin_ibverbs *find_known(const void *handle)
{
	for (unsigned i = 0; i < n_copies; i++)
		if (copies[i].handle == handle)
			return &copies[i].table;
	return NULL;
}

/*
 * No lock is held over dlopen() and dlsym(), which take the loader's: a constructor may call
 * verbs while another thread is in dlopen(). NULL if there are too many.
 */
static const struct pin_ibverbs *add_copy(void *handle)
{
	static pthread_mutex_t copies_lock = PTHREAD_MUTEX_INITIALIZER;
	const struct pin_ibverbs *known = find_known(handle);
	struct pin_ibverbs table;

	if (known)
		return known;
	resolve(handle, &table);
	pthread_mutex_lock(&copies_lock);
	known = find_known(handle);
	if (!known && n_copies < MOST_COPIES) {
		copies[n_copies] = (struct copy){handle, table};
		known = &copies[n_copies].table;
		n_copies++;
	}
	pthread_mutex_unlock(&copies_lock);
	return known;
}

static PIN_COLD const struct pin_ibverbs *load(void)
{
	const struct pin_ibverbs *none = NULL;
	void *handle = open_loaded();

	if (!handle)
		pin_fatal("a verbs call was made, but no libibverbs.so.1 is loaded");
	atomic_compare_exchange_strong(&in_use, &none, add_copy(handle));
	return atomic_load(&in_use);
}

const struct pin_ibverbs *pin_ibverbs(void)
{
	const struct pin_ibverbs *table = atomic_load_explicit(&in_use, memory_order_acquire);

	return PIN_LIKELY(table != NULL) ? table : load();
}

/* The handle of the libibverbs that a library is linked with, or is. */
static void *open_linked(const struct link_map *library)
{
	const char *names = NULL;

	if (is_copy(library->l_name))
		return dlopen(library->l_name, RTLD_LAZY | RTLD_NOLOAD);
	for (const ElfW(Dyn) *entry = library->l_ld; entry->d_tag != DT_NULL; entry++)
		if (entry->d_tag == DT_STRTAB)
			names = (const char *)entry->d_un.d_ptr;
	for (const ElfW(Dyn) *entry = library->l_ld; names && entry->d_tag != DT_NULL; entry++)
		if (entry->d_tag == DT_NEEDED && is_copy(names + entry->d_un.d_val))
			return dlopen(names + entry->d_un.d_val, RTLD_LAZY | RTLD_NOLOAD);
	return NULL;
}

const struct pin_ibverbs *pin_ibverbs_of_caller(const void *caller)
{
	const struct pin_ibverbs *first = pin_ibverbs(), *its = NULL;
	struct link_map *library = NULL;
	Dl_info unused;
	void *handle;

	if (!n_copies || !dladdr1(caller, &unused, (void **)&library, RTLD_DL_LINKMAP))
		return first;
	handle = library ? open_linked(library) : NULL;
	if (handle)
		its = add_copy(handle);
	return its ? its : first;
}

const struct pin_ibverbs *pin_ibverbs_of(const struct ibv_context *context)
{
	for (unsigned i = 0; PIN_UNLIKELY(i < n_others); i++)
		if (others[i].context == context)
			return others[i].verbs;
	return pin_ibverbs();
}

void pin_ibverbs_note(const struct ibv_context *context, const struct pin_ibverbs *verbs)
{
	static pthread_mutex_t others_lock = PTHREAD_MUTEX_INITIALIZER;
	unsigned i = 0;

	if (verbs == pin_ibverbs() && !n_others)
		return;
	pthread_mutex_lock(&others_lock);
	while (i < n_others && others[i].context && others[i].context != context)
		i++;
	if (i < MOST_CONTEXTS) {
		others[i].verbs = verbs;
		others[i].context = verbs ? context : NULL;
		n_others += i == n_others;
	}
	pthread_mutex_unlock(&others_lock);
}

void pin_ibverbs_replace(const struct pin_ibverbs *table)
{
	atomic_store(&in_use, table);
}
