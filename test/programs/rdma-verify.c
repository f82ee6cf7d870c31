/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registered heap memory between free pages, while other threads allocate, register and free,
 * and the kernel is told to compact memory again and again, which moves every page that it may.
 * Another process compares meanwhile which page frames are behind the registered memory. Needs
 * the privileges for that.
 *
 *     rdma-verify SECONDS
 *
 * Prints "checked PAGES moved PAGES".
 */
#include "test/programs/rdma.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCKS 48
#define BLOCK  MIB
#define PAGE   (4 * KIB)
#define PAGES  (BLOCK / PAGE)

/* Of a word of /proc/PID/pagemap. */
#define FRAME ((1ull << 55) - 1)

static struct ibv_pd *pd;
static struct ibv_mr *mrs[BLOCKS];
static _Atomic bool over;

static struct shared {
	char *blocks[BLOCKS];
	_Atomic bool are_registered, end;
} * shared;

/*
 * Allocates page by page, alternating with a mapping that is then unmapped: half of the memory
 * around is free.
 */
static void scatter(void)
{
	char *between = rdma_map(BLOCKS * BLOCK);

	for (size_t i = 0; i < BLOCKS; i++) {
		need((shared->blocks[i] = malloc(BLOCK)));
		for (size_t at = 0; at < BLOCK; at += PAGE) {
			rdma_fill(shared->blocks[i] + at, PAGE, i);
			between[i * BLOCK + at] = 1;
		}
	}
	need(!munmap(between, BLOCKS * BLOCK));
}

static void *churn(void *seed)
{
	uint64_t random = (uintptr_t)seed;

	while (!over) {
		size_t length = rdma_random_size(&random, 21);
		char *block = malloc(length);
		struct ibv_mr *mr;

		need(block && (mr = ibv_reg_mr(pd, block, length, RDMA_ACCESS)));
		rdma_fill(block, length, random);
		need(!rdma_wrong(block, length, random));
		need(!ibv_dereg_mr(mr));
		free(block);
	}
	return NULL;
}

static void compact(void)
{
	int fd = open("/proc/sys/vm/compact_memory", O_WRONLY);

	need(fd >= 0 && write(fd, "1", 1) == 1 && !close(fd));
}

/* --- the process that looks --------------------------------------------------------- */

static size_t checked, moved;

static void look(int pagemap, uint64_t (*frames)[PAGES], bool is_first)
{
	uint64_t now[PAGES];

	for (size_t i = 0; i < BLOCKS; i++) {
		off_t at = (off_t)((uintptr_t)shared->blocks[i] / PAGE * sizeof *now);

		need(pread(pagemap, now, sizeof now, at) == sizeof now);
		for (size_t k = 0; k < PAGES; k++) {
			need(now[k] & FRAME);
			if (!is_first && (now[k] & FRAME) != frames[i][k])
				moved++;
			checked += !is_first;
			frames[i][k] = now[k] & FRAME;
		}
	}
}

static void watch(pid_t pid)
{
	static uint64_t frames[BLOCKS][PAGES];
	char path[64];
	int pagemap;

	snprintf(path, sizeof path, "/proc/%d/pagemap", pid);
	need((pagemap = open(path, O_RDONLY)) >= 0);
	while (!shared->are_registered)
		usleep(1000);
	look(pagemap, frames, true);
	while (!shared->end) {
		usleep(100000);
		look(pagemap, frames, false);
	}
	printf("checked %zu moved %zu\n", checked, moved);
	exit(0);
}

/* --- the process that is looked at ---------------------------------------------------- */

/* Blocks and what becomes of them are right until the end. */
static void compact_and_churn(double seconds)
{
	double end = rdma_now() + seconds;
	pthread_t threads[2];

	for (size_t i = 0; i < 2; i++)
		need(!pthread_create(&threads[i], NULL, churn, (void *)(i + 1)));
	do
		compact();
	while (rdma_now() < end);
	over = true;
	for (size_t i = 0; i < 2; i++)
		need(!pthread_join(threads[i], NULL));
	for (size_t i = 0; i < BLOCKS; i++)
		for (size_t at = 0; at < BLOCK; at += PAGE)
			need(!rdma_wrong(shared->blocks[i] + at, PAGE, i));
}

int main(int argc, char **argv)
{
	int status = -1;
	pid_t watcher;

	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	need(shared != MAP_FAILED);
	need((watcher = fork()) >= 0);
	if (!watcher)
		watch(getppid());
	need((pd = ibv_alloc_pd(rdma_open())));
	scatter();
	for (size_t i = 0; i < BLOCKS; i++)
		need((mrs[i] = ibv_reg_mr(pd, shared->blocks[i], BLOCK, RDMA_ACCESS)));
	shared->are_registered = true;
	compact_and_churn(argc > 1 ? atof(argv[1]) : 1);
	shared->end = true;
	need(waitpid(watcher, &status, 0) == watcher && !status);
	for (size_t i = 0; i < BLOCKS; i++)
		need(!ibv_dereg_mr(mrs[i]));
	need(!ibv_dealloc_pd(pd));
	return 0;
}
