// SPDX-License-Identifier: BSD-2-Clause
/*
 * An adapter of test/lab/providers goes while two threads register, and comes back. Prints how
 * requests end, for comparison with a run without the library. With "ahead" it waits until a
 * key of one page serves all of its block, as the library registers more than a request.
 *
 *   usage: rdma-unplug DEVICE [ahead]
 */
#include <pthread.h>
#include <stdatomic.h>

#include "oracle.h"

#define PAGE 4096

static const char *device;
static struct ibv_pd *pd;
static atomic_int n_before[2];
static atomic_bool is_gone;

static struct ibv_pd *open_pd(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL), *of;
	struct ibv_context *context;
	struct ibv_pd *opened;

	need(list && (of = find_device(list, device)));
	need((context = ibv_open_device(of)));
	need((opened = ibv_alloc_pd(context)));
	ibv_free_device_list(list);
	return opened;
}

/* 0 or an errno value. */
static int request(char *p, size_t length)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, p, length, RDMA_ACCESS);
	int error = mr ? 0 : errno;

	if (mr)
		ibv_dereg_mr(mr);
	return error;
}

/* Registers until requests fail, and then a hundred times more: how many do not fail so. */
static void *work(void *number)
{
	size_t n_other = 0;
	int error = 0;
	uint64_t random = 1 + (uintptr_t)number;

	for (int n = 0; !error; n++) {
		size_t length = rdma_random_size(&random, 20);
		char *p = malloc(length);

		need(p);
		memset(p, n, length);
		error = request(p, length);
		free(p);
		n_before[(uintptr_t)number]++;
		need(!error || is_gone);
	}
	for (int i = 0; i < 100; i++) {
		char *p = malloc(MIB);

		n_other += request(p, MIB) != error;
		free(p);
	}
	need(error == EIO);
	return (void *)n_other;
}

/* As soon as both threads are at work. What keys serve takes no call, so it may go on until a
 * call fails. */
static void pull_out(void)
{
	while (n_before[0] < 100 || n_before[1] < 100)
		usleep(1000);
	is_gone = true;
	need(!tell_module("unplug", device));
}

static void wait_until_ahead(void)
{
	char *p = malloc(32 * MIB);
	int error = -1;

	need(p);
	memset(p, 1, 32 * MIB);
	for (int i = 0; i < 600 && error; i++) {
		struct ibv_mr *mr = ibv_reg_mr(pd, p + 16 * MIB, PAGE, RDMA_ACCESS);

		need(mr);
		error = ask(mr, p, 32 * MIB, RDMA_ACCESS);
		need(!ibv_dereg_mr(mr));
		usleep(100000);
	}
	printf("ahead: %s\n", error_name(error));
	free(p);
}

int main(int argc, char **argv)
{
	char *mapped = rdma_map(PAGE), *p = malloc(MIB);
	struct ibv_context *context;
	pthread_t threads[2];
	void *n_other;

	setvbuf(stdout, NULL, _IOLBF, 0);
	need(argc > 1 && p);
	device = argv[1];
	pd = open_pd();
	context = pd->context;
	need(!request(p, MIB)); /* which a key of now would serve later */
	for (uintptr_t i = 0; i < 2; i++)
		need(!pthread_create(&threads[i], NULL, work, (void *)i));
	pull_out();
	printf("mapped: %s\n", error_name(request(mapped, PAGE)));
	printf("heap: %s\n", error_name(request(p, MIB)));
	for (int i = 0; i < 2; i++) {
		need(!pthread_join(threads[i], &n_other));
		printf("others of a thread: %zu\n", (size_t)n_other);
	}
	printf("dealloc: %s\n", error_name(ibv_dealloc_pd(pd)));
	printf("close: %s\n", error_name(ibv_close_device(context)));
	need(!tell_module("plug", device));
	pd = open_pd();
	printf("again: %s\n", error_name(request(p, MIB)));
	if (argc > 2)
		wait_until_ahead();
	printf("dealloc: %s\n", error_name(ibv_dealloc_pd(pd)));
	return 0;
}
