/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What compilers and solvers do: binary trees of small nodes that are built and deleted,
 * some of which live long, and a hash table of strings of 8 to 200 bytes that is filled,
 * thinned, grown and thrown away. One thread.
 *   usage: tree SCALE
 */
#include "workload.h"

#define NODES	   20000 /* of a tree */
#define LIVING	   8	 /* trees */
#define ENTRIES	   30000
#define OPERATIONS 10e6

struct node {
	struct node *left, *right;
	uint64_t key;
};

struct entry {
	struct entry *next;
	char *text;
	uint64_t hash;
};

struct table {
	struct entry **heads;
	size_t n_heads, n;
};

static void insert(struct node **root, uint64_t key)
{
	struct node *node = need(malloc(sizeof *node));

	while (*root)
		root = key < (*root)->key ? &(*root)->left : &(*root)->right;
	*node = (struct node){.key = key};
	*root = node;
}

static void delete_tree(struct node *node)
{
	if (!node)
		return;
	delete_tree(node->left);
	delete_tree(node->right);
	free(node);
}

/* Leaves out what is beyond the limit, as simplifications do. */
static struct node *prune(struct node *node, uint64_t limit)
{
	struct node *left;

	if (!node)
		return NULL;
	left = prune(node->left, limit);
	node->left = left;
	node->right = prune(node->right, limit);
	if (node->key < limit)
		return node;
	delete_tree(node->right);
	free(node);
	return left;
}

static struct node *build(uint64_t *state)
{
	struct node *root = NULL;

	for (size_t i = 0; i < NODES; i++)
		insert(&root, random_next(state));
	return prune(root, UINT64_MAX / 4 * 3);
}

static void rehash(struct table *table)
{
	size_t n_heads = table->n_heads ? 2 * table->n_heads : 64;
	struct entry **heads = need(calloc(n_heads, sizeof *heads)), *entry, *next;

	for (size_t i = 0; i < table->n_heads; i++)
		for (entry = table->heads[i]; entry; entry = next) {
			struct entry **head = &heads[entry->hash % n_heads];

			next = entry->next;
			entry->next = *head;
			*head = entry;
		}
	free(table->heads);
	table->heads = heads;
	table->n_heads = n_heads;
}

static void add(struct table *table, uint64_t *state)
{
	struct entry *entry = need(malloc(sizeof *entry)), **head;

	if (table->n == table->n_heads)
		rehash(table);
	entry->hash = random_next(state);
	entry->text = take_filled(random_between(state, 8, 200));
	head = &table->heads[entry->hash % table->n_heads];
	entry->next = *head;
	*head = entry;
	table->n++;
}

/* All but one of so many, or all for 0. */
static void thin(struct table *table, uint64_t but)
{
	for (size_t i = 0; i < table->n_heads; i++)
		for (struct entry **at = &table->heads[i]; *at;) {
			struct entry *entry = *at;

			if (but && (entry->hash >> 32) % but == 0) {
				at = &entry->next;
				continue;
			}
			*at = entry->next;
			free(entry->text);
			free(entry);
			table->n--;
		}
}

static void fill_and_drop(uint64_t *state)
{
	struct table table = {0};

	for (int i = 0; i < 2; i++) {
		while (table.n < ENTRIES / 2)
			add(&table, state);
		thin(&table, i ? 0 : 3);
	}
	free(table.heads);
}

int main(int argc, char **argv)
{
	uint64_t state = random_seed(0);
	struct node *trees[LIVING] = {NULL};
	size_t n;

	workload_single(argc, argv);
	n = scaled(OPERATIONS / (NODES + 2 * ENTRIES));
	for (size_t i = 0; i < n; i++) {
		struct node **tree = &trees[random_below(&state, LIVING)];

		delete_tree(*tree);
		*tree = build(&state);
		fill_and_drop(&state);
	}
	for (size_t i = 0; i < LIVING; i++)
		delete_tree(trees[i]);
	return workload_end(n * (NODES + 2 * ENTRIES));
}
