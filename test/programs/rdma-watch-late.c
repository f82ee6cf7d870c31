/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Processes that end during a notification, and libraries that go. Prints TAP, except when it
 * ends.
 *
 *     rdma-watch-late LISTENER exit       exit() while somebody waits in munmap()
 *     rdma-watch-late LISTENER thread     the same, in another thread
 *     rdma-watch-late LISTENER atexit     all is unmapped by a handler of atexit()
 *     rdma-watch-late LISTENER plugin FILE   a library whose variables are registered goes
 */
#include <config.h>

#include "test/programs/rdma-watch.h"

#define N ((size_t)40)

static struct ibv_pd *pd;
static char *pages;
static struct ibv_mr *mrs[N];
static const char *file;

static void register_pages(void)
{
	for (size_t i = 0; i < N; i++)
		mrs[i] = registered(pd, pages + 2 * i * PAGE, PAGE);
}

/* --- ends -------------------------------------------------------------------------- */

static _Atomic bool hears;

static void hear_for_long(void *addr, size_t length)
{
	(void)addr;
	(void)length;
	if (is_forgetting())
		return;
	hears = true;
	sleep(30);
}

static void *unmap_all(void *arg)
{
	(void)arg;
	munmap(pages, 2 * N * PAGE);
	return NULL;
}

static void *end(void *arg)
{
	(void)arg;
	while (!hears)
		usleep(1000);
	exit(7);
}

static void await_end(void)
{
	pthread_t thread;

	register_pages();
	need(!pthread_create(&thread, NULL, unmap_all, NULL));
	end(NULL);
}

static void await_end_in_thread(void)
{
	pthread_t thread;

	register_pages();
	need(!pthread_create(&thread, NULL, end, NULL));
	unmap_all(NULL);
	pause();
}

static void unmap_at_exit(void)
{
	unsigned before = n_heard;
	bool told;

	munmap(pages, 2 * N * PAGE);
	told = was_told(before, pages, PAGE);
	for (size_t i = 0; i < N; i++)
		told &= !ibv_dereg_mr(mrs[i]);
	printf("handler of atexit: %s\n", told ? "told" : "not told");
	fflush(stdout);
}

static void leave_to_handler(void)
{
	atexit(unmap_at_exit);
	register_pages();
	exit(7);
}

/* --- a library ----------------------------------------------------------------------- */

static char data[3 * 4096] __attribute__((aligned(4096))) = {1};
static char zeroes[3 * 4096] __attribute__((aligned(4096)));

static void try_plugin(void)
{
	void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	char *its_data, *its_zeroes;
	struct ibv_mr *its[4];
	unsigned before;

	need(handle && (its_data = dlsym(handle, "plugin_data")) &&
	     (its_zeroes = dlsym(handle, "plugin_zeroes")));
	its[0] = registered(pd, data, sizeof data);
	its[1] = registered(pd, zeroes, sizeof zeroes);
	its[2] = registered(pd, its_data, 3 * PAGE);
	its[3] = registered(pd, its_zeroes, 64 * PAGE);
	before = n_heard;
	need(!dlclose(handle));
	ok(was_told(before, its_zeroes, 64 * PAGE),
	   "variables of a library that goes are told, but for those of its file");
	for (int i = 0; i < 4; i++)
		ok(!ibv_dereg_mr(its[i]), "and can be given up, %d", i);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
		hook_function *hook;
	} cases[] = {{"exit", await_end, hear_for_long},
		     {"thread", await_end_in_thread, hear_for_long},
		     {"atexit", leave_to_handler, hear},
		     {"plugin", try_plugin, hear}};

	need(argc >= 3);
	within(60);
	file = argv[3];
	pd = ibv_alloc_pd(rdma_open());
	need(pd);
	pages = map_pages(2 * N * PAGE);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		if (strcmp(cases[i].name, argv[2]))
			continue;
		listen_by(argv[1], cases[i].hook);
		cases[i].run();
	}
	return done_testing();
}
