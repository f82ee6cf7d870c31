/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Does the kernel tell, when the pages behind a buffer are replaced? The buffer is
 * given to userfaultfd, its pages are replaced in one of the ways of stale-ways.h,
 * and what is told by the time the calls have returned is looked at. Nothing of MPI
 * takes part.
 *
 * One line a way: WAY ANSWER. The answer is
 *     told     some message was about addresses of the buffer
 *     silent   none was
 *     refused  the range cannot be watched
 *     error    the pages could not be replaced
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>

#include "stale-ways.h"

/* The kernel tells in turn: what was told before the marker's end has been read then. */
struct watch {
	int fd;
	uintptr_t start, marker;
	atomic_bool told;
};

static void *read_messages(void *arg)
{
	struct watch *watch = arg;
	struct uffd_msg message;
	uintptr_t start = 0, end = 0;

	while (start != watch->marker &&
	       read(watch->fd, &message, sizeof message) == sizeof message) {
		start = message.arg.remove.start;
		end = message.arg.remove.end;
		if (message.event == UFFD_EVENT_REMAP) {
			start = message.arg.remap.from;
			end = start + message.arg.remap.len;
		}
		if (start < watch->start + BYTES && watch->start < end)
			watch->told = true;
	}
	return NULL;
}

static bool watch_range(int fd, uintptr_t start, size_t n_bytes)
{
	struct uffdio_register range = {
		.range = {.start = start, .len = n_bytes},
		.mode = UFFDIO_REGISTER_MODE_WP,
	};

	return !ioctl(fd, UFFDIO_REGISTER, &range);
}

static bool open_watch(struct watch *watch)
{
	struct uffdio_api api = {
		.api = UFFD_API,
		.features = UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP |
			    UFFD_FEATURE_EVENT_REMAP,
	};

	watch->fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	watch->marker = (uintptr_t)find_room(PAGE, PAGE);
	return !ioctl(watch->fd, UFFDIO_API, &api) &&
	       map_at((char *)watch->marker, PAGE, ANONYMOUS | MAP_FIXED, -1, raw_call) &&
	       watch_range(watch->fd, watch->marker, PAGE);
}

static const char *answer(const struct way *way)
{
	struct place place = {NULL, BYTES, NULL, -1};
	struct watch watch = {.told = false};
	enum result result;
	pthread_t thread;

	if (way->make(&place))
		return "error";
	memset(place.buffer, 1, BYTES);
	watch.start = (uintptr_t)place.buffer;
	if (!open_watch(&watch))
		return "error";
	if (!watch_range(watch.fd, watch.start, BYTES))
		return "refused";
	pthread_create(&thread, NULL, read_messages, &watch);
	result = replace_pages(way, &place);
	munmap((void *)watch.marker, PAGE);
	pthread_join(thread, NULL);
	/* It ends the watch of what is still mapped. */
	close(watch.fd);
	return watch.told ? "told" : result == FAILED ? "error" : "silent";
}

int main(void)
{
	for (size_t i = 0; i < N_WAYS; i++)
		if (strcmp(ways[i].group, "heap") != 0)
			printf("%s %s\n", ways[i].name, answer(&ways[i]));
	return 0;
}
