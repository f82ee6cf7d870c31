/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs are compared with this command itself, which was built for the same machine and the
 * same C library as libpinalloc.so.
 */
#include <config.h>

#include "preload/command/reach.h"
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
	int fd;
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

static int say_unreadable(struct cmd_reach *reach, const char *path, int error, const char *why)
{
	say_why(reach, "look at it with file(1)", "%s: %s", path, why);
	return -error;
}

/* Fills in the loader. False if the file ends early or is not a program. */
static bool read_loader(struct program *program)
{
	GElf_Phdr segment;
	size_t n = 0, length;

	if (elf_getphdrnum(program->elf, &n) || !n)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (!gelf_getphdr(program->elf, (int)i, &segment))
			return false;
		if (segment.p_type != PT_INTERP)
			continue;
		length = segment.p_filesz < PATH_MAX ? segment.p_filesz : PATH_MAX - 1;
		if (pread(program->fd, program->loader, length, (off_t)segment.p_offset) <= 0)
			return false;
	}
	return true;
}

/* False if it is not an ELF program. Otherwise elf_end() must follow. */
static bool open_program(struct program *program, const char *path, int fd)
{
	*program = (struct program){.path = path, .fd = fd};
	elf_version(EV_CURRENT);
	program->elf = elf_begin(fd, ELF_C_READ, NULL);
	if (elf_kind(program->elf) == ELF_K_ELF &&
	    gelf_getehdr(program->elf, &program->header) && read_loader(program))
		return true;
	elf_end(program->elf);
	return false;
}

/* This command's own header and loader. */
static const struct program *this_command(void)
{
	static struct program own;
	int fd;

	if (own.path)
		return &own;
	fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	if (open_program(&own, "/proc/self/exe", fd))
		elf_end(own.elf);
	close(fd);
	return &own;
}

static bool same_file(const char *a, const char *b)
{
	struct stat one, other;

	return !stat(a, &one) && !stat(b, &other) && one.st_dev == other.st_dev &&
	       one.st_ino == other.st_ino;
}

static int look_at_machine(const struct program *program, struct cmd_reach *reach)
{
	const GElf_Ehdr *its = &program->header, *own = &this_command()->header;

	if (its->e_machine == own->e_machine &&
	    its->e_ident[EI_CLASS] == own->e_ident[EI_CLASS] &&
	    its->e_ident[EI_DATA] == own->e_ident[EI_DATA])
		return 0;
	return say_why(reach, "build both for the same one",
		       "%s is for another kind of machine (%s-bit, ELF machine %u) than "
		       "libpinalloc.so",
		       program->path, its->e_ident[EI_CLASS] == ELFCLASS32 ? "32" : "64",
		       its->e_machine);
}

/* The loader itself, which can be called with a program as its argument, has none. */
static int look_at_loader(const struct program *program, struct cmd_reach *reach)
{
	const char *own = this_command()->loader;

	if (!program->loader[0] && !same_file(program->path, own))
		return say_why(reach, "link it dynamically",
			       "%s is statically linked, so no library is loaded into it",
			       program->path);
	if (program->loader[0] && strcmp(basename(program->loader), basename(own)) != 0)
		return say_why(reach, "link it with glibc",
			       "%s is for another C library, whose loader is %s", program->path,
			       program->loader);
	return 0;
}

static bool is_malloc(Elf *elf, const GElf_Shdr *table, const GElf_Sym *symbol)
{
	unsigned kind = GELF_ST_TYPE(symbol->st_info);
	const char *name;

	if (symbol->st_shndx == SHN_UNDEF || (kind != STT_FUNC && kind != STT_GNU_IFUNC))
		return false;
	name = elf_strptr(elf, table->sh_link, symbol->st_name);
	return name && !strcmp(name, "malloc");
}

static bool has_malloc(Elf *elf, unsigned kind)
{
	size_t size = gelf_fsize(elf, ELF_T_SYM, 1, EV_CURRENT);
	Elf_Scn *section = NULL;
	Elf_Data *data;
	GElf_Shdr table;
	GElf_Sym symbol;

	while ((section = elf_nextscn(elf, section))) {
		if (!gelf_getshdr(section, &table) || table.sh_type != kind)
			continue;
		data = elf_getdata(section, NULL);
		for (size_t i = 0; data && size && i < data->d_size / size; i++)
			if (gelf_getsym(data, (int)i, &symbol) &&
			    is_malloc(elf, &table, &symbol))
				return true;
	}
	return false;
}

