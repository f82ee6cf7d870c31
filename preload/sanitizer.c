/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Starts programs with the runtime of AddressSanitizer, ThreadSanitizer or the like again
 * without this library. The runtime's malloc must be the first: otherwise AddressSanitizer
 * refuses to start, ThreadSanitizer crashes, and LeakSanitizer sees no leaks. Only the loader
 * can leave a library out.
 *
 * The runtime's constructor runs before ours. Earlier still, when it relocates this library,
 * the loader calls the resolver of an indirect function. At that time libc must not be called
 * (the runtime has its own memcpy and write, and is not ready): so this file makes system calls
 * itself, reads what the loader knows, and loops over volatile text, which no compiler turns
 * into a call.
 */
#include <config.h>

#include "allocator/base.h"
#include "preload/sanitizer.h"

#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A library that is built with a sanitizer is not preloaded. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#elif defined(__x86_64__)
static long call(long number, long a, long b, long c, long d)
{
	register long fourth __asm__("r10") = d;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
			 : "rcx", "r11", "memory");
	return result;
}
#define CALLS
#elif defined(__aarch64__)
static long call(long number, long a, long b, long c, long d)
{
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
	return x0;
}
#define CALLS
#endif

#ifdef CALLS

typedef const volatile char *text;

/* From the loader: the kernel has put argc there, followed by argv, the environment and auxv.
 */
extern void *__libc_stack_end;

static bool begins(text whole, text with)
{
	while (*with && *whole == *with) {
		whole++;
		with++;
	}
	return !*with;
}

static text file_name(text path)
{
	text name = path;

	for (; *path; path++)
		if (*path == '/')
			name = path + 1;
	return name;
}

static bool is_runtime(text name)
{
	for (size_t i = 0; i < PIN_ARRAY_SIZE(pin_sanitizers); i++)
		if (begins(name, pin_sanitizers[i]))
			return true;
	return false;
}

static const struct link_map *own_map(void)
{
	const struct link_map *map = _r_debug.r_map;

	while (map && map->l_ld != _DYNAMIC)
		map = map->l_next;
	return map;
}

/* The name of a runtime that comes after this library, or NULL. */
static text find_runtime(const struct link_map *own)
{
	for (const struct link_map *map = own; map; map = map->l_next)
		if (is_runtime(file_name(map->l_name)))
			return file_name(map->l_name);
	return NULL;
}

struct start {
	char **argv, **envp;
	ElfW(auxv_t) * auxv;
};

static struct start how_started(void)
{
	long *argc = __libc_stack_end;
	struct start start;

	start.argv = (char **)(argc + 1);
	start.envp = start.argv + *argc + 1;
	start.auxv = (ElfW(auxv_t) *)start.envp;
	while (*(char **)start.auxv)
		start.auxv = (ElfW(auxv_t) *)((char **)start.auxv + 1);
	start.auxv = (ElfW(auxv_t) *)((char **)start.auxv + 1);
	return start;
}

static unsigned long auxiliary(const struct start *start, unsigned long type)
{
	for (const ElfW(auxv_t) *entry = start->auxv; entry->a_type != AT_NULL; entry++)
		if (entry->a_type == type)
			return entry->a_un.a_val;
	return 0;
}

static char **find_variable(char **envp, text name)
{
	while (*envp && !begins(*envp, name))
		envp++;
	return *envp ? envp : NULL;
}

static bool is_separator(char c)
{
	return c == ':' || c == ' ';
}

/* Whether the entry of LD_PRELOAD ends with the name. */
static bool is_entry_of(text entry, size_t length, text name)
{
	size_t at = length;

	while (at && entry[at - 1] != '/')
		at--;
	for (; at < length && entry[at] == *name; at++)
		name++;
	return at == length && !*name;
}

