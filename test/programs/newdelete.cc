// SPDX-License-Identifier: BSD-2-Clause
//
// newdelete SECTION: holds the operators new and delete to the standard's rules;
// prints TAP. To be run with PINALLOC_REGISTER=off, like surface.
#include "preload/pinalloc.h"
#include "test/tap.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <new>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

namespace
{

const std::size_t mib = 1 << 20;
volatile std::size_t huge = SIZE_MAX / 4; // volatile, or the compiler warns of it

bool in_heap(const void *p, std::size_t size)
{
	auto no_pd = reinterpret_cast<ibv_pd *>(4711);
	pinalloc_key key;

	return p && pinalloc_lookup && pinalloc_lookup(no_pd, p, size, 0, &key) == -ENOMEM;
}

struct alignas(256) Wide {
	char bytes[1000];
};

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

// Filled before main(), by constructors that allocate.
std::map<std::string, std::vector<int>> table = {{"a", {1, 2, 3}},
						 {"b", std::vector<int>(100000, 7)}};

void test_forms()
{
	const auto al = std::align_val_t(512);
	const auto &nt = std::nothrow;
	void *p[9];

	p[0] = operator new(100);
	p[1] = operator new[](100);
	p[2] = operator new(100, nt);
	p[3] = operator new[](100, nt);
	p[4] = operator new(100, al);
	p[5] = operator new[](100, al);
	p[6] = operator new(100, al, nt);
	p[7] = operator new[](100, al, nt);
	p[8] = operator new(512, std::align_val_t(1)); // as std::pmr does
	for (int i = 0; i < 9; i++) {
		auto at = reinterpret_cast<std::uintptr_t>(p[i]);

		ok(in_heap(p[i], 100) && at % (i < 4 || i == 8 ? 16 : 512) == 0,
		   "form %d of new: in the heap, aligned", i);
	}
	operator delete(p[0]);
	operator delete[](p[1]);
	operator delete(p[2], nt);
	operator delete[](p[3], nt);
	operator delete(p[4], al);
	operator delete[](p[5], al);
	operator delete(p[6], al, nt);
	operator delete[](p[7], al, nt);
	operator delete(p[8], std::align_val_t(1));
	operator delete(operator new(3 * mib), 3 * mib);
	operator delete[](operator new[](3 * mib), 3 * mib);
	operator delete(operator new(3 * mib, al), 3 * mib, al);
	operator delete[](operator new[](3 * mib, al), 3 * mib, al);
	operator delete(nullptr);

	auto wide = new Wide[3];
	ok(reinterpret_cast<std::uintptr_t>(wide) % 256 == 0,
	   "an over-aligned type is aligned");
	delete[] wide;
	void *volatile from_new = operator new(100), *volatile from_malloc = malloc(100);
	free(from_new);
	operator delete(from_malloc);
	ok(true, "new and malloc share one heap");
}

void test_huge()
{
	const auto al = std::align_val_t(512);

	ok(throws_bad_alloc([] { return operator new(huge); }), "new throws bad_alloc");
	ok(throws_bad_alloc([] { return operator new[](huge); }), "new[] too");
	ok(throws_bad_alloc([=] { return operator new(huge, al); }), "aligned new too");
	ok(throws_bad_alloc([=] { return operator new[](huge, al); }), "aligned new[] too");
	ok(throws_bad_alloc([] { return std::vector<int>(huge / 16); }),
	   "a vector passes it on");
	ok(!operator new(huge, std::nothrow), "nothrow new returns null");
	ok(!operator new[](huge, std::nothrow), "nothrow new[] too");
	ok(!operator new(huge, al, std::nothrow), "nothrow aligned new too");
	ok(!operator new[](huge, al, std::nothrow), "nothrow aligned new[] too");

	bool caught = false;
	std::thread([&] {
		caught = throws_bad_alloc([] { return operator new(huge); });
	}).join();
	ok(caught, "it can be caught in another thread");
}

int calls;

void third_time_gives_up()
{
	if (++calls == 3)
		std::set_new_handler(nullptr);
}

void throws()
{
	throw std::bad_alloc();
}

void test_handler()
{
	std::set_new_handler(third_time_gives_up);
	ok(throws_bad_alloc([] { return operator new(huge); }) && calls == 3,
	   "the new_handler is called until there is none: %d times", calls);
	std::set_new_handler(throws);
	ok(throws_bad_alloc([] { return operator new(huge); }),
	   "what it throws passes through");
	ok(!operator new(huge, std::nothrow), "but not through nothrow new");
	std::set_new_handler(nullptr);
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
	ok(reserve && throws_bad_alloc([] { return operator new(96 * mib); }),
	   "memory is short");
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

void test_statics()
{
	ok(table["b"].size() == 100000 && table["a"][2] == 3, "constructors ran before main");
	ok(in_heap(table["b"].data(), 100000 * sizeof(int)), "and allocated from the heap");
}

} // namespace

// Answers instead of libc's, as long as it is to fail for want of memory.
extern "C" void *dlopen(const char *name, int mode) noexcept
{
	auto real = reinterpret_cast<void *(*)(const char *, int)>(dlsym(RTLD_NEXT, "dlopen"));

	return no_dlopen ? nullptr : real(name, mode);
}

int main(int argc, char **argv)
{
	const std::map<std::string, void (*)()> sections = {
		{"forms", test_forms}, {"huge", test_huge},	      {"handler", test_handler},
		{"room", test_room},   {"exhausted", test_exhausted}, {"statics", test_statics},
	};
	auto section = sections.find(argc == 2 ? argv[1] : "");

	if (section == sections.end())
		return 2;
	section->second();
	return done_testing();
}
