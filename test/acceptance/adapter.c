/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What an adapter's registrations cost, on one node and without MPI, for pinalloc-acceptance.
 *     adapter registrations    for each size: "bytes register_us deregister_us", medians
 *     adapter fork             "fork_ms" with 256 MiB registered and given up; whether a child
 * works
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 15
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

static struct ibv_pd *pd;

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static int give_up(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	return 1;
}

static int open_first(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context;

	if (!devices || !devices[0])
		return give_up("no RDMA device");
	context = ibv_open_device(devices[0]);
	if (!context || !(pd = ibv_alloc_pd(context)))
		return give_up("the device cannot be opened");
	printf("device %s\n", ibv_get_device_name(devices[0]));
	return 0;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values)
{
	qsort(values, ROUNDS, sizeof *values, compare);
	return values[ROUNDS / 2];
}

static int time_size(size_t n_bytes)
{
	double to[ROUNDS], from[ROUNDS];

	for (int i = 0; i < ROUNDS; i++) {
		char *p = malloc(n_bytes);
		struct ibv_mr *mr;
		double began;

		if (!p)
			return give_up("malloc");
		memset(p, i, n_bytes);
		began = now_us();
		if (!(mr = ibv_reg_mr(pd, p, n_bytes, ACCESS)))
			return give_up("ibv_reg_mr");
		to[i] = now_us() - began;
		began = now_us();
		if (ibv_dereg_mr(mr))
			return give_up("ibv_dereg_mr");
		from[i] = now_us() - began;
		free(p);
	}
	printf("%zu %.2f %.2f\n", n_bytes, median(to), median(from));
	return 0;
}

static int time_registrations(void)
{
	for (size_t n_bytes = 4096; n_bytes <= (size_t)64 << 20; n_bytes *= 4)
		if (time_size(n_bytes))
			return 1;
	return 0;
}

/* Whether a child that allocates, and frees what its parent has allocated, ends well. */
static int try_fork(void)
{
	size_t n_bytes = (size_t)256 << 20;
	char *p = malloc(n_bytes), *other;
	struct ibv_mr *mr;
	int status = -1;
	double began;
	pid_t child;

	if (!p)
		return give_up("malloc");
	memset(p, 1, n_bytes);
	if (!(mr = ibv_reg_mr(pd, p, n_bytes, ACCESS)) || ibv_dereg_mr(mr))
		return give_up("ibv_reg_mr, ibv_dereg_mr");
	began = now_us();
	child = fork();
	if (!child) {
		other = malloc(1 << 20);
		memset(other, 2, 1 << 20);
		_exit(p[n_bytes - 1] == 1 && other[1000] == 2 ? 0 : 1);
	}
	printf("fork_ms %.2f\n", (now_us() - began) * 1e-3);
	if (child < 0 || waitpid(child, &status, 0) != child || status)
		return give_up("the child of fork() failed");
	free(p);
	return 0;
}

int main(int argc, char **argv)
{
	/* MPI libraries call it, and what fork() does to registered memory depends on it. */
	ibv_fork_init();
	if (open_first())
		return 1;
	if (argc == 2 && !strcmp(argv[1], "registrations"))
		return time_registrations();
	if (argc == 2 && !strcmp(argv[1], "fork"))
		return try_fork();
	fprintf(stderr, "usage: adapter registrations|fork\n");
	return 2;
}
