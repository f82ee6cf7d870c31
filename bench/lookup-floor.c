/* SPDX-License-Identifier: BSD-2-Clause */
/* The baseline look-ups. In a separate file, so that they are called, not inlined. */
#include <config.h>

#include "bench/lookup.h"
#include "test/programs/rdma.h"

#define GRANULE_SHIFT 21

static uintptr_t base;
static size_t n_granules;
static uint32_t *indices; /* by granule */
static struct pinalloc_key *keys;
static uint32_t n_keys;

void floor_init(uintptr_t lowest, uintptr_t highest, size_t n_entries)
{
	base = lowest >> GRANULE_SHIFT << GRANULE_SHIFT;
	n_granules = ((highest - base) >> GRANULE_SHIFT) + 1;
	n_keys = 0;
	need((indices = calloc(n_granules, sizeof *indices)));
	need((keys = calloc(n_entries, sizeof *keys)));
}

void floor_add(uintptr_t addr, struct pinalloc_key key)
{
	indices[(addr - base) >> GRANULE_SHIFT] = n_keys;
	keys[n_keys++] = key;
}

void floor_same(uintptr_t addr)
{
	indices[(addr - base) >> GRANULE_SHIFT] = n_keys - 1;
}

int floor_lookup(struct ibv_pd *pd, const void *addr, size_t length, unsigned access,
		 struct pinalloc_key *key)
{
	size_t granule = ((uintptr_t)addr - base) >> GRANULE_SHIFT;

	(void)pd;
	(void)access;
	(void)length;
	if (__builtin_expect(granule >= n_granules, 0))
		return -ENOENT;
	*key = keys[indices[granule]];
	return 0;
}

int empty_lookup(struct ibv_pd *pd, const void *addr, size_t length, unsigned access,
		 struct pinalloc_key *key)
{
	(void)pd;
	(void)access;
	(void)addr;
	(void)length;
	(void)key;
	return 0;
}
