/* SPDX-License-Identifier: BSD-2-Clause */
/* The pools of pinalloc.h: checks arguments, and translates options and errors. */
#include <config.h>

#define PINALLOC_API PIN_EXPORT
#include "allocator/base.h"
#include "preload/pinalloc.h"

#include "allocator/os.h"
#include "regpool/userpool.h"

#include <errno.h>
#include <string.h>

#define ALL_FLAGS (PINALLOC_POOL_GROWS | PINALLOC_POOL_ON_NODE)

/* Options of a later version may be longer than these, if what these lack is not used. */
static bool read_options(struct pinalloc_pool_options *options,
			 const struct pinalloc_pool_options *given, size_t size)
{
	size_t known = size < sizeof *options ? size : sizeof *options;

	memset(options, 0, sizeof *options);
	memcpy(options, given, known);
	for (size_t i = known; i < size; i++)
		if (((const char *)given)[i])
			return false;
	return options->bytes && !(options->flags & ~ALL_FLAGS) &&
	       (!options->page_size || options->page_size == PINALLOC_PAGES_HUGE ||
		options->page_size == PINALLOC_PAGES_GIGANTIC) &&
	       (!(options->flags & PINALLOC_POOL_ON_NODE) || pin_os_has_node(options->node));
}

static void *fail(int error)
{
	errno = error;
	return NULL;
}

struct pinalloc_pool *pinalloc_pool_create(const struct pinalloc_pool_options *given,
					   size_t size)
{
	struct pinalloc_pool_options options;
	struct pin_userpool_options wanted;
	struct pin_userpool *pool;
	size_t page;
	int error;

	if (!given || !read_options(&options, given, size))
		return fail(EINVAL);
	page = options.page_size ? options.page_size : PIN_GRANULE;
	wanted = (struct pin_userpool_options){
		.need = {.n_bytes = PIN_ALIGN_UP(options.bytes, page),
			 .page_size = options.page_size,
			 .node = options.flags & PINALLOC_POOL_ON_NODE ? options.node
								       : PIN_NODE_HERE},
		.n_threads = options.threads,
		.grows = options.flags & PINALLOC_POOL_GROWS,
		.on_segment = options.on_segment,
		.arg = options.arg,
	};
	error = wanted.need.n_bytes ? pin_userpool_create(&wanted, &pool) : -ENOMEM;
	return error ? fail(-error) : (struct pinalloc_pool *)pool;
}

void *pinalloc_pool_alloc(struct pinalloc_pool *pool, size_t size, size_t alignment)
{
	void *slice;
	int error;

	if (PIN_UNLIKELY(!pool || alignment & (alignment - 1)))
		return fail(EINVAL);
	error = pin_userpool_alloc((struct pin_userpool *)pool, size, alignment, &slice);
	return PIN_LIKELY(!error) ? slice : fail(-error);
}

int pinalloc_pool_free(struct pinalloc_pool *pool, void *slice)
{
	if (!slice)
		return 0;
	return pool ? pin_userpool_free((struct pin_userpool *)pool, slice) : -EINVAL;
}

int pinalloc_pool_destroy(struct pinalloc_pool *pool)
{
	return pool ? pin_userpool_destroy((struct pin_userpool *)pool) : 0;
}
