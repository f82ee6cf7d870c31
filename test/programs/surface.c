/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * surface SECTION: holds every function of malloc's family to its rules; prints
 * TAP. To be run with PINALLOC_REGISTER=off: then pinalloc_lookup() needs no
 * device and tells heap (-ENOMEM, registration is off) from the rest (-ENOENT).
 */
/* All that is usable is written, which _FORTIFY_SOURCE=3 takes for an overflow. */
#undef _FORTIFY_SOURCE
#include <config.h>

#include "preload/pinalloc.h"
#include "test/tap.h"

#include <dlfcn.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MIB	     ((size_t)1 << 20)
#define PAGE	     4096
#define UNTOUCHED    4711 /* an errno nobody sets */
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const size_t sizes[] = {1,     8,      16,      100,	1000,	  4096,	   5000,
			       20000, 100000, 1 * MIB, 5 * MIB, 17 * MIB, 40 * MIB};
/* Volatile, or the compiler would warn of what is tried here on purpose. */
static volatile size_t two_to_32 = (size_t)1 << 32;
/* Volatile, or clang would assume that it succeeds, whatever -fno-builtin-valloc says. */
static void *(*volatile opaque_valloc)(size_t) = valloc;
static const volatile size_t beyond[] = {(size_t)PTRDIFF_MAX + 1, SIZE_MAX - PAGE, SIZE_MAX};

/* Whether the library holds [p, p + size), all of it in one region. */
static bool in_heap(const void *p, size_t size)
{
	struct ibv_pd *no_pd = (struct ibv_pd *)UNTOUCHED;
	struct pinalloc_key key;

	return p && pinalloc_lookup && pinalloc_lookup(no_pd, p, size, 0, &key) == -ENOMEM;
}

static bool is_filled(const char *p, char value, size_t size)
{
	return !size || (*p == value && !memcmp(p, p + 1, size - 1));
}

/* NULL and ENOMEM, of a call. */
#define refused(p) (errno = 0, !(p) && errno == ENOMEM)

static void good_block(void *p, size_t size, size_t alignment, const char *function)
{
	ok(in_heap(p, size ? size : 1) && (uintptr_t)p % alignment == 0,
	   "%s of %zu bytes: in the heap, at a multiple of %zu", function, size, alignment);
	if (p)
		memset(p, 0xee, size);
	free(p);
}

static void posix(void *before, size_t alignment, size_t size, int expected)
{
	void *p = before;
	int error;

	errno = UNTOUCHED;
	error = posix_memalign(&p, alignment, size);
	ok(error == expected && errno == (expected == ENOMEM ? ENOMEM : UNTOUCHED),
	   "posix_memalign(%zu, %zu) returns %d; errno is ENOMEM after that, or left alone",
	   alignment, size, expected);
	if (expected)
		ok(p == before, "and leaves the pointer");
	else
		good_block(p, size, alignment, "posix_memalign");
}

static void test_sizes(void)
{
	for (size_t i = 0; i < COUNT(sizes); i++) {
		size_t size = sizes[i];
		size_t alignment = size < 16 ? 8 : 16;

		good_block(malloc(size), size, alignment, "malloc");
		good_block(calloc(size, 3), size * 3, alignment, "calloc");
		good_block(realloc(NULL, size), size, alignment, "realloc(NULL)");
		good_block(reallocarray(NULL, 3, size), size * 3, alignment, "reallocarray");
	}
}

static void test_zero(void)
{
	void *p[] = {malloc(0),
		     malloc(0),
		     calloc(0, 1),
		     calloc(1, 0),
		     realloc(NULL, 0),
		     memalign(64, 0),
		     aligned_alloc(64, 0),
		     valloc(0),
		     pvalloc(0),
		     reallocarray(NULL, 0, 8)};

	for (size_t i = 0; i < COUNT(p); i++) {
		bool own = in_heap(p[i], 1);

		for (size_t k = 0; k < i; k++)
			own &= p[k] != p[i];
		ok(own, "a block of no bytes is a block of its own (%zu)", i);
	}
	for (size_t i = 0; i < COUNT(p); i++)
		free(p[i]);
	posix(p, 64, 0, 0);
	errno = UNTOUCHED;
	ok(!realloc(malloc(10), 0) && errno == UNTOUCHED, "realloc to 0 frees, as in glibc");
}

static void test_beyond(void)
{
	for (size_t i = 0; i < COUNT(beyond); i++) {
		size_t size = beyond[i];

		ok(refused(malloc(size)), "malloc of %zu bytes: NULL, ENOMEM", size);
		ok(refused(calloc(1, size)), "calloc");
		ok(refused(realloc(NULL, size)), "realloc(NULL)");
		ok(refused(reallocarray(NULL, 1, size)), "reallocarray");
		ok(refused(aligned_alloc(64, size)), "aligned_alloc");
		ok(refused(memalign(64, size)), "memalign");
		ok(refused(opaque_valloc(size)), "valloc");
		ok(refused(pvalloc(size)), "pvalloc");
		posix(&errno, 64, size, ENOMEM);
	}
	ok(refused(calloc(two_to_32 + 1, two_to_32)), "calloc whose product overflows");
	ok(refused(calloc(two_to_32, two_to_32)), "calloc whose product is 2^64");
	ok(refused(reallocarray(NULL, two_to_32 * 2, two_to_32 / 2)), "reallocarray likewise");
}

