// SPDX-License-Identifier: BSD-2-Clause
// A C++ library for host: asks for a block where there is no memory at all.
#include <cstdlib>
#include <new>
#include <sys/resource.h>

static void *volatile keep;

extern "C" const char *attempt()
{
	const rlimit limit = {100 << 20, RLIM_INFINITY};
	void **taken = nullptr;

	try {
		throw 0; // the first one allocates
	} catch (int) {
	}
	setrlimit(RLIMIT_DATA, &limit);
	for (int size = 1 << 20; size >= 16; size -= size > 4096 ? size / 2 : 16)
		while (auto block = static_cast<void **>(std::malloc(size))) {
			*block = taken;
			taken = block;
		}
	try {
		for (;;) // until what the library keeps for the first such call is used up, too
			keep = operator new(16);
	} catch (const std::bad_alloc &) {
	}
	while (taken) {
		auto block = taken;
		taken = static_cast<void **>(*block);
		std::free(block);
	}
	return "caught bad_alloc";
}
