#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: registration caches are told of replaced memory in time, however late the library's
# threads get to run. Nothing is given up by the clock.

setup_file() {
	load ../helper
	load lab
	gcc -O2 -shared -fPIC -fvisibility=hidden -o "$BATS_FILE_TMPDIR/libucm.so.0" \
		"$top_srcdir/test/programs/listener.c"
	in_guest() {
		local how

		for how in idle stop; do
			shimmed $how "$programs/rdma-watch-starved" "$BATS_FILE_TMPDIR/libucm.so.0" 10 $how
		done
	}
	boot
}

setup() {
	load ../helper
	load lab
}

@test "a cache is told in time by a thread that hardly runs" {
	ended idle
	[ "$(reported idle .watch.events)" -gt 2 ]
}

@test "so it is in a process that is stopped and continued" {
	ended stop
	[ "$(reported stop .watch.events)" -gt 2 ]
}
