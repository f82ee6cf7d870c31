#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: pinalloc_lookup() gives keys the adapter takes, for every block of
# the heap and for nothing else, and what the header says of them holds.

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

@test "keys move the data of random blocks from several threads in two protection domains" {
	ended keys
}

@test "keys move the data of blocks of up to 256 MiB" {
	ended large
}

@test "what is not heap has no keys" {
	ended outside
}

@test "ranges across blocks have keys, what reaches beyond the heap has none" {
	ended edge
}

@test "attach registers ahead what is in memory, detach gives it up, and both can be repeated" {
	ended attach
}

@test "attach refuses rights memory regions cannot have" {
	ended rights
}

@test "a protection domain with registrations is busy, works on, and goes without them" {
	ended dealloc
}

@test "with PINALLOC_REGISTER=lazy only what was asked for is registered" {
	ended lazy
}

@test "with PINALLOC_REGISTER=off no block has keys" {
	ended off
}

@test "a program can have figures and a report at any time" {
	ended report
	[ "$(figure "$results/called.json" .registration.mr_created)" -gt 0 ]
	[ "$(figure "$results/called.json" .program)" = rdma-lookup ]
}

@test "without the preload the functions are absent and the program knows" {
	ended unpreloaded 3
}
