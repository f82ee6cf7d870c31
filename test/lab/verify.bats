#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: the page behind an address does not change while it is registered. A process beside
# the program compares page frames, and would notice if one did.

setup_file() {
	load ../helper
	load lab
	cd "$top_srcdir"
	mkdir "$BATS_FILE_TMPDIR/unpinned"
	gcc -std=gnu11 -O2 -I"$top_srcdir" -I"$top_builddir" -shared -fPIC -fvisibility=hidden \
		-Wl,-soname,libibverbs.so.1 -Wl,--version-script=test/fake-ibverbs.map \
		-o "$BATS_FILE_TMPDIR/unpinned/libibverbs.so.1" test/fake-ibverbs.c test/fake-verbs.c
	boot
}

in_guest() {
	# A huge page is as large as the blocks that compaction makes.
	echo never > /sys/kernel/mm/transparent_hugepage/enabled
	shimmed pinned "$programs/rdma-verify" 3
	shimmed unpinned LD_LIBRARY_PATH="$BATS_FILE_TMPDIR/unpinned" "$programs/rdma-verify" 3
}

setup() {
	load ../helper
	load lab
}

# pages CASE: how many were compared, and had moved.
pages() {
	ended "$1"
	[ ! -s "$results/$1.err" ]
	[ "$(reported "$1" .registration.served)" -gt 0 ]
	read -r _ checked _ moved < "$results/$1.out"
	[ "$checked" -gt 10000 ]
}

@test "no registered heap page moves, however often the kernel compacts memory" {
	pages pinned
	[ "$moved" -eq 0 ]
}

# How many is up to the kernel: thousands were seen with 6.1, with 6.12 only 73.
@test "if registrations do not pin, pages move, and that is noticed" {
	pages unpinned
	[ "$moved" -gt 10 ]
}
