#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: protection domains and devices can be created and destroyed in any order, as without the
# library, and keys never belong to one that is gone. Where an adapter is full, by a limit that it does not
# tell, no registration, completion queue, queue pair or other object is refused because of memory regions
# that nobody uses. (The lab tries some of it on a real device, and in a control group.)
load helper
load scripts

setup_file() {
	allowed memlock
}

# fine CASE SERVED [PASSED]: the case is right with the library and without; so many requests were
# served, and passed through, and all memory regions were deregistered with their domains.
fine() {
	adapted "$programs/rdma-script" "${script[$1]}"
	succeeds "$programs/rdma-script" "${script[$1]}"
	jq -e ".registration.served == $2 and .registration.passed_through == ${3:-0} and
		.registration.mr_created > 0 and .memory.pinned_bytes == 0" "$report"
}

@test "each order of ends" {
	rows fine <<- 'END'
		others 6: registrations survive the end of other domains and devices
		closed 42: a device can be closed with everything on it, and opened again
		reused 402: a domain at the address of an earlier one has its own keys
		busy 2: with registrations a domain is busy and usable, and can be deallocated without them
	END
}

# Soft-RoCE in the lab cannot.
@test "an imported domain is libibverbs' own, and the domain it was imported from keeps its keys" {
	fine imported 2 2
}

@test "where address space is limited, the tables for an adapter leave room for the program" {
	succeeds bash -c 'ulimit -v 1048576 && exec "$@"' - "$programs/rdma-script" "${script[answer]}"
	[ -z "$stderr" ]
	[ "$(figure "$report" .registration.served)" -eq 3 ]
	rm "$report"
	# Two thirds of a limit can be blocks, which are registered.
	succeeds bash -c 'ulimit -v 786432 && exec "$@"' - "$programs/rdma-script" 'a=malloc 512M; x=reg a'
	[ -z "$stderr" ]
	[ "$(figure "$report" .registration.served)" -eq 1 ]
}

# as_many LIMIT=VALUE FAILED STEP: with the library as without it so many of 64 fail, and memory regions went for the
# others.
as_many() {
	local command=("$1" "$programs/rdma-script" print "$(filling "${*:3}")") plain

	run -0 adapted "${command[@]}"
	plain=$output
	[[ $plain == *": $2 wrong" ]]
	succeeds "${command[@]}"
	[ "$output" = "$plain" ]
	[ "$(figure "$report" .registration.served)" -eq 4 ]
	[ "$2" -eq 0 ] || [ "$(figure "$report" .registration.evicted)" -gt 0 ]
}

@test "as many objects as without the library" {
	rows as_many <<- 'END'
		FAKE_MOST_OBJECTS=8 58 make cq: completion queues
		FAKE_MOST_OBJECTS=8 58 make qp: queue pairs
		FAKE_MOST_OBJECTS=8 58 make srq: shared receive queues
		FAKE_MOST_OBJECTS=8 58 make ah: address handles
		FAKE_MOST_OBJECTS=8 58 make mw: memory windows, which a function of the context makes
		FAKE_MOST_OBJECTS=3 0 resize: larger completion queues
		FAKE_MOST_BYTES=33554432 32 m=map 1M; reg m: registrations of mappings
	END
}

# crowds LIMIT=VALUE N M: with the library as without it all succeeds, though the heap fills the adapter.
crowds() {
	local command=("$1" "$programs/rdma-script" "$(crowded "$2" "$3")")

	adapted "${command[@]}"
	succeeds "${command[@]}"
	jq -e ".registration | .passed_through == $3 and .mr_ahead > 10 and .evicted + .refused > 0" "$report"
}

@test "where requests of two domains use small parts of memory regions, all that fits without the library does" {
	rows crowds <<- 'END'
		FAKE_MOST_BYTES=67108864 384 64: bytes
		FAKE_MOST_OBJECTS=108 32 8: objects
	END
}
