/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/status.h"
#include "allocator/file.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

/* Large enough for the masks of thousands of processors and for a hundred groups. */
#define MAX_TEXT 4096

PIN_WRITTEN_FIRST static struct {
	_Atomic bool known; /* set after the others */
	bool is_filtered;
	unsigned processors; /* 0 if unknown */
} status = {.is_filtered = true};

static const char *field_value(const char *text, const char *name)
{
	const char *found = strstr(text, name);

	return found ? found + strlen(name) : NULL;
}

/* Counts the bits of a mask, written as words of hexadecimal digits with commas between. */
static unsigned count_bits(const char *mask)
{
	static const char values[] = "0123456789abcdef";
	const char *digit;
	unsigned n = 0;

	for (; *mask && *mask != '\n'; mask++)
		if ((digit = strchr(values, *mask)))
			n += (unsigned)__builtin_popcount((unsigned)(digit - values));
	return n;
}

static void read_status(void)
{
	static char text[MAX_TEXT]; /* malloc's callers have small stacks */
	const char *seccomp, *allowed;

	if (pin_file_read("/proc/self/status", text, sizeof text) > 0) {
		allowed = field_value(text, "\nCpus_allowed:\t");
		seccomp = field_value(text, "\nSeccomp:\t");
		/*
		 * The mask comes after the filter in the file: if it is missing, the filter
		 * may be too.
		 */
		status.processors = allowed ? count_bits(allowed) : 0;
		status.is_filtered = !allowed || (seccomp && *seccomp != '0');
	}
	status.known = true;
}

bool pin_status_is_filtered(void)
{
	if (!status.known)
		read_status();
	return status.is_filtered;
}

/* 0 if unknown. */
static unsigned n_processors(void)
{
	if (!status.known)
		read_status();
	return status.processors;
}

int pin_status_affinity(pid_t pid, size_t size, cpu_set_t *set)
{
	unsigned n = n_processors();

	if (status.is_filtered && !n)
		return sched_getaffinity(pid, size, set);
	CPU_ZERO_S(size, set);
	for (unsigned i = 0; i < n; i++)
		CPU_SET_S(i, size, set);
	return 0;
}

long pin_status_sysconf(int name)
{
	unsigned n = name == _SC_NPROCESSORS_ONLN ? n_processors() : 0;

	return n ? n : sysconf(name);
}
