/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/resident.h"
#include "allocator/io.h"
#include "allocator/os.h"
#include "allocator/span.h"

#include <string.h>
#include <sys/param.h>
#include <sys/syscall.h>

/* Bits of an entry of /proc/self/pagemap: a page that is present, and mapped once. */
#define PRESENT (UINT64_C(1) << 63)
#define OWN	(PRESENT | UINT64_C(1) << 56)

#define PAGES_AT_A_TIME 128

/* Reads entries unchanged, all or none. */
static bool read_pagemap(int fd, size_t first, size_t n_pages, uint64_t *entries)
{
	long n = (long)(n_pages * sizeof *entries);

	return pin_result(syscall(SYS_pread64, fd, entries, n, first * sizeof *entries)) == n;
}

/* Adds to *count. At most PAGES_AT_A_TIME pages, from number `first` on. */
static bool count_pages(int fd, size_t first, size_t n_pages, uint32_t *count)
{
	uint64_t entries[PAGES_AT_A_TIME];
	unsigned char is_there[PAGES_AT_A_TIME];

	if (fd >= 0 && read_pagemap(fd, first, n_pages, entries)) {
		for (size_t i = 0; i < n_pages; i++)
			*count += (entries[i] & OWN) == OWN;
		return true;
	}
	if (pin_os_resident((void *)(first * PIN_PAGE), n_pages, is_there))
		return false;
	for (size_t i = 0; i < n_pages; i++)
		*count += is_there[i] & 1;
	return true;
}

bool pin_resident_count(uintptr_t addr, size_t n_pages, size_t n_runs, uint32_t *counts)
{
	size_t first = addr / PIN_PAGE, n;
	int fd = pin_io_open("/proc/self/pagemap");
	bool told = false, is_told;

	/* Of one run the kernel may not say, because a page is not mapped. */
	for (size_t i = 0; i < n_runs; i++, first += n_pages) {
		counts[i] = 0;
		is_told = true;
		for (size_t at = 0; at < n_pages && is_told; at += n) {
			n = MIN(n_pages - at, PAGES_AT_A_TIME);
			is_told = count_pages(fd, first + at, n, &counts[i]);
		}
		counts[i] = is_told ? counts[i] : 0;
		told |= is_told;
	}
	pin_io_close(fd);
	return told;
}

int64_t pin_resident_heap(bool is_fixed)
{
	uint32_t n_pages = 0;

	for (uint32_t i = 0; i < pin_span_count(); i++) {
		const struct pin_span *span = pin_span_get(i);
		size_t at = span->start / PIN_PAGE, end = at + span->length / PIN_PAGE, n;

		for (; span->is_fixed == is_fixed && at < end; at += n) {
			n = MIN(end - at, PAGES_AT_A_TIME);
			if (!count_pages(-1, at, n, &n_pages))
				return -1;
		}
	}
	return (int64_t)n_pages * PIN_PAGE;
}

/* --- pages that nobody has touched ------------------------------------------------- */

/* What is smaller is written whole; and from where on the kernel is asked. */
#define LEAST_READ  PIN_MIB
#define LEAST_ASKED (32 * PIN_MIB)
#define ASKED	    1024 /* pages at a time */

/* Reading an untouched page maps the kernel's page of zeroes, which is no memory. */
static void clear_unless_zero(char *p, size_t n_bytes)
{
	if (*p || memcmp(p, p + 1, n_bytes - 1) != 0)
		memset(p, 0, n_bytes);
}

static void clear_some(char *p, size_t n_bytes, bool asks)
{
	unsigned char is_there[ASKED];
	size_t n_pages = n_bytes / PIN_PAGE;
	bool told = asks && n_pages && !pin_os_resident(p, n_pages, is_there);

	for (size_t i = 0; i < n_pages; i++)
		if (!told || is_there[i] & 1)
			clear_unless_zero(p + i * PIN_PAGE, PIN_PAGE);
	memset(p + n_pages * PIN_PAGE, 0, n_bytes - n_pages * PIN_PAGE);
}

void pin_resident_clear(void *addr, size_t n_bytes)
{
	char *p = addr, *end = p + n_bytes;
	size_t n = n_bytes < LEAST_READ ? n_bytes : -(uintptr_t)p & (PIN_PAGE - 1);
	/* What was swapped out the kernel calls absent as well. */
	bool asks = n_bytes >= LEAST_ASKED && !pin_os_has_swap();

	/* A block may begin within one of the kernel's pages. */
	memset(p, 0, n);
	for (p += n; p < end; p += n) {
		n = MIN((size_t)(end - p), ASKED * PIN_PAGE);
		clear_some(p, n, asks);
	}
}
