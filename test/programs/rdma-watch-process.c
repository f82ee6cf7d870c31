/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registers the program's own memory and replaces it, in the ways of stale-ways.h; registration
 * caches must be notified before the call returns, whatever the process does with its
 * descriptors, its children and its libraries, and however it ends. Prints TAP, except when it
 * ends.
 *
 *     rdma-watch-process ways LISTENER            each way that the kernel tells of
 *     rdma-watch-process quiet LISTENER           what is not registered, or once
 *     rdma-watch-process hugetlb LISTENER         both, with pages of the hugetlb pool
 *     rdma-watch-process kinds LISTENER           what cannot be watched, as pages of a file,
 * and what the program watches itself: it can be registered, and is not disturbed
 *     rdma-watch-process data LISTENER            variables of the program alone
 *     rdma-watch-process closed LISTENER          all descriptors closed
 *     rdma-watch-process forks LISTENER FILE N    N children, while threads do all there is
 *     rdma-watch-process loaded LISTENER…         listeners that come late, and go
 *     rdma-watch-process sought LISTENER          one that is being found, by another thread
 *     rdma-watch-process locked LISTENER          all memory locked
 *     rdma-watch-process exit LISTENER            exit() while somebody waits in munmap()
 *     rdma-watch-process thread LISTENER          the same, in another thread
 *     rdma-watch-process atexit LISTENER          all is unmapped by a handler of atexit()
 *     rdma-watch-process plugin LISTENER FILE     a library whose variables are registered goes
 */
#include <config.h>

#include "preload/pinalloc.h"
#include "test/programs/rdma-watch.h"
#include "test/programs/stale-ways.h"

#include <fcntl.h>
#include <link.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>

#define LENGTH	   (16 * PAGE)
#define WAY_LENGTH (64 * KIB)

static struct ibv_pd *pd;
static char **arguments;

static unsigned count_descriptors(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 2048; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* --- descriptors ------------------------------------------------------------------- */

/* The device's own are the program's to keep. */
static void close_all(void)
{
	int first = pd->context->cmd_fd, second = pd->context->async_fd;

	for (int fd = 3; fd < 2048; fd++)
		if (fd != first && fd != second)
			close(fd);
}

static void try_closed(void)
{
	char *p = map_pages(LENGTH), *other = map_pages(LENGTH);
	struct ibv_mr *mr;
	unsigned before, n;

	close_all();
	n = count_descriptors();
	mr = registered(pd, p, LENGTH);
	ok(count_descriptors() == n, "to be watched takes no descriptor of the program");
	close_all();
	before = n_heard;
	map_over(p, LENGTH);
	ok(was_told(before, p, LENGTH), "who closes all descriptors is told all the same");
	need(!ibv_dereg_mr(mr));
	close_all();
	ok(is_told(pd, other, LENGTH), "and what is registered afterwards is watched");
	close(0);
	before = 0;
	for (int i = 0; i < 50; i++) {
		int fd = open("/dev/null", O_RDONLY);

		before += fd != 0;
		need(!madvise(other, LENGTH, MADV_DONTNEED));
		close(fd);
		mr = registered(pd, other, LENGTH);
		need(!madvise(other, LENGTH, MADV_DONTNEED) && !ibv_dereg_mr(mr));
	}
	ok(!before, "the lowest number is always the program's: %u times not", before);
}

/* --- children ---------------------------------------------------------------------- */

static char *mapping;
static _Atomic bool enough;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t listening = PTHREAD_MUTEX_INITIALIZER;

/* As a cache's: it takes a lock, which no child gets back. */
static void lock_and_hear(void *addr, size_t length)
{
	pthread_mutex_lock(&listening);
	usleep(1);
	pthread_mutex_unlock(&listening);
}

static void register_a_mapping(void)
{
	need(!ibv_dereg_mr(ibv_reg_mr(pd, mapping, LENGTH, RDMA_ACCESS)));
}

static void register_new_mapping(void)
{
	char *p = mmap(NULL, LENGTH, WRITABLE, ANONYMOUS, -1, 0);

	need(!ibv_dereg_mr(ibv_reg_mr(pd, p, LENGTH, RDMA_ACCESS)) && !munmap(p, LENGTH));
}

static void allocate(void)
{
	void *volatile blocks[] = {malloc(100), malloc(100000), malloc(10000000)};

	for (int i = 0; i < 3; i++)
		free(blocks[i]);
}

static void make_pool(void)
{
	struct pinalloc_pool_options options = {.bytes = 2 * MIB};
	struct pinalloc_pool *pool = pinalloc_pool_create(&options, sizeof options);

	need(pool && !pinalloc_pool_free(pool, pinalloc_pool_alloc(pool, 5000, 0)) &&
	     !pinalloc_pool_destroy(pool));
}

static void open_and_close(void)
{
	struct ibv_context *context = rdma_open();
	struct ibv_pd *its = ibv_alloc_pd(context);

	need(its && !ibv_dealloc_pd(its) && !ibv_close_device(context));
}

static void look_up(void)
{
	char *block = malloc(100000);
	struct pinalloc_key key;

	need(block && !pinalloc_lookup(pd, block, 100000, RDMA_ACCESS, &key));
	free(block);
}

static void load_and_unload(void)
{
	void *handle = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);

	need(handle && !dlclose(handle));
}

