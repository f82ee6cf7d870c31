/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/heap.h"
#include "allocator/jemalloc.h"
#include "allocator/live.h"
#include "allocator/reserve.h"
#include "allocator/span.h"

#include <stdlib.h>

#include <jemalloc/jemalloc.h>

/*
 * jemalloc reads this after the user's MALLOC_CONF and /etc/malloc.conf, so for
 * the keys it names none of them can undo the promise (jemalloc 5.3.0,
 * src/jemalloc.c, malloc_conf_init). The reasons:
 *   retain                   freed ranges are kept and reused
 *   dirty_decay_ms -1        nothing is ever purged: freed pages go where they can be
 *                            allocated again at once (extents.c)
 *   muzzy_decay_ms 0         there is no second stage to search
 *   oversize_threshold       no separate arena for large blocks
 *   dss                      no sbrk, whose memory is outside the reserve
 *   hpa, background_thread   features that return memory
 *   san_guard_*              inaccessible pages between blocks cannot be pinned
 */
const char *malloc_conf_2_conf_harder =
	"retain:true,dirty_decay_ms:-1,muzzy_decay_ms:0,oversize_threshold:0,dss:disabled,"
	"hpa:false,background_thread:false,san_guard_small:0,san_guard_large:0";

/*
 * jemalloc reads this before the three above, so each of them may override it. It is local
 * (pinalloc.map): an older jemalloc that a program is linked with would complain of keys that it
 * does not know, and a program's own is for that. All values were chosen by measuring with
 * bench/allocators:
 *   slab_sizes               pages of a slab. From 80 B, fewer than jemalloc's three to
 *                            seven: the fewer blocks share a slab, the sooner all of them are
 *                            free and its pages can serve any size. One page where two hold
 *                            hardly more than twice as many blocks. For 16 to 64 B, more than
 *                            jemalloc's: 64 blocks and more share a page anyway, and slabs
 *                            are allocated and freed less often. With pages of 64 KiB the
 *                            same for blocks 16 times as large, and one page for smaller ones
 *   *nslots*                 more blocks in a thread's cache than in two slabs, and up to 800
 *                            for the smallest: fewer trips to the depot and to the slabs
 *   tcache_gc_incr_bytes     check the cache every 256 KiB, not every 64
 */
#if JE_PAGE_SHIFT == 12
#define SLAB_SIZES                                                                           \
	"16-16:2|32-32:4|48-48:6|64-64:8|80-80:1|96-96:1|112-112:1|128-128:2|160-160:1|"     \
	"192-192:1|224-224:1|320-320:2|384-384:2|448-448:1|640-640:3|896-896:2|1280-1280:2|" \
	"1792-1792:4"
#else
#define SLAB_SIZES                                                                  \
	"1-4096:1|5120-5120:2|6144-6144:2|7168-7168:1|10240-10240:3|14336-14336:2|" \
	"20480-20480:2|28672-28672:4"
#endif
const char *malloc_conf =
	"slab_sizes:" SLAB_SIZES ","
	"lg_tcache_nslots_mul:3,tcache_nslots_small_max:800,tcache_gc_incr_bytes:262144";

void pin_heap_stats(struct pin_heap_stats *stats)
{
	stats->live = pin_live_now();
	stats->mapped = pin_span_bytes();
	/* Other threads may have freed more than is counted yet. */
	if (stats->live > stats->mapped)
		stats->live = stats->mapped;
}

enum pin_heap_answer pin_heap_probe(void)
{
	void *volatile p = malloc(1); /* volatile, or the compiler would remove the call */
	enum pin_heap_answer answer = pin_reserve_contains(p) ? PIN_HEAP_OURS
							      : PIN_HEAP_FOREIGN;

	if (!p)
		return PIN_HEAP_NOTHING;
	free(p);
	return answer;
}

void pin_heap_print(void (*write)(void *arg, const char *text), void *arg)
{
	malloc_stats_print(write, arg, "a");
}
