/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/ibverbs.h"
#include "allocator/log.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

static struct pin_ibverbs loaded;
static const struct pin_ibverbs *in_use;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/*
 * NOLOAD on its name, because RTLD_NEXT finds nothing when the program loaded it
 * with RTLD_LOCAL, as UCX does. The versions are those of libibverbs.map.in;
 * without one, dlsym could return the ABI of 1.0 with other structures.
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
	SYMBOL(reg_mr_iova2, "1.8", false),
	SYMBOL(dereg_mr, "1.1", false),
	SYMBOL(rereg_mr, "1.1", false),
	SYMBOL(alloc_pd, "1.1", false),
	SYMBOL(dealloc_pd, "1.1", false),
	SYMBOL(open_device, "1.1", false),
	SYMBOL(close_device, "1.1", false),
	SYMBOL(get_device_list, "1.1", false),
	SYMBOL(fork_init, "1.1", false),
	SYMBOL(import_pd, "1.10", true),
	SYMBOL(unimport_pd, "1.10", true),
	SYMBOL(reg_dmabuf_mr, "1.12", true),
	SYMBOL(is_fork_initialized, "1.13", true),
#undef SYMBOL
};

static int note_text(struct dl_phdr_info *info, size_t size, void *inside)
{
	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
		uintptr_t start = info->dlpi_addr + segment->p_vaddr;

		if (segment->p_type == PT_LOAD && (segment->p_flags & PF_X) &&
		    (uintptr_t)inside - start < segment->p_memsz) {
			loaded.text_start = start;
			loaded.text_end = start + segment->p_memsz;
			return 1;
		}
	}
	return 0;
}

static void resolve(void)
{
	void *handle;

	if (in_use)
		return;
	handle = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
	if (!handle)
		pin_fatal("a verbs call was made, but libibverbs.so.1 is not loaded");
	for (size_t i = 0; i < PIN_ARRAY_SIZE(symbols); i++) {
		void *p = dlvsym(handle, symbols[i].name, symbols[i].version);

		if (!p && !symbols[i].optional)
			pin_fatal(
				"libibverbs.so.1 has no %s@%s: it is too old for this program",
				symbols[i].name, symbols[i].version);
		*(void **)((char *)&loaded + symbols[i].offset) = p;
	}
	dl_iterate_phdr(note_text, (void *)(uintptr_t)loaded.reg_mr_iova2);
	in_use = &loaded;
}

const struct pin_ibverbs *pin_ibverbs(void)
{
	pthread_once(&once, resolve);
	return in_use;
}

void pin_ibverbs_replace(const struct pin_ibverbs *table)
{
	in_use = table;
}

bool pin_ibverbs_contains(const void *code)
{
	const struct pin_ibverbs *verbs = pin_ibverbs();

	return (uintptr_t)code - verbs->text_start < verbs->text_end - verbs->text_start;
}
