#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: any thread may replace pages of memory that the program mapped itself at any time,
# and the next message uses the new pages. bench/stale --race and --soak do the same for longer.

load lab

setup_file() {
	"$top_srcdir/test/lab/stale-cases" build "$BATS_FILE_TMPDIR"
	rounds=${LAB_LOAD:+20}
	rounds=${rounds:-60}
	guest_variables=(rounds)
	vm_options=(--smp 2)
	boot race
}

# race HOW NAME PROGRAM ARGUMENT…: runs Open MPI over UCX, configured to register also small messages; HOW is
# job or attempt.
race() {
	"$1" "$2" UCX_RNDV_THRESH=8k mpirun.openmpi -n 2 "$BATS_FILE_TMPDIR/$3.openmpi" "${@:4}"
}

in_guest() {
	local side

	race attempt without mpi-race 20 64 send
	race attempt without-threads mpi-race 20 1024 receive-threads
	race job send mpi-race $rounds 64 send
	race job receive mpi-race $rounds 1024 receive
	for side in {send,receive}-threads{,-libc}; do
		race job $side mpi-race $rounds 1024 $side
	done
	race job soak mpi-soak 10
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
