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

static struct pin_ibverbs loaded;
static const struct pin_ibverbs *_Atomic in_use;

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

static int find_copy(struct dl_phdr_info *object, size_t size, void *arg)
{
	const char *path = object->dlpi_name, *slash = path ? strrchr(path, '/') : NULL;
	struct found *found = arg;

	(void)size;
	if (!slash || strncmp(slash + 1, "libibverbs", strlen("libibverbs")) ||
	    strlen(path) >= sizeof found->path)
		return 0;
	strcpy(found->path, path);
	return 1;
}

/* Python wheels have a copy of their own under another name, as libibverbs-1a2b3c4d.so.1. */
static void *open_loaded(void)
{
	void *handle = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
	struct found found;

	if (!handle && dl_iterate_phdr(find_copy, &found))
		handle = dlopen(found.path, RTLD_LAZY | RTLD_NOLOAD);
	return handle;
}

static void resolve(struct pin_ibverbs *table)
{
	void *handle = open_loaded();

	if (!handle)
		pin_fatal("a verbs call was made, but no libibverbs.so.1 is loaded");
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

/*
 * No lock is held over dlopen(), which takes the loader's: a constructor may call verbs while
 * another thread is in dlopen(). Two threads that get here find the same.
 */
static PIN_COLD const struct pin_ibverbs *load(void)
{
	static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
	struct pin_ibverbs table;

	resolve(&table);
	pthread_mutex_lock(&load_lock);
	if (!atomic_load(&in_use)) {
		loaded = table;
		atomic_store_explicit(&in_use, &loaded, memory_order_release);
	}
	pthread_mutex_unlock(&load_lock);
	return &loaded;
}

const struct pin_ibverbs *pin_ibverbs(void)
{
	const struct pin_ibverbs *table = atomic_load_explicit(&in_use, memory_order_acquire);

	return PIN_LIKELY(table != NULL) ? table : load();
}

void pin_ibverbs_replace(const struct pin_ibverbs *table)
{
	atomic_store(&in_use, table);
}
