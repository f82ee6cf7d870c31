/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libunwind unwinds "another" process here, which is this one: through functions of ours it
 * asks for registers, memory and unwind tables. So libunwind takes no lock of the loader,
 * writes to no pipe and trusts no address, all of which it does when it unwinds its own
 * process. It still takes its own mutexes, here under a lock that fork() waits for, and maps
 * memory for itself.
 *
 * Modules and their tables are found by _dl_find_object(), which takes no lock. A glibc that
 * lacks it has no stacks.
 */
#include <config.h>

#include "preload/report/stacks.h"
#include "allocator/log.h"
#include "allocator/os.h"
#include "allocator/sites.h"
#include "preload/report/report-file.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <libunwind.h>
#include <limits.h>
#include <link.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <ucontext.h>

/* libunwind's functions, by the names that its header makes of theirs. */
#define NAMED_(name) #name
#define NAMED(name)  NAMED_(name)
#define LIBRARY	     "libunwind-" NAMED(UNW_TARGET) ".so.8"
int UNW_OBJ(dwarf_search_unwind_table)(unw_addr_space_t space, unw_word_t ip,
				       unw_dyn_info_t *table, unw_proc_info_t *info,
				       int need_info, void *arg);
#define FUNCTIONS(X)          \
	X(create_addr_space)  \
	X(set_caching_policy) \
	X(set_cache_size)     \
	X(flush_cache)        \
	X(init_remote)        \
	X(step)               \
	X(get_reg)            \
	X(is_signal_frame)    \
	X(dwarf_search_unwind_table)
#define unw_dwarf_search_unwind_table UNW_OBJ(dwarf_search_unwind_table)

#define DECLARE(function) __typeof__(&unw_##function) function;
PIN_WRITTEN_FIRST static struct {
	FUNCTIONS(DECLARE)
	unw_addr_space_t space; /* NULL: no stacks */
} unwind;
#undef DECLARE

/* What libunwind remembers of code: the unwinding of so many places. */
#define CACHED 2048

/* --- modules -------------------------------------------------------------------------------
 */

/* A frame has the number of its module above the offset. */
#define OFFSET_BITS 48

/* Only used pages of this array take memory. The program's path comes first. */
#define PATH_BYTES (128 * PIN_KIB)

/* Added by walks, one at a time; nothing is removed. Number 0 is no module. */
struct pin_module pin_modules[PIN_MODULES];
_Atomic unsigned pin_n_modules = 1;
static char paths[PATH_BYTES];
static size_t path_bytes;

/* .note.gnu.build-id. */
static void find_build_id(struct pin_module *module)
{
	const ElfW(Ehdr) *header = (const void *)module->start;
	const ElfW(Phdr) *part = (const void *)(module->start + header->e_phoff);

	if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
		return;
	for (const ElfW(Phdr) *end = part + header->e_phnum; part < end; part++) {
		const char *at = (const char *)module->bias + part->p_vaddr;
		const char *notes_end = at + part->p_memsz;

		while (part->p_type == PT_NOTE && at + sizeof(ElfW(Nhdr)) <= notes_end) {
			const ElfW(Nhdr) *note = (const void *)at;
			const char *id = at + sizeof *note + PIN_ALIGN_UP(note->n_namesz, 4);

			at = id + PIN_ALIGN_UP(note->n_descsz, 4);
			if (note->n_type != NT_GNU_BUILD_ID || note->n_namesz != 4 ||
			    at > notes_end)
				continue;
			for (unsigned i = 0; i < note->n_descsz && i < 20; i++)
				pin_format(module->build_id + (size_t)2 * i, 3, "%02x",
					   (unsigned char)id[i]);
		}
	}
}

/* NULL if there is no room. The loader has no name for the program; others may be relative, or
 * none of a file. */
static struct pin_module *add_module(struct pin_module now)
{
	struct pin_module *module = &pin_modules[pin_n_modules];
	bool is_relative = now.name[0] != '/' && strchr(now.name, '/');
	size_t room = PATH_BYTES - path_bytes, n;

	if (pin_n_modules == PIN_MODULES)
		return NULL;
	*module = now;
	module->path = paths;
	if (*now.name) {
		module->path += path_bytes;
		n = pin_format(paths + path_bytes, room, "%s%s",
			       is_relative ? pin_report_directory : "", now.name);
		if (n + 1 >= room) /* it may be cut */
			return NULL;
		module->name = module->path + n - strlen(now.name);
		path_bytes += n + 1;
	}
	find_build_id(module);
	atomic_fetch_add(&pin_n_modules, 1);
	return module;
}

/*
 * The module of which the loader says this now. What libunwind remembers of another that was at
 * these addresses would be wrong.
 */
static struct pin_module *note_module(struct pin_module now)
{
	struct pin_module *known = NULL;
	bool replaces = false;

