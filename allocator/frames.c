/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/frames.h"

#include <errno.h>
#include <fcntl.h>
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
		ssize_t n = syscall(SYS_pread64, fd, (char *)entries + filled, end - filled,
				    first * sizeof *entries + filled);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			return -EFAULT;
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
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* Reads the entries of n_pages from addr on. Returns 0 or -errno. */
static int read_entries(uintptr_t addr, size_t n_pages, uint64_t *entries)
{
	int saved = errno, fd = open_pagemap();
	int error = fd < 0 ? fd : read_pagemap(fd, addr / PIN_PAGE, n_pages, entries);

	if (fd >= 0)
		syscall(SYS_close, fd);
	errno = saved;
	return error;
}

int pin_frames_of(uintptr_t addr, size_t n_pages, uint64_t *frames)
{
	int error = read_entries(addr, n_pages, frames);

	if (error == -EACCES)
		return -EPERM;
	if (error == -ENOENT)
		return -ENOTSUP;
	return error ? error : keep_frames(frames, n_pages);
}

/* Clears the pages that this process does not have to itself. */
static void clear_shared(int fd, size_t first, size_t n_pages, unsigned char *pages)
{
	uint64_t entries[PAGES_AT_A_TIME];

	if (!memchr(pages, 1, n_pages) || read_pagemap(fd, first, n_pages, entries))
		return;
	for (size_t i = 0; i < n_pages; i++)
		if (!(entries[i] & PAGEMAP_OWN))
			pages[i] = 0;
}

/* Opens the file for each call: the program may close a descriptor that is kept open. */
static void clear_all_shared(size_t first, size_t n_pages, unsigned char *pages)
{
	int fd = memchr(pages, 1, n_pages) ? open_pagemap() : -1;

	if (fd < 0)
		return;
	for (size_t i = 0, n; i < n_pages; i += n) {
		n = n_pages - i < PAGES_AT_A_TIME ? n_pages - i : PAGES_AT_A_TIME;
		clear_shared(fd, first + i, n, pages + i);
	}
	syscall(SYS_close, fd);
}

bool pin_frames_resident(uintptr_t addr, size_t n_pages, unsigned char *pages)
{
	uintptr_t first = PIN_ALIGN_DOWN(addr, PIN_PAGE);
	int saved = errno;
	bool known = !mincore((void *)first, n_pages * PIN_PAGE, pages);

	if (known)
		clear_all_shared(first / PIN_PAGE, n_pages, pages);
	errno = saved;
	return known;
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
	int saved = errno, fd = open_pagemap();
	char *p = addr, *end = p + n_bytes;
	size_t n;

	while (p < end) {
		n = (size_t)(end - p) / PIN_PAGE;
		n = n < PAGES_AT_A_TIME ? n : PAGES_AT_A_TIME;
		if (fd < 0 || !n || read_pagemap(fd, (uintptr_t)p / PIN_PAGE, n, entries))
			break;
		clear_touched(p, entries, n);
		p += n * PIN_PAGE;
	}
	memset(p, 0, (size_t)(end - p));
	if (fd >= 0)
		syscall(SYS_close, fd);
	errno = saved;
}
