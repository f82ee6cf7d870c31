// SPDX-License-Identifier: BSD-2-Clause
//
// Holds the operators new to the standard's rules where there is no memory at all; prints TAP.
// To be run with PINALLOC_REGISTER=off, like surface.
#include "test/tap.h"

#include <cstdlib>
#include <dlfcn.h>
#include <new>
#include <sys/resource.h>

namespace
{

const std::size_t mib = 1 << 20;

// What takes memory itself, where there is none.
bool no_dlopen;

bool throws_bad_alloc()
{
	try {
		auto made = operator new(16);
		__asm__ volatile("" : : "r"(&made) : "memory"); // or gcc 10 leaves the call out
	} catch (const std::bad_alloc &) {
		return true;
	}
	return false;
}

} // namespace

// Answers instead of libc's, as long as it is to fail for want of memory.
extern "C" void *dlopen(const char *name, int mode) noexcept
{
	auto real = reinterpret_cast<void *(*)(const char *, int)>(dlsym(RTLD_NEXT, "dlopen"));

	return no_dlopen ? nullptr : real(name, mode);
}

// Not one large request that is refused, but not a byte left for anybody.
int main()
{
	const rlimit limit = {100 * mib, RLIM_INFINITY};
	void **taken = nullptr;
	bool caught;

	setrlimit(RLIMIT_DATA, &limit);
	for (auto size = mib; size >= 16; size -= size > 4096 ? size / 2 : 16) {
		while (auto block = static_cast<void **>(malloc(size))) {
			*block = taken;
			taken = block;
		}
	}
	no_dlopen = true;
	caught = throws_bad_alloc() && !operator new(16, std::nothrow);
	no_dlopen = false;
	while (taken) {
		auto block = taken;
		taken = static_cast<void **>(*block);
		free(block);
	}
	ok(caught, "new throws bad_alloc with no memory left at all");
	return done_testing();
}
