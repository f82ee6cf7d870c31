/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Twenty buffers of 5 to 25 MiB, of which a random one is replaced again and again: the new
 * one is made, and set to zero, before the old one is freed. What counts is whether the
 * pages behind a buffer are kept. After malloc-large of mimalloc-bench, which does it 2000
 * times.
 *   usage: malloc-large SCALE
 */
#include "workload.h"

#define BUFFERS	   20
#define OPERATIONS 400

int main(int argc, char **argv)
{
	uint64_t state = random_seed(0);
	char *buffers[BUFFERS] = {NULL};
	size_t n;

	workload_single(argc, argv);
	n = scaled(OPERATIONS);
	for (size_t i = 0; i < n; i++) {
		char **buffer = &buffers[random_below(&state, BUFFERS)], *old = *buffer;
		size_t n_bytes = random_between(&state, 5 * MIB, 25 * MIB);

		*buffer = need(malloc(n_bytes));
		memset(*buffer, 0, n_bytes);
		free(old);
	}
	free_all(buffers, BUFFERS);
	return workload_end(n);
}
