/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names for the frames of stacks. A report gives a frame as a place in a module,
 * "/path/to/MODULE+0xOFFSET"; the module as it is now says what is there.
 */
#include <config.h>

#include "preload/command/command.h"
#include "preload/command/job.h"

#include <elfutils/libdwfl.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* dwfl_standard_find_debuginfo may ask a server. */
static const Dwfl_Callbacks callbacks = {
	.find_elf = dwfl_build_id_find_elf,
	.find_debuginfo = dwfl_build_id_find_debuginfo,
	.section_address = dwfl_offline_section_address,
};

/* A file that has been opened, or could not be. */
struct module {
	char *path;
	Dwfl *session; /* NULL: it cannot be read */
	Dwfl_Module *dw;
	GElf_Addr bias;
	char build_id[2 * 64 + 1]; /* hexadecimal, "" without */
	bool is_told;		   /* that it has changed */
	void *places;		   /* a tree of those that have been looked up */
	struct module *next;
};

static void read_build_id(struct module *module)
{
	const unsigned char *bits;
	GElf_Addr at;
	int n = dwfl_module_build_id(module->dw, &bits, &at);

	for (int i = 0; i < n && i < 64; i++)
		sprintf(module->build_id + 2 * i, "%02x", bits[i]);
}

/* A report may name anything, and opening a pipe would wait for a writer. */
static void open_module(struct module *module)
{
	struct stat status;
	bool is_file = !stat(module->path, &status) && S_ISREG(status.st_mode);

	module->session = is_file ? dwfl_begin(&callbacks) : NULL;
	if (!module->session)
		return;
	module->dw = dwfl_report_offline(module->session, module->path, module->path, -1);
	if (module->dw && !dwfl_report_end(module->session, NULL, NULL) &&
	    dwfl_module_getelf(module->dw, &module->bias)) {
		read_build_id(module);
		return;
	}
	dwfl_end(module->session);
	module->session = NULL;
}

static struct module *find_module(const char *path, size_t n)
{
	static struct module *modules;
	struct module *module = modules;

	while (module && (strncmp(module->path, path, n) || module->path[n]))
		module = module->next;
	if (module)
		return module;
	module = cmd_realloc(NULL, sizeof *module);
	*module = (struct module){.path = cmd_strdup(path), .next = modules};
	module->path[n] = '\0';
	modules = module;
	open_module(module);
	return module;
}

/* Whether the file is what the process had, as far as the report says. */
static bool is_as_it_was(struct module *module, const json_t *modules)
{
	const char *then = json_string_value(json_object_get(modules, module->path));

	if (!module->session)
		return false;
	if (!then || !*then || !strcmp(then, module->build_id))
		return true;
	if (!module->is_told)
		cmd_complain("%s has changed since the job ran, so its functions are not "
			     "named; run this where the file is as it was",
			     module->path);
	module->is_told = true;
	return false;
}

/* By .debug_aranges; but clang does not write that: then units are asked one by one. */
static Dwarf_Die *unit_of(Dwfl_Module *module, Dwarf_Addr code, Dwarf_Addr *bias)
{
	Dwarf_Die *unit = dwfl_module_addrdie(module, code, bias);

	if (unit)
		return unit;
	while ((unit = dwfl_module_nextcu(module, unit, bias)))
		if (dwarf_haspc(unit, code - *bias) > 0)
			return unit;
	return NULL;
}

/* The source file, or NULL, and the line. */
static const char *line_of(Dwfl_Module *module, Dwarf_Addr code, int *number)
{
	Dwarf_Addr bias;
	Dwarf_Die *unit = unit_of(module, code, &bias);
	Dwarf_Line *line = unit ? dwarf_getsrc_die(unit, code - bias) : NULL;

	return line && !dwarf_lineno(line, number) ? dwarf_linesrc(line, NULL, NULL) : NULL;
}

static char *find_name(const struct module *module, GElf_Addr offset)
{
	GElf_Addr at = offset + module->bias, within;
	const char *function, *file;
	GElf_Sym symbol;
	char *name;
	int number;

	function = dwfl_module_addrinfo(module->dw, at, &within, &symbol, NULL, NULL, NULL);
	/* The symbol may also be another function, the nearest one before the address. */
	if (!function || within >= symbol.st_size)
		return NULL;
	file = line_of(module->dw, at, &number);
	if ((file ? asprintf(&name, "%s (%s:%d)", function, basename(file), number)
		  : asprintf(&name, "%s (%s)", function, basename(module->path))) < 0)
		cmd_no_memory();
	return cmd_utf8(name);
}

/* `name` is NULL if it has none. */
struct place {
	GElf_Addr offset;
	char *name;
};

static int compare_offsets(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(GElf_Addr));
}

/* All ranks have the same places, and a search takes a fraction of a millisecond. */
static const char *name_at(struct module *module, GElf_Addr offset)
{
	struct place *place = cmd_realloc(NULL, sizeof *place), **known;

	place->offset = offset;
	known = tsearch(place, &module->places, compare_offsets);
	if (!known)
		cmd_no_memory();
	if (*known != place)
		free(place);
	else
		place->name = find_name(module, offset);
	return (*known)->name;
}

const char *cmd_frame_name(const char *frame, const json_t *modules)
{
	const char *plus = strrchr(frame, '+');
	struct module *module;
	unsigned long offset;
	char *end;

	if (frame[0] != '/' || !plus || strncmp(plus, "+0x", 3))
		return NULL;
	offset = strtoul(plus + 1, &end, 16);
	if (*end)
		return NULL;
	module = find_module(frame, (size_t)(plus - frame));
	return is_as_it_was(module, modules) ? name_at(module, offset) : NULL;
}
