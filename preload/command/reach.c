/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs are compared with this command itself, which was built for the same machine and the
 * same C library as libpinalloc.so.
 */
#include <config.h>

#include "preload/command/reach.h"
#include "preload/command/library.h"
#include "preload/sanitizer.h"

#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* The kernel follows no more interpreters of interpreters. */
#define SCRIPTS 5

struct program {
	const char *path;
	Elf *elf;
	GElf_Ehdr header;
	char loader[PATH_MAX]; /* empty in a static program */
};

static int check_executable(const char *path)
{
	struct stat file;

	if (access(path, X_OK) || stat(path, &file))
		return -errno;
	return S_ISREG(file.st_mode) ? 0 : -EACCES;
}

int cmd_reach_find(const char *command, char path[PATH_MAX])
{
	const char *at = getenv("PATH");
	int error = -ENOENT, tried;
	size_t n;

	snprintf(path, PATH_MAX, "%s", command);
	if (!*command)
		return -ENOENT;
	if (strchr(command, '/'))
		return check_executable(path);
	for (at = at ? at : "/bin:/usr/bin"; at; at = at[n] ? at + n + 1 : NULL) {
		n = strcspn(at, ":");
		snprintf(path, PATH_MAX, "%.*s/%s", n ? (int)n : 1, n ? at : ".", command);
		tried = check_executable(path);
		if (!tried)
			return 0;
		if (tried == -EACCES)
			error = tried;
	}
	return error;
}

__attribute__((format(printf, 3, 4))) static int
say_why(struct cmd_reach *reach, const char *cure, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(reach->finding, sizeof reach->finding, format, args);
	va_end(args);
	reach->cure = cure;
	return 1;
}

/* False if it is not an ELF program, ends early or is damaged. */
static bool open_program(struct program *program, const char *path, int fd)
{
	GElf_Phdr segment;
	size_t n = 0, length;

	*program = (struct program){.path = path};
	elf_version(EV_CURRENT);
	program->elf = elf_begin(fd, ELF_C_READ, NULL);
	if (elf_kind(program->elf) != ELF_K_ELF ||
	    !gelf_getehdr(program->elf, &program->header) || elf_getphdrnum(program->elf, &n) ||
	    !n)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (!gelf_getphdr(program->elf, (int)i, &segment))
			return false;
		if (segment.p_type != PT_INTERP)
			continue;
		length = segment.p_filesz < PATH_MAX ? segment.p_filesz : PATH_MAX - 1;
		if (pread(fd, program->loader, length, (off_t)segment.p_offset) <= 0)
			return false;
	}
	return true;
}

/* This command's own header and loader. */
static const struct program *this_command(void)
{
	static struct program own;
	int fd;

	if (!own.path) {
		fd = open(cmd_library_own(), O_RDONLY | O_CLOEXEC);
		open_program(&own, cmd_library_own(), fd);
		elf_end(own.elf);
		close(fd);
	}
	return &own;
}

static bool same_file(const char *a, const char *b)
{
	struct stat one, other;

	return !stat(a, &one) && !stat(b, &other) && one.st_dev == other.st_dev &&
	       one.st_ino == other.st_ino;
}

static bool is_malloc(Elf *elf, const GElf_Shdr *table, Elf_Data *data, int i)
{
	const char *name;
	GElf_Sym symbol;
	unsigned kind;

	if (!gelf_getsym(data, i, &symbol) || symbol.st_shndx == SHN_UNDEF)
		return false;
	kind = GELF_ST_TYPE(symbol.st_info);
	name = elf_strptr(elf, table->sh_link, symbol.st_name);
	return name && !strcmp(name, "malloc") && (kind == STT_FUNC || kind == STT_GNU_IFUNC);
}

/* The library of a sanitizer that the entry names, or NULL. */
static const char *needed_sanitizer(Elf *elf, const GElf_Shdr *table, Elf_Data *data, int i)
{
	const char *name = NULL;
	GElf_Dyn entry;

	if (gelf_getdyn(data, i, &entry) && entry.d_tag == DT_NEEDED)
		name = elf_strptr(elf, table->sh_link, entry.d_un.d_val);
	for (size_t k = 0; name && k < sizeof pin_sanitizers / sizeof *pin_sanitizers; k++)
		if (!strncmp(name, pin_sanitizers[k], strlen(pin_sanitizers[k])))
			return name;
	return NULL;
}

/*
 * Whose malloc the program has: "" for its own, the library of a sanitizer, or NULL. Its own
 * may be exported, or hidden, which shows only if the program was not stripped. That of the
 * loader, which glibc exports before 2.35, gives way to the library's.
 */
