/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/report/mappings.h"
#include "allocator/reserve.h"
#include "allocator/span.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* What a guard page has at most. */
#define GUARD (64 * 1024)

static bool begins_with(const char *text, const char *prefix)
{
	return !strncmp(text, prefix, strlen(prefix));
}

/* Reads a hexadecimal number and leaves *text behind the character that follows it. */
static size_t read_hex(const char **text)
{
	size_t n = 0;

	for (; **text && **text != '-' && **text != ' '; ++*text)
		n = n << 4 | (size_t)(**text <= '9' ? **text - '0' : **text - 'a' + 10);
	*text += **text != '\0';
	return n;
}

static enum pin_kind kind_of_name(const char *name)
{
	static const char *const shared[] = {"/dev/shm/", "/memfd:", "/SYSV", "/dev/zero",
					     "[anon_shmem"};

	if (begins_with(name, "[heap]"))
		return PIN_KIND_BRK;
	if (begins_with(name, "[stack"))
		return PIN_KIND_STACKS;
	for (size_t i = 0; i < PIN_ARRAY_SIZE(shared); i++)
		if (begins_with(name, shared[i]))
			return PIN_KIND_SHARED;
	return *name == '/' ? PIN_KIND_FILES : PIN_KIND_ANONYMOUS;
}

/* The first line of a mapping: "START-END PERMISSIONS OFFSET DEVICE INODE   NAME". */
static void begin_mapping(struct pin_mappings *mappings, const char *line)
{
	size_t start = read_hex(&line), end = read_hex(&line), guard = mappings->guard_end;
	bool is_accessible = !begins_with(line, "---");
	const char *name = line + strcspn(line, "/[");

	mappings->n++;
	mappings->guard_end = is_accessible || end - start > GUARD ? 0 : end;
	if (pin_span_find((const void *)start, 1))
		mappings->kind = PIN_KIND_HEAP;
	else if (pin_reserve_contains((const void *)start))
		mappings->kind = PIN_KIND_TABLES;
	else
		mappings->kind = kind_of_name(name);
	if (mappings->kind == PIN_KIND_ANONYMOUS && guard && guard == start)
		mappings->kind = PIN_KIND_STACKS;
}

/* "Rss:     12 kB", and the others that count what is there. */
static void count_bytes(struct pin_mappings *mappings, const char *line)
{
	const char *colon = strchr(line, ':');
	bool is_huge = strstr(line, "_Hugetlb:");
	enum pin_kind kind = mappings->kind;
	size_t n = 0;

	if (!colon || (!is_huge && !begins_with(line, "Rss:") && !begins_with(line, "Swap:")))
		return;
	for (const char *c = colon + 1 + strspn(colon + 1, " "); *c >= '0' && *c <= '9'; c++)
		n = n * 10 + (size_t)(*c - '0');
	if (is_huge && kind != PIN_KIND_HEAP)
		kind = PIN_KIND_HUGETLB;
	mappings->bytes[kind] += n * 1024;
}

static void take_line(struct pin_mappings *mappings, const char *line)
{
	if (*line >= 'A' && *line <= 'Z')
		count_bytes(mappings, line);
	else
		begin_mapping(mappings, line);
}

/* Takes the whole lines that were read. */
static void take_lines(struct pin_mappings *mappings)
{
	char *line = mappings->text, *end;

	mappings->text[mappings->used] = '\0';
	while ((end = strchr(line, '\n'))) {
		*end = '\0';
		take_line(mappings, line);
		line = end + 1;
	}
	mappings->used = strlen(line);
	memmove(mappings->text, line, mappings->used);
}

void pin_mappings_read(struct pin_mappings *mappings)
{
	int fd = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
	ssize_t n;

	*mappings = (struct pin_mappings){0};
	while (fd >= 0 && (n = read(fd, mappings->text + mappings->used,
				    sizeof mappings->text - 1 - mappings->used)) > 0) {
		mappings->used += (size_t)n;
		take_lines(mappings);
	}
	if (fd >= 0)
		close(fd);
	if (mappings->n)
		return;
	mappings->n = SIZE_MAX;
	for (int i = 0; i < PIN_KINDS; i++)
		mappings->bytes[i] = SIZE_MAX;
}
