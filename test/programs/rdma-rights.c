/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a peer can do with a key: what was requested when the memory was registered, and nothing
 * else. Except for "region" it does not use the library's API and passes without the library,
 * "outside" with PINALLOC_ACCESS=local only.
 * Prints TAP.
 *
 *     rdma-rights CASE
 */
#include "preload/pinalloc.h"
#include "test/programs/rdma.h"
#include "test/tap.h"

#include <sys/socket.h>
#include <unistd.h>

#define LENGTH 5000 /* of a buffer, no multiple of a page or of the adapter's messages */

enum operation { STORE, READ, WRITE, ATOMIC, OPERATIONS };

/* The right that each takes: the first of the near side, the others of the far side. */
static const unsigned needed[] = {IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ,
				  IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC};

/* All that verbs allow. */
static const unsigned sets[] = {0,     1,	  4,	     1 | 2,	1 | 4,
				1 | 8, 1 | 2 | 4, 1 | 2 | 8, 1 | 4 | 8, 1 | 2 | 4 | 8};
#define N_SETS (sizeof sets / sizeof *sets)

static struct ibv_pd *pd;
static struct rdma rdma;
static uint64_t *own; /* a page that is not of the heap, with all rights */
static struct ibv_mr *own_mr;

static void set_up(void)
{
	need((pd = ibv_alloc_pd(rdma_open())));
	own = rdma_map(4 * KIB);
	need((own_mr = ibv_reg_mr(pd, own, 4 * KIB, RDMA_ACCESS | IBV_ACCESS_REMOTE_ATOMIC)));
}

static int add(uint64_t addr, uint32_t rkey)
{
	struct ibv_sge sge = {(uintptr_t)own, 8, own_mr->lkey};
	struct ibv_send_wr *bad, wr = {
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
					 .send_flags = IBV_SEND_SIGNALED,
					 .wr.atomic = {addr, 1, 0, rkey},
				 };

	need(!ibv_post_send(rdma.qp, &wr, &bad));
	return rdma_wait(&rdma);
}

/* One message with a key, and what became of it: an enum ibv_wc_status. */
static int operate(enum operation operation, uint64_t addr, uint32_t key, size_t n_bytes)
{
	void *p = (void *)(uintptr_t)addr;

	switch (operation) {
	case STORE:
		return rdma_read(&rdma, p, key, own, own_mr->rkey, n_bytes);
	case READ:
		return rdma_read(&rdma, own, own_mr->lkey, p, key, n_bytes);
	case WRITE:
		return rdma_write(&rdma, own, own_mr->lkey, p, key, n_bytes);
	default:
		return add(addr, key);
	}
}

/* --- by the process itself -----------------------------------------------------------------
 */

/* Whether it works, and does what it should; or is refused, and does nothing. */
static bool permits(enum operation operation, uint64_t *word, uint32_t key, bool *permitted)
{
	uint64_t before = *word;
	int status;

	*own = before + 1;
	rdma_connect(&rdma, pd);
	status = operate(operation, (uintptr_t)word, key, 8);
	rdma_disconnect(&rdma);
	*permitted = !status;
	if (status)
		return *word == before && (operation == STORE ? status == IBV_WC_LOC_PROT_ERR
							      : rdma_is_refused(status));
	return operation == READ ? *own == before : *word == before + 1;
}

/* Which rights an ibv_mr's keys have; 1 << 31 if one of them did what it should not. */
static unsigned rights_of(const struct ibv_mr *mr)
{
	uint64_t *word = (uint64_t *)mr->addr + 7;
	unsigned rights = 0;
	bool permitted;

	for (int i = 0; i < OPERATIONS; i++) {
		if (!permits(i, word, i == STORE ? mr->lkey : mr->rkey, &permitted))
			rights |= 1u << 31;
		rights |= permitted ? needed[i] : 0;
		/* Adapters number both alike, where there is no other. */
		if (i == STORE || mr->lkey == mr->rkey)
			continue;
		permits(i, word, mr->lkey, &permitted);
		rights |= permitted ? needed[i] : 0;
	}
	return rights;
}

