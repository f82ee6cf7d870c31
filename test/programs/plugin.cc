// SPDX-License-Identifier: BSD-2-Clause
// A C++ library for host: asks for more than there is, at once and bit by bit.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <sys/resource.h>

static void *volatile keep;
static volatile std::size_t huge = SIZE_MAX / 4;

static bool at_once()
{
	try {
		delete[] new char[huge];
	} catch (const std::bad_alloc &) {
		return true;
	}
	return false;
}

static bool bit_by_bit()
{
	const rlimit limit = {100 << 20, RLIM_INFINITY};
	void **taken = nullptr;
	bool caught = false;

	try {
		throw 0; // the first one allocates
	} catch (int) {
	}
	setrlimit(RLIMIT_DATA, &limit);
	for (int size = 1 << 20; size >= 16; size -= size > 4096 ? size / 2 : 16) {
		while (auto block = static_cast<void **>(std::malloc(size))) {
			*block = taken;
			taken = block;
		}
	}
	try {
		for (;;) /* until what the library keeps for the first such call is used up, too
			  */
			keep = operator new(16);
	} catch (const std::bad_alloc &) {
		caught = true;
	}
	while (taken) {
		auto block = taken;
		taken = static_cast<void **>(*block);
		std::free(block);
	}
	return caught;
}

extern "C" const char *attempt(const char *how)
{
	return (*how == 'o' ? at_once() : bit_by_bit()) ? "caught bad_alloc" : "nothing thrown";
}
