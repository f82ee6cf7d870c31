/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/report/module.h"

#include <link.h>
#include <string.h>

#if HAVE__DL_FIND_OBJECT

#include <dlfcn.h>

bool pin_module_find(const void *code, struct pin_module *module)
{
	struct dl_find_object object;

	if (_dl_find_object((void *)(uintptr_t)code, &object))
		return false;
	*module = (struct pin_module){
		.start = object.dlfo_map_start,
		.end = object.dlfo_map_end,
		.bias = (const char *)object.dlfo_link_map->l_addr,
		.path = object.dlfo_link_map->l_name,
		.header = object.dlfo_eh_frame,
	};
	return true;
}

#else

/* Modules beyond are not known. Only what is used takes memory. */
#define MODULES 1024

/* Written once, and never again: none of them is unloaded. */
static struct pin_module modules[MODULES];
static size_t count;

static struct pin_module module_of(const struct dl_phdr_info *info)
{
	const char *bias = (const char *)info->dlpi_addr;
	struct pin_module module = {.bias = bias, .path = info->dlpi_name};

	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		const char *start = bias + part->p_vaddr, *end = start + part->p_memsz;

		if (part->p_type == PT_GNU_EH_FRAME)
			module.header = start;
		if (part->p_type != PT_LOAD)
			continue;
		if (!module.start)
			module.start = start;
		module.end = end; /* they are in order */
	}
	return module;
}

static int add_module(struct dl_phdr_info *info, size_t size, void *data)
{
	size_t *n = data;

	(void)size;
	if (*n == MODULES)
		return 1;
	modules[(*n)++] = module_of(info);
	return 0;
}

/* While the process has one thread: by a walk in the first malloc, or before the program
 * begins. */
__attribute__((constructor(101))) static void find_modules(void)
{
	size_t n = 0;

	if (count)
		return;
	dl_iterate_phdr(add_module, &n);
	count = n;
}

bool pin_module_find(const void *code, struct pin_module *module)
{
	const char *at = code;
	size_t i = 0;

	find_modules();
	while (i < count && !(at >= modules[i].start && at < modules[i].end))
		i++;
	if (i < count)
		*module = modules[i];
	return i < count;
}

/* .eh_frame_hdr as linkers write it; both figures of a row count from its beginning. */
struct header {
	uint8_t version, frames, rows_count, rows_kind; /* the last three: encodings */
	int32_t first;
	uint32_t n_rows;
	struct row {
		int32_t code, entry;
	} rows[];
};

#define UDATA4		   0x03
#define SDATA4_FROM_HEADER 0x3b
#define WIDTH		   0x07 /* the bits of an encoding that say how many bytes */

static size_t width_of(uint8_t encoding)
{
	switch (encoding & WIDTH) {
	case 2:
		return 2;
	case 3:
		return 4;
	default:
		return 8;
	}
}

/* The last row that begins at the offset or before, or NULL. */
static const struct row *find_row(const struct header *header, ptrdiff_t offset)
{
	size_t low = 0, high = header->n_rows;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (header->rows[middle].code <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low ? &header->rows[low - 1] : NULL;
}

static const uint8_t *skip_number(const uint8_t *p)
{
	while (*p++ & 0x80)
		;
	return p;
}

/* Of the addresses in the entries that have this common part. */
static uint8_t encoding_of(const uint8_t *common)
{
	const char *augmentation = (const char *)common + 9;
	const uint8_t *p = common + 9 + strlen(augmentation) + 1;

	if (augmentation[0] != 'z')
		return 0;
	p = skip_number(skip_number(p));	     /* alignment factors */
	p = common[8] == 1 ? p + 1 : skip_number(p); /* the return address's register */
	p = skip_number(p);			     /* how long what follows is */
	for (const char *kind = augmentation + 1; *kind && *kind != 'R'; kind++)
		if (*kind == 'P')
			p += 1 + width_of(*p);
		else if (*kind == 'L')
			p++;
	return strchr(augmentation, 'R') ? *p : 0;
}

/* The code an entry is for: in bytes. */
static size_t length_of(const uint8_t *entry)
{
	const uint8_t *back = entry + 4;
	uint64_t length = 0;
	int32_t distance;
	size_t width;

	memcpy(&distance, back, sizeof distance);
	width = width_of(encoding_of(back - distance));
	memcpy(&length, back + sizeof distance + width, width);
	return length;
}

const void *pin_module_unwind_entry(const void *code, struct pin_module_bases *bases)
{
	const struct header *header;
	struct pin_module module;
	const struct row *row;
	const char *function;

	if (!pin_module_find(code, &module) || !module.header)
		return NULL;
	header = module.header;
	if (header->version != 1 || header->rows_count != UDATA4 ||
	    header->rows_kind != SDATA4_FROM_HEADER || width_of(header->frames) != 4)
		return NULL;
	row = find_row(header, (const char *)code - (const char *)header);
	if (!row)
		return NULL;
	function = (const char *)header + row->code;
	if ((size_t)((const char *)code - function) >=
	    length_of((const uint8_t *)header + row->entry))
		return NULL;
	*bases = (struct pin_module_bases){.function = function};
	return (const char *)header + row->entry;
}

#endif
