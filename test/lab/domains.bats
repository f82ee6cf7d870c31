#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: protection domains and devices can be created and destroyed in any order, as without
# the library, and keys never belong to one that is gone.

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

# fine CASE SERVED: the case is right with the library and without; so many requests were served,
# and all memory regions were deregistered with their domains.
fine() {
	ended "plain-$1"
	ended "$1"
	[ "$(reported "$1" .registration.served)" -eq "$2" ]
	[ "$(reported "$1" .registration.passed_through)" -eq 0 ]
	[ "$(reported "$1" .registration.mr_created)" -gt 0 ]
	[ "$(reported "$1" .memory.pinned_bytes)" -eq 0 ]
}

@test "registrations survive the end of other domains and devices" {
	fine others 6
}

@test "a device can be closed with everything on it, and opened again" {
	fine closed 42
}

@test "a domain at the address of an earlier one has its own keys" {
	fine reused 402
}

@test "a domain with registrations is busy and stays usable, and can be deallocated without them" {
	fine busy 2
}

@test "importing devices and domains works, or fails, as without the library" {
	fine imported 2 # soft-RoCE cannot
	diff "$results/plain-imported.out" "$results/imported.out"
	grep -q '^# ibv_import_device: Operation not supported$' "$results/imported.out"
	grep -q '^# ibv_import_pd: Operation not supported$' "$results/imported.out"
}
