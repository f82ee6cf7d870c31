/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registers, in several threads and protection domains, memory of a growing heap and mappings
 * that are replaced, and asks the stand-in for libibverbs whether the keys are right. For
 * test/faults.
 */
#include "preload/pinalloc.h"
#include "test/inject.h"
#include "test/programs/faulted.h"

#include <infiniband/verbs.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 2
#define BUFFERS 12
#define ACCESS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
#define MAPPED	((size_t)1 << 20)

static bool in_child; /* where there are no keys of the heap's */

static struct ibv_mr *registered(struct ibv_pd *pd, void *start, size_t size)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, start, size, ACCESS);

	if (!mr) {
		if (!errno)
			wrong("no registration, and no reason");
		refused("ibv_reg_mr", errno);
		return NULL;
	}
	if (mr->addr != start || mr->length != size || !fake_verbs_reach(mr, start, size))
		wrong("the keys of a registration");
	return mr;
}

/* A request that is refused is tried again; the second attempt must succeed. */
static void deregister(struct ibv_mr *mr)
{
	int error = mr ? ibv_dereg_mr(mr) : 0;

	if (error)
		refused("ibv_dereg_mr", error);
}

static void look_up(struct ibv_pd *pd, const void *start, size_t size)
{
	struct pinalloc_key key;
	struct ibv_mr mr = {.pd = pd};
	int error;

	if (!pinalloc_lookup || in_child)
		return;
	error = pinalloc_lookup(pd, start, size, IBV_ACCESS_LOCAL_WRITE, &key);
	if (error)
		refused("pinalloc_lookup", -error);
	mr.lkey = key.lkey;
	mr.rkey = key.rkey;
	if (!error && !fake_verbs_reach(&mr, start, size))
		wrong("the keys of a look-up");
}

static void use_heap(struct ibv_pd *pd)
{
	struct ibv_mr *mrs[BUFFERS];
	char *buffers[BUFFERS];

	for (unsigned i = 0; i < BUFFERS; i++) {
		size_t size = (size_t)1000 << i;

		buffers[i] = given(calloc(1, size), "calloc");
		mrs[i] = buffers[i] ? registered(pd, buffers[i], size) : NULL;
		if (buffers[i])
			look_up(pd, buffers[i], size);
	}
	for (unsigned i = 0; i < BUFFERS; i++) {
		deregister(mrs[i]);
		free(buffers[i]);
	}
}

/* The second mapping takes the place of the first. */
static void use_mappings(struct ibv_pd *pd)
{
	char *wish = NULL;

	for (int i = 0; i < 3; i++) {
		char *p = mmap(wish, MAPPED, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | (wish ? MAP_FIXED : 0), -1, 0);

		if (p == MAP_FAILED) {
			refused("mmap", errno);
			continue;
		}
		p[0] = 'z';
		deregister(registered(pd, p, MAPPED));
		wish = p;
	}
	if (wish && munmap(wish, MAPPED))
		refused("munmap", errno);
}

static void *work(void *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	int error;

	if (!pd) {
		refused("ibv_alloc_pd", errno);
		return NULL;
	}
	use_heap(pd);
	use_mappings(pd);
	use_heap(pd);
	error = ibv_dealloc_pd(pd);
	if (error)
		refused("ibv_dealloc_pd", error);
	return NULL;
}

/* A child may register as well. */
static void await_child(struct ibv_context *context)
{
	pid_t child = fork();
	int status;

	if (child < 0) {
		refused("fork", errno);
		return;
	}
	if (!child) {
		in_child = true;
		work(context);
		exit(0);
	}
	if (waitpid(child, &status, 0) != child || !WIFEXITED(status) ||
	    WEXITSTATUS(status) == 1)
		wrong("a child ended otherwise than by itself");
}

static struct ibv_context *opened(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context = devices ? ibv_open_device(devices[0]) : NULL;

	if (devices)
		ibv_free_device_list(devices);
	else
		refused("ibv_get_device_list", errno);
	return context;
}

int main(void)
{
	pthread_t threads[THREADS];
	struct ibv_context *context = opened();
	int n = 0;

	while (context && n < THREADS) {
		int error = pthread_create(&threads[n], NULL, work, context);

		if (error) {
			refused("pthread_create", error);
			break;
		}
		n++;
	}
	while (n)
		pthread_join(threads[--n], NULL);
	if (context) {
		await_child(context);
		work(context);
		if (ibv_close_device(context))
			refused("ibv_close_device", errno);
	}
	return say_done("done");
}