static void test_calloc(void)
{
	int reused = 0;

	for (size_t i = 0; i < COUNT(sizes); i++) {
		char *dirty = malloc(sizes[i]), *p;
		uintptr_t at = (uintptr_t)dirty;

		memset(dirty, 0xff, sizes[i]);
		free(dirty);
		p = calloc(1, sizes[i]);
		reused += (uintptr_t)p == at;
		ok(is_filled(p, 0, sizes[i]), "calloc of %zu bytes is zero", sizes[i]);
		free(p);
	}
	ok(reused > 5, "%d of them where a dirty block was", reused);
}

static void test_realloc(void)
{
	static const size_t targets[] = {1000, 10, 5000, 40 * MIB, 4097, 3 * MIB, 100, 300000};
	size_t size = 100;
	char *volatile p = malloc(size);

	memset(p, 7, size);
	for (size_t i = 0; i < COUNT(targets); i++) {
		size_t kept = size < targets[i] ? size : targets[i];

		p = realloc(p, targets[i]);
		ok(in_heap(p, targets[i]) && is_filled(p, 7, kept),
		   "realloc from %zu to %zu bytes keeps the contents", size, targets[i]);
		size = targets[i];
		memset(p, 7, size);
	}
	for (size_t i = 0; i < COUNT(beyond); i++) {
		ok(refused(realloc(p, beyond[i])), "realloc to %zu bytes: NULL, ENOMEM",
		   beyond[i]);
		ok(is_filled(p, 7, size), "and the block is as it was");
	}
	ok(refused(reallocarray(p, two_to_32 + 1, two_to_32)) && is_filled(p, 7, size),
	   "reallocarray that overflows likewise");
	free(p);
}

/* Which glibc rounds up only before 2.38, if it is no power of two. */
static void odd_aligned_alloc(size_t alignment, size_t given)
{
	void *p;

	errno = 0;
	p = aligned_alloc(alignment, 100);
	if (strverscmp(gnu_get_libc_version(), "2.38") >= 0 && alignment != 1)
		ok(!p && errno == EINVAL, "aligned_alloc(%zu): NULL, EINVAL", alignment);
	else
		good_block(p, 100, given, "aligned_alloc");
}

static void test_alignment(void)
{
	static const size_t some[] = {1, 100, PAGE, 100000, 3 * MIB};
	static const size_t bad[] = {0, 1, 3, 4, 24, 100};
	/* As asked for, and as given. */
	static const size_t odd[][2] = {{0, 16}, {1, 16}, {24, 32}, {100, 128}, {4097, 8192}};
	size_t most = SIZE_MAX;

	for (size_t alignment = 8; alignment <= 64 * MIB; alignment *= 8) {
		for (size_t i = 0; i < COUNT(some); i++) {
			good_block(memalign(alignment, some[i]), some[i], alignment,
				   "memalign");
			good_block(aligned_alloc(alignment, some[i]), some[i], alignment,
				   "aligned_alloc");
			posix(NULL, alignment, some[i], 0);
		}
	}
	for (size_t i = 0; i < COUNT(bad); i++)
		posix(&errno, bad[i], 100, EINVAL);
	for (size_t i = 0; i < COUNT(odd); i++) {
		good_block(memalign(odd[i][0], 100), 100, odd[i][1], "memalign");
		odd_aligned_alloc(odd[i][0], odd[i][1]);
	}
	errno = 0;
	ok(!memalign(most, 100) && errno == EINVAL, "memalign(SIZE_MAX): NULL, EINVAL");
}

static void test_pages(void)
{
	static const size_t some[] = {1, 100, PAGE, PAGE + 1, 100000, 3 * MIB + 1};

	for (size_t i = 0; i < COUNT(some); i++) {
		size_t whole = (some[i] + PAGE - 1) / PAGE * PAGE;

		good_block(valloc(some[i]), some[i], PAGE, "valloc");
		good_block(pvalloc(some[i]), whole, PAGE, "pvalloc, in whole pages,");
	}
}

static void test_usable(void)
{
	ok(malloc_usable_size(NULL) == 0, "nothing is usable at NULL");
	for (size_t i = 0; i < COUNT(sizes); i++) {
		char *p = malloc(sizes[i]);
		size_t usable = malloc_usable_size(p);

		ok(usable >= sizes[i] && usable < sizes[i] * 2 + 16,
		   "of %zu bytes %zu are usable", sizes[i], usable);
		memset(p, 9, usable);
		p = realloc(p, usable + 1);
		ok(is_filled(p, 9, usable), "and kept");
		free(p);
	}
}

