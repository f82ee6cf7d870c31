/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that cannot be watched can still be registered, and is not disturbed: pages of a file,
 * System V shared memory, and what the program itself watches by userfaultfd(2). And how many
 * registrations can be watched. Prints TAP.
 *
 *     rdma-watch-kinds LISTENER kinds     of each one registration
 *     rdma-watch-kinds LISTENER data      variables of the program alone
 *     rdma-watch-kinds LISTENER many N    N registrations apart from each other
 */
#include <config.h>

#include "test/programs/rdma-watch.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/shm.h>

#define LENGTH (16 * PAGE)

static struct ibv_pd *pd;
static char variables[LENGTH] = {1}, zeroes[LENGTH];

static bool can_be_registered(char *p, size_t n)
{
	return !ibv_dereg_mr(registered(pd, p, n));
}

static void try_file(void)
{
	char *p = map_pages(LENGTH);
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	need(fd >= 0);
	need(mmap(p, LENGTH, WRITABLE, MAP_PRIVATE | MAP_FIXED, fd, 0) == p);
	ok(can_be_registered(p, LENGTH), "pages of a file can be registered");
	ok(can_be_registered(p - PAGE / 2 + PAGE, LENGTH - PAGE), "and again");
	need(!munmap(p, LENGTH));
	close(fd);
}

static void try_segment(void)
{
	int id = shmget(IPC_PRIVATE, LENGTH, IPC_CREAT | 0600);
	char *p = shmat(id, NULL, 0);

	need(id >= 0 && p != (char *)-1 && !shmctl(id, IPC_RMID, NULL));
	memset(p, 1, LENGTH);
	ok(can_be_registered(p, LENGTH), "a System V segment can be registered");
	need(!shmdt(p));
}

/* --- a userfaultfd of the program's own --------------------------------------------- */

static int own_fd;
static _Atomic unsigned n_served;

static void *serve(void *arg)
{
	struct uffd_msg message;
	char *page = arg;

	while (read(own_fd, &message, sizeof message) == sizeof message) {
		struct uffdio_copy copy = {
			.dst = message.arg.pagefault.address & -PAGE,
			.src = (uintptr_t)page,
			.len = PAGE,
		};

		need(message.event == UFFD_EVENT_PAGEFAULT);
		n_served++;
		need(!ioctl(own_fd, UFFDIO_COPY, &copy));
	}
	return NULL;
}

static void watch_by_program(char *p)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register range = {
		.range = {.start = (uintptr_t)p, .len = LENGTH},
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	static char page[2 * 4096];
	char *filled = page + -(uintptr_t)page % PAGE;
	pthread_t thread;

	memset(filled, 'x', PAGE);
	own_fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	need(own_fd >= 0 && !ioctl(own_fd, UFFDIO_API, &api) &&
	     !ioctl(own_fd, UFFDIO_REGISTER, &range));
	need(!pthread_create(&thread, NULL, serve, filled) && !pthread_detach(thread));
}

static bool is_served(char *p)
{
	unsigned before = n_served;

	need(!madvise(p, PAGE, MADV_DONTNEED));
	return *(volatile char *)p == 'x' && n_served == before + 1;
}

static void try_own(void)
{
	char *p = map_pages(LENGTH);

	watch_by_program(p);
	ok(can_be_registered(p, LENGTH), "what the program watches itself can be registered");
	ok(is_served(p) && is_served(p + LENGTH - PAGE), "also after it was given up");
	/* With what is beside it, which the library can watch. */
	need(!mprotect(p - PAGE, PAGE, WRITABLE) && !mprotect(p + LENGTH, PAGE, WRITABLE));
	ok(can_be_registered(p - PAGE, LENGTH + 2 * PAGE), "so can more than that");
	ok(is_served(p) && is_served(p + LENGTH - PAGE), "and the program goes on");
}

static void watch_again_by_program(char *p)
{
	struct ibv_mr *mr = registered(pd, p, LENGTH);

	map_over(p, LENGTH);
	watch_by_program(p);
	need(!ibv_dereg_mr(mr));
	ok(is_served(p), "what the program watches where something registered was, is its own");
}

static void try_data(void)
{
	ok(can_be_registered(variables, LENGTH) && can_be_registered(zeroes, LENGTH),
	   "variables can be registered");
}

static void try_kinds(void)
{
	try_file();
	try_segment();
	try_own();
	watch_again_by_program(map_pages(LENGTH));
	try_data();
}

/* --- many ------------------------------------------------------------------------------ */

/* Every other page of a mapping is registered; then each is replaced, from one end. */
static void try_many(size_t n)
{
	char *p = mmap(NULL, 2 * n * PAGE, WRITABLE, ANONYMOUS, -1, 0), *more[64];
	struct ibv_mr **mrs = calloc(n, sizeof *mrs);
	unsigned missed = 0, failed = 0;

	need(p != MAP_FAILED && mrs);
	/* The second time it is watched, if it can be. */
	for (size_t i = 0; i < n; i++) {
		need(!ibv_dereg_mr(registered_once(pd, p + 2 * i * PAGE, PAGE)));
		mrs[i] = registered_once(pd, p + 2 * i * PAGE, PAGE);
	}
	for (int i = 0; i < 64; i++) {
		more[i] = mmap(NULL, PAGE, i % 2 ? WRITABLE : PROT_READ, ANONYMOUS, -1, 0);
		failed += more[i] == MAP_FAILED;
	}
	ok(!failed, "the program can map more");
	for (size_t i = 0; i < n; i += n / 500 + 1) {
		n_heard = 0;
		map_over(p + 2 * i * PAGE, PAGE);
		missed += !was_told(0, p + 2 * i * PAGE, PAGE);
	}
	ok(!missed, "each one is told: %u not", missed);
	for (size_t i = 0; i < n; i++)
		need(!ibv_dereg_mr(mrs[i]));
}

int main(int argc, char **argv)
{
	need(argc >= 3);
	within(100);
	listen_by(argv[1], hear);
	pd = ibv_alloc_pd(rdma_open());
	need(pd);
	if (!strcmp(argv[2], "kinds"))
		try_kinds();
	else if (!strcmp(argv[2], "data"))
		try_data();
	else
		try_many((size_t)atol(argv[3]));
	return done_testing();
}
