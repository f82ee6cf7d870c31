/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names for the frames of stacks. A report gives a frame as a place in a module,
 * "/path/to/MODULE+0xOFFSET"; the module as it is now says what is there.
 */
#include <config.h>

#include "preload/command/report.h"

#include <dwarf.h>
#include <elfutils/libdwfl.h>
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
	Dwfl_Module *dw; /* NULL: it cannot be read */
	GElf_Addr bias;
	char build_id[2 * 64 + 1]; /* hexadecimal, "" without */
	bool is_told;		   /* that it has changed */
	struct module *next;
};

/* A report may name anything, and opening a pipe would wait for a writer. */
static void open_module(struct module *module)
{
	const unsigned char *bits;
	struct stat status;
	Dwfl *session;
	GElf_Addr at;

	if (stat(module->path, &status) || !S_ISREG(status.st_mode))
		return;
	session = dwfl_begin(&callbacks);
	module->dw = dwfl_report_offline(session, module->path, module->path, -1);
	if (!module->dw || dwfl_report_end(session, NULL, NULL) ||
	    !dwfl_module_getelf(module->dw, &module->bias)) {
		dwfl_end(session);
		module->dw = NULL;
		return;
	}
	for (int i = 0, n = dwfl_module_build_id(module->dw, &bits, &at); i < n && i < 64; i++)
		sprintf(module->build_id + 2 * i, "%02x", bits[i]);
}

static struct module *find_module(const char *path, size_t n)
{
	static struct module *modules;
	struct module *module;

	for (module = modules; module; module = module->next)
		if (!strncmp(module->path, path, n) && !module->path[n])
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

	if (!module->dw)
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

#if HAVE_LIBIBERTY
char *cplus_demangle(const char *name, int options);
#else
#define cplus_demangle(name, options) NULL
#endif

/* With parameters, without the type of what is returned: DMGL_PARAMS, _ANSI, _RET_DROP. */
#define HOW (1 | 2 | 1 << 6)

/* As one clean line, without what the compiler made of it. Without a number, `where` is a
 * module. */
static void print_frame(const char *name, const char *where, int number, FILE *out)
{
	char *plain = cmd_clean(cplus_demangle(name, HOW) ?: cmd_strdup(name));
	char *file = cmd_clean(cmd_strdup(basename(where))), *clone = strstr(plain, " [clone");

	if (clone)
		*clone = '\0';
	fprintf(out, number ? "%s (%s:%d)\n" : "%s (%s)\n", plain, file, number);
	free(plain);
	free(file);
}

static const char *name_of(Dwarf_Die *function)
{
	Dwarf_Attribute name;

	return dwarf_formstring(dwarf_attr_integrate(function, DW_AT_linkage_name, &name))
		       ?: dwarf_diename(function)
		       ?: "(inlined)";
}

static Dwarf_Word number_of(Dwarf_Die *call, unsigned attribute)
{
	Dwarf_Attribute found;
	Dwarf_Word number = 0;

	dwarf_formudata(dwarf_attr(call, attribute, &found), &number);
	return number;
}

/* A place in the source. */
struct source {
	Dwarf_Addr at;
	Dwarf_Files *files;
	const char *file; /* NULL: not known */
	int line;
	FILE *out;
};

/*
 * Prints a frame for each function that is inlined at the place, innermost first, and leaves it
 * where the outermost is called. dwarf_getscopes() does not look into namespaces.
 */
static void print_inlined(Dwarf_Die *scope, struct source *source)
{
	Dwarf_Die inner;

	for (int error = dwarf_child(scope, &inner); !error;
	     error = dwarf_siblingof(&inner, &inner)) {
		int tag = dwarf_tag(&inner);

		if (tag != DW_TAG_namespace && tag != DW_TAG_structure_type &&
		    dwarf_haspc(&inner, source->at) <= 0)
			continue;
		print_inlined(&inner, source);
		if (tag != DW_TAG_inlined_subroutine || !source->file)
			continue;
		print_frame(name_of(&inner), source->file, source->line, source->out);
		source->file = dwarf_filesrc(source->files, number_of(&inner, DW_AT_call_file),
					     NULL, NULL);
		source->line = (int)number_of(&inner, DW_AT_call_line);
	}
}

static void print_frames(const struct module *module, GElf_Addr at, const char *function,
			 FILE *out)
{
	Dwarf_Addr bias;
	Dwarf_Die *unit = unit_of(module->dw, at, &bias);
	Dwarf_Line *line = unit ? dwarf_getsrc_die(unit, at - bias) : NULL;
	struct source source = {.at = at - bias, .out = out};

	if (line && !dwarf_getsrcfiles(unit, &source.files, NULL) &&
	    !dwarf_lineno(line, &source.line)) {
		source.file = dwarf_linesrc(line, NULL, NULL);
		print_inlined(unit, &source);
	}
	print_frame(function, source.file ?: module->path, source.file ? source.line : 0, out);
}

/* What is there, as JSON; null if it has no name. */
static json_t *find_names(const struct module *module, GElf_Addr offset)
{
	GElf_Addr at = offset + module->bias, within;
	const char *function;
	GElf_Sym symbol;
	size_t n_bytes;
	char *names;
	json_t *found;
	FILE *out;

	function = dwfl_module_addrinfo(module->dw, at, &within, &symbol, NULL, NULL, NULL);
	/* The symbol may also be another function, the nearest one before the address. */
	if (!function || within >= symbol.st_size)
		return json_null();
	out = open_memstream(&names, &n_bytes);
	if (!out)
		cmd_no_memory();
	print_frames(module, at, function, out);
	if (fclose(out))
		cmd_no_memory();
	found = json_string(names);
	free(names);
	return found;
}

const char *cmd_frame_names(const char *frame, const json_t *modules)
{
	static json_t *known; /* all ranks have the same places, and a search takes long */
	const char *plus = strrchr(frame, '+');
	struct module *module;
	unsigned long offset;
	json_t *names;
	char *end;

	if (frame[0] != '/' || !plus || strncmp(plus, "+0x", 3))
		return NULL;
	offset = strtoul(plus + 1, &end, 16);
	if (*end)
		return NULL;
	module = find_module(frame, (size_t)(plus - frame));
	if (!is_as_it_was(module, modules))
		return NULL;
	known = known ?: json_object();
	names = json_object_get(known, frame);
	if (!names) {
		names = find_names(module, offset);
		json_object_set_new(known, frame, names);
	}
	return json_string_value(names);
}
