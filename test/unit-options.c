/* SPDX-License-Identifier: BSD-2-Clause */
/* Parsing of the environment. */
#include <config.h>

#include "allocator/log.h"
#include "allocator/options.h"
#include "test/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

/* The linker puts this in place of libc's (--wrap). */
unsigned long __real_getauxval(unsigned long type);

static bool is_secure; /* as the kernel tells a set-user-ID program */

unsigned long __wrap_getauxval(unsigned long type)
{
	return type == AT_SECURE ? is_secure : __real_getauxval(type);
}

static void sizes(void)
{
	const char *good = "0=0 17=17 4k=4096 64M=67108864 3G=3221225472 2t=2199023255552 "
			   "4GB=4294967296 4gib=4294967296 4MiB=4194304 8kb=8192 "
			   "1TB=1099511627776 9223372036854775807=9223372036854775807";
	/* Each ends with a NUL, the first of which is empty. */
	const char bad[] =
		"\0M\0-1\0001.5G\00064Mi\00064MBB\00064MiBs\00064B\0006 M\0000x10\0 1\0"
		"9223372036854775808\00018446744073709551616\00099999999999T";
	size_t n, value;
	char text[32];

	for (int k; sscanf(good, " %31[^=]=%zu%n", text, &value, &k) == 2; good += k)
		ok(!pin_parse_size(text, &n) && n == value, "size %s is parsed", text);
	for (const char *it = bad; it < bad + sizeof bad; it += strlen(it) + 1) {
		n = 12345;
		ok(pin_parse_size(it, &n) && n == 12345, "\"%s\" is not a size", it);
	}
}

static void environment(void)
{
	setenv("PINALLOC_LOG", "error", 1);
	setenv("PINALLOC_ACCESS", "write,read", 1);
	setenv("PINALLOC_MAX_PINNED", "50%", 1);
	setenv("PINALLOC_REGISTER", "sometimes", 1);
	setenv("PINALLOC_HUGEPAGE", "hugetlb", 1);
	setenv("PINALLOC_REPORT", "/tmp/%r.json", 1);
	setenv("MALLOC_ARENA_MAX", "3", 1);
	setenv("MALLOC_PERTURB_", "", 1);
	setenv("GLIBC_TUNABLES",
	       "glibc.malloc.perturb=7:glibc.malloc.arena_max=9:glibc.malloc.top_pad=16777216",
	       1);
	pin_options_init();
	ok(pin_log_limit == PIN_LOG_ERROR, "PINALLOC_LOG applies at once");
	ok(pin_options.access == (PIN_ACCESS_WRITE | PIN_ACCESS_READ | PIN_ACCESS_LOCAL),
	   "remote write access implies local write access");
	ok(pin_options.max_pinned > PIN_MIB && pin_options.max_pinned < SIZE_MAX,
	   "a percentage is one of the machine's memory");
	ok(pin_options.mode == PIN_MODE_EAGER, "an invalid value leaves the default");
	ok(pin_options.huge == PIN_HUGE_TLB,
	   "a word selects the value at its place in the list");
	ok(!strcmp(pin_options.report, "/tmp/%r.json"), "a path is not changed");
	ok(pin_options.arena_max == 3, "glibc's variables are read");
	ok(pin_options.perturb == 7 && pin_options.top_pad == 16 * PIN_MIB,
	   "and its tunables, where a variable is not set");
	ok(!strcmp(pin_options.programs, "*"), "an unset option has its default");
}

#define SETS(name, text, holds) \
	ok(!pin_options_set(name, text) && (holds), "%s=%s is accepted", name, text)
#define REFUSES(name, text, error) \
	ok(pin_options_set(name, text) == -(error), "%s=%s is not", name, text)

static void one_by_one(void)
{
	SETS("PINALLOC_MAX_PINNED", "3M", pin_options.max_pinned == 3 * PIN_MIB);
	REFUSES("PINALLOC_MAX_PINNED", "lots", EINVAL);
	REFUSES("PINALLOC_MAX_PINNED", "4095", EINVAL);
	REFUSES("PINALLOC_PREALLOC", "1", EINVAL);
	ok(pin_options.max_pinned == 3 * PIN_MIB, "an invalid text changes nothing");
	SETS("PINALLOC_MAX_PINNED", "4K", pin_options.max_pinned == 4096);
	SETS("PINALLOC_MAX_PINNED", "0", !pin_options.max_pinned);
	SETS("PINALLOC_SAMPLE", "1", pin_options.sample == 1);
	SETS("PINALLOC_HUGEPAGE", "thp", pin_options.huge == PIN_HUGE_THP);
	REFUSES("PINALLOC_HUGEPAGE", "thp,off", EINVAL);
	REFUSES("PINALLOC_MAX", "3M", ENOENT);
	SETS("PINALLOC_PROGRAMS", "off", !strcmp(pin_options.programs, "off"));
}

static void ranks(void)
{
	setenv("SLURM_TASKS_PER_NODE", "4(x2),3", 1);
	ok(pin_options_ranks() == 4, "of several numbers of ranks the largest counts");
	setenv("MPI_LOCALNRANKS", "2", 1);
	ok(pin_options_ranks() == 2, "and what a launcher sets before the batch system's");
}

static void look_up(void)
{
	setenv("PINALLOC_TEST_NAME", "v", 1);
	ok(!strcmp(pin_environment("PINALLOC_TEST_NAME"), "v"),
	   "pin_environment() finds a variable");
	ok(!pin_environment("PINALLOC_TEST"), "it does not find a prefix of the name");
	is_secure = true;
	ok(!pin_environment("PINALLOC_TEST_NAME"), "it finds nothing in a set-user-ID program");
	setenv("PINALLOC_HELP", "1", 1);
	ok(!pin_options_help(), "PINALLOC_HELP has no effect in a set-user-ID program");
	is_secure = false;
	ok(pin_options_help(), "PINALLOC_HELP has an effect in other programs");
}

int main(void)
{
	sizes();
	environment();
	one_by_one();
	look_up();
	ranks();
	return done_testing();
}
