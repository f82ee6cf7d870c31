#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: where an adapter is full, by a limit that it does not tell, no registration, completion queue,
# queue pair or other object is refused because of memory regions that nobody uses. (The lab tries it in a control group.)
load helper
load scripts

setup_file() {
	allowed memlock
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
		FAKE_MOST_OBJECTS=8 58 make comp_cntr: completion counters, which newer releases of libibverbs have
		FAKE_MOST_OBJECTS=3 0 resize: larger completion queues
		FAKE_MOST_BYTES=33554432 32 m=map 1M; reg m: registrations of mappings
	END
}
