/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The record of a running process: what its report would say, in a file beside the report's, so
 * that a process that is killed leaves that. The library keeps it current; `pinalloc report`
 * reads it. Numbers are the machine's, and the layout that of one build: `layout` tells.
 *
 * Each part is written by itself, in whole pages, of which a kill cuts none in two.
 */
#ifndef PIN_RUNNING_H
#define PIN_RUNNING_H

#include "preload/figures.h"
#include "regpool/state.h"

#include <stddef.h>
#include <stdint.h>

#define PIN_RUNNING_SUFFIX ".running"
#define PIN_RUNNING_MAGIC  "\177pinalloc-record" /* no text begins so */

#define PIN_RUNNING_PAGE    4096
#define PIN_RUNNING_MOMENTS 512
#define PIN_RUNNING_SITES   28
#define PIN_RUNNING_FRAMES  32
#define PIN_RUNNING_PATHS   8192
#define PIN_RUNNING_JOB	    160

/*
 * A frame: the offset of its module's path in `paths`, where its build id follows, and its own
 * in the module. Without a path it is the address of code in no module, or 0.
 */
#define PIN_RUNNING_FRAME(path, offset) ((uint64_t)(path) << 48 | (offset))
#define PIN_RUNNING_NO_PATH		0xffff

struct pin_running_identity {
	char magic[16];
	uint32_t layout, pid, parent, reserved; /* parent: that forked it, or 0 */
	int64_t rank, nranks;			/* -1 for none */
	int64_t started;			/* since 1970, in seconds */
	char version[32], host[72], job[PIN_RUNNING_JOB], program[256];
};

struct pin_running_now {
	uint64_t number; /* of writes */
	uint64_t elapsed_ns;
	int64_t figures[PIN_FIGURES]; /* -1 where not known */
	uint64_t requests[PIN_REASONS];
	uint32_t n_moments, n_sites;
	uint32_t sites_are_held; /* as peak_sites_kind */
	uint32_t reserved;
	uint64_t same_number; /* else it was read while it was written */
};

struct pin_running_moment {
	uint64_t ns; /* since the beginning */
	uint64_t live, mapped, pinned;
};

struct pin_running_site {
	uint64_t bytes, count, n_frames;
	uint64_t frames[PIN_RUNNING_FRAMES]; /* innermost first */
};

#define PIN_RUNNING_PART __attribute__((aligned(PIN_RUNNING_PAGE)))

struct pin_running {
	struct pin_running_identity identity PIN_RUNNING_PART;
	struct pin_running_now now PIN_RUNNING_PART;
	struct pin_running_moment moments[PIN_RUNNING_MOMENTS] PIN_RUNNING_PART;
	struct {
		struct pin_running_site at[14];
	} PIN_RUNNING_PART sites[PIN_RUNNING_SITES / 14];
	char paths[PIN_RUNNING_PATHS] PIN_RUNNING_PART;
};

/* FNV-1a of what the layout follows from. */
static inline uint32_t pin_running_layout(void)
{
	const uint32_t from[] = {sizeof(struct pin_running),
				 offsetof(struct pin_running_now, requests),
				 offsetof(struct pin_running, moments),
				 offsetof(struct pin_running, sites),
				 offsetof(struct pin_running, paths),
				 PIN_REASONS,
				 PIN_RUNNING_FRAMES};
	uint32_t hash = pin_figures_hash();

	for (size_t i = 0; i < sizeof from / sizeof *from; i++)
		hash = (hash ^ from[i]) * 0x01000193;
	return hash;
}
#define PIN_RUNNING_LAYOUT pin_running_layout()

static inline struct pin_running_site *pin_running_site(struct pin_running *running, size_t i)
{
	return &running->sites[i / 14].at[i % 14];
}

#endif
