/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/frames.h"
#include "allocator/file.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Bits of an entry of /proc/self/pagemap. */
#define PAGEMAP_PRESENT (UINT64_C(1) << 63)
#define PAGEMAP_OWN	(UINT64_C(1) << 56) /* mapped once */
#define PAGEMAP_SWAPPED (UINT64_C(1) << 62)
#define PAGEMAP_FRAME	((UINT64_C(1) << 55) - 1)

#define PAGES_AT_A_TIME 512

/* Reads entries unchanged. Returns 0 or -errno. */
static int read_pagemap(int fd, size_t first, size_t n_pages, uint64_t *entries)
{
	size_t end = n_pages * sizeof *entries, filled = 0;

	while (filled < end) {
		long n = pin_result(syscall(SYS_pread64, fd, (char *)entries + filled,
					    end - filled, first * sizeof *entries + filled));

		if (n <= 0 && n != -EINTR)
			return n ? (int)n : -EFAULT;
		filled += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

/*
 * Turns entries into frame numbers. No page of a program is in frame 0: the kernel hides the
 * number.
 */
static int keep_frames(uint64_t *entries, size_t n_pages)
{
	for (size_t i = 0; i < n_pages; i++) {
		bool present = entries[i] & PAGEMAP_PRESENT;

		entries[i] = present ? entries[i] & PAGEMAP_FRAME : 0;
		if (present && !entries[i])
			return -EPERM;
	}
	return 0;
}

static int open_pagemap(void)
{
	return pin_file_open("/proc/self/pagemap");
}

int pin_frames_of(uintptr_t addr, size_t n_pages, uint64_t *frames)
{
	int fd = open_pagemap();
	int error = fd < 0 ? fd : read_pagemap(fd, addr / PIN_PAGE, n_pages, frames);

	pin_file_close(fd);
	if (error == -EACCES)
		return -EPERM;
	if (error == -ENOENT)
		return -ENOTSUP;
	return error ? error : keep_frames(frames, n_pages);
}

static uint32_t count_own(const uint64_t *entries, size_t n_pages)
{
	const uint64_t wanted = PAGEMAP_PRESENT | PAGEMAP_OWN;
	uint32_t n = 0;

	for (size_t i = 0; i < n_pages; i++)
		n += (entries[i] & wanted) == wanted;
	return n;
}

/* Adds to *count. At most PAGES_AT_A_TIME pages, from number `first` on. */
static bool count_pages(int fd, size_t first, size_t n_pages, uint32_t *count)
{
	uint64_t entries[PAGES_AT_A_TIME];
	unsigned char is_there[PAGES_AT_A_TIME];

	if (fd >= 0 && !read_pagemap(fd, first, n_pages, entries)) {
		*count += count_own(entries, n_pages);
		return true;
	}
	if (pin_result(mincore((void *)(first * PIN_PAGE), n_pages * PIN_PAGE, is_there)))
		return false;
	for (size_t i = 0; i < n_pages; i++)
		*count += is_there[i] & 1;
	return true;
}

bool pin_frames_count(uintptr_t addr, size_t n_pages, size_t n_runs, uint32_t *counts)
{
	size_t first = addr / PIN_PAGE, n;
	int fd = open_pagemap();
	bool told = false, is_told;

	/* Of one run the kernel may not say, because a page is not mapped. */
	for (size_t i = 0; i < n_runs; i++, first += n_pages) {
		counts[i] = 0;
		is_told = true;
		for (size_t at = 0; at < n_pages && is_told; at += n) {
			n = n_pages - at < PAGES_AT_A_TIME ? n_pages - at : PAGES_AT_A_TIME;
			is_told = count_pages(fd, first + at, n, &counts[i]);
		}
		counts[i] = is_told ? counts[i] : 0;
		told |= is_told;
	}
	pin_file_close(fd);
	return told;
}

/* Clears those of n_pages that are in memory or swapped out, neighbours at once. */
static void clear_touched(char *page, const uint64_t *entries, size_t n_pages)
{
	const uint64_t touched = PAGEMAP_PRESENT | PAGEMAP_SWAPPED;
	size_t from, i = 0;

	while (i < n_pages) {
		for (from = i; i < n_pages && entries[i] & touched; i++)
			;
		if (i > from)
			memset(page + from * PIN_PAGE, 0, (i - from) * PIN_PAGE);
		else
			i++;
	}
}

void pin_frames_clear(void *addr, size_t n_bytes)
{
	uint64_t entries[PAGES_AT_A_TIME];
	int fd = open_pagemap();
	char *p = addr, *end = p + n_bytes;
	size_t n = -(uintptr_t)p & (PIN_PAGE - 1);

	/* A block may begin within one of the kernel's pages. */
	n = n < n_bytes ? n : n_bytes;
	memset(p, 0, n);
	p += n;
	while (p < end) {
		n = (size_t)(end - p) / PIN_PAGE;
		n = n < PAGES_AT_A_TIME ? n : PAGES_AT_A_TIME;
		if (fd < 0 || !n || read_pagemap(fd, (uintptr_t)p / PIN_PAGE, n, entries))
			break;
		clear_touched(p, entries, n);
		p += n * PIN_PAGE;
	}
	memset(p, 0, (size_t)(end - p));
	pin_file_close(fd);
}
