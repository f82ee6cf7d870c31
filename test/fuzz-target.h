/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A target for test/fuzz, and for fuzz-replay.c with the seeds: takes any text as input, and
 * checks what must hold of the result; a failure ends the process.
 */
#ifndef FUZZ_TARGET_H
#define FUZZ_TARGET_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* libFuzzer's name. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#define must(condition) ((condition) ? (void)0 : must_fail(#condition, __FILE__, __LINE__))

static inline void must_fail(const char *what, const char *file, int line)
{
	fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
	abort();
}

#endif
