/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/allowance.h"
#include "allocator/options.h"
#include "allocator/span.h"
#include "regpool/budget.h"
#include "regpool/ibverbs.h"
#include "regpool/state.h"

#include <string.h>

bool pin_allowance_left(const struct pin_access_set *set, int64_t n_bytes)
{
	return set->spent + n_bytes <= (int64_t)(pin_span_bytes() / 5 * 6);
}

/* The next slot of an adapter, from the one of that number on. */
static struct pin_domain *next_on(const char *device, uint32_t *i)
{
	while (*i < pin_domain_count() && strcmp(pin_domains[*i].device, device) != 0)
		++*i;
	return *i < pin_domain_count() ? &pin_domains[(*i)++] : NULL;
}

/* What has found room since shows room as well. */
bool pin_allowance_has_room(const struct pin_domain *domain, size_t n_bytes)
{
	size_t ahead = n_bytes, all = 0;
	int64_t room = INT64_MAX;
	struct pin_domain *it;

	for (uint32_t i = 0; (it = next_on(domain->device, &i)); all += it->registered) {
		ahead += it->ahead;
		room = it->room < room ? it->room : room;
	}
	return !pin_budget_excess(n_bytes) && ((int64_t)ahead <= room || ahead <= all / 2);
}

void pin_allowance_note_error(const char *device, int error)
{
	struct pin_domain *it;
	int64_t all = 0;

	if (pin_options.mode != PIN_MODE_EAGER || !pin_ibverbs_out_of_room(error))
		return;
	for (uint32_t i = 0; (it = next_on(device, &i));)
		all += (int64_t)it->registered;
	for (uint32_t i = 0; (it = next_on(device, &i));)
		it->room = all / 2;
}

/* Where the number of memory regions is what is short, the size of a small one says little. */
void pin_allowance_note_own(const char *device, int64_t n_bytes)
{
	int64_t granule = PIN_GRANULE, up = n_bytes < 0 ? 1 - granule : granule - 1;
	struct pin_domain *it;

	for (uint32_t i = 0; (it = next_on(device, &i));)
		if (it->room != INT64_MAX) {
			it->room -= (n_bytes + up) / granule * (granule / 2);
			pin_state_changed();
		}
}
