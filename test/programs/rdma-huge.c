/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma-huge registered|plain: forks while the pool of hugetlb pages is empty, as root, who
 * lowers it; the child reads a page that the parent has written in between. Prints the result.
 */
#include "test/programs/rdma.h"

#include <sys/wait.h>
#include <unistd.h>

/* No stdio, and no malloc, in the child: its pages are what is tried. */
static void fork_when_empty(bool registered)
{
	const size_t n_bytes = 16 * MIB;
	struct ibv_pd *pd = ibv_alloc_pd(rdma_open());
	volatile char *p = malloc(n_bytes);
	int ready[2], status;
	FILE *pool;
	pid_t child;
	char c = 0;

	need(p && !pipe(ready));
	memset((char *)p, 1, n_bytes);
	if (registered)
		need(ibv_reg_mr(pd, (char *)p, n_bytes, RDMA_ACCESS));
	need((pool = fopen("/proc/sys/vm/nr_hugepages", "w")));
	need(fputs("0\n", pool) >= 0 && !fclose(pool));
	child = fork();
	if (!child) {
		need(read(ready[0], &c, 1) == 1);
		_exit(p[n_bytes / 2] != 1);
	}
	if (child < 0) {
		printf("fork fails: %s\n", strerror(errno));
		return;
	}
	p[n_bytes / 2] = 2;
	need(write(ready[1], &c, 1) == 1 && waitpid(child, &status, 0) == child);
	printf("the child ends by signal %d, status %d\n", WTERMSIG(status),
	       WEXITSTATUS(status));
}

int main(int argc, char **argv)
{
	need(argc > 1);
	fork_when_empty(!strcmp(argv[1], "registered"));
	return 0;
}
