/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two processes that move data both ways in eight threads each, while others of their threads
 * allocate and free at full speed, and devices, protection domains and children come and go.
 * Each buffer is allocated or mapped, and registered, for one message, in one of many ways;
 * half of them go through a cache that nobody tells of free(), and only the library of
 * munmap(). Each word that arrives is compared with a pattern of its process, thread, round and
 * place. Either process may be killed at any time and started anew: the other one destroys its
 * queue pairs and connects again.
 *
 *     rdma-storm serve|drive COUNTS LISTENER     until SIGUSR1; all map the file COUNTS
 *     rdma-storm show|mark COUNTS                "least N": of all threads, since the last mark
 */
#include "test/programs/storm.h"
#include "test/programs/cache.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

#define LARGEST_PIECE  (64 * KIB)
#define LARGEST_CACHED MIB
#define PATIENCE       200 /* seconds without an answer from a peer that lives */

/*
 * Each lane maps its buffers at an address of its own, as one that another thread unmaps is
 * free a moment before anybody can be told.
 */
#define PLACES	   0x200000000000
#define PLACE_SIZE (32 * MIB)

enum operation { WRITE, READ, SEND, OPERATIONS };
static const char *const names[OPERATIONS] = {"write", "read", "send"};

struct storm_counts *storm_counts;
_Atomic bool storm_over;
_Atomic uint64_t storm_registrations;

static struct ibv_context *context;
static struct ibv_pd *shared; /* that of the cache */
static int listener = -1;

struct lane {
	uint64_t random;
	unsigned number;
	int fd;
	_Atomic uint64_t *steps;
	struct rdma rdma;
};

/* What the driver asks for: a piece of a buffer. */
struct request {
	enum operation operation;
	size_t length, at, n;
	uint64_t seed;
};

struct answer {
	uint64_t addr;
	uint32_t rkey;
};

/* --- buffers --------------------------------------------------------------------------- */

struct buffer {
	char *at;
	size_t length;
	struct ibv_mr *mr;
	struct cache_entry *entry; /* NULL: the registration ends with the buffer */
	bool is_mapped;
	const struct wrong_memory *memory;
};

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

	need(mmap(place, length, WRITABLE, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == place);
	return place;
}

static void register_or_find(struct buffer *buffer, struct ibv_pd *pd, bool is_cached)
{
	char *at = buffer->at, *end = at + buffer->length;

	if (is_cached) {
		buffer->entry = cache_hold(at, end, at, end);
		buffer->mr = buffer->entry->mr;
		storm_counts->hits += cache_was_hit;
		storm_registrations += !cache_was_hit;
	} else {
		need((buffer->mr = ibv_reg_mr(pd, at, buffer->length, RDMA_ACCESS)));
		storm_registrations++;
	}
}

/* Of at least so many bytes, in any way to get memory and to register it. */
static void take(struct buffer *buffer, struct lane *lane, size_t length)
{
	uint64_t *random = &lane->random;
	bool is_cached = lane->rdma.pd == shared && length <= LARGEST_CACHED &&
			 rdma_random(random) % 2;

	length = is_cached ? power_of_two(length) : length;
	*buffer = (struct buffer){.length = length, .is_mapped = rdma_random(random) % 4 == 0};
	buffer->at = buffer->is_mapped ? mapping(length, lane->number)
				       : some_memory(length, random);
	buffer->memory = wrong_use(buffer->is_mapped ? "a mapping" : "a heap block", buffer->at,
				   length);
	register_or_find(buffer, lane->rdma.pd, is_cached);
}

/* No queue pair may be about to read or write it. */
static void give_back(struct buffer *buffer)
{
	if (buffer->entry)
		cache_release(buffer->entry);
	else
		need(!ibv_dereg_mr(buffer->mr));
	if (buffer->is_mapped)
		need(!munmap(buffer->at, buffer->length));
	else
		free(buffer->at);
}

/* --- the socket ------------------------------------------------------------------------ */

static bool tell(struct lane *lane, const void *what, size_t size)
{
	return send(lane->fd, what, size, MSG_NOSIGNAL) == (ssize_t)size;
}

/* False when the peer has gone. With a time limit it is interrupted by being stopped. */
static bool hear_answer(struct lane *lane, void *what, size_t size)
{
	ssize_t n;

	do
		n = recv(lane->fd, what, size, 0);
	while (n < 0 && errno == EINTR);
	need(n >= 0 || errno == ECONNRESET);
	return n == (ssize_t)size;
}

