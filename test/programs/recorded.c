/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * recorded FILE: allocates and frees blocks of many sizes, ever more, until it is killed, and
 * keeps in FILE, which stays when it is, the highest sum of what it has held, in bytes.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLOCKS 4096
#define BASE   ((size_t)64 << 20)

static char *blocks[BLOCKS];
static size_t lengths[BLOCKS]; /* as the report counts them */
static size_t held;

static void take(size_t i, uint64_t random, volatile uint64_t *most)
{
	/* Up to 256 KiB, most of them small. */
	size_t n = (size_t)1 << (4 + random % 15) | (random >> 8 & 0xf);

	blocks[i] = memset(malloc(n), 1, n);
	/* Large blocks count with what was asked for, small ones with what they have. */
	lengths[i] = n > 32768 ? n : malloc_usable_size(blocks[i]);
	held += lengths[i];
	if (held > *most)
		*most = held;
}

int main(int argc, char **argv)
{
	uint64_t random = (uint64_t)getpid();
	volatile uint64_t *most;
	int fd = argc > 1 ? open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0666) : -1;

	alarm(60);
	/* So that one block more or less is within a hundredth. */
	if (!malloc(BASE))
		return 2;
	held = BASE;
	if (ftruncate(fd, sizeof *most))
		return 2;
	most = mmap(NULL, sizeof *most, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	for (size_t limit = 16 * 16;; limit += limit < 16 * BLOCKS) {
		size_t i;

		random = random * 6364136223846793005u + 1442695040888963407u;
		i = (random >> 33) % (limit / 16);
		if (!blocks[i]) {
			take(i, random >> 20, most);
			continue;
		}
		held -= lengths[i];
		free(blocks[i]);
		blocks[i] = NULL;
	}
}