/* The loader itself cannot load in a child of a thread that forks while another loads. */
static void load_alone(void)
{
	pthread_mutex_lock(&loading);
	load_and_unload();
	pthread_mutex_unlock(&loading);
}

static void *do_for_long(void *arg)
{
	while (!enough)
		(*(void (*const *)(void))arg)();
	return NULL;
}

/* It may wait for a lock with all signals blocked. */
static bool has_ended_well(pid_t child)
{
	int status = 1;

	for (int i = 0; i < 20000 && !waitpid(child, &status, WNOHANG); i++)
		usleep(1000);
	if (status)
		kill(child, SIGKILL);
	return !status;
}

static void live_alone(bool may_load)
{
	need(ibv_reg_mr(pd, mapping, LENGTH, RDMA_ACCESS));
	allocate();
	if (may_load)
		load_and_unload();
	pd = ibv_alloc_pd(rdma_open());
	need(pd && ibv_reg_mr(pd, mapping, LENGTH, RDMA_ACCESS));
	may_load ? exit(0) : _exit(0);
}

static void try_forks(void)
{
	static void (*const all[])(void) = {register_a_mapping,
					    register_a_mapping,
					    register_new_mapping,
					    allocate,
					    make_pool,
					    open_and_close,
					    look_up,
					    load_alone};
	pthread_t threads[sizeof all / sizeof *all];
	unsigned failed = 0;

	mapping = map_pages(LENGTH);
	fflush(stdout);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		need(!pthread_create(&threads[i], NULL, do_for_long, (void *)&all[i]));
	for (int i = 0; i < atoi(arguments[2]); i++) {
		pid_t child;

		if (i % 2)
			pthread_mutex_lock(&loading);
		child = fork();
		if (!child)
			live_alone(i % 2);
		if (i % 2)
			pthread_mutex_unlock(&loading);
		failed += !has_ended_well(child);
	}
	enough = true;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		need(!pthread_join(threads[i], NULL));
	ok(!failed, "%u of %s children hang or fail", failed, arguments[2]);
}

/* --- listeners ----------------------------------------------------------------------- */

static _Atomic unsigned n_others;

static void hear_other(void *addr, size_t length)
{
	n_others++;
}

static void try_loaded(void)
{
	char *p = map_pages(LENGTH);
	struct ibv_mr *mr;
	void *first = listen_by(arguments[0], hear), *second;
	unsigned before;

	ok(is_told(pd, p, LENGTH),
	   "a listener that comes late hears of what is registered then");
	second = listen_by(arguments[1], hear_other);
	ok(is_told(pd, p, LENGTH) && n_others, "two of them hear, by whatever name");
	mr = registered(pd, p, LENGTH);
	need(!dlclose(first) && !dlclose(second));
	before = n_heard;
	n_others = 0;
	map_over(p, LENGTH);
	ok(was_told(before, p, LENGTH) && n_others, "and stay while something is watched");
	need(!ibv_dereg_mr(mr));
}

/* --- a listener that is being found -------------------------------------------------- */

static __thread bool seeks;
static _Atomic bool is_seeking, may_find;

typedef int each_object(struct dl_phdr_info *info, size_t size, void *data);

