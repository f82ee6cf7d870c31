/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/prefill.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/span.h"
#include "regpool/rollout.h"
#include "regpool/touch.h"

PIN_WRITTEN_FIRST static void *(*take_segment)(struct pin_segment_need *need);
PIN_WRITTEN_FIRST static void (*give_segment)(void *segment);
static struct pin_segments_entry prefilled; /* in the list for good, once it is made */

void pin_prefill_init(void *(*take)(struct pin_segment_need *need), void (*give)(void *segment))
{
	take_segment = take;
	give_segment = give;
}

/*
 * New blocks also come from the start of the span, so that is included, unless it is large:
 * then it is registered as it is used.
 */
static struct pin_range extend_to_span_start(struct pin_range range)
{
	const struct pin_span *span = pin_span_find((void *)range.start, 1);

	if (range.start - span->start <= pin_range_length(range))
		range.start = span->start;
	return range;
}

static void make(void *segment, const struct pin_segment_need *need)
{
	struct pin_range range = pin_range_of(segment, need->n_bytes);
	int error;

	prefilled.range = extend_to_span_start(range);
	prefilled.piece = pin_rollout_piece(pin_range_length(prefilled.range));
	pin_segments_add(&prefilled);
	error = pin_touch((void *)prefilled.range.start, pin_range_length(prefilled.range),
			  need->node, 0);
	give_segment(segment);
	if (error)
		pin_warn("PINALLOC_PREALLOC: %s of heap are not reserved: the kernel has less "
			 "memory for this process; reserve less",
			 PIN_SIZE(need->n_bytes));
	if (error)
		pin_segments_remove(&prefilled);
	else
		pin_rollout_segment(&prefilled);
}

/* All or nothing: part of the reserve would not keep the promise. */
static void make_if_allowed(void)
{
	struct pin_segment_need need = {
		.n_bytes = PIN_ALIGN_UP(pin_options.prealloc, PIN_GRANULE),
		.node = PIN_NODE_HERE,
	};
	bool fits = pin_rollout_fits(need.n_bytes);
	void *segment = fits ? take_segment(&need) : NULL;

	if (segment)
		make(segment, &need);
	else
		pin_warn("PINALLOC_PREALLOC: %s of heap are not reserved: %s",
			 PIN_SIZE(need.n_bytes),
			 fits ? "there is not enough memory; reserve less"
			      : "less may be pinned; raise ulimit -l or "
				"PINALLOC_MAX_PINNED, or reserve less");
}

void pin_prefill(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (pin_options.prealloc && take_segment)
		pthread_once(&once, make_if_allowed);
}
