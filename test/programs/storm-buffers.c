/* SPDX-License-Identifier: BSD-2-Clause */
/* The storm's buffers, and the cache that makes it dangerous. */
#include "test/programs/storm.h"

#include <dlfcn.h>

#define LARGEST_CACHED MIB

/*
 * Each lane maps its buffers at an address of its own, as one that another thread unmaps is
 * free a moment before anybody can be told.
 */
#define PLACES	   0x200000000000
#define PLACE_SIZE (32 * MIB)
static _Atomic uint64_t told[STORM_LANES];

/* Any thread may be here. */
static void forget(void *at, size_t length)
{
	for (uintptr_t i = 0; i < STORM_LANES; i++) {
		uintptr_t place = PLACES + i * PLACE_SIZE;

		if ((uintptr_t)at < place + PLACE_SIZE && place < (uintptr_t)at + length)
			told[i]++;
	}
}

void storm_listen(const char *path)
{
	void *handle = dlopen(path, RTLD_LOCAL | RTLD_LAZY);
	void (*_Atomic *hook)(void *at, size_t length);

	need(handle && (hook = dlsym(handle, "listener_hook")));
	atomic_store(hook, forget);
}

/* How often that was said of what may be there. */
static uint64_t times_told(const char *at)
{
	uintptr_t place = ((uintptr_t)at - PLACES) / PLACE_SIZE;

	return place < STORM_LANES ? told[place] : 0;
}

static struct ibv_mr *registered(struct storm_domain *domain, char *at, size_t length)
{
	struct ibv_mr *mr = ibv_reg_mr(domain->pd, at, length, RDMA_ACCESS);

	need(mr);
	storm_registrations++;
	return mr;
}

/* --- the cache ---------------------------------------------------------------------- */

void storm_make_domain(struct storm_domain *domain, struct ibv_context *context)
{
	*domain = (struct storm_domain){.lock = PTHREAD_MUTEX_INITIALIZER};
	need((domain->pd = ibv_alloc_pd(context)));
}

void storm_end_domain(struct storm_domain *domain)
{
	for (int i = 0; i < STORM_CACHED; i++)
		need(!domain->cached[i].mr || !ibv_dereg_mr(domain->cached[i].mr));
	need(!ibv_dealloc_pd(domain->pd));
}

static struct storm_cached *found(struct storm_domain *domain, const char *at, size_t length)
{
	for (int i = 0; i < STORM_CACHED; i++) {
		struct storm_cached *cached = &domain->cached[i];

		if (cached->mr && cached->at == at && cached->length == length &&
		    cached->told == times_told(at))
			return cached;
	}
	return NULL;
}

/* One that is free, or else the one that was not used for the longest time. */
static struct storm_cached *make_room(struct storm_domain *domain)
{
	struct storm_cached *oldest = NULL;

	for (int i = 0; i < STORM_CACHED; i++) {
		struct storm_cached *cached = &domain->cached[i];

		if (!cached->mr)
			return cached;
		if (!cached->is_busy && (!oldest || cached->used < oldest->used))
			oldest = cached;
	}
	need(oldest && !ibv_dereg_mr(oldest->mr));
	return oldest;
}

static const char *kind_of(bool is_mapped)
{
	return is_mapped ? "a mapping" : "a heap block";
}

static struct storm_cached *hold(struct storm_domain *domain, const struct storm_buffer *buffer)
{
	size_t length = buffer->length;
	char *at = buffer->at;
	struct storm_cached *cached;

	pthread_mutex_lock(&domain->lock);
	cached = found(domain, at, length);
	if (cached) {
		storm_counts->hits++;
	} else {
		cached = make_room(domain);
		*cached = (struct storm_cached){
			.at = at, .length = length, .told = times_told(at)};
		cached->mr = registered(domain, at, length);
		cached->when = rdma_now();
		wrong_note(&cached->memory, kind_of(buffer->is_mapped), at, length);
	}
	cached->used = ++domain->now;
	cached->is_busy = true;
	pthread_mutex_unlock(&domain->lock);
	return cached;
}

static void let_go(struct storm_domain *domain, struct storm_cached *cached)
{
	pthread_mutex_lock(&domain->lock);
	cached->is_busy = false;
	pthread_mutex_unlock(&domain->lock);
}

/* --- buffers ------------------------------------------------------------------------ */

/* Few lengths, so that one comes back soon. */
static size_t power_of_two(size_t length)
{
	size_t power = 4 * KIB;

	while (power < length)
		power *= 2;
	return power;
}

static char *some_memory(size_t length, uint64_t *random)
{
	char *at;

	switch (rdma_random(random) % 4) {
	case 0:
		need((at = malloc(length / 4 + 1)));
		memset(at, 1, length / 4);
		at = realloc(at, length);
		break;
	case 1:
		at = aligned_alloc((size_t)64 << rdma_random(random) % 8, length);
		break;
	case 2:
		at = calloc(1, length);
		break;
	default:
		at = malloc(length);
	}
	need(at);
	return at;
}

static char *mapping(size_t length, unsigned lane)
{
	void *place = (void *)(PLACES + lane * PLACE_SIZE);

	need(mmap(place, length, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == place);
	return place;
}

void storm_take(struct storm_buffer *buffer, struct storm_domain *domain, unsigned lane,
		size_t length, uint64_t *random)
{
	bool is_cached = length <= LARGEST_CACHED && rdma_random(random) % 2;

	length = is_cached ? power_of_two(length) : length;
	*buffer = (struct storm_buffer){.domain = domain, .length = length};
	buffer->is_mapped = rdma_random(random) % 4 == 0;
	buffer->at = buffer->is_mapped ? mapping(length, lane) : some_memory(length, random);
	if (is_cached) {
		buffer->cached = hold(domain, buffer);
		buffer->mr = buffer->cached->mr;
		buffer->memory = buffer->cached->memory;
		buffer->when = buffer->cached->when;
	} else {
		buffer->mr = registered(domain, buffer->at, length);
		wrong_note(&buffer->memory, kind_of(buffer->is_mapped), buffer->at, length);
		buffer->when = rdma_now();
	}
}

void storm_give_back(struct storm_buffer *buffer)
{
	if (buffer->cached)
		let_go(buffer->domain, buffer->cached);
	else
		need(!ibv_dereg_mr(buffer->mr));
	if (buffer->is_mapped)
		need(!munmap(buffer->at, buffer->length));
	else
		free(buffer->at);
}
