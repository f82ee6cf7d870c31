#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: registration caches are told of replaced memory in time, however late the library's
# threads get to run. Nothing is given up by the clock.

load lab

setup_file() {
	vm_options=(--smp 2)
	build_shared libucm.so.0 listener
	boot
}

in_guest() {
	local how

	for how in idle stop; do
		shimmed $how "$programs/rdma-watch-process" $how "$BATS_FILE_TMPDIR/libucm.so.0" 10
	done
}

@test "a cache is told in time by a thread that hardly runs" {
	holds idle '.watch.events > 2'
}

@test "so it is in a process that is stopped and continued" {
	holds stop '.watch.events > 2'
}
