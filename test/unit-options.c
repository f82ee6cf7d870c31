/* SPDX-License-Identifier: BSD-2-Clause */
/* Parsing of the environment. */
#include <config.h>

#include "allocator/log.h"
#include "allocator/options.h"
#include "test/tap.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

/* The linker puts this in place of libc's (--wrap). */
unsigned long __wrap_getauxval(unsigned long type);
unsigned long __real_getauxval(unsigned long type);

static bool is_secure; /* as the kernel tells a set-user-ID program */

unsigned long __wrap_getauxval(unsigned long type)
{
	return type == AT_SECURE ? is_secure : __real_getauxval(type);
}

static void sizes(void)
{
	static const struct {
		const char *text;
		size_t value;
	} good[] = {{"0", 0},
		    {"17", 17},
		    {"4k", 4096},
		    {"64M", 64 * PIN_MIB},
		    {"3G", 3 * PIN_GIB},
		    {"2t", 2 * PIN_TIB},
		    {"18446744073709551615", SIZE_MAX}};
	static const char *const bad[] = {"",
					  "M",
					  "-1",
					  "1.5G",
					  "64MB",
					  "6 M",
					  "0x10",
					  " 1",
					  "18446744073709551616",
					  "99999999999T"};
	size_t n;

	for (size_t i = 0; i < PIN_ARRAY_SIZE(good); i++)
		ok(!pin_parse_size(good[i].text, &n) && n == good[i].value, "size %s",
		   good[i].text);
	for (size_t i = 0; i < PIN_ARRAY_SIZE(bad); i++) {
		n = 12345;
		ok(pin_parse_size(bad[i], &n) && n == 12345, "not a size: \"%s\"", bad[i]);
	}
}

static void environment(void)
{
	setenv("PINALLOC_LOG", "error", 1);
	setenv("PINALLOC_GROW", "100M", 1);
	setenv("PINALLOC_ACCESS", "write,read", 1);
	setenv("PINALLOC_MAX_PINNED", "50%", 1);
	setenv("PINALLOC_REGISTER", "sometimes", 1);
	setenv("PINALLOC_VERIFY", "30", 1);
	setenv("PINALLOC_HUGEPAGE", "hugetlb", 1);
	setenv("PINALLOC_REPORT", "/tmp/%r.json", 1);
	setenv("MALLOC_ARENA_MAX", "3", 1);
	pin_options_init();
	ok(pin_log_limit == PIN_LOG_ERROR, "the level holds at once");
	ok(pin_options.grow == 64 * PIN_MIB, "growth is rounded down to a power of two");
	ok(pin_options.access == (PIN_ACCESS_WRITE | PIN_ACCESS_READ | PIN_ACCESS_LOCAL),
	   "remote writing brings local writing");
	ok(pin_options.max_pinned > PIN_MIB && pin_options.max_pinned < SIZE_MAX,
	   "a percentage is one of the machine's memory");
	ok(pin_options.mode == PIN_MODE_EAGER, "a bad value keeps the default");
	ok(pin_options.verify == 30, "where a word can stand there can be a number");
	ok(pin_options.huge == PIN_HUGE_TLB, "a word of a list is its place in it");
	ok(!strcmp(pin_options.report, "/tmp/%r.json"), "a path is taken as it is");
	ok(pin_options.arena_max == 3, "glibc's names are read");
	ok(!strcmp(pin_options.restrict_to, "*"), "what is not set has its default");
}

static void one_by_one(void)
{
	ok(!pin_options_set("PINALLOC_MAX_PINNED", "3M") &&
		   pin_options.max_pinned == 3 * PIN_MIB,
	   "one option is set");
	ok(pin_options_set("PINALLOC_MAX_PINNED", "lots") == -EINVAL &&
		   pin_options.max_pinned == 3 * PIN_MIB,
	   "what is not understood changes nothing");
	ok(!pin_options_set("PINALLOC_HUGEPAGE", "off") && pin_options.huge == PIN_HUGE_OFF &&
		   !pin_options_set("PINALLOC_HUGEPAGE", "auto") &&
		   pin_options.huge == PIN_HUGE_AUTO &&
		   !pin_options_set("PINALLOC_HUGEPAGE", "thp") &&
		   pin_options.huge == PIN_HUGE_THP &&
		   pin_options_set("PINALLOC_HUGEPAGE", "madvise") == -EINVAL,
	   "each word of a list, and no other");
	ok(pin_options_set("PINALLOC_MAX", "3M") == -ENOENT, "an unknown name is said");
}

static void signals(void)
{
	ok(!pin_options_set("PINALLOC_REPORT_SIGNAL", "RTMIN+2") &&
		   pin_options.report_signal == SIGRTMIN + 2,
	   "a signal by its distance");
	ok(pin_options_set("PINALLOC_REPORT_SIGNAL", "RTMIN+999") == -EINVAL &&
		   pin_options_set("PINALLOC_REPORT_SIGNAL", "RTMIN+18446744073709551592") ==
			   -EINVAL,
	   "none is further away than there are signals, or so far that it comes round");
}

static void look_up(void)
{
	setenv("PINALLOC_TEST_NAME", "v", 1);
	ok(!strcmp(pin_environment("PINALLOC_TEST_NAME"), "v"), "a variable is found");
	ok(!pin_environment("PINALLOC_TEST"), "a prefix of its name is not");
	is_secure = true;
	ok(!pin_environment("PINALLOC_TEST_NAME"), "nor is anything in a set-user-ID program");
	setenv("PINALLOC_HELP", "1", 1);
	ok(!pin_options_help_wanted(), "which its user cannot end by PINALLOC_HELP either");
	is_secure = false;
	ok(pin_options_help_wanted(), "as others");
}

int main(void)
{
	sizes();
	environment();
	one_by_one();
	signals();
	look_up();
	return done_testing();
}
