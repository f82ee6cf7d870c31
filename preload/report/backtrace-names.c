/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names for the frames of a stack. The only user of libdw, which is loaded when names with
 * lines are first asked for. It must never fetch anything: debug information comes from the
 * module itself, or by build id from below /usr/lib/debug.
 */
#include <config.h>

#include "allocator/log.h"
#include "preload/report/backtrace.h"
#include "preload/report/module.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct place {
	const char *name, *file, *module;
	int line;
};

#if HAVE_LIBDW

#include <elfutils/libdwfl.h>

/* The functions of libdw by the names they have there. */
#define DW_FUNCTIONS(X)                 \
	X(dwfl_begin)                   \
	X(dwfl_end)                     \
	X(dwfl_linux_proc_report)       \
	X(dwfl_linux_proc_find_elf)     \
	X(dwfl_report_end)              \
	X(dwfl_build_id_find_debuginfo) \
	X(dwfl_addrmodule)              \
	X(dwfl_module_info)             \
	X(dwfl_module_addrinfo)         \
	X(dwfl_module_addrdie)          \
	X(dwfl_module_nextcu)           \
	X(dwarf_haspc)                  \
	X(dwarf_getsrc_die)             \
	X(dwarf_lineno)                 \
	X(dwarf_linesrc)

#define DECLARE(function) __typeof__(&function) function;
static struct {
	DW_FUNCTIONS(DECLARE)
} dw;
#undef DECLARE

#define LIBDW(function) dw.function
#include "preload/source-line.h"

/* Whether libdw has been looked for, and what it knows of this process. */
static enum { NOT_TRIED, LOADED, MISSING } library;
static Dwfl_Callbacks callbacks;
static Dwfl *session;

static bool find_functions(void *handle)
{
#define FIND(function) &&(dw.function = (__typeof__(dw.function))dlsym(handle, #function))
	return true DW_FUNCTIONS(FIND);
#undef FIND
}

static bool load_libdw(void)
{
	void *handle;

	if (library != NOT_TRIED)
		return library == LOADED;
	handle = dlopen("libdw.so.1", RTLD_LAZY | RTLD_LOCAL);
	library = handle && find_functions(handle) ? LOADED : MISSING;
	if (library == MISSING)
		pin_info("stacks are shown without lines: libdw.so.1 is not installed "
			 "(Debian: libdw1)");
	/* dwfl_standard_find_debuginfo may ask a server. */
	callbacks.find_elf = dw.dwfl_linux_proc_find_elf;
	callbacks.find_debuginfo = dw.dwfl_build_id_find_debuginfo;
	return library == LOADED;
}

static bool begin_session(void)
{
	if (session || !load_libdw())
		return session;
	session = dw.dwfl_begin(&callbacks);
	if (session && (dw.dwfl_linux_proc_report(session, getpid()) ||
			dw.dwfl_report_end(session, NULL, NULL)))
		pin_backtrace_done();
	return session;
}

static void look_up_code(uintptr_t code, struct place *place)
{
	Dwfl_Module *module = begin_session() ? dw.dwfl_addrmodule(session, code) : NULL;
	GElf_Off offset;
	GElf_Sym symbol;
	const char *name;

	if (!module)
		return;
	place->module = dw.dwfl_module_info(module, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
	/* The symbol may also be another function, the nearest one before the address. */
	name = dw.dwfl_module_addrinfo(module, code, &offset, &symbol, NULL, NULL, NULL);
	if (name && offset < symbol.st_size)
		place->name = name;
	place->file = pin_source_line(module, code, &place->line);
}

void pin_backtrace_done(void)
{
	if (session)
		dw.dwfl_end(session);
	session = NULL;
}

#else

static void look_up_code(uintptr_t code, struct place *place)
{
	(void)code;
	(void)place;
}

void pin_backtrace_done(void)
{
}

#endif

static const char *last_component(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* The name as people write it: without a symbol version, and C++ demangled. */
static char *readable_name(const char *name)
{
	char *(*demangle)(const char *, char *, size_t *, int *) = NULL;
	char *plain = strndup(name, strcspn(name, "@")), *translated = NULL;
	int status;

	if (plain && !strncmp(plain, "_Z", 2))
		demangle = (__typeof__(demangle))dlsym(RTLD_DEFAULT, "__cxa_demangle");
	if (demangle)
		translated = demangle(plain, NULL, NULL, &status);
	if (!translated)
		return plain;
	free(plain);
	return translated;
}

/* "NAME (WHERE)". If that is too long, the name is cut. */
static void format_name(char *buf, size_t size, const char *name, const char *where)
{
	char *text = readable_name(name);
	size_t rest = strlen(where) + strlen(" ()");
	size_t n = pin_format(buf, size > rest ? size - rest : 1, "%s", text ? text : name);

	pin_format(buf + n, size - n, " (%s)", where);
	free(text);
}

/* The name the loader was asked for, which may be a path; it has none for the program. */
static const char *loaded_as(const char *name, char *buf, size_t size)
{
	ssize_t n = name[0] ? 0 : readlink("/proc/self/exe", buf, size - 1);

	if (n <= 0)
		return name;
	buf[n] = '\0';
	return buf;
}

/* Must do with little stack: the path is read to where it belongs. */
void pin_backtrace_place(const void *frame, char *buf, size_t size)
{
	const char *code = (const char *)frame - 1, *path;
	struct pin_module module;
	int saved = errno;
	size_t n;

	if (pin_backtrace_unloaded(frame, buf, size))
		return;
	if (!pin_module_find(code, &module)) {
		pin_format(buf, size, "?+0x%zx", (size_t)code);
		return;
	}
	path = loaded_as(module.path, buf, size);
	n = path == buf ? strlen(buf) : pin_format(buf, size, "%s", path);
	pin_format(buf + n, size - n, "+0x%zx", (size_t)(code - module.bias));
	errno = saved;
}

/* How much libdw and a demangler need is not documented; 16 KiB is too little. */
#define STACK_FOR_NAMES (256 * PIN_KIB)

bool pin_backtrace_has_room(void)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);
	pthread_attr_t attributes;
	void *lowest = NULL;
	size_t size = 0;

	if (pthread_getattr_np(pthread_self(), &attributes))
		return false;
	pthread_attr_getstack(&attributes, &lowest, &size);
	pthread_attr_destroy(&attributes);
	/* The thread may also be on a stack that the program has made. */
	return here - (uintptr_t)lowest < size && here - (uintptr_t)lowest > STACK_FOR_NAMES;
}

void pin_backtrace_name(const void *frame, bool lines, char *buf, size_t size)
{
	const char *code = (const char *)frame - 1;
	char path[PATH_MAX], where[NAME_MAX + 16];
	struct place place = {0};
	struct link_map *map;
	Dl_info info;

	if (pin_backtrace_unloaded(frame, buf, size))
		return;
	if (!dladdr1(code, &info, (void **)&map, RTLD_DL_LINKMAP) || !map) {
		pin_format(buf, size, "?+0x%zx", (size_t)code);
		return;
	}
	if (lines)
		look_up_code((uintptr_t)code, &place);
	if (!place.name)
		place.name = info.dli_sname;
	if (!place.module || place.module[0] != '/')
		place.module = loaded_as(map->l_name, path, sizeof path);
	if (place.file)
		pin_format(where, sizeof where, "%s:%d", last_component(place.file),
			   place.line);
	else
		pin_format(where, sizeof where, "%s", last_component(place.module));
	if (place.name)
		format_name(buf, size, place.name, where);
	else
		pin_format(buf, size, "%s+0x%zx", place.module, (size_t)code - map->l_addr);
}
