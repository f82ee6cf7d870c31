// SPDX-License-Identifier: BSD-2-Clause
//
// answers aligned | new | mallopt: what the functions answer, one call a line, for the same
// to be compared with glibc's and libstdc++'s: whether there is a block, the error, and
// whether the block lies as it has to.
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <malloc.h>
#include <new>

extern "C" void *__libc_memalign(std::size_t alignment, std::size_t n_bytes);

namespace
{

const std::size_t page = 4096, top = SIZE_MAX / 2 + 1;
// Those between cannot be told from each other by every kernel: how much may be mapped is its.
const std::size_t alignments[] = {0,	   1,
				  2,	   3,
				  4,	   5,
				  7,	   8,
				  9,	   15,
				  16,	   17,
				  24,	   31,
				  32,	   33,
				  48,	   63,
				  64,	   100,
				  128,	   1000,
				  4095,	   4096,
				  4097,	   6000,
				  1 << 16, 100000,
				  1 << 20, (1 << 20) + 1,
				  1 << 26, std::size_t(1) << 62,
				  top - 1, top,
				  top + 1, SIZE_MAX - 1,
				  SIZE_MAX};
const std::size_t sizes[] = {0,
			     1,
			     8,
			     15,
			     16,
			     100,
			     4096,
			     4097,
			     100000,
			     3 << 20,
			     PTRDIFF_MAX,
			     top,
			     SIZE_MAX - 2 * page,
			     SIZE_MAX - page - 1,
			     SIZE_MAX - page,
			     SIZE_MAX - page + 1,
			     SIZE_MAX - page + 2,
			     SIZE_MAX - 1,
			     SIZE_MAX};
const int untouched = 4711;

// The alignment glibc gives for one that is asked for.
std::size_t given(std::size_t alignment)
{
	std::size_t power = 16;

	while (power < alignment && power < top)
		power *= 2;
	return power;
}

void say(const char *what, std::size_t alignment, std::size_t size, void *p, int result)
{
	bool lies_well = p && !(reinterpret_cast<std::uintptr_t>(p) & (given(alignment) - 1));

	std::printf("%s(%zu, %zu): %s%s, returns %d, errno %d\n", what, alignment, size,
		    p ? "a block" : "NULL", p && !lies_well ? " that lies wrong" : "", result,
		    errno);
	if (p && size)
		std::memset(p, 1, size);
	std::free(p);
}

template <class F> void call(const char *what, std::size_t alignment, std::size_t size, F f)
{
	errno = untouched;
	say(what, alignment, size, f(alignment, size), 0);
}

void call_posix(std::size_t alignment, std::size_t size)
{
	void *p = nullptr;
	errno = untouched;
	int result = posix_memalign(&p, alignment, size);
	say("posix_memalign", alignment, size, p, result);
}

void answer_aligned()
{
	for (auto size : sizes) {
		for (auto alignment : alignments) {
			call("memalign", alignment, size, memalign);
			call("aligned_alloc", alignment, size, aligned_alloc);
			call("__libc_memalign", alignment, size, __libc_memalign);
			call_posix(alignment, size);
		}
		call("valloc", page, size,
		     [](std::size_t, std::size_t n) { return valloc(n); });
		call("pvalloc", page, size,
		     [](std::size_t, std::size_t n) { return pvalloc(n); });
	}
}

int handled;

void say_new(const char *what, std::size_t alignment, std::size_t size, void *p)
{
	bool lies_well = p && !(reinterpret_cast<std::uintptr_t>(p) & (alignment - 1));

	std::printf("%s(%zu, %zu): %s%s, %d calls of the handler\n", what, size, alignment,
		    p ? "a block" : "none", p && !lies_well ? " that lies wrong" : "", handled);
	::operator delete(p, std::align_val_t(alignment));
}

// Gives up at the third call, as one may that has made room twice.
void handle()
{
	if (++handled == 3)
		throw std::bad_alloc();
}

void call_new(std::size_t alignment, std::size_t size)
{
	void *p = nullptr;

	handled = 0;
	try {
		p = ::operator new(size, std::align_val_t(alignment));
	} catch (const std::bad_alloc &) {
	}
	say_new("new", alignment, size, p);
	handled = 0;
	say_new("new[], nothrow", alignment, size,
		::operator new[](size, std::align_val_t(alignment), std::nothrow));
}

void answer_new()
{
	std::set_new_handler(handle);
	for (auto size : sizes)
		for (auto alignment : alignments)
			// Not 0, which is undefined, nor where older libstdc++ wrap around.
			if (alignment && size <= SIZE_MAX - alignment)
				call_new(alignment, size);
}

void answer_mallopt()
{
	static const struct {
		const char *name;
		int parameter;
	} parameters[] = {{"M_NLBLKS", M_NLBLKS},
			  {"M_GRAIN", M_GRAIN},
			  {"M_KEEP", M_KEEP},
			  {"M_TRIM_THRESHOLD", M_TRIM_THRESHOLD},
			  {"M_TOP_PAD", M_TOP_PAD},
			  {"M_MMAP_THRESHOLD", M_MMAP_THRESHOLD},
			  {"M_MMAP_MAX", M_MMAP_MAX},
			  {"M_CHECK_ACTION", M_CHECK_ACTION},
			  {"M_PERTURB", M_PERTURB},
			  {"M_ARENA_TEST", M_ARENA_TEST},
			  {"M_ARENA_MAX", M_ARENA_MAX},
			  {"0", 0},
			  {"-9", -9},
			  {"-100", -100},
			  {"4711", 4711}};
	static const int values[] = {0,		1,   2,	       8,	 159,
				     160,	161, 1 << 20,  32 << 20, (32 << 20) + 1,
				     INT32_MAX, -1,  INT32_MIN};

	for (const auto &[name, parameter] : parameters)
		for (auto value : values)
			std::printf("mallopt(%s, %d) = %d\n", name, value,
				    mallopt(parameter, value));
}

} // namespace

int main(int, char **argv)
{
	if (!std::strcmp(argv[1], "aligned"))
		answer_aligned();
	else if (!std::strcmp(argv[1], "new"))
		answer_new();
	else
		answer_mallopt();
}
