/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared by the programs that test notifications of unmapped memory: a stand-in listener
 * (listener.c), a record of its notifications, and mappings to register.
 */
#ifndef RDMA_WATCH_H
#define RDMA_WATCH_H

#include "test/programs/calls.h"
#include "test/programs/rdma.h"
#include "test/tap.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE	  ((size_t)4096)
#define ANONYMOUS (MAP_PRIVATE | MAP_ANONYMOUS)
#define WRITABLE  (PROT_READ | PROT_WRITE)

typedef void hook_function(void *addr, size_t length);

/* What was told, in order. */
static struct {
	uintptr_t start, end;
} heard[1 << 16];
static _Atomic unsigned n_heard;

/* A registration is told by its own thread if it must not be cached: how often, meanwhile. */
static __thread bool is_registering;
static __thread unsigned n_forgotten;

static inline bool is_forgetting(void)
{
	n_forgotten += is_registering;
	return is_registering;
}

static inline void hear(void *addr, size_t length)
{
	unsigned i = n_heard;

	if (is_forgetting())
		return;
	need(i < sizeof heard / sizeof *heard);
	heard[i].start = (uintptr_t)addr;
	heard[i].end = (uintptr_t)addr + length;
	n_heard = i + 1;
}

/* Loads a listener and has it call this one. */
static inline void *listen_by(const char *path, hook_function *hook)
{
	void *handle = dlopen(path, RTLD_LOCAL | RTLD_LAZY);
	hook_function *_Atomic *place;

	if (!handle)
		fprintf(stderr, "%s\n", dlerror());
	need(handle && (place = dlsym(handle, "listener_hook")));
	atomic_store(place, hook);
	return handle;
}

static inline bool page_was_told(unsigned from, uintptr_t page)
{
	for (unsigned i = from; i < n_heard; i++)
		if (heard[i].start <= page && heard[i].end >= page + PAGE)
			return true;
	return false;
}

/* Whether all of it was told of, since there were so many. */
static inline bool was_told(unsigned from, const void *start, size_t length)
{
	for (size_t at = 0; at < length; at += PAGE)
		if (!page_was_told(from, (uintptr_t)start + at))
			return false;
	return true;
}

static inline struct ibv_mr *reg(struct ibv_pd *pd, void *p, size_t length)
{
	struct ibv_mr *mr;

	/* A device may be gone for a moment. */
	while (!(mr = ibv_reg_mr(pd, p, length, RDMA_ACCESS)) && errno == EIO)
		;
	return mr;
}

/* With pages around that stay, so that nothing grows together. */
static inline char *map_pages(size_t length)
{
	char *p = mmap(NULL, length + 2 * PAGE, PROT_NONE, ANONYMOUS, -1, 0);

	need(p != MAP_FAILED && !mprotect(p + PAGE, length, WRITABLE));
	memset(p + PAGE, 1, length);
	return p + PAGE;
}

static inline void map_over(void *p, size_t length)
{
	need(mmap(p, length, WRITABLE, ANONYMOUS | MAP_FIXED, -1, 0) == p);
}

static inline struct ibv_mr *registered_once(struct ibv_pd *pd, void *p, size_t length)
{
	struct ibv_mr *mr;

	is_registering = true;
	n_forgotten = 0;
	mr = reg(pd, p, length);
	is_registering = false;
	need(mr);
	return mr;
}

/* Until it may be cached, as from the second time on, or if that does not seem to come. */
static inline struct ibv_mr *registered(struct ibv_pd *pd, void *p, size_t length)
{
	struct ibv_mr *mr = registered_once(pd, p, length);

	for (int i = 0; i < 300 && n_forgotten; i++) {
		need(!ibv_dereg_mr(mr));
		/* What was replaced before may not be settled yet on a busy machine. */
		if (i >= 10)
			usleep(200);
		mr = registered_once(pd, p, length);
	}
	return mr;
}

/* Whether replacing registered pages is notified at once. */
static inline bool is_told(struct ibv_pd *pd, char *p, size_t length)
{
	struct ibv_mr *mr = registered(pd, p, length);
	unsigned before = n_heard;
	bool told;

	map_over(p, length);
	told = was_told(before, p, length);
	need(!ibv_dereg_mr(mr));
	return told;
}

#endif