	for (unsigned i = 1; i < pin_n_modules; i++) {
		struct pin_module *module = &pin_modules[i];

		if (module->start == now.start && module->end == now.end &&
		    module->bias == now.bias && !strcmp(module->name, now.name)) {
			known = module;
			if (known->is_last)
				return known;
		} else if (module->is_last && module->start < now.end &&
			   now.start < module->end) {
			module->is_last = false;
			replaces = true;
		}
	}
	if (replaces)
		unwind.flush_cache(unwind.space, 0, 0);
	if (!known)
		known = add_module(now);
	if (known)
		known->is_last = true;
	return known;
}

static struct pin_module *find_module(uintptr_t code)
{
#if HAVE__DL_FIND_OBJECT
	struct dl_find_object object;

	if (!_dl_find_object((void *)code, &object))
		return note_module((struct pin_module){
			.start = object.dlfo_map_start,
			.end = object.dlfo_map_end,
			.name = object.dlfo_link_map->l_name,
			.bias = object.dlfo_link_map->l_addr,
			.tables = object.dlfo_eh_frame,
		});
#else
	(void)code, (void)note_module;
#endif
	return NULL;
}

/* --- what libunwind asks -------------------------------------------------------------------
 */

#pragma GCC diagnostic ignored "-Wunused-parameter"

struct walk {
	uintptr_t page; /* of the stack, known to be readable: that of the walk itself comes
			   first */
	const struct pin_module *module;
	bool has_ended;
};

static bool is_readable(struct walk *walk, const char *at)
{
	uintptr_t page = PIN_ALIGN_DOWN((uintptr_t)at, PIN_PAGE);

	if (page == walk->page ||
	    (walk->module && at >= walk->module->start && at < walk->module->end))
		return true;
	if (!pin_os_may_read(page))
		return false;
	walk->page = page;
	return true;
}

static int access_mem(unw_addr_space_t space, unw_word_t at, unw_word_t *value, int write,
		      void *arg)
{
	if (write || at % sizeof *value || !is_readable(arg, (const char *)at))
		return -UNW_EINVAL;
	memcpy(value, (const void *)at, sizeof *value);
	return 0;
}

/* Too large for a stack; under the lock of a walk. */
static ucontext_t registers;

#if defined __x86_64__
/* In the order of libunwind, of DWARF. */
static const int places[] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI,
			     REG_RBP, REG_RSP, REG_R8,	REG_R9,	 REG_R10, REG_R11,
			     REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
#define REGISTERS   PIN_ARRAY_SIZE(places)
#define REGISTER(n) ((unw_word_t)registers.uc_mcontext.gregs[places[n]])
#elif defined __aarch64__
/* Behind the fault address; the stack pointer and the program counter are the last two. */
#define REGISTERS   33
#define REGISTER(n) ((const unw_word_t *)&registers.uc_mcontext + 1)[n]
#else
#error "the registers of this processor are not known here"
#endif

static int access_reg(unw_addr_space_t space, unw_regnum_t number, unw_word_t *value, int write,
		      void *arg)
{
	if (write || number < 0 || (size_t)number >= REGISTERS)
		return -UNW_EBADREG;
	*value = REGISTER(number);
	return 0;
}

/* .eh_frame_hdr as linkers write it. */
struct tables {
	uint8_t version, frames_kind, count_kind, rows_kind; /* the last three: encodings */
	int32_t frames;
	uint32_t n_rows;
	uint32_t rows[]; /* two for each */
};

#define UDATA4		   0x03
#define SDATA4_FROM_HEADER 0x3b

static int find_proc_info(unw_addr_space_t space, unw_word_t ip, unw_proc_info_t *info,
			  int need_info, void *arg)
{
	struct walk *walk = arg;
	const struct pin_module *module = walk->module;
	const struct tables *tables = module ? module->tables : NULL;
	unw_dyn_info_t all = {.format = UNW_INFO_FORMAT_REMOTE_TABLE};
	int error = -UNW_ENOINFO;

	if (tables && tables->version == 1 && tables->count_kind == UDATA4 &&
	    tables->rows_kind == SDATA4_FROM_HEADER) {
		all.start_ip = (uintptr_t)module->start;
		all.end_ip = (uintptr_t)module->end;
		all.u.rti.segbase = (uintptr_t)tables;
		all.u.rti.table_data = (uintptr_t)tables->rows;
		all.u.rti.table_len = tables->n_rows * 2 * sizeof *tables->rows / sizeof ip;
		error = unwind.dwarf_search_unwind_table(space, ip, &all, info, need_info, arg);
	}
	/* Without tables it would guess. */
	walk->has_ended = error < 0;
	return error;
}

static void put_unwind_info(unw_addr_space_t space, unw_proc_info_t *info, void *arg)
{
}

static int get_dyn_info_list_addr(unw_addr_space_t space, unw_word_t *list, void *arg)
{
	return -UNW_ENOINFO;
}

