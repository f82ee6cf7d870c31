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

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

#define LARGEST_PIECE (64 * KIB)
#define PATIENCE      200 /* seconds without an answer from a peer that lives */

struct storm_counts *storm_counts;
_Atomic bool storm_over;
_Atomic uint64_t storm_registrations;

static struct ibv_context *context;
static struct storm_domain shared;
static int listener = -1;

struct lane {
	uint64_t random;
	unsigned number;
	int fd;
	_Atomic uint64_t *steps;
	struct rdma rdma;
	uint32_t peer; /* its queue pair */
	struct storm_domain own, *domain;
};

/* What the driver asks for: pieces of a buffer, by one operation. */
struct request {
	enum storm_operation operation;
	unsigned n_pieces;
	size_t length;
	uint64_t seed;
	struct piece {
		size_t at, length;
	} pieces[STORM_PIECES];
};

struct answer {
	uint64_t addr;
	uint32_t rkey;
};

/* --- the socket ------------------------------------------------------------------------ */

static bool tell(struct lane *lane, const void *what, size_t size)
{
	return send(lane->fd, what, size, MSG_NOSIGNAL) == (ssize_t)size;
}

/* False when the peer has gone. With a time limit it is interrupted by being stopped. */
static bool hear(struct lane *lane, void *what, size_t size)
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

static bool post(struct lane *lane, enum ibv_wr_opcode opcode,
		 const struct storm_buffer *buffer, const struct piece *piece,
		 const struct answer *far)
{
	struct ibv_sge sge = {(uintptr_t)buffer->at + piece->at, (uint32_t)piece->length,
			      buffer->mr->lkey};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge,
				       .num_sge = 1,
				       .opcode = opcode,
				       .send_flags = IBV_SEND_SIGNALED,
				       .wr.rdma = {far->addr + piece->at, far->rkey}};

	need(!ibv_post_send(lane->rdma.qp, &wr, &bad));
	return completes(lane);
}

static void expect(struct lane *lane, const struct storm_buffer *buffer,
		   const struct piece *piece)
{
	struct ibv_sge sge = {(uintptr_t)buffer->at + piece->at, (uint32_t)piece->length,
			      buffer->mr->lkey};
	struct ibv_recv_wr *bad, wr = {.sg_list = &sge, .num_sge = 1};

	need(!ibv_post_recv(lane->rdma.qp, &wr, &bad));
}

/* --- a message ------------------------------------------------------------------------- */

static void fill(const struct storm_buffer *buffer, const struct request *request)
{
	for (unsigned i = 0; i < request->n_pieces; i++)
		rdma_fill(buffer->at + request->pieces[i].at, request->pieces[i].length,
			  request->seed + i);
}

/* At once, as the process may be killed. */
static void say_wrong(const struct lane *lane, const struct storm_buffer *buffer,
		      const struct request *request, const struct wrong *wrong, size_t at)
{
	static const char *const names[STORM_OPERATIONS] = {"write", "read", "send"};
	char who[WRONG_LINE];

	snprintf(
		who, sizeof who,
		"process %d, lane %u of the %s, %s, queue pair %#x to %#x, lkey %#x, rkey %#x, "
		"%s %.3f s ago",
		(int)getpid(), lane->number, listener >= 0 ? "server" : "driver",
		names[request->operation], lane->rdma.qp->qp_num, lane->peer, buffer->mr->lkey,
		buffer->mr->rkey, buffer->cached ? "put into the cache" : "registered",
		rdma_now() - buffer->when);
	wrong_say(who, wrong, &buffer->memory, at + 8 * wrong->first);
}

static void compare(const struct lane *lane, const struct storm_buffer *buffer,
		    const struct request *request)
{
	struct wrong wrong;

	for (unsigned i = 0; i < request->n_pieces; i++) {
		const struct piece *piece = &request->pieces[i];

		storm_counts->words += (piece->length + 7) / 8;
		if (wrong_find(&wrong, buffer->at + piece->at, piece->length,
			       request->seed + i)) {
			storm_counts->wrong += wrong.count;
			say_wrong(lane, buffer, request, &wrong, piece->at);
		}
	}
	storm_counts->messages++;
}

static void tear_down(struct lane *lane)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	need(!ibv_modify_qp(lane->rdma.qp, &attr, IBV_QP_STATE));
	rdma_disconnect(&lane->rdma);
	lane->rdma.qp = NULL;
}