static bool is_sanitizer(const char *name)
{
	for (size_t i = 0; name && i < sizeof pin_sanitizers / sizeof *pin_sanitizers; i++)
		if (!strncmp(name, pin_sanitizers[i], strlen(pin_sanitizers[i])))
			return true;
	return false;
}

/* The library of a sanitizer that the program is linked to, or NULL. */
static const char *linked_sanitizer(Elf *elf)
{
	size_t size = gelf_fsize(elf, ELF_T_DYN, 1, EV_CURRENT);
	Elf_Scn *section = NULL;
	Elf_Data *data;
	GElf_Shdr table;
	GElf_Dyn entry;

	while ((section = elf_nextscn(elf, section))) {
		if (!gelf_getshdr(section, &table) || table.sh_type != SHT_DYNAMIC)
			continue;
		data = elf_getdata(section, NULL);
		for (size_t i = 0; data && size && i < data->d_size / size; i++)
			if (gelf_getdyn(data, (int)i, &entry) && entry.d_tag == DT_NEEDED &&
			    is_sanitizer(elf_strptr(elf, table.sh_link, entry.d_un.d_val)))
				return elf_strptr(elf, table.sh_link, entry.d_un.d_val);
	}
	return NULL;
}

static int look_at_sanitizer(const struct program *program, struct cmd_reach *reach)
{
	const char *library = linked_sanitizer(program->elf);

	if (!library)
		return 0;
	return say_why(reach, "build it without -fsanitize",
		       "%s has the malloc of a sanitizer (%s), and runs without this library",
		       program->path, library);
}

/*
 * It may be exported, or hidden, which shows only if the program was not stripped. That of the
 * loader, which glibc exports before 2.35, gives way to the library's.
 */
static int look_at_malloc(const struct program *program, struct cmd_reach *reach)
{
	if (!*program->loader)
		return 0;
	if (!has_malloc(program->elf, SHT_DYNSYM) && !has_malloc(program->elf, SHT_SYMTAB))
		return 0;
	return say_why(reach, "link it without that malloc",
		       "%s has a malloc of its own, whose heap is not registered",
		       program->path);
}

/* What makes the kernel set AT_SECURE: then ld.so and the library ignore the environment. */
static int look_at_privileges(const char *path, const struct stat *file,
			      struct cmd_reach *reach)
{
	bool other_user = file->st_mode & S_ISUID && file->st_uid != getuid();
	bool other_group = (file->st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) &&
			   file->st_gid != getgid();
	bool capable = getuid() && getxattr(path, "security.capability", NULL, 0) > 0;

	if (!other_user && !other_group && !capable)
		return 0;
	return say_why(reach, "use a copy without them, or preload only in what it starts",
		       "%s has privileges of its own (%s), so LD_PRELOAD is ignored", path,
		       other_user    ? "set-user-ID"
		       : other_group ? "set-group-ID"
				     : "file capabilities");
}

static int look_at_program(const char *path, int fd, struct cmd_reach *reach)
{
	struct program program;
	int found;

	if (!open_program(&program, path, fd))
		return say_unreadable(reach, path, ENOEXEC,
				      "not a program, or damaged or cut short");
	found = look_at_machine(&program, reach);
	if (!found)
		found = look_at_loader(&program, reach);
	if (!found)
		found = look_at_sanitizer(&program, reach);
	if (!found)
		found = look_at_malloc(&program, reach);
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

/* Opens a regular file. False, with errno set, if that fails. */
static bool open_file(const char *path, int *fd, struct stat *file)
{
	*fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (*fd < 0 || fstat(*fd, file))
		return false;
	errno = EACCES;
	return S_ISREG(file->st_mode);
}

static int say_unopened_file(const char *path, int fd, struct cmd_reach *reach)
{
	int error = errno;

	if (fd >= 0)
		close(fd);
	return say_unreadable(reach, path, error, strerrordesc_np(error));
}

/* The kernel ignores a script's own privileges, and takes its interpreter's. */
static int look_at_file(const char *path, struct cmd_reach *reach, int scripts)
{
	char line[PATH_MAX], *next;
	struct stat file;
	int fd, found;

	if (!open_file(path, &fd, &file))
		return say_unopened_file(path, fd, reach);
	next = interpreter(fd, line);
	if (next)
		found = scripts ? look_at_file(next, reach, scripts - 1) : 0;
	else
		found = look_at_privileges(path, &file, reach);
	if (!next && !found)
		found = look_at_program(path, fd, reach);
	close(fd);
	return found;
}

int cmd_reach_look(const char *path, struct cmd_reach *reach)
{
	return look_at_file(path, reach, SCRIPTS);
}
