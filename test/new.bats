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

@test "every form of new returns heap memory, and every form of delete accepts it" {
	newdelete forms
}

@test "a huge request throws bad_alloc, or returns null with nothrow" {
	newdelete huge
}

@test "aligned new behaves as libstdc++'s, also for invalid alignments" {
	"$programs/answers" new > "$BATS_TEST_TMPDIR/plain"
	[ "$(grep -c ' 3 calls' "$BATS_TEST_TMPDIR/plain")" -gt 100 ]
	diff "$BATS_TEST_TMPDIR/plain" <(preloaded "$programs/answers" new)
}

@test "the new_handler is called, and may throw" {
	newdelete handler
}

@test "the new_handler can make room" {
	newdelete room
}

@test "with no memory left at all, new still throws" {
	newdelete exhausted
}

@test "exceptions pass through code that allocates" {
	newdelete exceptions
}

@test "static constructors allocate before main" {
	newdelete statics
}

@test "without the library these checks fail" {
	for section in forms statics; do
		run "$programs/newdelete" "$section"
		[ "$status" -eq 1 ]
		[[ "$output" == *"not ok"* ]]
	done
}

@test "a C++ library loaded by a C program with RTLD_LOCAL can throw bad_alloc" {
	local plugin=$BATS_TEST_TMPDIR/plugin.so
	"${CXX:-g++}" -shared -fPIC -o "$plugin" "$top_srcdir/test/programs/plugin.cc"
	run -0 preloaded "$programs/host" "$plugin" once
	[ "$output" = "caught bad_alloc" ]
	run -0 preloaded "$programs/host" "$plugin" bits
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
