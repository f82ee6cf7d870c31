#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: pages of memory the program mapped itself may be replaced at any time, by
# any thread, and the message after it goes through the new ones. bench/stale --race and
# --soak do the same for longer.

setup_file() {
	load ../helper
	load lab
	"$top_srcdir/test/lab/stale-cases" build "$BATS_FILE_TMPDIR"
	boot race
}

# race NAME PROGRAM ARGUMENT…: with $preload, Open MPI over UCX, which is to register also what
# it would copy.
race() {
	local name=$1 command
	mapfile -t command < <(pair_over_ucx openmpi "$BATS_FILE_TMPDIR/$2.openmpi" "${@:3}")
	attempt "$name" UCX_RNDV_THRESH=8k $preload "${command[@]}"
}

in_guest() {
	local preload='' side

	race without mpi-race 20 64 send
	race without-threads mpi-race 20 1024 receive-threads
	preload=LD_PRELOAD=$library
	race send mpi-race 60 64 send
	race receive mpi-race 60 1024 receive
	for side in {send,receive}-threads{,-libc}; do
		race $side mpi-race 60 1024 $side
	done
	race soak mpi-soak 10
}

setup() {
	load ../helper
	load lab
}

# wrong NAME: in how many rounds words were.
wrong() {
	ended "$1" >&2 || return
	value "$1" wrong
}

@test "without the library a message goes through the old pages" {
	[ "$(wrong without)" -gt 0 ]
	[ "$(wrong without-threads)" -gt 0 ]
}

@test "a message at once after the call that replaced its pages is right" {
	[ "$(wrong send)" -eq 0 ]
	[ "$(wrong receive)" -eq 0 ]
}

@test "also when another thread replaced them while the message before was on its way" {
	local side
	for side in {send,receive}-threads{,-libc}; do
		[ "$(wrong $side)" -eq 0 ]
	done
}

@test "many threads, memory of every kind" {
	[ "$(wrong soak)" -eq 0 ]
	[ "$(value soak rounds)" -gt 0 ]
}
