/* SPDX-License-Identifier: BSD-2-Clause */
/* What the commands of rdma-script.c have in common: the things that a script names. */
#ifndef SCRIPT_H
#define SCRIPT_H

#include <config.h>

#include "preload/pinalloc.h"
#include "test/programs/rdma.h"

/* A device, a protection domain, memory, a registration or a pool. */
struct thing {
	char name[16]; /* "": none */
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr, was; /* as it was registered */
	struct ibv_mw *mw;
	struct pinalloc_pool *pool;
	char *p;
	size_t n;
	bool is_mapped;
	uint32_t lkey, rkey;
	uint64_t shift; /* of the adapter's addresses */
};

struct step {
	struct thing *it; /* what the command makes */
	int n;
	char *words[12]; /* the first one is the command's name */
};

/* A command returns 0, an errno value, the negative of one, or one of these: */
enum {
	COMPLETION = 1000, /* and an enum ibv_wc_status */
	WRONG = 2000
};

struct command {
	const char *name;
	int (*run)(const struct step *step);
};

extern const struct command memory_commands[], verbs_commands[], pinalloc_commands[];

/* What commands have counted: pages, and what "cached" has found. */
struct counts {
	_Atomic int64_t pages, absent, own, other, moved, hits;
};
extern struct counts counts;

/* Things of this thread, or of the main one; the former ends where there is none. */
struct thing *thing_of(const char *name);
bool has_thing(const char *name);

/* Memory: NAME, NAME+OFFSET or NAME-OFFSET, each with :LENGTH or without. */
struct range {
	const struct thing *thing;
	char *p;
	size_t n;
};
struct range range_of(const char *text);

/* 5, 0x10, 96M, 4K, 4K+5, 4K<3; ?20 is anything from 1 to 2^20, ~20 from 0 to 19. */
size_t number_of(const char *text);
size_t random_below(size_t n);

/* By letters: local, write, read, atomic, bind, zero-based, on demand, hugetlb, relaxed
 * ordering. */
unsigned rights_of(const struct step *step, int word);

/* In use by this thread: the first device, and its first domain, unless a script says
 * otherwise. */
struct ibv_context *context_in_use(void);
struct ibv_pd *pd_in_use(void);
void use_context(struct ibv_context *context);
void use_pd(struct ibv_pd *pd);

/* The thread's queue pair of the domain in use, which is connected to itself. */
struct rdma *queue(void);
void end_queue(void);

static inline int result_of(bool is_right)
{
	return is_right ? 0 : WRONG;
}

static inline int result_of_pointer(const void *made)
{
	return made ? 0 : errno ? errno : WRONG;
}

#endif
