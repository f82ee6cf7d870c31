/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where the frames of a stack were when it was taken. A program may have unloaded the
 * module since, and what is loaded at its address now, if only to write the report, has
 * names that are not the frame's.
 */
#include <config.h>

#include "allocator/log.h"
#include "preload/report/backtrace.h"

#include <link.h>
#include <stdatomic.h>
#include <string.h>

/* Those beyond either are taken for loaded. Only what is used takes memory. */
#define MODULES	   512
#define PATH_BYTES (64 * PIN_KIB)

/* The program's path is empty, as in the loader's list. */
struct module {
	const char *start, *end, *bias, *path;
};

/* Only ever added to, by pin_backtrace_keep(). */
static struct module modules[MODULES];
static char paths[PATH_BYTES];
static size_t path_bytes;
static _Atomic size_t count;

static bool has(const struct module *module, const char *code)
{
	return code >= module->start && code < module->end;
}

/* What is loaded where the code is; its path lasts as long as it is loaded. */
static bool find_loaded(const char *code, struct module *module)
{
	struct dl_find_object object;

	if (_dl_find_object((void *)code, &object))
		return false;
	*module = (struct module){
		.start = object.dlfo_map_start,
		.end = object.dlfo_map_end,
		.bias = (const char *)object.dlfo_link_map->l_addr,
		.path = object.dlfo_link_map->l_name,
	};
	return true;
}

static bool same(const struct module *a, const struct module *b)
{
	return a->start == b->start && a->end == b->end && !strcmp(a->path, b->path);
}

static bool is_kept(const struct module *module)
{
	bool kept = false;

	for (size_t i = 0; i < count && !kept; i++)
		kept = same(&modules[i], module);
	return kept;
}

static void keep(struct module module)
{
	size_t n = count, length = strlen(module.path) + 1;

	if (n == MODULES || length > PATH_BYTES - path_bytes)
		return;
	module.path = memcpy(paths + path_bytes, module.path, length);
	path_bytes += length;
	modules[n] = module;
	atomic_store_explicit(&count, n + 1, memory_order_release);
}

void pin_backtrace_keep(void *const *frames, size_t n)
{
	struct module module = {0};

	for (size_t i = 0; i < n; i++) {
		const char *code = (const char *)frames[i] - 1;

		if (!has(&module, code) && find_loaded(code, &module) && !is_kept(&module))
			keep(module);
	}
}

/* The one module that was there; NULL if none is known, or several. */
static const struct module *find_kept(const char *code, size_t *n_found)
{
	size_t n = atomic_load_explicit(&count, memory_order_acquire);
	const struct module *module = NULL;

	*n_found = 0;
	for (size_t i = 0; i < n; i++) {
		if (!has(&modules[i], code))
			continue;
		module = &modules[i];
		++*n_found;
	}
	return *n_found == 1 ? module : NULL;
}

bool pin_backtrace_gone(const void *frame, char *buf, size_t size)
{
	const char *code = (const char *)frame - 1;
	struct module loaded;
	size_t n_found;
	const struct module *kept = find_kept(code, &n_found);

	if (!n_found || (kept && find_loaded(code, &loaded) && same(kept, &loaded)))
		return false;
	if (kept)
		pin_format(buf, size, "%s+0x%zx", kept->path, (size_t)(code - kept->bias));
	else
		pin_format(buf, size, "?+0x%zx", (size_t)code);
	return true;
}
