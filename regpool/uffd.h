/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * userfaultfd(2), in a thread whose table of file descriptors is its own: the program may close
 * every descriptor, have as many as its limit permits, fork or exec, and neither loses what is
 * watched nor meets a number it does not know. Only that thread can use the descriptors; others
 * ask it to.
 *
 * Watched means: who unmaps, remaps or discards pages there sleeps in its call until the
 * message of that has been taken. No page fault is taken over.
 */
#ifndef PIN_UFFD_H
#define PIN_UFFD_H

#include "allocator/base.h"

#include <linux/userfaultfd.h>

/* What the kernel must tell of: pin_uffd_start() needs it, and `pinalloc check` asks for it. */
#define PIN_UFFD_EVENTS \
	(UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP)

/* Descriptors there may be; with fewer permitted, those from the first on. */
#define PIN_UFFDS 64

/* The first watches the heap; the others what is not heap. */
#define PIN_UFFD_HEAP 0

/* Who is told, in that thread: may not wait for anybody, allocate, or write to a descriptor. */
struct pin_uffd_user {
	/* A message waits in descriptor n; it does so until pin_uffd_take(n, ticket). */
	void (*woke)(unsigned n, uint32_t ticket);
	/* One is about to be taken: its caller goes on before took(). */
	void (*taking)(unsigned n);
	/* It is; NULL: there was none. */
	void (*took)(unsigned n, const struct uffd_msg *message);
	/* Whether who should ask for messages may wait for somebody who sleeps until one is. */
	bool (*is_stuck)(void);
	/* To a thread that asks, each time: nothing is watched any more, by this errno. */
	void (*lost)(int error);
};

/*
 * Starts the thread and opens the first descriptor. Returns 0 or an errno value: ENOSYS or
 * EINVAL before Linux 5.11 or on a processor whose kernel has no write protection by
 * userfaultfd, EPERM where a filter of system calls forbids it. Once; not from inside malloc.
 */
int pin_uffd_start(const struct pin_uffd_user *user);

/*
 * Watches a range of pages by descriptor n, opening it if need be. What is watched stays so,
 * also when mremap() moves it elsewhere.
 * Returns 0; -EFAULT when some of it is not mapped, and the rest may be watched or not; -EINVAL
 * when any of it cannot be watched (pages of a file);
 * -EBUSY when another descriptor has some of it; -EPERM when it may not be written to; -EMFILE
 * when there can be no descriptor n. Sleeps for the thread. Thread-safe; not from inside
 * malloc.
 */
int pin_uffd_watch(unsigned n, uintptr_t start, size_t length);

/*
 * No longer. False while somebody may be about to discard pages there, whose message will be
 * one of descriptor n: then nobody else may watch it, and this is to be tried again. As
 * pin_uffd_watch().
 */
bool pin_uffd_unwatch(unsigned n, uintptr_t start, size_t length);

/*
 * Takes the oldest message of descriptor n, if it is the one that woke() gave this ticket for.
 * When it returns took() has. Returns false if the message was taken before. For one thread at
 * a time.
 */
bool pin_uffd_take(unsigned n, uint32_t ticket);

/*
 * Whether the call that a message of descriptor n was about has not been woken yet since that
 * was taken; true also while another message waits there. As pin_uffd_watch().
 */
bool pin_uffd_is_asleep(unsigned n);

/* Whether a page is there and of shared memory. As pin_uffd_watch(). */
bool pin_uffd_is_shared(uintptr_t page);

/* In a forked child, which has neither the thread nor its descriptors: it may start anew. */
void pin_uffd_leave(void);

/*
 * A message that nobody has asked for by then is taken all the same if who should ask is stuck,
 * the next ones the sooner, until somebody asks again; or, stuck or not, after the other.
 */
#define PIN_UFFD_PATIENCE_MS 100
#define PIN_UFFD_MOST_MS     2000

#endif