/* Removes this library from the value of LD_PRELOAD, in place. False if it is not there. */
static bool leave_out(char *value, text name)
{
	volatile char *to = value;
	text from = value;
	bool found = false;

	while (*from) {
		size_t length = 0;
		bool is_own;

		while (from[length] && !is_separator(from[length]))
			length++;
		is_own = is_entry_of(from, length, name);
		found |= is_own;
		if (from[length])
			length++;
		for (size_t i = 0; !is_own && i < length; i++)
			*to++ = from[i];
		from += length;
	}
	*to = '\0';
	return found;
}

static void remove_variable(char **at)
{
	do
		at[0] = at[1];
	while (*at++);
}

struct line {
	char text[512];
	size_t length;
};

static void append_text(struct line *line, text words)
{
	for (; *words && line->length < sizeof line->text - 1; words++)
		((volatile char *)line->text)[line->length++] = *words;
}

static void append_number(struct line *line, long n)
{
	char digits[24];
	size_t at = sizeof digits - 1;

	digits[at] = '\0';
	do {
		digits[--at] = (char)('0' + n % 10);
		n /= 10;
	} while (n);
	append_text(line, digits + at);
}

/* Writes the line itself, because log.c cannot be used yet. */
static void warn_of_sanitizer(const struct start *start, text runtime)
{
	char **level = find_variable(start->envp, "PINALLOC_LOG=");
	struct line line;

	if (level && begins(*level, "PINALLOC_LOG=error"))
		return;
	line.length = 0;
	append_text(&line, "pinalloc[");
	append_number(&line, call(SYS_getpid, 0, 0, 0, 0));
	append_text(&line, "]: ");
	append_text(&line, file_name(start->argv[0] ? start->argv[0] : "?"));
	append_text(&line, " has the malloc of a sanitizer (");
	append_text(&line, runtime);
	append_text(&line, "), which must be the first: it runs without this library, ");
	append_text(&line, "and so does what it starts; build it without -fsanitize");
	line.text[line.length++] = '\n';
	call(SYS_write, STDERR_FILENO, (long)line.text, (long)line.length, 0);
}

/*
 * Executes the same program, by its real path, which becomes its name in /proc/self/comm.
 * AT_EXECFN would be wrong for the interpreter of a script.
 */
static void execute_again(const struct start *start)
{
	static const char self[] = "/proc/self/exe";
	char path[PATH_MAX];
	long n = call(SYS_readlinkat, AT_FDCWD, (long)self, (long)path, sizeof path - 1);

	if (n > 0) {
		path[n] = '\0';
		call(SYS_execve, (long)path, (long)start->argv, (long)start->envp, 0);
	}
	call(SYS_execve, (long)self, (long)start->argv, (long)start->envp, 0);
}

/*
 * Does nothing if the loader was started as the program (no AT_BASE), because its own arguments
 * are gone; nor with privileges, which restrict LD_PRELOAD; nor if this library does not come
 * from LD_PRELOAD, because it would be loaded again.
 */
static void start_without(const struct link_map *own, text runtime)
{
	struct start start = how_started();
	char **preload = find_variable(start.envp, "LD_PRELOAD=");
	char *value;

	if (!preload || !auxiliary(&start, AT_BASE) || auxiliary(&start, AT_SECURE))
		return;
	value = *preload + sizeof "LD_PRELOAD=" - 1;
	if (!leave_out(value, file_name(own->l_name)))
		return;
	if (!*(text)value)
		remove_variable(preload);
	warn_of_sanitizer(&start, runtime);
	execute_again(&start);
}

static void nothing(void)
{
}

/* Used by its name, which clang does not see. */
__attribute__((used)) static void (*resolve_early(void))(void)
{
	const struct link_map *own = own_map();
	text runtime = own ? find_runtime(own) : NULL;

	if (PIN_UNLIKELY(runtime != NULL))
		start_without(own, runtime);
	return nothing;
}

/* clang makes it global although it is static: by its name, pinalloc.map hides it. */
static void pin_early(void) __attribute__((ifunc("resolve_early")));

/* A relocation, so that the loader calls the resolver. */
__attribute__((used)) static void (*volatile const reference)(void) = pin_early;

#endif