static bool has_gone(struct lane *lane)
{
	struct pollfd poller = {.fd = lane->fd};

	return poll(&poller, 1, 0) > 0;
}

/* --- the queue pair -------------------------------------------------------------------- */

/*
 * A transfer fails when the peer has been killed, and for no other reason. It stays counted
 * where this process does not live to see that.
 */
static void must_have_gone(struct lane *lane, enum ibv_wc_status status)
{
	double deadline = rdma_now() + PATIENCE;

	storm_counts->failed++;
	for (; !has_gone(lane); sched_yield())
		if (rdma_now() > deadline)
			rdma_give_up(ibv_wc_status_str(status), __FILE__, __LINE__);
	storm_counts->failed--;
}

/* As rdma_wait(), but many wait at a time, and the peer may go. */
static bool completes(struct lane *lane)
{
	double deadline = rdma_now() + PATIENCE;
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(lane->rdma.cq, 1, &wc))) {
		if (has_gone(lane))
			return false;
		need(rdma_now() < deadline);
		sched_yield();
	}
	need(n > 0);
	if (wc.status != IBV_WC_SUCCESS)
		must_have_gone(lane, wc.status);
	return wc.status == IBV_WC_SUCCESS;
}

static struct ibv_sge piece_of(const struct buffer *buffer, const struct request *request)
{
	return (struct ibv_sge){(uintptr_t)buffer->at + request->at, (uint32_t)request->n,
				buffer->mr->lkey};
}

static bool post(struct lane *lane, const struct buffer *buffer, const struct request *request,
		 const struct answer *far)
{
	static const enum ibv_wr_opcode opcodes[OPERATIONS] = {IBV_WR_RDMA_WRITE,
							       IBV_WR_RDMA_READ, IBV_WR_SEND};
	struct ibv_sge sge = piece_of(buffer, request);
	struct ibv_send_wr *bad, wr = {.sg_list = &sge,
				       .num_sge = 1,
				       .opcode = opcodes[request->operation],
				       .send_flags = IBV_SEND_SIGNALED,
				       .wr.rdma = {far->addr + request->at, far->rkey}};

	need(!ibv_post_send(lane->rdma.qp, &wr, &bad));
	return completes(lane);
}

static void expect(struct lane *lane, const struct buffer *buffer,
		   const struct request *request)
{
	struct ibv_sge sge = piece_of(buffer, request);
	struct ibv_recv_wr *bad, wr = {.sg_list = &sge, .num_sge = 1};

	need(!ibv_post_recv(lane->rdma.qp, &wr, &bad));
}

/* --- a message ------------------------------------------------------------------------- */

static void fill(const struct buffer *buffer, const struct request *request)
{
	rdma_fill(buffer->at + request->at, request->n, request->seed);
}

/* What is wrong is said at once, as the process may be killed. */
static void compare(const struct lane *lane, const struct buffer *buffer,
		    const struct request *request)
{
	struct wrong wrong;
	char who[WRONG_LINE];

	storm_counts->words += (request->n + 7) / 8;
	storm_counts->messages++;
	if (!wrong_find(&wrong, buffer->at + request->at, request->n, request->seed))
		return;
	storm_counts->wrong += wrong.count;
	snprintf(who, sizeof who, "process %d, lane %u of the %s, %s, lkey %#x, rkey %#x, %s",
		 (int)getpid(), lane->number, listener >= 0 ? "server" : "driver",
		 names[request->operation], buffer->mr->lkey, buffer->mr->rkey,
		 buffer->entry ? "cached" : "registered");
	wrong_say(who, &wrong, buffer->memory, request->at + 8 * wrong.first);
}

static void tear_down(struct lane *lane)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	need(!ibv_modify_qp(lane->rdma.qp, &attr, IBV_QP_STATE));
	rdma_disconnect(&lane->rdma);
	lane->rdma.qp = NULL;
}

static bool drive(struct lane *lane, const struct request *request, const struct buffer *buffer)
{
	bool is_read = request->operation == READ;
	struct answer far;
	char done = 0;

	if (!is_read)
		fill(buffer, request);
	if (!tell(lane, request, sizeof *request) || !hear_answer(lane, &far, sizeof far) ||
	    !post(lane, buffer, request, &far))
		return false;
	if (is_read)
		compare(lane, buffer, request);
	return tell(lane, &done, 1) && hear_answer(lane, &done, 1);
}