static void exact(void)
{
	struct ibv_mr *mrs[N_SETS];
	char *blocks[N_SETS];

	set_up();
	for (size_t i = 0; i < N_SETS; i++) {
		need((blocks[i] = malloc(LENGTH)));
		need((mrs[i] = ibv_reg_mr(pd, blocks[i], LENGTH, (int)sets[i])));
	}
	for (size_t i = 0; i < N_SETS; i++)
		ok(rights_of(mrs[i]) == sets[i], "of rights 0x%x the keys have 0x%x", sets[i],
		   rights_of(mrs[i]));
	for (size_t i = 0; i < N_SETS; i++)
		need(!ibv_dereg_mr(mrs[i]));
	errno = 0;
	ok(!ibv_reg_mr(pd, blocks[0], LENGTH, IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL,
	   "remote writing without local writing is refused");
	ok(!ibv_dereg_mr(own_mr) && !ibv_dealloc_pd(pd), "all can be given up");
}

static bool reads(uint64_t *word, uint32_t key)
{
	bool permitted;

	return permits(READ, word, key, &permitted) && permitted;
}

static bool writes(uint64_t *word, uint32_t key)
{
	bool permitted;

	return !permits(WRITE, word, key, &permitted) || permitted;
}

/* What remains by design where remote rights are served, as pinalloc(7) has it. */
static void region(void)
{
	uint64_t *block = malloc(LENGTH), *other = calloc(1, LENGTH);
	struct ibv_mr *mr;
	uint32_t rkey;

	set_up();
	need(block && other && pinalloc_disable);
	need((mr = ibv_reg_mr(pd, block, LENGTH, IBV_ACCESS_REMOTE_READ)));
	rkey = mr->rkey;
	ok(reads(other, rkey), "an rkey opens the memory region, with other blocks");
	ok(!reads(own, rkey), "and nothing else");
	ok(!writes(other, rkey) && !writes(block, rkey),
	   "with the rights asked for, no others");
	ok(!ibv_dereg_mr(mr) && reads(block, rkey), "ibv_dereg_mr does not revoke it");
	ok(!pinalloc_disable(pd) && !reads(block, rkey), "pinalloc_disable does");
}

/* --- by another process --------------------------------------------------------------------
 */

/* What the owner of memory has the peer do, on a queue pair for this alone. */
struct order {
	enum operation operation;
	uint32_t queue, key;
	uint64_t addr;
	size_t n_bytes;
};

static int peer; /* a socket */

static void pass_on(const void *p, size_t n_bytes)
{
	need(write(peer, p, n_bytes) == (ssize_t)n_bytes);
}

static bool receive(void *p, size_t n_bytes)
{
	return read(peer, p, n_bytes) == (ssize_t)n_bytes;
}

static void serve(void)
{
	struct order order;
	int status;

	set_up();
	while (receive(&order, sizeof order)) {
		rdma_make(&rdma, pd);
		rdma_to_ready(rdma.qp, order.queue);
		pass_on(&rdma.qp->qp_num, sizeof rdma.qp->qp_num);
		need(receive(&status, sizeof status)); /* the owner is ready */
		memset(own, 0x55, 4 * KIB);
		status = operate(order.operation, order.addr, order.key, order.n_bytes);
		pass_on(&status, sizeof status);
		rdma_disconnect(&rdma);
	}
	exit(0);
}

/* Before the device is opened, which no child survives. */
static void start_peer(void)
{
	int sockets[2];
	pid_t child;

	need(!socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
	need((child = fork()) >= 0);
	peer = sockets[!child];
	close(sockets[!!child]);
	if (!child)
		serve();
}

static int by_peer(enum operation operation, const char *addr, uint32_t key, size_t n_bytes)
{
	struct order order = {operation, 0, key, (uintptr_t)addr, n_bytes};
	int status = 0;
	uint32_t queue;

	rdma_make(&rdma, pd);
	order.queue = rdma.qp->qp_num;
	pass_on(&order, sizeof order);
	need(receive(&queue, sizeof queue));
	rdma_to_ready(rdma.qp, queue);
	pass_on(&status, sizeof status);
	need(receive(&status, sizeof status));
	rdma_disconnect(&rdma);
	return status;
}

/* Whether all that takes a remote right ends with an error, and changes nothing. */
static bool is_closed(char *addr, uint32_t key, size_t n_bytes)
{
	char *before = malloc(n_bytes);
	bool closed = true;

	memcpy(before, addr, n_bytes);
	for (int i = READ; i < ATOMIC; i++)
		closed &= by_peer(i, addr, key, n_bytes) == IBV_WC_REM_ACCESS_ERR;
	closed &= !memcmp(before, addr, n_bytes);
	free(before);
	return closed;
}

static bool is_open(char *addr, uint32_t key, size_t n_bytes)
{
	return !by_peer(READ, addr, key, n_bytes) && !by_peer(WRITE, addr, key, n_bytes) &&
	       addr[0] == 0x55 && addr[n_bytes - 1] == 0x55;
}

/* Around the buffer is heap that is registered as well, without remote rights and with. */
static void outside(void)
{
	char *whole, *buffer;
	struct ibv_mr *around, *after, *mr;
	uint32_t key;

	start_peer();
	set_up();
	need((whole = calloc(3, 4096)));
	buffer = whole + 4096 + 5;
	need((around = ibv_reg_mr(pd, whole, 3 * 4096, IBV_ACCESS_LOCAL_WRITE)));
	need((mr = ibv_reg_mr(pd, buffer, 1000, RDMA_ACCESS)));
	need((after = ibv_reg_mr(pd, buffer + 1000, 1000, RDMA_ACCESS)));
	key = mr->rkey;
	ok(is_open(buffer, key, 1000), "a peer reads and writes a buffer");
	ok(is_open(buffer, key, 1) && is_open(buffer + 999, key, 1), "from end to end");
	ok(is_closed(buffer - 1, key, 1), "not the byte before it");
	ok(is_closed(buffer - 1, key, 2), "nor together with the first");
	ok(is_closed(buffer + 1000, key, 1), "not the byte behind it");
	ok(is_closed(buffer + 999, key, 2), "nor together with the last");
	ok(is_closed(buffer, around->rkey, 8) && is_closed(buffer, around->lkey, 8),
	   "nothing with keys of a registration that has no remote rights");
	ok(!ibv_dereg_mr(mr) && is_closed(buffer, key, 1000) && is_closed(buffer, key, 1),
	   "and nothing with its key after ibv_dereg_mr");
	ok(is_open(buffer + 1000, after->rkey, 1000), "which is nothing to the next one");
	need((mr = ibv_reg_mr(pd, buffer, 1000, RDMA_ACCESS)));
	ok(mr->rkey != key && is_closed(buffer, key, 8) && is_open(buffer, mr->rkey, 1000),
	   "registered again it has another key, and the old one stays dead");
	ok(!ibv_dereg_mr(mr) && !ibv_dereg_mr(after) && !ibv_dereg_mr(around),
	   "all can be given up");
}

static const struct rdma_case cases[] = {
	{"exact", exact}, {"region", region}, {"outside", outside}};

int main(int argc, char **argv)
{
	rdma_run(cases, argc, argv);
	return done_testing();
}