static void test_errno(void)
{
	for (size_t i = 0; i < COUNT(sizes); i++) {
		void *p[6];

		errno = UNTOUCHED;
		p[0] = malloc(sizes[i]);
		p[1] = calloc(1, sizes[i]);
		p[2] = realloc(malloc(1), sizes[i]);
		p[3] = aligned_alloc(64, sizes[i]);
		p[4] = memalign(64, sizes[i]);
		p[5] = pvalloc(sizes[i]);
		ok(errno == UNTOUCHED, "success with %zu bytes leaves errno", sizes[i]);
		errno = UNTOUCHED;
		for (size_t k = 0; k < COUNT(p); k++)
			free(p[k]);
		free(NULL);
		ok(errno == UNTOUCHED, "and so does free");
	}
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* mallinfo */
static void test_glibc(void)
{
	struct mallinfo2 before, after;
	struct mallinfo old;
	void *p;

	ok(!malloc_trim(0) && !malloc_trim(MIB), "malloc_trim is 0: nothing was given back");

	before = mallinfo2();
	p = malloc(100 * MIB);
	after = mallinfo2();
	old = mallinfo();
	ok(after.uordblks - before.uordblks >= 100 * MIB, "mallinfo2: 100 MiB more in use");
	ok(after.uordblks - before.uordblks < 130 * MIB, "and not much more than that");
	ok(after.arena >= after.uordblks && after.fordblks == after.arena - after.uordblks,
	   "the heap is what is in use and what is free");
	ok((size_t)old.arena == after.arena &&
		   (size_t)old.uordblks / MIB == after.uordblks / MIB,
	   "mallinfo says the same");
	free(p);
	ok(mallinfo2().uordblks < before.uordblks + MIB && mallinfo2().arena == after.arena,
	   "what is freed stays in the heap");
	ok(malloc_info(1, stdout) == EINVAL, "malloc_info knows no options");
}

void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t), *__libc_valloc(size_t), *__libc_pvalloc(size_t);
void __libc_free(void *);
void free_sized(void *, size_t) __attribute__((weak));
void free_aligned_sized(void *, size_t, size_t) __attribute__((weak));

/* Blocks from one name go to free under another, as in old wrappers of malloc. */
static void test_libc_names(void)
{
	good_block(__libc_malloc(100), 100, 16, "__libc_malloc");
	good_block(__libc_calloc(10, 10), 100, 16, "__libc_calloc");
	good_block(__libc_realloc(malloc(1), 100), 100, 16, "__libc_realloc");
	good_block(__libc_memalign(256, 100), 100, 256, "__libc_memalign");
	good_block(__libc_valloc(100), 100, PAGE, "__libc_valloc");
	good_block(__libc_pvalloc(100), PAGE, PAGE, "__libc_pvalloc");
	__libc_free(malloc(100));
}

/* C23's, which a glibc may lack. */
static void test_sized(void)
{
	ok(free_sized && free_aligned_sized, "the functions that free a size are there");
	if (!free_sized || !free_aligned_sized)
		return;
	free_sized(malloc(100), 100);
	free_sized(calloc(3, MIB), 3 * MIB);
	free_sized(NULL, 0);
	free_aligned_sized(aligned_alloc(256, 512), 256, 512);
	free_aligned_sized(NULL, 256, 0);
}

static void print_stats(void)
{
	void *volatile half = malloc(100 * MIB), *volatile small[1000];

	for (int i = 0; i < 1000; i++)
		small[i] = malloc(MIB / 10);
	malloc_stats();
	free(half);
	free(small[0]);
}

__attribute__((weak)) void malloc_stats_print(void (*write)(void *arg, const char *text),
					      void *arg, const char *options);

static void print_jemalloc_stats(void)
{
	malloc_stats_print(NULL, NULL, "a");
}

static void print_info(void)
{
	/* The heap begins with it. */
	void *volatile first = malloc(1);

	free(first);
	if (malloc_info(0, stdout))
		exit(1);
}

static const struct {
	const char *name;
	void (*run)(void);
} sections[] = {{"sizes", test_sizes},
		{"zero", test_zero},
		{"beyond", test_beyond},
		{"calloc", test_calloc},
		{"realloc", test_realloc},
		{"alignment", test_alignment},
		{"pages", test_pages},
		{"usable", test_usable},
		{"errno", test_errno},
		{"glibc", test_glibc},
		{"libc-names", test_libc_names},
		{"sized", test_sized},
		{"info", print_info},
		{"stats", print_stats},
		{"jemalloc-stats", print_jemalloc_stats}};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc == 2 && i < COUNT(sections); i++) {
		if (strcmp(argv[1], sections[i].name))
			continue;
		sections[i].run();
		return tap_count ? done_testing() : 0;
	}
	return 2;
}
