/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A registration cache is told in time however little the library's threads get to run: of each
 * round the memory is new, is registered until it is watched, sent, unmapped, mapped again and
 * sent through the cache. Prints TAP.
 *
 *     rdma-watch-starved LISTENER SECONDS idle   the notifying thread only runs when nothing
 *                                                else does, beside threads that always do
 *     rdma-watch-starved LISTENER SECONDS stop   the process is stopped, for longer than
 *                                                anything waits, and continued
 */
#include <config.h>

#include "test/programs/rdma-watch.h"

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#define LENGTH	(4 * PAGE)
#define N_BUSY	4
#define STOP_US 2500000

static struct ibv_pd *pd;
static _Atomic bool is_over;
static _Atomic uint64_t n_told;

static void count_told(void *addr, size_t length)
{
	if (!is_forgetting())
		n_told++;
}

static void *be_busy(void *arg)
{
	while (!is_over)
		sched_yield();
	return arg;
}

static bool is_notifier(const char *task)
{
	char path[300], name[40] = "";
	FILE *file;

	snprintf(path, sizeof path, "/proc/self/task/%s/comm", task);
	file = fopen(path, "r");
	if (!file)
		return false;
	if (!fgets(name, sizeof name, file))
		name[0] = '\0';
	fclose(file);
	return !strcmp(name, "pinalloc-tell\n");
}

static void starve_notifier(void)
{
	struct sched_param none = {0};
	DIR *tasks = opendir("/proc/self/task");
	unsigned n_found = 0;
	struct dirent *task;
	pthread_t thread;

	need(tasks);
	while ((task = readdir(tasks)))
		if (is_notifier(task->d_name)) {
			need(!sched_setscheduler(atoi(task->d_name), SCHED_IDLE, &none));
			n_found++;
		}
	closedir(tasks);
	ok(n_found == 1, "there is a notifying thread");
	for (int i = 0; i < N_BUSY; i++)
		need(!pthread_create(&thread, NULL, be_busy, NULL));
}

static pid_t stop_at_random(void)
{
	pid_t parent = getpid(), child = fork();
	uint64_t random = 7;

	if (child)
		return child;
	for (;;) {
		usleep((useconds_t)(20000 + rdma_random(&random) % 50000));
		if (kill(parent, SIGSTOP))
			_exit(0);
		usleep(STOP_US);
		kill(parent, SIGCONT);
	}
}

/* Messages through a cache that has one entry. */
static bool try_round(struct rdma *rdma, struct ibv_mr *far)
{
	char *p = map_pages(LENGTH);
	uint64_t before = n_told;
	struct ibv_mr *mr = registered(pd, p, LENGTH);
	bool right = rdma_sends(rdma, p, mr->lkey, far->addr, far->rkey, LENGTH);

	need(!munmap(p, LENGTH));
	map_over(p, LENGTH);
	if (n_told != before) {
		need(!ibv_dereg_mr(mr));
		mr = registered(pd, p, LENGTH);
	}
	right &= rdma_sends(rdma, p, mr->lkey, far->addr, far->rkey, LENGTH);
	need(!ibv_dereg_mr(mr) && !munmap(p, LENGTH));
	return right;
}

int main(int argc, char **argv)
{
	static char landing[LENGTH] __attribute__((aligned(4096)));
	unsigned n_rounds = 0, n_wrong = 0;
	struct ibv_mr *far;
	struct rdma rdma;
	pid_t child = 0;
	double end;

	need(argc == 4);
	listen_by(argv[1], count_told);
	pd = ibv_alloc_pd(rdma_open());
	need(pd);
	rdma_connect(&rdma, pd);
	far = registered(pd, landing, LENGTH);
	n_wrong += !try_round(&rdma, far);
	if (!strcmp(argv[3], "idle"))
		starve_notifier();
	else
		child = stop_at_random();
	end = rdma_now() + atof(argv[2]);
	for (; rdma_now() < end || !n_rounds; n_rounds++)
		n_wrong += !try_round(&rdma, far);
	is_over = true;
	if (child)
		need(!kill(child, SIGKILL) && waitpid(child, NULL, 0) == child);
	ok(!n_wrong, "every message is right: %u wrong of %u rounds", n_wrong, n_rounds);
	return done_testing();
}
