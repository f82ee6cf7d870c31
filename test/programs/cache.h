/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A registration cache that learns of memory that goes from the library only, by listener.c. By
 * that file's name it does as one of these:
 *   libucm       UCX: registers with its lock, and queues notifications, which it deals with
 *                before it uses a registration
 *   libopen-pal  Open MPI: registers without its lock the message's pages alone, and inserts
 *                afterwards (mca_rcache_grdma_register() in rcache_grdma_module.c); a
 *                notification takes the lock, and must not begin where a registration in use
 *                does (gc_add() there)
 *   libfabric    registers without its lock; asks whether a registration may be cached
 *   none         is told of nothing
 * What is in use is deregistered when it is not any more.
 */
#ifndef CACHE_H
#define CACHE_H

#include "test/programs/rdma-watch.h"

enum { CACHE_ENTRIES = 256 };

struct cache_entry {
	char *start, *end;
	struct ibv_mr *mr;
	unsigned users;
	bool is_taken, is_gone;
};

static struct {
	struct ibv_pd *pd;
	enum { UCX, OPEN_MPI, LIBFABRIC } kind;
	bool (*subscribe)(const void *addr, size_t length);
	pthread_mutex_t lock;
	struct cache_entry entries[CACHE_ENTRIES];
	unsigned most; /* of these: CACHE_MOST in the environment, or all */
	_Atomic unsigned hits, registered, told;
	/* What was told and is not dealt with. */
	pthread_mutex_t queue_lock;
	unsigned n_queued;
	struct {
		char *start, *end;
	} queue[64];
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER, .queue_lock = PTHREAD_MUTEX_INITIALIZER};

/* With the lock. */
static void cache_forget(char *start, char *end)
{
	for (struct cache_entry *it = cache.entries; it < cache.entries + CACHE_ENTRIES; it++)
		if (it->mr && start < it->end && it->start < end) {
			need(cache.kind != OPEN_MPI || !it->users || it->start != start);
			it->is_gone = true;
		}
}

static void cache_hear(void *addr, size_t length)
{
	char *start = addr, *end = start + length;

	cache.told++;
	if (cache.kind != UCX) {
		pthread_mutex_lock(&cache.lock);
		cache_forget(start, end);
		pthread_mutex_unlock(&cache.lock);
		return;
	}
	pthread_mutex_lock(&cache.queue_lock);
	if (cache.n_queued == sizeof cache.queue / sizeof *cache.queue) {
		cache.n_queued = 1;
		start = NULL;
		end = (char *)UINTPTR_MAX;
	}
	cache.queue[cache.n_queued].start = start;
	cache.queue[cache.n_queued++].end = end;
	pthread_mutex_unlock(&cache.queue_lock);
}

static inline void cache_open(struct ibv_pd *pd, const char *listener)
{
	void *handle;

	cache.pd = pd;
	cache.most = getenv("CACHE_MOST") ? (unsigned)atoi(getenv("CACHE_MOST"))
					  : CACHE_ENTRIES;
	if (!strcmp(listener, "none"))
		return;
	cache.kind = strstr(listener, "libopen-pal") ? OPEN_MPI
		     : strstr(listener, "libfabric") ? LIBFABRIC
						     : UCX;
	handle = listen_by(listener, cache_hear);
	if (cache.kind == LIBFABRIC)
		need((cache.subscribe = dlsym(handle, "listener_subscribe")));
}

/* Only UCX has the lock while it deregisters: a notification does not wait for it. */
static void cache_drop(struct cache_entry *it)
{
	struct ibv_mr *mr = it->mr;

	it->mr = NULL;
	if (cache.kind != UCX)
		pthread_mutex_unlock(&cache.lock);
	need(!ibv_dereg_mr(mr));
	if (cache.kind != UCX)
		pthread_mutex_lock(&cache.lock);
	it->is_taken = false;
}

/* Nothing is deregistered with the queue's lock: that waits for its holder. */
static void cache_catch_up(void)
{
	pthread_mutex_lock(&cache.queue_lock);
	while (cache.n_queued) {
		cache.n_queued--;
		cache_forget(cache.queue[cache.n_queued].start,
			     cache.queue[cache.n_queued].end);
	}
	pthread_mutex_unlock(&cache.queue_lock);
	for (struct cache_entry *it = cache.entries; it < cache.entries + CACHE_ENTRIES; it++)
		if (it->mr && it->is_gone && !it->users)
			cache_drop(it);
}

/* Takes one that is free, or has no users. */
static struct cache_entry *cache_take(void)
{
	static unsigned hand;
	struct cache_entry *it;

	do
		it = &cache.entries[hand++ % cache.most];
	while (it->is_taken && !(it->mr && !it->users));
	if (it->mr)
		cache_drop(it);
	*it = (struct cache_entry){.is_taken = true, .users = 1};
	return it;
}

/* Of [from, to) at least, and if it can be had, of what surrounds it. */
static struct cache_entry *cache_make(char *from, char *to, char *start, char *end)
{
	struct cache_entry *it = cache_take();
	struct ibv_mr *mr;

	if (cache.kind != UCX)
		pthread_mutex_unlock(&cache.lock);
	mr = reg(cache.pd, start, (size_t)(end - start));
	if (!mr) {
		start = from;
		end = to;
		need((mr = reg(cache.pd, from, (size_t)(to - from))));
	}
	if (cache.kind != UCX)
		pthread_mutex_lock(&cache.lock);
	cache.registered++;
	it->start = start;
	it->end = end;
	it->is_gone = cache.subscribe && !cache.subscribe(start, (size_t)(end - start));
	it->mr = mr;
	return it;
}

static inline struct cache_entry *cache_hold(char *from, char *to, char *start, char *end)
{
	struct cache_entry *it = cache.entries;

	if (cache.kind == OPEN_MPI) {
		start = from - (uintptr_t)from % PAGE;
		end = to + -(uintptr_t)to % PAGE;
	}
	pthread_mutex_lock(&cache.lock);
	cache_catch_up();
	while (it < cache.entries + CACHE_ENTRIES &&
	       !(it->mr && !it->is_gone && it->start <= from && to <= it->end))
		it++;
	if (it < cache.entries + CACHE_ENTRIES) {
		cache.hits++;
		it->users++;
	} else {
		it = cache_make(from, to, start, end);
	}
	pthread_mutex_unlock(&cache.lock);
	return it;
}

static inline void cache_release(struct cache_entry *it)
{
	pthread_mutex_lock(&cache.lock);
	it->users--;
	pthread_mutex_unlock(&cache.lock);
}

#endif
