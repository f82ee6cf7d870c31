/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Twenty buffers of 5 to 25 MiB, of which a random one is replaced again and again; each
 * page is written to once. What counts is whether the pages behind a buffer are kept.
 *   usage: large-churn SCALE
 */
#include "workload.h"

#define BUFFERS	   20
#define OPERATIONS 300

int main(int argc, char **argv)
{
	uint64_t state = random_seed(0);
	char *buffers[BUFFERS] = {NULL};
	size_t n;

	workload_single(argc, argv);
	n = scaled(OPERATIONS);
	for (size_t i = 0; i < n; i++) {
		char **buffer = &buffers[random_below(&state, BUFFERS)];

		free(*buffer);
		*buffer = take_pages(random_between(&state, 5 * MIB, 25 * MIB));
	}
	free_all(buffers, BUFFERS);
	return workload_end(n);
}