/* The library calls this one. The second call of a thread that seeks waits. */
__attribute__((visibility("default"))) int dl_iterate_phdr(each_object *each, void *data)
{
	static __thread unsigned n_calls;
	static int (*real)(each_object *, void *);

	/* Once: a constructor may hold the loader's lock. */
	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "dl_iterate_phdr");
	if (seeks && ++n_calls == 2) {
		is_seeking = true;
		while (!may_find)
			usleep(1000);
	}
	return real(each, data);
}

static void *seek(void *arg)
{
	seeks = true;
	need(!ibv_dereg_mr(registered(pd, map_pages(LENGTH), LENGTH)));
	return arg;
}

static void try_sought(void)
{
	char *p = map_pages(LENGTH);
	struct ibv_mr *mr;
	pthread_t thread;
	unsigned before;

	listen_by(arguments[0], hear);
	need(!pthread_create(&thread, NULL, seek, NULL));
	while (!is_seeking)
		usleep(1000);
	mr = registered(pd, p, LENGTH);
	may_find = true;
	need(!pthread_join(thread, NULL));
	before = n_heard;
	map_over(p, LENGTH);
	ok(was_told(before, p, LENGTH),
	   "a listener hears of what was registered while another thread found it");
	need(!ibv_dereg_mr(mr));
}

/* --- memory that is locked ------------------------------------------------------------ */

static void try_locked(void)
{
	char *p = map_pages(LENGTH);

	need(!mlockall(MCL_CURRENT | MCL_FUTURE));
	ok(is_told(pd, p, LENGTH), "locked memory is watched");
	need(!mlockall(MCL_CURRENT | MCL_FUTURE));
	ok(is_told(pd, p, LENGTH), "also when all is locked once more");
	need(!munlockall());
	ok(is_told(pd, p, LENGTH), "and unlocked");
	need(!mlockall(MCL_CURRENT));
	ok(is_told(pd, map_pages(LENGTH), LENGTH), "and locked again");
}

/* --- an end during a notification ---------------------------------------------------- */

#define N ((size_t)40)

static char *pages;
static struct ibv_mr *mrs[N];

static void register_pages(void)
{
	pages = map_pages(2 * N * PAGE);
	for (size_t i = 0; i < N; i++)
		mrs[i] = registered(pd, pages + 2 * i * PAGE, PAGE);
}

static _Atomic bool hears;

static void hear_for_long(void *addr, size_t length)
{
	if (is_forgetting())
		return;
	hears = true;
	sleep(30);
}

static void *unmap_all(void *arg)
{
	munmap(pages, 2 * N * PAGE);
	return NULL;
}

