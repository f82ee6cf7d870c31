/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "test/fake-kernel.h"
#include "allocator/cgroup.h"
#include "allocator/resident.h"
#include "allocator/os.h"
#include "regpool/domain.h"
#include "regpool/granule.h"
#include "regpool/watch.h"

bool __wrap_pin_watch_start(void);
size_t __wrap_pin_os_memlock_limit(void);
size_t __wrap_pin_os_ram(void);
size_t __real_pin_os_ram(void);
size_t __real_pin_cgroup_limit(void);
int __real_pin_os_resident(const void *addr, size_t n_pages, unsigned char *is_there);
bool __real_pin_resident_count(uintptr_t addr, size_t n_pages, size_t n_runs, uint32_t *counts);

/* Indexed from the base of the heap. */
#define MOST_GRANULES ((size_t)1 << 20)
#define N_PAGES	      (PIN_GRANULE / PIN_PAGE)

struct fake_kernel fake_kernel = {.memlock = SIZE_MAX};

static _Atomic uint16_t touched[MOST_GRANULES]; /* pages */

/* Nothing but the heap. */
bool __wrap_pin_watch_start(void)
{
	return false;
}

void fake_replace(const void *addr, size_t n_bytes)
{
	pin_watch_pending = 1;
	pin_domain_withdraw(pin_range_of(addr, n_bytes), true);
	pin_watch_pending = 0;
	pin_os_wake(&pin_watch_pending);
}

size_t __wrap_pin_os_memlock_limit(void)
{
	return fake_kernel.memlock;
}

size_t __wrap_pin_os_ram(void)
{
	return fake_kernel.ram ? fake_kernel.ram : __real_pin_os_ram();
}

size_t __wrap_pin_cgroup_limit(void)
{
	size_t cgroup = fake_kernel.cgroup, ram = __wrap_pin_os_ram();

	return !cgroup ? __real_pin_cgroup_limit() : cgroup < ram ? cgroup : ram;
}

void fake_touch(const void *addr, size_t n_bytes)
{
	struct pin_range range = pin_range_granules(pin_range_of(addr, n_bytes));

	for (uintptr_t p = range.start; p < range.end; p += PIN_GRANULE)
		touched[pin_granule_of(p)] = N_PAGES;
}

void fake_touch_half(const void *addr)
{
	touched[pin_granule_of((uintptr_t)addr)] = N_PAGES / 2;
}

bool fake_is_touched(const void *addr)
{
	return touched[pin_granule_of((uintptr_t)addr)] == N_PAGES;
}

int __wrap_pin_os_resident(const void *addr, size_t n_pages, unsigned char *is_there)
{
	fake_kernel.looks++;
	if (!fake_kernel.keeps_memory)
		return __real_pin_os_resident(addr, n_pages, is_there);
	for (size_t i = 0; i < n_pages; i++) {
		uintptr_t at = (uintptr_t)addr + i * PIN_PAGE;

		is_there[i] = at % PIN_GRANULE / PIN_PAGE < touched[pin_granule_of(at)];
	}
	return 0;
}

/* Asked of ranges within a granule each, the first pages of which are touched. */
bool __wrap_pin_resident_count(uintptr_t addr, size_t n_pages, size_t n_runs, uint32_t *counts)
{
	fake_kernel.looked_at += n_runs * n_pages * PIN_PAGE;
	if (!fake_kernel.keeps_memory)
		return __real_pin_resident_count(addr, n_pages, n_runs, counts);
	for (size_t i = 0; i < n_runs; i++) {
		uintptr_t at = addr + i * n_pages * PIN_PAGE;
		size_t n = touched[pin_granule_of(at)], first = at % PIN_GRANULE / PIN_PAGE;

		n = n > first ? n - first : 0;
		counts[i] = (uint32_t)(n < n_pages ? n : n_pages);
	}
	return true;
}
