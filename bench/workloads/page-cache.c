/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a cache of pages does: threads ask for runs of 1 to 8 pages of files, of which few are
 * asked for often. A page that is not there is made, 4 KiB at an address that is a multiple
 * of that, with a node beside it that finds it, and the one unused for longest is given up,
 * whoever made it. Each request has a block of its own and a buffer for all it reads, and one
 * in 500 ends a file, with all its pages.
 *   usage: page-cache SCALE [THREADS]
 */
#include "workload.h"

#define SHARDS	   16
#define BUCKETS	   2048 /* of a shard */
#define PAGES	   1500 /* of a shard */
#define FILES	   10	/* as bits */
#define FILE_PAGES 8	/* as bits */
#define RUN	   8	/* pages */
#define END_FILE   500
#define OPERATIONS 6e5 /* requests */

struct node {
	struct node *next, *newer, *older;
	size_t key;
	char *page;
};

/* A file is in one shard. The ends of the list of ages are in `ages`. */
struct shard {
	pthread_mutex_t lock;
	struct node *buckets[BUCKETS], ages;
	size_t n;
};

static struct shard shards[SHARDS];

static struct node **find(struct shard *shard, size_t key)
{
	struct node **at = &shard->buckets[key * 0x9e3779b97f4a7c15u >> 53];

	while (*at && (*at)->key != key)
		at = &(*at)->next;
	return at;
}

static void unlink_age(struct node *node)
{
	node->newer->older = node->older;
	node->older->newer = node->newer;
}

static void make_newest(struct shard *shard, struct node *node)
{
	node->newer = &shard->ages;
	node->older = shard->ages.older;
	node->older->newer = node;
	shard->ages.older = node;
}

static void drop(struct shard *shard, struct node **at)
{
	struct node *node = *at;

	*at = node->next;
	unlink_age(node);
	shard->n--;
	free(node->page);
	free(node);
}

static struct node *add(struct shard *shard, size_t key)
{
	struct node *node = need(malloc(sizeof *node)), **at;

	if (shard->n == PAGES)
		drop(shard, find(shard, shard->ages.newer->key));
	at = find(shard, key);
	*node = (struct node){.key = key, .page = need(aligned_alloc(PAGE, PAGE))};
	memset(node->page, (int)key, PAGE);
	*at = node;
	shard->n++;
	return node;
}

static void read_page(struct shard *shard, size_t key, char *to)
{
	struct node *node = *find(shard, key);

	if (node)
		unlink_age(node);
	else
		node = add(shard, key);
	make_newest(shard, node);
	memcpy(to, node->page, PAGE);
}

static void end_file(struct shard *shard, size_t file)
{
	for (size_t page = 0; page < (size_t)1 << FILE_PAGES; page++) {
		struct node **at = find(shard, file << FILE_PAGES | page);

		if (*at)
			drop(shard, at);
	}
}

static void one_request(uint64_t *state)
{
	size_t file = random_log(state, 0, FILES), n = random_between(state, 1, RUN),
	       first = random_below(state, ((size_t)1 << FILE_PAGES) - n);
	struct shard *shard = &shards[file % SHARDS];
	char *request = take(random_between(state, 100, 400)), *buffer = take(n * PAGE);

	pthread_mutex_lock(&shard->lock);
	if (!random_below(state, END_FILE))
		end_file(shard, file);
	for (size_t i = 0; i < n; i++)
		read_page(shard, file << FILE_PAGES | (first + i), buffer + i * PAGE);
	pthread_mutex_unlock(&shard->lock);
	free(buffer);
	free(request);
}

static void *work(void *number)
{
	uint64_t state = random_seed((uintptr_t)number);

	for (size_t n = scaled_share(OPERATIONS); n; n--)
		one_request(&state);
	return NULL;
}

int main(int argc, char **argv)
{
	workload_threaded(argc, argv);
	for (int i = 0; i < SHARDS; i++) {
		pthread_mutex_init(&shards[i].lock, NULL);
		shards[i].ages.newer = shards[i].ages.older = &shards[i].ages;
	}
	run_threads(work);
	return workload_end(scaled_share(OPERATIONS) * workload_threads);
}
