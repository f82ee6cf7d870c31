/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/sample.h"
#include "allocator/large.h"
#include "allocator/os.h"

/* Bytes until the calling thread's next sample, and what it draws them from: 0 at first. */
static __thread size_t left __attribute__((tls_model("initial-exec")));
static __thread uint64_t random_state __attribute__((tls_model("initial-exec")));

/* Below PINALLOC_SAMPLE. xorshift64*. */
static size_t draw(void)
{
	uint64_t x = random_state;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	random_state = x;
	return (x * 0x2545f4914f6cdd1d >> 11) % pin_options.sample;
}

bool pin_sample_picks(size_t n_bytes)
{
	size_t interval = pin_options.sample;

	if (n_bytes >= interval / 2)
		return true;
	if (!random_state) {
		random_state = ((uintptr_t)&left ^ pin_os_now_ns()) | 1;
		left = draw();
	}
	if (PIN_LIKELY(n_bytes <= left)) {
		left -= n_bytes;
		return false;
	}
	left += interval / 2 + draw() - n_bytes;
	return true;
}

static void add(struct pin_sample sample, double sign)
{
	double count = sign;

	if (sample.n_bytes < pin_options.sample / 2)
		count *= (double)pin_options.sample / (double)sample.n_bytes;
	pin_sites_add_held(sample.site,
			   (struct pin_held){count * (double)sample.n_bytes, count});
}

static _Atomic uint16_t *site_of(const void *block)
{
	return &pin_page(pin_page_of(block))->site;
}

struct pin_sample pin_sample_of(const void *block)
{
	uint32_t number = pin_options.sample ? *site_of(block) : 0;

	return (struct pin_sample){number ? pin_sites_get(number - 1) : NULL,
				   pin_large_asked(block)};
}

void pin_sample_new(void *block, bool picked)
{
	struct pin_sample sample = {picked ? pin_sites_here() : NULL, pin_large_asked(block)};

	*site_of(block) = sample.site ? (uint16_t)(sample.site->number + 1) : 0;
	if (sample.site)
		add(sample, 1);
}

void pin_sample_freed(struct pin_sample sample)
{
	if (sample.site)
		add(sample, -1);
}
