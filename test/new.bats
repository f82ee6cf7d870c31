#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: C++ allocates from the same heap, by the rules of the standard, and a C program does not
# need libstdc++ for that.
load helper

@test "with no memory left at all, new still throws" {
	passes newdelete
}

@test "every form of new behaves as libstdc++'s, with a handler, also for invalid alignments; delete takes its blocks" {
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

		// Of each kind, which are in use, and have been made.
		static int plain, aligned, all;

		static void *take(std::size_t n, int &kind)
		{
			void *p = std::aligned_alloc(64, (n + 63) / 64 * 64);

			if (!p)
				throw std::bad_alloc();
			kind++, all++;
			return p;
		}

		static void give(void *p, int &kind)
		{
			kind -= p != nullptr;
			std::free(p);
		}

		void *operator new(std::size_t n) { return take(n, plain); }
		void operator delete(void *p) noexcept { give(p, plain); }
		void *operator new(std::size_t n, std::align_val_t) { return take(n, aligned); }
		void operator delete(void *p, std::align_val_t) noexcept { give(p, aligned); }

		template <class T> static void use()
		{
			delete new T;
			delete[] new T[3];
			delete new (std::nothrow) T;
			delete[] new (std::nothrow) T[3];
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
			return plain || aligned || all < 13 || new (std::nothrow) char[SIZE_MAX / 4];
		}
	END
	"$BATS_TEST_TMPDIR/replaces"
	run -0 preloaded "$BATS_TEST_TMPDIR/replaces"
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
}

@test "if new can neither allocate nor throw, the program ends" {
	run preloaded python3 -c 'import ctypes
new = ctypes.CDLL(None)._Znwm
new.argtypes = [ctypes.c_size_t]
new(1 << 62)'
	[ "$status" -eq 134 ]
	[[ "$output" == *"operator new has no memory and finds no libstdc++"* ]]
}
