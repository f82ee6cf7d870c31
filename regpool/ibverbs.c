/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A copy of libibverbs is any loaded object, but this library, that defines what it defines,
 * whatever its name: Python wheels have one under another, some transports one within them. Its
 * functions are read from the object's own tables: dlsym() and dladdr() take the loader's lock,
 * which a constructor holds that waits for a thread that calls verbs.
 */
#include <config.h>

#include "regpool/ibverbs.h"
#include "regpool/files.h"
#include "regpool/threads.h"
#include "allocator/log.h"
#include "allocator/reserve.h"

#include <stdatomic.h>
#include <string.h>

/*
 * What a copy has opened may still be in use, and a provider keeps its libibverbs loaded. One
 * that is not loaded any more has no addresses.
 */
struct copy {
	struct pin_ibverbs table;
	struct pin_range range; /* of its object; empty if it has been unloaded */
	bool is_seen;		/* by the last look */
};
static struct pin_table copies = PIN_TABLE(struct copy, 4096, 0);
static _Atomic size_t n_copies;

/* The copy that is called where no other is known to be meant: the first. */
static const struct pin_ibverbs *_Atomic in_use;

static const struct {
	const char *name, *version;
	size_t offset;
} symbols[] = {
#define FUNCTION(name, version) \
	{"ibv_" #name, "IBVERBS_" version, offsetof(struct pin_ibverbs, name)},
	PIN_IBVERBS_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

/* The dynamic section of an object. */
struct object {
	uintptr_t base;
	struct pin_range range;
	const ElfW(Sym) * symbols;
	const char *names;
	const uint32_t *hash;
	const ElfW(Half) * versions;
	const ElfW(Verdef) * definitions;
};

/* The table of this kind, or NULL. The loader has added the base, but not on all processors. */
static void *table_of(const struct object *object, const ElfW(Dyn) * entry, ElfW(Sxword) tag)
{
	uintptr_t p;

	while (entry->d_tag != tag)
		if ((entry++)->d_tag == DT_NULL)
			return NULL;
	p = entry->d_un.d_ptr;
	return (void *)(p < object->base ? object->base + p : p);
}

static bool read_object(struct object *object, const struct dl_phdr_info *info)
{
	const ElfW(Dyn) * dynamic;

	*object = (struct object){.base = info->dlpi_addr, .range = pin_files_range(info)};
	for (int i = 0; i < info->dlpi_phnum; i++) {
		if (info->dlpi_phdr[i].p_type != PT_DYNAMIC)
			continue;
		dynamic = (void *)(object->base + info->dlpi_phdr[i].p_vaddr);
		object->symbols = table_of(object, dynamic, DT_SYMTAB);
		object->names = table_of(object, dynamic, DT_STRTAB);
		object->hash = table_of(object, dynamic, DT_GNU_HASH);
		object->versions = table_of(object, dynamic, DT_VERSYM);
		object->definitions = table_of(object, dynamic, DT_VERDEF);
	}
	return object->symbols && object->names && object->hash;
}

/* What an object defines has a version that it defines, too. */
static bool has_version(const struct object *object, uint32_t symbol, const char *version)
{
	const ElfW(Verdef) *definition = object->definitions;
	uint32_t wanted;

	if (!version || !definition || !object->versions)
		return true;
	wanted = object->versions[symbol] & 0x7fffu;
	while (definition->vd_ndx != wanted && definition->vd_next)
		definition = (const void *)((const char *)definition + definition->vd_next);
	return !strcmp(object->names +
			       ((const ElfW(Verdaux) *)(const void *)((const char *)definition +
								      definition->vd_aux))
				       ->vda_name,
		       version);
}

/* By its table of DT_GNU_HASH: counts, a filter, buckets, and hashes of which the last is odd.
 */
static void *find_symbol(const struct object *object, const char *name, const char *version)
{
	const uint32_t *buckets = object->hash + 4 + object->hash[2] * (sizeof(size_t) / 4);
	const uint32_t *hashes = buckets + object->hash[0];
	uint32_t hash = 5381, first = object->hash[1], i;

	for (const char *c = name; *c; c++)
		hash = hash * 33 + (unsigned char)*c;
	i = object->hash[0] ? buckets[hash % object->hash[0]] : 0;
	for (bool is_last = !i; !is_last; i++) {
		const ElfW(Sym) *symbol = &object->symbols[i];

		is_last = hashes[i - first] & 1;
		if ((hashes[i - first] | 1) == (hash | 1) && symbol->st_shndx != SHN_UNDEF &&
		    !strcmp(object->names + symbol->st_name, name) &&
		    has_version(object, i, version))
			return (void *)(object->base + symbol->st_value);
	}
	return NULL;
}

static bool resolve(const struct object *object, struct pin_ibverbs *table)
{
	for (size_t i = 0; i < PIN_ARRAY_SIZE(symbols); i++)
		*(void **)((char *)table + symbols[i].offset) = find_symbol(
			object, symbols[i].name, symbols[i].version);
	*(void **)&table->uninit_context = find_symbol(object, "verbs_uninit_context", NULL);
	return table->reg_mr_iova2 && table->dereg_mr && table->alloc_pd && table->query_device;
}

static struct copy *copy_at(size_t i)
{
	return pin_table_at(&copies, struct copy, i);
}

static struct copy *find_known(uintptr_t addr)
{
	for (size_t i = 0; i < n_copies; i++)
		if (pin_range_has_address(copy_at(i)->range, addr))
			return copy_at(i);
	return NULL;
}

static int look_at(struct dl_phdr_info *info, size_t size, void *unused)
{
	struct pin_ibverbs table = {0};
	struct object object;
	struct copy *known;

	(void)size, (void)unused;
	if (!read_object(&object, info))
		return 0;
	known = find_known(object.range.start);
	if (known)
		known->is_seen = true;
	if (known || pin_range_has_address(object.range, (uintptr_t)&copies) ||
	    !find_symbol(&object, "ibv_reg_mr_iova2", NULL) || !resolve(&object, &table))
		return 0;
	if (pin_table_ensure(&copies, n_copies + 1))
		pin_fatal("there is no memory for the functions of libibverbs");
	*copy_at(n_copies) = (struct copy){table, object.range, true};
	n_copies++;
	return 0;
}

void pin_ibverbs_find(void)
{
	static _Atomic uint32_t seen;
	const struct pin_ibverbs *first = NULL;
	uint32_t now = pin_files_state();

	if (in_use && (!now || now == seen))
		return;
	PIN_SHIELDED;
	PIN_LOCKED(&pin_loader_lock);
	for (size_t i = 0; i < n_copies; i++)
		copy_at(i)->is_seen = false;
	dl_iterate_phdr(look_at, NULL);
	for (size_t i = n_copies; i--;) {
		if (!copy_at(i)->is_seen)
			copy_at(i)->range = (struct pin_range){0, 0};
		else
			first = &copy_at(i)->table;
	}
	if (first)
		in_use = first;
	seen = now;
}

static PIN_COLD const struct pin_ibverbs *load(void)
{
	pin_ibverbs_find();
	if (!in_use)
		pin_fatal("a verbs call was made, but no libibverbs.so.1 is loaded");
	return atomic_load(&in_use);
}

const struct pin_ibverbs *pin_ibverbs(void)
{
	const struct pin_ibverbs *table = atomic_load_explicit(&in_use, memory_order_acquire);

	return PIN_LIKELY(table != NULL) ? table : load();
}

/* Each has a function of libibverbs' own, which no provider replaces. */
const struct pin_ibverbs *pin_ibverbs_of(const struct ibv_context *context)
{
	const struct pin_ibverbs *first = pin_ibverbs();
	struct verbs_context *extended;
	struct copy *its;

	if (PIN_LIKELY(n_copies < 2))
		return first;
	extended = verbs_get_ctx_op((struct ibv_context *)(uintptr_t)context, query_port);
	its = extended ? find_known((uintptr_t)extended->query_port) : NULL;
	return its ? &its->table : pin_ibverbs_of_device(context->device);
}

/* libibverbs keeps a device that is in a list of the program's, and lists it again. */
static bool has_device(const struct pin_ibverbs *table, const struct ibv_device *device)
{
	PIN_SHIELDED;
	struct ibv_device **list = NULL;
	bool has = false;
	int n = 0;

	if (table->get_device_list && table->free_device_list)
		list = table->get_device_list(&n);
	for (int i = 0; list && i < n; i++)
		has |= list[i] == device;
	if (list)
		table->free_device_list(list);
	return has;
}

const struct pin_ibverbs *pin_ibverbs_of_device(const struct ibv_device *device)
{
	const struct pin_ibverbs *first = pin_ibverbs();

	pin_ibverbs_find();
	for (size_t i = 0; n_copies > 1 && i < n_copies; i++)
		if (copy_at(i)->range.end && has_device(&copy_at(i)->table, device))
			return &copy_at(i)->table;
	return first;
}

#ifdef PIN_DEBUG
void pin_ibverbs_replace(const struct pin_ibverbs *table)
{
	atomic_store(&in_use, table);
}
#endif
