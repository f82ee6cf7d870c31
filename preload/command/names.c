/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names for frames that a report gives as a place in a module, because its process ended where
 * names could not be looked up. They are looked up here, in the module as it is now.
 */
#include <config.h>

#include "preload/command/command.h"
#include "preload/command/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#if HAVE_LIBDW

#define LIBDW(function) function
#include "preload/source-line.h"

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
	struct module *next;
};

/* A report may name anything, and opening a pipe would wait for a writer. */
static bool is_file(const char *path)
{
	struct stat status;

	return !stat(path, &status) && S_ISREG(status.st_mode);
}

static void open_module(struct module *module)
{
	module->session = is_file(module->path) ? dwfl_begin(&callbacks) : NULL;
	if (!module->session)
		return;
	module->dw = dwfl_report_offline(module->session, module->path, module->path, -1);
	if (module->dw && !dwfl_report_end(module->session, NULL, NULL) &&
	    dwfl_module_getelf(module->dw, &module->bias))
		return;
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

static bool name_offset(const struct module *module, GElf_Addr offset, char *name, size_t size)
{
	GElf_Addr at = offset + module->bias;
	const char *function, *file;
	GElf_Off within;
	GElf_Sym symbol;
	int number;

	function = dwfl_module_addrinfo(module->dw, at, &within, &symbol, NULL, NULL, NULL);
	/* The symbol may also be another function, the nearest one before the address. */
	if (!function || within >= symbol.st_size)
		return false;
	file = pin_source_line(module->dw, at, &number);
	if (file)
		snprintf(name, size, "%s (%s:%d)", function, basename(file), number);
	else
		snprintf(name, size, "%s (%s)", function, basename(module->path));
	return true;
}

bool cmd_frame_name(const char *frame, char *name, size_t size)
{
	const char *plus = strrchr(frame, '+');
	const struct module *module;
	unsigned long offset;
	char *end;

	if (frame[0] != '/' || !plus || strncmp(plus, "+0x", 3))
		return false;
	offset = strtoul(plus + 1, &end, 16);
	if (*end)
		return false;
	module = find_module(frame, (size_t)(plus - frame));
	return module->session && name_offset(module, offset, name, size);
}

#else

bool cmd_frame_name(const char *frame, char *name, size_t size)
{
	(void)frame;
	(void)name;
	(void)size;
	return false;
}

#endif
