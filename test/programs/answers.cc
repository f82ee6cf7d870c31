// SPDX-License-Identifier: BSD-2-Clause
//
// answers plain | aligned | realloc | new | mallopt: what the functions answer, one call a
// line, to be compared with glibc's and libstdc++'s: whether there is a block, the error, and
// what is wrong with the block. One that is not of the library's heap is "elsewhere". To be run
// with PINALLOC_REGISTER=off: then pinalloc_lookup() needs no device and tells heap (-ENOMEM)
// from the rest (-ENOENT).
//
// All that is usable is written, which _FORTIFY_SOURCE=3 takes for an overflow.
#undef _FORTIFY_SOURCE
#include "preload/pinalloc.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <new>

extern "C" void *__libc_malloc(std::size_t), *__libc_calloc(std::size_t, std::size_t);
extern "C" void *__libc_realloc(void *, std::size_t), *__libc_valloc(std::size_t);
extern "C" void *__libc_memalign(std::size_t, std::size_t), *__libc_pvalloc(std::size_t);
extern "C" void __libc_free(void *);

namespace
{

using size_t = std::size_t;

const size_t page = 4096, mib = 1 << 20, most = SIZE_MAX, top = most / 2 + 1,
	     near = most - page;
// Those between cannot be told from each other by every kernel: how much may be mapped is its.
const size_t alignments[] = {
	0,	 1,    2,	3,	  4,   5,	7,	 8,
	9,	 15,   16,	17,	  24,  31,	32,	 33,
	48,	 63,   64,	100,	  128, 1000,	4095,	 4096,
	4097,	 6000, 1 << 16, 100000,	  mib, mib + 1, 1 << 22, size_t(1) << 62,
	top - 1, top,  top + 1, most - 1, most};
const size_t sizes[] = {0,    1,	8,	  15,	       16,  100,	 4096,
			4097, 100000,	300000,	  PTRDIFF_MAX, top, near - page, near - 1,
			near, near + 1, near + 2, most - 1,    most};
const size_t more_sizes[] = {1000, 5000, 20000, mib, 12 * mib};
// Volatile, or the compiler would warn of what is tried here on purpose.
volatile size_t two_to_32 = size_t(1) << 32;
const auto &nt = std::nothrow;
const int untouched = 4711;

// The alignment glibc gives for one that is asked for.
size_t given(size_t alignment)
{
	size_t power = 16;

	while (power < alignment && power < top)
		power *= 2;
	return power;
}

const char *described(void *p, size_t alignment, size_t size)
{
	auto no_pd = reinterpret_cast<ibv_pd *>(4711);
	auto usable = malloc_usable_size(p);
	pinalloc_key key;

	if (!p)
		return "NULL";
	if (reinterpret_cast<std::uintptr_t>(p) & (alignment - 1))
		return "a block that lies wrong";
	// glibc leaves a block that shrinks on its page.
	if (usable < size || usable > 2 * (size + alignment) + (pinalloc_lookup ? 16 : page))
		return "a block of a wrong size";
	if (!pinalloc_lookup || pinalloc_lookup(no_pd, p, usable, 0, &key) != -ENOMEM)
		return "a block elsewhere";
	return "a block";
}

// Fills all of the block, and frees it.
void say(const char *what, size_t alignment, size_t size, void *p, int result, size_t lies)
{
	std::printf("%s(%zu, %zu): %s, returns %d, errno %d", what, alignment, size,
		    described(p, lies, size), result, errno);
	if (p)
		std::memset(p, 1, malloc_usable_size(p));
	errno = untouched;
	alignment % 2 ? std::free(p) : __libc_free(p);
	std::puts(errno == untouched ? "" : ", free changes errno");
}

template <class F> void call(const char *what, size_t alignment, size_t size, F f)
{
	errno = untouched;
	say(what, alignment, size, f(alignment, size), 0, given(alignment));
}

// Where blocks of the size have been filled before.
void *zeroed(void *p, size_t size)
{
	auto bytes = static_cast<char *>(p);

	if (p && std::count(bytes, bytes + size, 0) != static_cast<std::ptrdiff_t>(size))
		std::puts("not zero");
	return p;
}

// With how many elements there are in the place of an alignment.
template <class F> void call_plain(const char *what, size_t n, size_t size, F f)
{
	errno = untouched;
	say(what, n, size * n, f(n, size), 0, size < 16 ? 8 : 16);
}

// Arrays of so many elements.
void answer_arrays(size_t n, size_t size)
{
	call_plain("calloc", n, size,
		   [](size_t m, size_t s) { return zeroed(calloc(m, s), m * s); });
	call_plain("__libc_calloc", n, size, __libc_calloc);
	call_plain("reallocarray", n, size,
		   [](size_t m, size_t s) { return reallocarray(nullptr, m, s); });
}

void answer_plain(size_t size)
{
	call_plain("malloc", 1, size, [](size_t, size_t n) { return malloc(n); });
	call_plain("__libc_malloc", 1, size, [](size_t, size_t n) { return __libc_malloc(n); });
	call_plain("realloc", 1, size, [](size_t, size_t n) { return realloc(nullptr, n); });
	call_plain("__libc_realloc", 1, size,
		   [](size_t, size_t n) { return __libc_realloc(nullptr, n); });
	for (size_t n : {0, 1, 3})
		answer_arrays(n, size);
}

void answer_all_plain()
{
	for (auto size : sizes)
		answer_plain(size);
	for (auto size : more_sizes)
		answer_plain(size);
	answer_arrays(two_to_32, two_to_32);
	answer_arrays(two_to_32 + 1, two_to_32);
	answer_arrays(two_to_32 * 2, two_to_32 / 2);
}

void call_posix(size_t alignment, size_t size)
{
	void *const before = &errno;
	void *p = before;
	errno = untouched;
	int result = posix_memalign(&p, alignment, size);
	say(p == before ? "posix_memalign leaves the pointer" : "posix_memalign", alignment,
	    size, p == before ? nullptr : p, result, given(alignment));
}

void answer_aligned()
{
	for (auto size : sizes) {
		auto whole = size > SIZE_MAX - page ? size : (size + page - 1) / page * page;

		for (auto alignment : alignments) {
			call("memalign", alignment, size, memalign);
			call("aligned_alloc", alignment, size, aligned_alloc);
			call("__libc_memalign", alignment, size, __libc_memalign);
			call_posix(alignment, size);
		}
		call("valloc", page, size, [](size_t, size_t n) { return valloc(n); });
		call("__libc_valloc", page, size,
		     [](size_t, size_t n) { return __libc_valloc(n); });
		call("pvalloc", page, whole, [=](size_t, size_t) { return pvalloc(size); });
		call("__libc_pvalloc", page, whole,
		     [=](size_t, size_t) { return __libc_pvalloc(size); });
	}
}

void answer_realloc()
{
	auto p = static_cast<char *>(malloc(100));

	for (auto size :
	     {size_t(1000), size_t(10), size_t(5000), top, 40 * mib, near, size_t(4097),
	      3 * mib, most, size_t(100), size_t(300000), size_t(two_to_32)}) {
		auto usable = malloc_usable_size(p);
		std::memset(p, 7, usable);
		errno = untouched;
		void *q = size == two_to_32 ? reallocarray(p, size, size) : realloc(p, size);
		int error = errno;
		p = q ? static_cast<char *>(q) : p;
		auto end = p + (q ? std::min(usable, size) : usable);
		std::printf("realloc to %zu: %s, errno %d%s\n", size, described(q, 16, size),
			    error,
			    std::count(p, end, 7) == end - p ? "" : ", contents are lost");
	}
	errno = untouched;
	std::printf("realloc to 0: %d", !realloc(p, 0));
	std::printf(", errno %d\n", errno);
}

// Every form of new, with a form of delete for its blocks.
#define FORM(name, is_aligned, made, deleted)                                                \
	{                                                                                    \
		name, is_aligned,                                                            \
			[]([[maybe_unused]] size_t n,                                        \
			   [[maybe_unused]] std::align_val_t to) -> void * { return made; }, \
			[](void *p, [[maybe_unused]] size_t n,                               \
			   [[maybe_unused]] std::align_val_t to) { deleted; }                \
	}
const struct form {
	const char *name;
	bool is_aligned;
	void *(*make)(size_t n, std::align_val_t to);
	void (*unmake)(void *p, size_t n, std::align_val_t to);
} forms[] = {
	FORM("new, freed", false, operator new(n), free(p)),
	FORM("malloc, deleted", false, malloc(n), operator delete(p)),
	FORM("new", false, operator new(n), operator delete(p, n)),
	FORM("new[]", false, operator new[](n), operator delete[](p)),
	FORM("new[]", false, operator new[](n), operator delete[](p, n)),
	FORM("new, nothrow", false, operator new(n, nt), operator delete(p, nt)),
	FORM("new[], nothrow", false, operator new[](n, nt), operator delete[](p, nt)),
	FORM("new", true, operator new(n, to), operator delete(p, to)),
	FORM("new", true, operator new(n, to), operator delete(p, n, to)),
	FORM("new[]", true, operator new[](n, to), operator delete[](p, to)),
	FORM("new[]", true, operator new[](n, to), operator delete[](p, n, to)),
	FORM("new, nothrow", true, operator new(n, to, nt), operator delete(p, to, nt)),
	FORM("new[], nothrow", true, operator new[](n, to, nt), operator delete[](p, to, nt)),
};

int handled;

// Gives up at the third call, as one may that has made room twice.
void handle()
{
	if (++handled == 3)
		throw std::bad_alloc();
}

void call_new(const form &form, size_t alignment, size_t size)
{
	auto to = std::align_val_t(alignment);
	const char *what;

	handled = 0;
	try {
		auto p = form.make(size, to);
		what = described(p, form.is_aligned ? alignment : 8, size);
		form.unmake(p, size, to);
	} catch (const std::bad_alloc &) {
		what = "throws";
	}
	std::printf("%s(%zu, %zu): %s, %d calls of the handler\n", form.name, size,
		    form.is_aligned ? alignment : 0, what, handled);
}

void answer_new()
{
	for (auto size : sizes)
		for (const auto &form : forms)
			for (auto alignment : alignments)
				// Not 0, which is undefined, nor where older libstdc++ wrap
				// around.
				if (form.is_aligned ? alignment && size <= SIZE_MAX - alignment
						    : alignment == 1)
					call_new(form, alignment, size);
}

void answer_mallopt()
{
	static const int parameters[] = {M_NLBLKS,    M_GRAIN,
					 M_KEEP,      M_TRIM_THRESHOLD,
					 M_TOP_PAD,   M_MMAP_THRESHOLD,
					 M_MMAP_MAX,  M_CHECK_ACTION,
					 M_PERTURB,   M_ARENA_TEST,
					 M_ARENA_MAX, 0,
					 -9,	      -100,
					 4711};
	static const int values[] = {0,		1,   2,	       8,	 159,
				     160,	161, 1 << 20,  32 << 20, (32 << 20) + 1,
				     INT32_MAX, -1,  INT32_MIN};

	for (auto parameter : parameters)
		for (auto value : values)
			std::printf("mallopt(%d, %d) = %d\n", parameter, value,
				    mallopt(parameter, value));
}

} // namespace

int main(int, char **argv)
{
	static const struct {
		const char *name;
		void (*answer)();
	} sections[] = {{"plain", answer_all_plain},
			{"aligned", answer_aligned},
			{"realloc", answer_realloc},
			{"new", answer_new},
			{"mallopt", answer_mallopt}};

	std::set_new_handler(handle);
	for (const auto &[name, answer] : sections)
		if (!std::strcmp(argv[1], name))
			answer();
}