static bool drive(struct lane *lane, const struct request *request,
		  const struct storm_buffer *buffer)
{
	static const enum ibv_wr_opcode opcodes[STORM_OPERATIONS] = {
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND};
	bool is_read = request->operation == STORM_READ;
	struct answer far;
	char done = 0;

	if (!is_read)
		fill(buffer, request);
	if (!tell(lane, request, sizeof *request) || !hear(lane, &far, sizeof far))
		return false;
	for (unsigned i = 0; i < request->n_pieces; i++)
		if (!post(lane, opcodes[request->operation], buffer, &request->pieces[i], &far))
			return false;
	if (is_read)
		compare(lane, buffer, request);
	return tell(lane, &done, 1) && hear(lane, &done, 1);
}

static bool serve(struct lane *lane, const struct request *request,
		  const struct storm_buffer *buffer)
{
	struct answer answer = {(uintptr_t)buffer->at, buffer->mr->rkey};
	char done;

	if (request->operation == STORM_READ)
		fill(buffer, request);
	if (request->operation == STORM_SEND)
		expect(lane, buffer, &request->pieces[0]);
	if (!tell(lane, &answer, sizeof answer))
		return false;
	if (request->operation == STORM_SEND && !completes(lane))
		return false;
	if (!hear(lane, &done, 1))
		return false;
	if (request->operation != STORM_READ)
		compare(lane, buffer, request);
	return tell(lane, &done, 1);
}

/* One of 32 is large; of these only pieces go, as soft-RoCE is slow. */
static void choose(struct lane *lane, struct request *request)
{
	uint64_t *random = &lane->random;
	bool is_large = rdma_random(random) % 32 == 0;

	*request = (struct request){.operation = rdma_random(random) % STORM_OPERATIONS,
				    .length = 15 + rdma_random_size(random, is_large ? 24 : 20),
				    .seed = rdma_random(random)};
	request->n_pieces = request->operation == STORM_SEND
				    ? 1
				    : 1 + (unsigned)(rdma_random(random) % STORM_PIECES);
	/* They must not overlap: each has a part of the buffer. */
	for (unsigned i = 0; i < request->n_pieces; i++) {
		size_t part = request->length / request->n_pieces;
		size_t length = 1 + rdma_random(random) %
					    (part < LARGEST_PIECE ? part : LARGEST_PIECE);

		request->pieces[i].length = length;
		request->pieces[i].at = i * part + rdma_random(random) % (part - length + 1);
	}
}

/* The queue pair goes first: it might still write to the buffer. */
static bool exchange(struct lane *lane, const struct request *request,
		     bool (*side)(struct lane *lane, const struct request *request,
				  const struct storm_buffer *buffer))
{
	struct storm_buffer buffer;
	bool is_done;

	storm_take(&buffer, lane->domain, lane->number, request->length, &lane->random);
	is_done = side(lane, request, &buffer);
	if (!is_done)
		tear_down(lane);
	storm_give_back(&buffer);
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
	uint32_t near = lane->rdma.qp->qp_num;
	char ready = 0;

	if (!tell(lane, &near, sizeof near) || !hear(lane, &lane->peer, sizeof lane->peer))
		return false;
	rdma_to_ready(lane->rdma.qp, lane->peer);
	return tell(lane, &ready, 1) && hear(lane, &ready, 1);
}

static void talk(struct lane *lane)
{
	struct request request;
	bool goes_on = pair_up(lane);

	storm_counts->connections += goes_on;
	while (goes_on && listener < 0 && !storm_over) {
		choose(lane, &request);
		goes_on = exchange(lane, &request, drive);
	}
	while (goes_on && listener >= 0 && hear(lane, &request, sizeof request))
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
		lane->domain = is_alone ? &lane->own : &shared;
		if (is_alone)
			storm_make_domain(&lane->own, context);
		rdma_make(&lane->rdma, lane->domain->pd);
		talk(lane);
		if (is_alone)
			storm_end_domain(&lane->own);
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
	storm_listen(listener_path);
	context = rdma_open();
	storm_make_domain(&shared, context);
	if (is_server)
		listen_to_all();
	start_all(threads, storm_counts->steps[is_server], (uint64_t)getpid() << 16);
	sigwait(&end, &signal);
	storm_over = true;
	for (size_t i = 0; i < STORM_THREADS; i++)
		pthread_join(threads[i], NULL);
	storm_end_domain(&shared);
	need(!ibv_close_device(context));
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
