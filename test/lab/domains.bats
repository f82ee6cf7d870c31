#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: protection domains and devices come and go as without the library, in
# any order, and keys are never those of one that is gone.

setup_file() {
	load ../helper
	load lab
	in_guest() {
		local case

		for case in others closed reused busy imported; do
			attempt "plain-$case" "$programs/rdma-domains" "$case"
			shimmed "$case" "$programs/rdma-domains" "$case"
		done
	}
	boot
}

setup() {
	load ../helper
	load lab
}

# fine CASE SERVED: right, with the library and without; so many requests were served
# from regions, and all regions were given up with their domains.
fine() {
	ended "plain-$1"
	ended "$1"
	[ "$(reported "$1" .registration.served)" -eq "$2" ]
	[ "$(reported "$1" .registration.passed_through)" -eq 0 ]
	[ "$(reported "$1" .registration.mr_created)" -gt 0 ]
	[ "$(reported "$1" .memory.pinned_bytes)" -eq 0 ]
}

@test "what is registered outlives other domains, and other devices" {
	fine others 6
}

@test "a device can be closed with all there is on it, and opened anew" {
	fine closed 42
}

@test "a domain at the address of an earlier one has keys of its own" {
	fine reused 402
}

@test "a domain with registrations is busy, works on, and goes without them" {
	fine busy 2
}

@test "devices and domains are imported, or cannot be, as without the library" {
	fine imported 2 # soft-RoCE cannot
	diff "$results/plain-imported.out" "$results/imported.out"
	grep -q '^# ibv_import_device: Operation not supported$' "$results/imported.out"
	grep -q '^# ibv_import_pd: Operation not supported$' "$results/imported.out"
}
