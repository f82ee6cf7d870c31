// SPDX-License-Identifier: BSD-2-Clause
//
// newdelete room | exhausted: holds the operators new and delete to the standard's rules;
// prints TAP. To be run with PINALLOC_REGISTER=off, like surface.
#include "test/tap.h"

#include <cstdlib>
#include <dlfcn.h>
#include <new>
#include <string>
#include <sys/resource.h>
#include <thread>

namespace
{

const std::size_t mib = 1 << 20;

template <class F> bool throws_bad_alloc(F f)
{
	try {
		auto made = f();
		__asm__ volatile("" : : "r"(&made) : "memory"); // or gcc 10 leaves the call out
	} catch (const std::bad_alloc &) {
		return true;
	}
	return false;
}

void *reserve;

void gives_up_reserve()
{
	free(reserve);
	reserve = nullptr;
	std::set_new_handler(nullptr);
}

// Memory for one large block, which is taken; the handler gives it back.
void test_room()
{
	const rlimit limit = {150 * mib, RLIM_INFINITY};

	setrlimit(RLIMIT_DATA, &limit);
	reserve = malloc(96 * mib);
	bool caught = false;
	std::thread([&] {
		caught = throws_bad_alloc([] { return operator new(96 * mib); });
	}).join();
	ok(reserve && caught, "memory is short, also in another thread");
	std::set_new_handler(gives_up_reserve);
	void *p = operator new(96 * mib);
	ok(p, "new succeeds with what the handler freed");
	reserve = p;
	std::set_new_handler(gives_up_reserve);
	p = operator new(96 * mib, std::nothrow);
	ok(p, "and so does nothrow new");
	operator delete(p);
}

// What takes memory itself, where there is none.
bool no_dlopen;

// Not one large request that is refused, but not a byte left for anybody.
void test_exhausted()
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
	caught = throws_bad_alloc([] { return operator new(16); }) &&
		 !operator new(16, std::nothrow);
	no_dlopen = false;
	while (taken) {
		auto block = taken;
		taken = static_cast<void **>(*block);
		free(block);
	}
	ok(caught, "new throws bad_alloc with no memory left at all");
}

} // namespace

// Answers instead of libc's, as long as it is to fail for want of memory.
extern "C" void *dlopen(const char *name, int mode) noexcept
{
	auto real = reinterpret_cast<void *(*)(const char *, int)>(dlsym(RTLD_NEXT, "dlopen"));

	return no_dlopen ? nullptr : real(name, mode);
}

int main(int, char **argv)
{
	argv[1] == std::string("room") ? test_room() : test_exhausted();
	return done_testing();
}