static bool serve(struct lane *lane, const struct request *request, const struct buffer *buffer)
{
	struct answer answer = {(uintptr_t)buffer->at, buffer->mr->rkey};
	bool is_send = request->operation == SEND;
	char done;

	if (request->operation == READ)
		fill(buffer, request);
	if (is_send)
		expect(lane, buffer, request);
	if (!tell(lane, &answer, sizeof answer) || (is_send && !completes(lane)) ||
	    !hear_answer(lane, &done, 1))
		return false;
	if (request->operation != READ)
		compare(lane, buffer, request);
	return tell(lane, &done, 1);
}

/* One of 32 is large; of these only a piece goes, as soft-RoCE is slow. */
static struct request choose(struct lane *lane)
{
	uint64_t *random = &lane->random;
	bool is_large = rdma_random(random) % 32 == 0;
	struct request request = {.operation = rdma_random(random) % OPERATIONS,
				  .length = 15 + rdma_random_size(random, is_large ? 24 : 20),
				  .seed = rdma_random(random)};
	size_t most = request.length < LARGEST_PIECE ? request.length : LARGEST_PIECE;

	request.n = 1 + rdma_random(random) % most;
	request.at = rdma_random(random) % (request.length - request.n + 1);
	return request;
}

/* The queue pair goes first: it might still write to the buffer. */
static bool exchange(struct lane *lane, const struct request *request,
		     bool (*side)(struct lane *lane, const struct request *request,
				  const struct buffer *buffer))
{
	struct buffer buffer;
	bool is_done;

	take(&buffer, lane, request->length);
	is_done = side(lane, request, &buffer);
	if (!is_done)
		tear_down(lane);
	give_back(&buffer);
	*lane->steps += is_done;
	return is_done;
}

/* --- connections ----------------------------------------------------------------------- */

/* Where every process finds the server. */
static struct sockaddr_un address(void)
{
	return (struct sockaddr_un){.sun_family = AF_UNIX, .sun_path = "\0pinalloc-storm"};
}

