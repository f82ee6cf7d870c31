#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: C++ allocates from the same heap, by the rules of the standard, and a C program does not
# need libstdc++ for that.

setup() {
	load helper
}

# newdelete SECTION: runs the checks of one section under the library.
newdelete() {
	passes newdelete "$1"
}

@test "new and delete keep the rules of the standard" {
	rows newdelete <<- 'END'
		room: the new_handler can make room; new throws if there is none, also in a thread
		exhausted: with no memory left at all, new still throws
		statics: static constructors allocate before main
	END
}

@test "every form of new behaves as libstdc++'s, with a handler, also for invalid alignments; delete takes its blocks" {
	cd "$BATS_TEST_TMPDIR"
	"$programs/answers" new > plain
	[ "$(grep -c 'a block elsewhere' plain)" -gt 600 ]
	[ "$(grep -c 'throws, 3 calls' plain)" -gt 100 ]
	diff <(sed 's/ elsewhere//' plain) <(preloaded PINALLOC_REGISTER=off "$programs/answers" new)
}

@test "a program that replaces the plain operators alone gets the other forms by these" {
	"${CXX:-g++}" -std=c++17 -w -fno-builtin -o "$BATS_TEST_TMPDIR/replaces" -x c++ - <<- 'END'
		#include <algorithm>
		#include <cstdint>
		#include <cstdlib>
		#include <new>
		#include <vector>

		static int held;

		// Each block has its alignment before it.
		static void *take(std::size_t n, std::size_t alignment)
		{
			char *p = (char *)std::aligned_alloc(64, (n + 191) / 64 * 64);

			if (!p)
				throw std::bad_alloc();
			*(std::size_t *)(p + 56) = alignment;
			held++;
			return p + 64;
		}

		static void give(void *p, std::size_t alignment)
		{
			if (!p)
				return;
			p = (char *)p - 64;
			if (*(std::size_t *)((char *)p + 56) != alignment)
				std::_Exit(3);
			*(std::size_t *)((char *)p + 56) = 0;
			held--;
			std::free(p);
		}

		void *operator new(std::size_t n) { return take(n, 1); }
		void operator delete(void *p) noexcept { give(p, 1); }
		void *operator new(std::size_t n, std::align_val_t to) { return take(n, (std::size_t)to); }
		void operator delete(void *p, std::align_val_t to) noexcept { give(p, (std::size_t)to); }

		template <class T> static void use()
		{
			delete new T;
			delete[] new T[3];
			delete new (std::nothrow) T;
			delete[] new (std::nothrow) T[3];
			if (new (std::nothrow) char[SIZE_MAX / 4])
				std::_Exit(4);
		}

		struct Plain { char bytes[100]; ~Plain() {} };
		struct alignas(64) Aligned { char bytes[64]; ~Aligned() {} };

		static void use_all()
		{
			std::vector<int> numbers(1000);

			use<Plain>();
			use<Aligned>();
			std::stable_sort(numbers.begin(), numbers.end());
			operator delete(operator new(10), std::nothrow);
			operator delete[](operator new[](10), std::nothrow);
			operator delete(operator new(10, std::align_val_t(64)), std::align_val_t(64), std::nothrow);
			operator delete[](operator new[](10, std::align_val_t(64)), std::align_val_t(64), std::nothrow);
		}

		int main()
		{
			use_all();
			return held != 0;
		}
	END
	"$BATS_TEST_TMPDIR/replaces"
	run -0 preloaded "$BATS_TEST_TMPDIR/replaces"
}

@test "without the library these checks fail" {
	run -1 "$programs/newdelete" statics
	[[ "$output" == *"not ok"* ]]
}

@test "a C++ library loaded by a C program with RTLD_LOCAL can throw bad_alloc" {
	local plugin=$BATS_TEST_TMPDIR/plugin.so
	"${CXX:-g++}" -shared -fPIC -o "$plugin" "$top_srcdir/test/programs/plugin.cc"
	run -0 preloaded "$programs/host" "$plugin"
	[ "$output" = "caught bad_alloc" ]
}

@test "a C program does not load libstdc++" {
	run -0 env LD_PRELOAD="$library" LD_TRACE_LOADED_OBJECTS=1 "$programs/host"
	[[ "$output" == *libpinalloc.so* ]]
	[[ "$output" != *libstdc++* ]]
	run -0 env LD_PRELOAD=libjemalloc.so.2 LD_TRACE_LOADED_OBJECTS=1 "$programs/host"
	[[ "$output" == *libstdc++* ]]
}

@test "if new can neither allocate nor throw, the program ends; one that reports prints its stack" {
	run preloaded PINALLOC_REPORT="$BATS_TEST_TMPDIR/out.json" python3 -c 'import ctypes
new = ctypes.CDLL(None)._Znwm
new.argtypes = [ctypes.c_size_t]
new(1 << 62)'
	[ "$status" -eq 134 ]
	[[ "$output" == *"operator new has no memory and finds no libstdc++"* ]]
	[[ "$output" == *"  at "*_ctypes* ]]
}