static void *end(void *arg)
{
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
	void *handle = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
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

/* --- ways ---------------------------------------------------------------------- */

static struct place make(const struct way *way)
{
	struct place place = {.n_bytes = way->make == make_huge ? HUGE_PAGE : WAY_LENGTH,
			      .fd = -1};

	need(!way->make(&place));
	memset(place.buffer, 1, place.n_bytes);
	return place;
}

/* An older kernel does not know them all. What it does not know leaves the memory as it was. */
static void try_way(const struct way *way)
{
	struct place place = make(way);
	struct ibv_mr *mr = registered(pd, place.buffer, place.n_bytes);
	unsigned before = n_heard;

	errno = 0;
	ok((way->replace(&place, way->by) == FAILED && errno == EINVAL) ||
		   was_told(before, place.buffer, place.n_bytes),
	   "%s is told before it returns", way->name);
	ok(!ibv_dereg_mr(mr), "and what was registered can be given up");
}

static void try_each_way(bool huge)
{
	for (size_t i = 0; i < N_WAYS; i++)
		if (ways[i].of >= TOLD && huge == (ways[i].make == make_huge))
			try_way(&ways[i]);
}

static void try_ways(void)
{
	try_each_way(false);
}

/* --- what nobody needs to hear -------------------------------------------------- */

static void replace_quietly(const struct way *way, bool once)
{
	struct place place = make(way);

	if (once)
		need(!ibv_dereg_mr(registered_once(pd, place.buffer, place.n_bytes)));
	way->replace(&place, way->by);
}

static void try_each_quietly(bool huge)
{
	n_heard = 0;
	for (int once = 1; once >= 0; once--)
		for (size_t i = 0; i < N_WAYS; i++)
			if (ways[i].of >= TOLD && ways[i].by == by_libc &&
			    huge == (ways[i].make == make_huge))
				replace_quietly(&ways[i], once);
	/* An address that comes again may be watched. */
	ok(n_heard <= 6, "nothing is told that is not registered twice: %u times", n_heard);
}

static void try_quiet(void)
{
	try_each_quietly(false);
}

static void try_hugetlb(void)
{
	try_each_way(true);
	try_each_quietly(true);
}

/* --- what cannot be watched ---------------------------------------------------------- */

static bool can_be_registered(char *p, size_t n)
{
	return !ibv_dereg_mr(registered(pd, p, n));
}

static void try_data(void)
{
	ok(can_be_registered(data, sizeof data) && can_be_registered(zeroes, sizeof zeroes),
	   "variables can be registered");
}

/* Whoever touches a page that is not there gets a signal. */
static void watch_by_program(char *p)
{
	struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_SIGBUS};
	struct uffdio_register range = {
		.range = {.start = (uintptr_t)p, .len = WAY_LENGTH},
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	need(!ioctl(fd, UFFDIO_API, &api) && !ioctl(fd, UFFDIO_REGISTER, &range));
}

static sigjmp_buf was_missing;

static void go_back(int number)
{
	siglongjmp(was_missing, number);
}

static bool still_watches(char *page)
{
	need(!madvise(page, PAGE, MADV_DONTNEED));
	if (sigsetjmp(was_missing, 1))
		return true;
	*(volatile char *)page;
	return false;
}

/* Also with what is beside it, which the library can watch. */
static void try_own(void)
{
	char *p = map_pages(WAY_LENGTH);
	struct ibv_mr *mr;

	signal(SIGBUS, go_back);
	watch_by_program(p);
	ok(can_be_registered(p, WAY_LENGTH),
	   "what the program watches itself can be registered");
	need(!mprotect(p - PAGE, PAGE, WRITABLE) && !mprotect(p + WAY_LENGTH, PAGE, WRITABLE));
	ok(can_be_registered(p - PAGE, WAY_LENGTH + 2 * PAGE), "so can more than that");
	ok(still_watches(p) && still_watches(p + WAY_LENGTH - PAGE), "and the program goes on");
	p = map_pages(WAY_LENGTH);
	mr = registered(pd, p, WAY_LENGTH);
	map_over(p, WAY_LENGTH);
	watch_by_program(p);
	need(!ibv_dereg_mr(mr));
	ok(still_watches(p),
	   "what the program watches where something registered was, is its own");
}

static void try_kinds(void)
{
	static const struct way makes[] = {
		{.name = "pages of a file", .make = make_file},
		{.name = "a System V segment", .make = make_attached}};

	for (size_t i = 0; i < sizeof makes / sizeof *makes; i++) {
		struct place place = make(&makes[i]);

		ok(can_be_registered(place.buffer, WAY_LENGTH) &&
			   can_be_registered(place.buffer + PAGE / 2, WAY_LENGTH - PAGE),
		   "%s can be registered, and a part again", makes[i].name);
	}
	try_own();
	try_data();
}

int main(int argc, char **argv)
{
	static const struct rdma_case cases[] = {
		{"ways", try_ways},	      {"quiet", try_quiet},
		{"hugetlb", try_hugetlb},     {"kinds", try_kinds},
		{"data", try_data},	      {"closed", try_closed},
		{"forks", try_forks},	      {"loaded", try_loaded},
		{"sought", try_sought},	      {"locked", try_locked},
		{"exit", await_end},	      {"thread", await_end_in_thread},
		{"atexit", leave_to_handler}, {"plugin", try_plugin}};
	static const struct {
		const char *name;
		hook_function *hook; /* NULL: the case loads its listeners */
	} others[] = {{"forks", lock_and_hear},
		      {"exit", hear_for_long},
		      {"thread", hear_for_long},
		      {"loaded", NULL},
		      {"sought", NULL}};
	hook_function *hook = hear;

	need(argc >= 3);
	arguments = argv + 2;
	alarm(strcmp(argv[1], "forks") ? 100 : 2000);
	need((pd = ibv_alloc_pd(rdma_open())));
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		if (!strcmp(argv[1], others[i].name))
			hook = others[i].hook;
	if (hook)
		listen_by(argv[2], hook);
	rdma_run(cases, argc, argv);
	return done_testing();
}
