/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The record of a running process: what its report would say now, in a file beside the
 * report's, so that a process that is killed leaves this file. The library writes it; `pinalloc
 * report` reads it.
 *
 * The file has two parts, which are written in turn, so that one of them is always whole. A
 * part is written from its beginning to its end, which is its number again, behind the text. So
 * it is whole if a reader, who reads in that order, too, finds both equal.
 */
#pragma once

#include "allocator/io.h"
#include "allocator/log.h"

#include <stdint.h>
#include <string.h>

#define PIN_RUNNING_SUFFIX  ".running"
#define PIN_RUNNING_PARTS   2
#define PIN_RUNNING_TRIGGER "the process ended without a report"

struct pin_running_part {
	char zero[8];	  /* no text begins so */
	uint64_t number;  /* of the writing; 0: none yet */
	uint64_t n_bytes; /* of the text, a report in JSON */
	char text[128 * 1024 - 24];
};

#define PIN_RUNNING_BYTES(n_bytes) \
	(offsetof(struct pin_running_part, text) + (n_bytes) + sizeof(uint64_t))
#define PIN_RUNNING_MOST (sizeof(struct pin_running_part) - PIN_RUNNING_BYTES(0))

/* Of a process that runs: who started it; when it began, or what executed its program did, in
 * ticks since the boot. */
enum pin_running_fields { PIN_RUNNING_PARENT = 4, PIN_RUNNING_SINCE = 22 };

/* By its name: shells, and what has the rank of what it starts, which is what counts. */
static inline bool pin_is_launcher(const char *program)
{
	static const char names[] = " bash busybox csh dash fish ksh mksh sh tcsh zsh env gdb "
				    "lldb ltrace nice numactl "
				    "perf stdbuf strace taskset time timeout aprun "
				    "hydra_bstrap_proxy hydra_pmi_proxy "
				    "jsrun mpiexec mpiexec.hydra mpirun orted orterun prted "
				    "prterun prun srun torchrun ";
	char word[40];

	pin_format(word, sizeof word, " %s ", program);
	return strstr(names, word);
}

/* These are fields of which the second, a name in parentheses, may hold anything. 0 if the
 * process has ended. */
static inline uint64_t pin_running_field(int pid, int wanted)
{
	char path[64], text[1024], *p;
	uint64_t n = 0;

	pin_format(path, sizeof path, "/proc/%d/stat", pid);
	p = pin_io_read(path, text, sizeof text) > 0 ? strrchr(text, ')') : NULL;
	for (int field = 2; p && field < wanted && !strchr("ZX", p[2]); field++)
		p = strchr(p + 1, ' ');
	while (p && *++p >= '0' && *p <= '9')
		n = n * 10 + (uint64_t)(*p - '0');
	return n;
}