/* --- walking -------------------------------------------------------------------------------
 */

/* The library's code is between its ELF header and _DYNAMIC. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));

bool pin_stacks_ours(const void *code)
{
	return (const char *)code > __ehdr_start && (const char *)code < (const char *)_DYNAMIC;
}

static void *frame_of(const struct pin_module *module, uintptr_t code)
{
	uintptr_t number = module ? (uintptr_t)(module - pin_modules) : 0;

	return (void *)(number << OFFSET_BITS | (module ? code - module->bias : code));
}

/*
 * The frames above the caller's. A signal interrupts before the instruction at which the frame
 * goes on; a return address is behind its call.
 */
static int walk_on(struct walk *walk, void **frames, int n)
{
	unw_cursor_t cursor;
	int taken = 0;

	walk->module = find_module(REGISTER(UNW_REG_IP));
	if (unwind.init_remote(&cursor, unwind.space, walk))
		return 0;
	while (taken < n) {
		bool is_interrupted = unwind.is_signal_frame(&cursor) > 0;
		unw_word_t ip;

		if (unwind.step(&cursor) <= 0 || walk->has_ended ||
		    unwind.get_reg(&cursor, UNW_REG_IP, &ip) || !ip)
			break;
		ip -= !is_interrupted;
		walk->module = find_module(ip);
		if (!walk->module && ip >> OFFSET_BITS)
			break;
		if (taken || !pin_stacks_ours((const void *)ip))
			frames[taken++] = frame_of(walk->module, ip);
		if (!walk->module)
			break;
	}
	return taken;
}

/*
 * Its lock is one that fork() takes after the program's handlers, as these may wait for a
 * thread that walks. Signals are blocked, so that no handler walks while its thread holds the
 * lock, or leaves by longjmp() with the lock held.
 */
__attribute__((noinline)) int pin_stacks_walk(void **frames, int n)
{
	struct walk walk = {0};
	sigset_t all, before;
	int saved = errno, taken;

	if (!unwind.space)
		return -1;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	pin_mutex_lock(&pin_sites_lock);
	taken = getcontext(&registers) ? 0 : walk_on(&walk, frames, n);
	pin_mutex_unlock(&pin_sites_lock);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = saved;
	return taken;
}

/* --- the start -----------------------------------------------------------------------------
 */

/*
 * When it begins, libunwind opens a pipe, to try addresses of its own process by, which it is
 * not asked to do here. The program gets the descriptors back: the two that were the lowest
 * before.
 */
static unw_addr_space_t begin_unwinding(void)
{
	static unw_accessors_t accessors = {
		.find_proc_info = find_proc_info,
		.put_unwind_info = put_unwind_info,
		.get_dyn_info_list_addr = get_dyn_info_list_addr,
		.access_mem = access_mem,
		.access_reg = access_reg,
	};
	/* A wheel has libunwind beside this library. */
	void *library = dlopen("$ORIGIN/" LIBRARY, RTLD_NOW | RTLD_LOCAL)
				?: dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	unw_addr_space_t space;
	int fds[2] = {-1, -1};
	struct stat info;
#define FIND(function)                                                     \
	|| !(unwind.function = (__typeof__(unwind.function))dlsym(library, \
								  NAMED(unw_##function)))

	if (!library FUNCTIONS(FIND))
		return NULL;
#undef FIND
	if (!pipe2(fds, O_CLOEXEC)) {
		close(fds[0]);
		close(fds[1]);
	}
	space = unwind.create_addr_space(&accessors, 0);
	if (space) {
		unwind.set_caching_policy(space, UNW_CACHE_GLOBAL);
		unwind.set_cache_size(space, CACHED, 0);
	}
	for (int i = 0; i < 2; i++)
		if (!fstat(fds[i], &info) && S_ISFIFO(info.st_mode) &&
		    fcntl(fds[i], F_GETFD) == FD_CLOEXEC)
			close(fds[i]);
	return space;
}

void pin_stacks_start(void)
{
	unw_addr_space_t space = HAVE__DL_FIND_OBJECT ? begin_unwinding() : NULL;
	ssize_t n;

	if (!space) {
		pin_warn("the report has no stacks: %s",
			 HAVE__DL_FIND_OBJECT ? LIBRARY " is not installed (Debian: libunwind8)"
					      : "they take glibc 2.35");
		return;
	}
	n = readlink("/proc/self/exe", paths, PATH_MAX);
	path_bytes = (size_t)(n > 0 ? n : 0) + 1;
	unwind.space = space;
}

/* --- frames as text ------------------------------------------------------------------------
 */

unsigned pin_stacks_module(const void *frame, uint64_t *offset)
{
	*offset = (uintptr_t)frame & (((uint64_t)1 << OFFSET_BITS) - 1);
	return (unsigned)((uintptr_t)frame >> OFFSET_BITS);
}
