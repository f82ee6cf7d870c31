/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/files.h"
#include "regpool/threads.h"

#include <stdatomic.h>

#define MOST 4096 /* of more files the list counts as changed each time */

/*
 * The list as it was when it was looked at last. A file that is loaded later may have the
 * address of an earlier one, or its struct link_map, but not both and the same dynamic section.
 */
static struct {
	struct link_map *_Atomic map;
	ElfW(Dyn) * _Atomic dynamic;
	struct pin_range pages;
} files[MOST];
static _Atomic unsigned n_files;
static _Atomic uint32_t n_changes, state;

/*
 * Follows no pointer that may have changed: only where it leads to the next file as it did then
 * is that one looked at. What the loader has freed meanwhile was a block of the heap, which
 * stays mapped.
 */
static bool has_changed(void)
{
	const struct link_map *it = _r_debug.r_map;

	for (unsigned i = 0; i < n_files; i++) {
		if (it != files[i].map || it->l_ld != files[i].dynamic)
			return true;
		it = it->l_next;
	}
	return it;
}

struct pin_range pin_files_range(const struct dl_phdr_info *file)
{
	struct pin_range range = {UINTPTR_MAX, 0};

	for (int i = 0; i < file->dlpi_phnum; i++) {
		uintptr_t start = file->dlpi_addr + file->dlpi_phdr[i].p_vaddr;

		if (file->dlpi_phdr[i].p_type != PT_LOAD)
			continue;
		if (start < range.start)
			range.start = start;
		range.end = start + file->dlpi_phdr[i].p_memsz;
	}
	return range;
}

static struct link_map *note(struct link_map *map)
{
	files[n_files].map = map;
	files[n_files++].dynamic = map->l_ld;
	return n_files < MOST ? map->l_next : NULL;
}

/* Called in the order in which the loader has linked them. */
static int note_file(struct dl_phdr_info *file, size_t size, void *arg)
{
	struct link_map **map = arg;

	(void)size;
	files[n_files].pages = pin_files_range(file);
	*map = note(*map);
	return !*map;
}

/* The number changes first: who finds the list as it was noted has the number of that list. */
uint32_t pin_files_state(void)
{
	struct link_map *map = _r_debug.r_map;

	if (PIN_LIKELY(!has_changed()))
		return state;
	PIN_SHIELDED;
	PIN_LOCKED(&pin_loader_lock);
	state = ++n_changes;
	n_files = 0;
	dl_iterate_phdr(note_file, &map);
	return state;
}

/*
 * The loader's list is whole at any time: what another thread of the parent was adding or
 * removing is in it or is not.
 */
void pin_files_begin_child(void)
{
	struct link_map *it = n_files ? _r_debug.r_map : NULL;

	state = 0;
	for (n_files = 0; it;)
		it = note(it);
}

bool pin_files_meet(struct pin_range range)
{
	for (unsigned i = 0; i < n_files; i++)
		if (pin_range_meets(files[i].pages, range))
			return true;
	return false;
}
