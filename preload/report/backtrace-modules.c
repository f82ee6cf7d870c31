/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The modules that frames were in when their stack was taken. The program may have unloaded one
 * since. What is loaded at its address now, if only to write the report, would give the frame a
 * wrong name.
 */
#include <config.h>

#include "allocator/log.h"
#include "preload/report/backtrace.h"
#include "preload/report/module.h"

#include <stdatomic.h>
#include <string.h>

/* Modules beyond either count as loaded. Only what is used takes memory. */
#define MODULES	   512
#define PATH_BYTES (64 * PIN_KIB)

/* pin_backtrace_note_modules() adds to it; nothing is ever removed. */
static struct pin_module modules[MODULES];
static char paths[PATH_BYTES];
static size_t path_bytes;
static _Atomic size_t count;

static bool contains(const struct pin_module *module, const char *code)
{
	return code >= module->start && code < module->end;
}

static bool is_same_module(const struct pin_module *a, const struct pin_module *b)
{
	return a->start == b->start && a->end == b->end && !strcmp(a->path, b->path);
}

static bool is_noted(const struct pin_module *module)
{
	bool noted = false;

	for (size_t i = 0; i < count && !noted; i++)
		noted = is_same_module(&modules[i], module);
	return noted;
}

static void note_module(struct pin_module module)
{
	size_t n = count, length = strlen(module.path) + 1;

	if (n == MODULES || length > PATH_BYTES - path_bytes)
		return;
	module.path = memcpy(paths + path_bytes, module.path, length);
	path_bytes += length;
	modules[n] = module;
	atomic_store_explicit(&count, n + 1, memory_order_release);
}

void pin_backtrace_note_modules(void *const *frames, size_t n)
{
	struct pin_module module = {0};

	for (size_t i = 0; i < n; i++) {
		const char *code = (const char *)frames[i] - 1;

		if (!contains(&module, code) && pin_module_find(code, &module) &&
		    !is_noted(&module))
			note_module(module);
	}
}

/* The one module that was there; NULL if none was noted, or several were. */
static const struct pin_module *find_noted(const char *code, size_t *n_found)
{
	size_t n = atomic_load_explicit(&count, memory_order_acquire);
	const struct pin_module *module = NULL;

	*n_found = 0;
	for (size_t i = 0; i < n; i++) {
		if (!contains(&modules[i], code))
			continue;
		module = &modules[i];
		++*n_found;
	}
	return *n_found == 1 ? module : NULL;
}

bool pin_backtrace_unloaded(const void *frame, char *buf, size_t size)
{
	const char *code = (const char *)frame - 1;
	struct pin_module loaded;
	size_t n_found;
	const struct pin_module *noted = find_noted(code, &n_found);

	if (!n_found ||
	    (noted && pin_module_find(code, &loaded) && is_same_module(noted, &loaded)))
		return false;
	if (noted)
		pin_format(buf, size, "%s+0x%zx", noted->path, (size_t)(code - noted->bias));
	else
		pin_format(buf, size, "?+0x%zx", (size_t)code);
	return true;
}
