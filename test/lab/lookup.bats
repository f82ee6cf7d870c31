#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: pinalloc_lookup() returns keys that the adapter accepts, for every block of the heap
# and nothing else, with the guarantees of the header.

setup_file() {
	load ../helper
	load lab
	in_guest() {
		local lookup=$programs/rdma-lookup case

		attempt unpreloaded "$lookup" keys
		for case in keys large outside attach dealloc; do
			shimmed "$case" "$lookup" "$case"
		done
		shimmed rights PINALLOC_ACCESS=local,read "$lookup" rights
		shimmed edge PINALLOC_REGISTER=lazy "$lookup" edge
		shimmed lazy PINALLOC_REGISTER=lazy "$lookup" lazy
		shimmed off PINALLOC_REGISTER=off "$lookup" off
		shimmed report "$lookup" report /ctl/called.json
	}
	boot
}

setup() {
	load ../helper
	load lab
}

@test "the keys transfer random blocks from several threads in two protection domains" {
	ended keys
}

@test "the keys transfer blocks of up to 256 MiB" {
	ended large
}

@test "pinalloc_lookup refuses memory that is not heap" {
	ended outside
}

@test "ranges across blocks have keys, ranges beyond the heap have none" {
	ended edge
}

@test "attach registers resident memory, detach deregisters it, and both can be repeated" {
	ended attach
}

@test "attach refuses rights that memory regions cannot have" {
	ended rights
}

@test "a protection domain with registrations is busy and usable, and can be deallocated without them" {
	ended dealloc
}

@test "with PINALLOC_REGISTER=lazy only requested memory is registered" {
	ended lazy
}

@test "with PINALLOC_REGISTER=off no block has keys" {
	ended off
}

@test "a program can get statistics and a report at any time" {
	ended report
	[ "$(figure "$results/called.json" .registration.mr_created)" -gt 0 ]
	[ "$(figure "$results/called.json" .program)" = rdma-lookup ]
}

@test "without the library the functions are absent, and the program notices" {
	ended unpreloaded 3
}
