/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds a loaded file whose calls of free() or ibv_reg_mr() were bound to libc or libibverbs
 * although this library comes first: one that dlopen() has loaded with RTLD_DEEPBIND. Calls
 * that were not bound yet are not seen.
 */
#include <config.h>

#include "preload/conflicts.h"
#include "allocator/log.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>

/* The names, and what this library stands before. */
static const char *const names[] = {"free", "malloc", "ibv_reg_mr", "ibv_reg_mr_iova2"};
static const void *others[PIN_ARRAY_SIZE(names)];

struct symbols {
	const ElfW(Sym) * table;
	const char *names;
};

/* Whether this place has the address that the name would have without this library. */
static bool is_other(const char *name, const void *value)
{
	for (size_t i = 0; i < PIN_ARRAY_SIZE(names); i++)
		if (value && value == others[i] && !strcmp(name, names[i]))
			return true;
	return false;
}

/* Those of ElfW(Rela), as on x86-64 and arm64. */
static bool any_other(const struct dl_phdr_info *file, struct symbols symbols,
		      const ElfW(Rela) * relocation, size_t n_bytes)
{
	for (size_t i = 0; relocation && i < n_bytes / sizeof *relocation; i++) {
		const ElfW(Sym) *symbol = &symbols.table[ELF64_R_SYM(relocation[i].r_info)];
		const void *const *place = (const void *const *)(file->dlpi_addr +
								 relocation[i].r_offset);

		if (symbol != symbols.table && symbol->st_shndx == SHN_UNDEF &&
		    is_other(symbols.names + symbol->st_name, *place))
			return true;
	}
	return false;
}

/* The loader does that itself, if it can write there. */
static void relocate(ElfW(Addr) * entries, ElfW(Addr) by)
{
	static const int addresses[] = {DT_SYMTAB, DT_STRTAB, DT_RELA, DT_JMPREL};

	for (size_t i = 0; i < PIN_ARRAY_SIZE(addresses); i++)
		if (entries[addresses[i]])
			entries[addresses[i]] += by;
}

/* Keeps the name: the file may be closed in another thread when this has ended. */
static int look(struct dl_phdr_info *file, size_t size, void *found)
{
	ElfW(Addr) entries[DT_JMPREL + 1] = {0};
	struct symbols symbols;

	(void)size;
	for (int i = 0; i < file->dlpi_phnum; i++) {
		const ElfW(Dyn) *entry = (void *)(file->dlpi_addr + file->dlpi_phdr[i].p_vaddr);

		if (file->dlpi_phdr[i].p_type != PT_DYNAMIC)
			continue;
		for (; entry->d_tag != DT_NULL; entry++)
			if (entry->d_tag > 0 && entry->d_tag <= DT_JMPREL)
				entries[entry->d_tag] = entry->d_un.d_ptr;
		if (!(file->dlpi_phdr[i].p_flags & PF_W))
			relocate(entries, file->dlpi_addr);
	}
	symbols.table = (const ElfW(Sym) *)entries[DT_SYMTAB];
	symbols.names = (const char *)entries[DT_STRTAB];
	/* The kernel's own file has no relocations, and its addresses are relative. */
	if (!any_other(file, symbols, (const ElfW(Rela) *)entries[DT_JMPREL],
		       entries[DT_PLTRELSZ]) &&
	    !any_other(file, symbols, (const ElfW(Rela) *)entries[DT_RELA], entries[DT_RELASZ]))
		return 0;
	pin_format(found, PATH_MAX, "%s", file->dlpi_name);
	return 1;
}

/* A number that changes with each file that is loaded or unloaded. */
static int count_loads(struct dl_phdr_info *file, size_t size, void *n)
{
	(void)size;
	*(uint64_t *)n = file->dlpi_adds + file->dlpi_subs;
	return 1;
}

void pin_conflicts_check_binding(enum pin_device event)
{
	static _Atomic uint64_t seen[PIN_DEVICE_EVENTS];
	char found[PATH_MAX] = "";
	uint64_t n = 0;

	dl_iterate_phdr(count_loads, &n);
	if (atomic_exchange(&seen[event], n) == n)
		return;
	for (size_t i = 0; i < PIN_ARRAY_SIZE(names); i++)
		others[i] = dlsym(RTLD_NEXT, names[i]);
	dl_iterate_phdr(look, found);
	if (*found)
		pin_warn_once(
			"%s was loaded with RTLD_DEEPBIND: its malloc and verbs are not "
			"this library's, so what it allocates is not registered and a block "
			"that one side frees for the other ends the process; see "
			"pinalloc-problems(7)",
			found);
}
