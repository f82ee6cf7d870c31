#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: any thread may replace pages of memory that the program mapped itself at any time,
# and the next message uses the new pages. bench/stale --race and --soak do the same for longer.

setup_file() {
	load ../helper
	load lab
	"$top_srcdir/test/lab/stale-cases" build "$BATS_FILE_TMPDIR"
	rounds=${LAB_LOAD:+20}
	rounds=${rounds:-60}
	guest_variables=(rounds)
	boot race
}

# race NAME PROGRAM ARGUMENT…: runs Open MPI over UCX with $preload, configured to register also
# small messages.
race() {
	local name=$1 command
	mapfile -t command < <(pair_over_ucx openmpi "$BATS_FILE_TMPDIR/$2.openmpi" "${@:3}")
	attempt "$name" UCX_RNDV_THRESH=8k $preload "${command[@]}"
}

in_guest() {
	local preload='' side

	known without || race without mpi-race 20 64 send
	known without-threads || race without-threads mpi-race 20 1024 receive-threads
	preload=LD_PRELOAD=$library
	race send mpi-race $rounds 64 send
	race receive mpi-race $rounds 1024 receive
	for side in {send,receive}-threads{,-libc}; do
		race $side mpi-race $rounds 1024 $side
	done
	race soak mpi-soak 10
}

setup() {
	load ../helper
	load lab
}

# wrong NAME: the number of rounds with wrong words.
wrong() {
	ended "$1" >&2 || return
	value "$1" wrong
}

@test "without the library a message is sent from the old pages" {
	[ "$(wrong without)" -gt 0 ]
	[ "$(wrong without-threads)" -gt 0 ]
}

@test "a message sent right after the call that replaced its pages is right" {
	[ "$(wrong send)" -eq 0 ]
	[ "$(wrong receive)" -eq 0 ]
}

@test "so it is if another thread replaced them during the message before" {
	local side
	for side in {send,receive}-threads{,-libc}; do
		[ "$(wrong $side)" -eq 0 ]
	done
}

@test "so it is with many threads and every kind of memory" {
	[ "$(wrong soak)" -eq 0 ]
	[ "$(value soak rounds)" -gt 0 ]
}