static int new_socket(int seconds, int us)
{
	const struct timeval patience = {seconds, us};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	need(fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
	return fd;
}

static void listen_to_all(void)
{
	const struct sockaddr_un name = address();

	listener = new_socket(0, 100000);
	need(!bind(listener, (const struct sockaddr *)&name, sizeof name));
	need(!listen(listener, STORM_LANES));
}

static bool accept_one(struct lane *lane)
{
	const struct timeval patience = {PATIENCE, 0};

	lane->fd = accept(listener, NULL, NULL);
	need(lane->fd < 0 ||
	     !setsockopt(lane->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
	return lane->fd >= 0;
}

static bool connect_to_server(struct lane *lane)
{
	const struct sockaddr_un name = address();

	lane->fd = new_socket(PATIENCE, 0);
	if (!connect(lane->fd, (const struct sockaddr *)&name, sizeof name))
		return true;
	close(lane->fd);
	usleep(20000);
	return false;
}

/* Neither side sends before both are ready. */
static bool pair_up(struct lane *lane)
{
	uint32_t near = lane->rdma.qp->qp_num, peer;
	char ready = 0;

	if (!tell(lane, &near, sizeof near) || !hear_answer(lane, &peer, sizeof peer))
		return false;
	rdma_to_ready(lane->rdma.qp, peer);
	return tell(lane, &ready, 1) && hear_answer(lane, &ready, 1);
}

static void talk(struct lane *lane)
{
	struct request request;
	bool goes_on = pair_up(lane);

	storm_counts->connections += goes_on;
	while (goes_on && listener < 0 && !storm_over) {
		request = choose(lane);
		goes_on = exchange(lane, &request, drive);
	}
	while (goes_on && listener >= 0 && hear_answer(lane, &request, sizeof request))
		goes_on = exchange(lane, &request, serve);
	storm_counts->broken += !goes_on;
	if (lane->rdma.qp)
		tear_down(lane);
}

/* Every fourth has a protection domain of its own, as long as the connection lasts. */
static void *keep_talking(void *arg)
{
	struct lane *lane = arg;
	bool is_alone = lane->number % 4 == 3;

	while (!storm_over) {
		if (!(listener >= 0 ? accept_one(lane) : connect_to_server(lane)))
			continue;
		rdma_make(&lane->rdma, is_alone ? ibv_alloc_pd(context) : shared);
		talk(lane);
		need(!is_alone || !ibv_dealloc_pd(lane->rdma.pd));
		close(lane->fd);
	}
	return NULL;
}

/* --- the process ------------------------------------------------------------------------ */

static void map_counts(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	need(fd >= 0 && !ftruncate(fd, sizeof *storm_counts));
	storm_counts = mmap(NULL, sizeof *storm_counts, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			    0);
	need(storm_counts != MAP_FAILED);
	close(fd);
}

static uint64_t least_steps(void)
{
	uint64_t steps, least = UINT64_MAX;

	for (int i = 0; i < 2; i++)
		for (int j = 0; j < STORM_THREADS; j++) {
			steps = storm_counts->steps[i][j] - storm_counts->marked[i][j];
			least = steps < least ? steps : least;
		}
	return least;
}

static void show(void)
{
	printf("messages %lu words %lu wrong %lu failed %lu spoilt %lu\n"
	       "hits %lu connections %lu broken %lu blocks %lu domains %lu children %lu "
	       "least %lu\n",
	       storm_counts->messages, storm_counts->words, storm_counts->wrong,
	       storm_counts->failed, storm_counts->spoilt, storm_counts->hits,
	       storm_counts->connections, storm_counts->broken, storm_counts->blocks,
	       storm_counts->domains, storm_counts->children, least_steps());
}

/* What the kernel still has of this process when all is given up. */
static void show_rest(void)
{
	char line[512], mine[32];
	unsigned n = 0, pinned = 0;
	FILE *table, *status = fopen("/proc/self/status", "re");

	need(status);
	while (fgets(line, sizeof line, status))
		sscanf(line, "VmPin: %u", &pinned);
	fclose(status);
	snprintf(mine, sizeof mine, " pid %d ", (int)getpid());
	need((table = popen("env -u LD_PRELOAD rdma resource show mr", "re")));
	while (fgets(line, sizeof line, table))
		n += strstr(line, mine) != NULL;
	need(!pclose(table));
	printf("registrations %lu pinned %u kernel %u\n", storm_registrations, pinned, n);
}

static void start_all(pthread_t *threads, _Atomic uint64_t *steps, uint64_t seed)
{
	static struct lane lanes[STORM_LANES];
	static struct storm_other others[STORM_ALLOCATORS + 1];
	pthread_t *next = threads;

	for (unsigned i = 0; i < STORM_LANES; i++) {
		lanes[i] = (struct lane){.number = i, .random = seed++, .steps = steps++};
		need(!pthread_create(next++, NULL, keep_talking, &lanes[i]));
	}
	for (unsigned i = 0; i <= STORM_ALLOCATORS; i++) {
		others[i] = (struct storm_other){.random = seed++, .steps = steps++};
		need(!pthread_create(next++, NULL, i ? storm_allocate : storm_come_and_go,
				     &others[i]));
	}
}

static void run(bool is_server, const char *listener_path)
{
	pthread_t threads[STORM_THREADS];
	sigset_t end;
	int signal;

	sigemptyset(&end);
	sigaddset(&end, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &end, NULL);
	context = rdma_open();
	need((shared = ibv_alloc_pd(context)));
	cache_open(shared, listener_path);
	if (is_server)
		listen_to_all();
	start_all(threads, storm_counts->steps[is_server], (uint64_t)getpid() << 16);
	sigwait(&end, &signal);
	storm_over = true;
	for (size_t i = 0; i < STORM_THREADS; i++)
		pthread_join(threads[i], NULL);
	cache_close();
	need(!ibv_dealloc_pd(shared) && !ibv_close_device(context));
	show_rest();
}

int main(int argc, char **argv)
{
	need(argc >= 3);
	map_counts(argv[2]);
	if (!strcmp(argv[1], "show"))
		show();
	else if (!strcmp(argv[1], "mark"))
		memcpy(storm_counts->marked, storm_counts->steps, sizeof storm_counts->steps);
	else
		run(!strcmp(argv[1], "serve"), argv[3]);
	return 0;
}
