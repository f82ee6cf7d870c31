/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Small objects that last, made between buffers of 256 KiB to 8 MiB that do not: a
 * survivor beside each buffer must not keep the heap from using the room again.
 *   usage: survivors SCALE    about 150 MiB * SCALE are live at the peak
 */
#include "peak.h"

#define ROUNDS	 3000
#define BUFFERS	 40
#define SURVIVOR 100 /* bytes */
#define BESIDE	 4   /* survivors a round */

struct buffer {
	char *bytes;
	size_t n;
};

static char *survivors[ROUNDS * BESIDE];
static size_t n_survivors;

static void survive(void)
{
	for (int i = 0; i < BESIDE / 2; i++)
		survivors[n_survivors++] = peak_take(SURVIVOR);
}

static void replace(struct buffer *buffer, uint64_t *state)
{
	peak_free(buffer->bytes, buffer->n);
	survive();
	buffer->n = random_log(state, 18, 23);
	buffer->bytes = peak_take_pages(buffer->n);
	survive();
}

int main(int argc, char **argv)
{
	struct buffer *buffers;
	uint64_t state = random_seed(0);
	size_t n_buffers;

	workload_single(argc, argv);
	n_buffers = scaled(BUFFERS);
	buffers = need(calloc(n_buffers, sizeof *buffers));
	for (size_t i = 0; i < ROUNDS; i++)
		replace(&buffers[random_below(&state, n_buffers)], &state);
	for (size_t i = 0; i < n_buffers; i++)
		peak_free(buffers[i].bytes, buffers[i].n);
	free(buffers);
	free_all(survivors, n_survivors);
	return peak_end();
}