static const char *whose_malloc(const struct program *program)
{
	const char *own = NULL, *sanitizer = NULL;
	Elf_Scn *section = NULL;
	Elf_Data *data;
	GElf_Shdr table;

	while (!sanitizer && *program->loader &&
	       (section = elf_nextscn(program->elf, section))) {
		if (!gelf_getshdr(section, &table) || !table.sh_entsize ||
		    (table.sh_type != SHT_DYNAMIC && table.sh_type != SHT_DYNSYM &&
		     table.sh_type != SHT_SYMTAB))
			continue;
		data = elf_getdata(section, NULL);
		for (size_t i = 0; data && i < data->d_size / table.sh_entsize; i++)
			if (table.sh_type == SHT_DYNAMIC && !sanitizer)
				sanitizer = needed_sanitizer(program->elf, &table, data,
							     (int)i);
			else if (table.sh_type != SHT_DYNAMIC && !own)
				own = is_malloc(program->elf, &table, data, (int)i) ? "" : NULL;
	}
	return sanitizer ? sanitizer : own;
}

static bool is_for_this_machine(const GElf_Ehdr *its, const GElf_Ehdr *own)
{
	return its->e_machine == own->e_machine &&
	       its->e_ident[EI_CLASS] == own->e_ident[EI_CLASS] &&
	       its->e_ident[EI_DATA] == own->e_ident[EI_DATA];
}

/* The loader itself, which can be called with a program as its argument, has none. */
static int look_at_elf(const struct program *it, struct cmd_reach *reach)
{
	const struct program *own = this_command();
	const char *malloc;

	if (!is_for_this_machine(&it->header, &own->header))
		return say_why(reach, "build both for the same one",
			       "%s is for another kind of machine (%s-bit, ELF machine %u) "
			       "than libpinalloc.so",
			       it->path,
			       it->header.e_ident[EI_CLASS] == ELFCLASS32 ? "32" : "64",
			       it->header.e_machine);
	if (!*it->loader && !same_file(it->path, own->loader))
		return say_why(reach, "link it dynamically",
			       "%s is statically linked, so no library is loaded into it",
			       it->path);
	if (*it->loader && strcmp(basename(it->loader), basename(own->loader)) != 0)
		return say_why(reach, "link it with glibc",
			       "%s is for another C library, whose loader is %s", it->path,
			       it->loader);
	malloc = whose_malloc(it);
	if (malloc && *malloc)
		return say_why(reach, "build it without -fsanitize",
			       "%s has the malloc of a sanitizer (%s), and runs without this "
			       "library",
			       it->path, malloc);
	return malloc ? say_why(reach, "link it without that malloc",
				"%s has a malloc of its own, whose heap is not registered",
				it->path)
		      : 0;
}

static int say_unreadable(const char *path, int error, const char *why, struct cmd_reach *reach)
{
	say_why(reach, "look at it with file(1)", "%s: %s", path, why);
	return -error;
}

/* What makes the kernel set AT_SECURE: then ld.so and the library ignore the environment. */
static const char *privileges(const char *path, const struct stat *file)
{
	if (file->st_mode & S_ISUID && file->st_uid != getuid())
		return "set-user-ID";
	if ((file->st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) &&
	    file->st_gid != getgid())
		return "set-group-ID";
	return getuid() && getxattr(path, "security.capability", NULL, 0) > 0
		       ? "file capabilities"
		       : NULL;
}

static int look_at_program(const char *path, int fd, const struct stat *file,
			   struct cmd_reach *reach)
{
	const char *secure = privileges(path, file);
	struct program program;
	int found;

	if (secure)
		return say_why(reach,
			       "use a copy without them, or preload only in what it starts",
			       "%s has privileges of its own (%s), so LD_PRELOAD is ignored",
			       path, secure);
	found = open_program(&program, path, fd)
			? look_at_elf(&program, reach)
			: say_unreadable(path, ENOEXEC,
					 "not a program, or damaged or cut short", reach);
	elf_end(program.elf);
	return found;
}

/* The path behind "#!" at the start of a file, in place; NULL if there is none. */
static char *interpreter(int fd, char line[PATH_MAX])
{
	ssize_t n = pread(fd, line, PATH_MAX - 1, 0);
	char *path;

	line[n < 0 ? 0 : n] = '\0';
	if (strncmp(line, "#!", 2) != 0)
		return NULL;
	path = line + 2 + strspn(line + 2, " \t");
	path[strcspn(path, " \t\r\n")] = '\0';
	return path;
}

/* The kernel ignores a script's own privileges, and takes its interpreter's. */
static int look_at_file(const char *path, struct cmd_reach *reach, int scripts)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), error = 0, found = 0;
	char line[PATH_MAX], *next;
	struct stat file;

	if (fd < 0 || fstat(fd, &file))
		error = errno;
	else if (!S_ISREG(file.st_mode))
		error = EACCES;
	if (error)
		found = say_unreadable(path, error, strerrordesc_np(error), reach);
	else if (!(next = interpreter(fd, line)))
		found = look_at_program(path, fd, &file, reach);
	else if (scripts)
		found = look_at_file(next, reach, scripts - 1);
	if (fd >= 0)
		close(fd);
	return found;
}

int cmd_reach_look(const char *path, struct cmd_reach *reach)
{
	return look_at_file(path, reach, SCRIPTS);
}
