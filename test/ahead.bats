#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: what is registered ahead serves requests of any size, from buffers that begin on any page:
# at most a tenth of the first requests waits, and at most a quarter is registered twice, also where
# buffers were freed and others of other sizes allocated. A block may extend across the places where the heap grew.
load helper
load scripts

setup_file() {
	allowed memlock
}

# served KIB MIB CHANGES
served() {
	succeeds PINALLOC_MAX_PINNED=none "$programs/rdma-script" "$(ahead "$@")"
}

@test "of buffers of 64 KiB, 1 MiB, 4 MiB and 64 MiB" {
	rows served <<- 'END'
		64 128 2000
		1024 128 500
		4096 256 200
		65536 640 20
	END
}

# in_one CASE MODE: blocks across the steps by which the heap grew are one range each: no request goes to libibverbs,
# each waits for one memory region at most, and ahead of requests there is one for each cell of 2 MiB at most.
in_one() {
	succeeds PINALLOC_REGISTER="$2" PINALLOC_MAX_PINNED=none "$programs/rdma-script" "${script[$1]}"
	jq -e --argjson ahead "$([ "$2" = lazy ]; echo $?)" '(.memory.mapped_bytes / 2097152 + 1) as $cells | .registration |
		.passed_through == 0 and .mr_created - .mr_ahead <= .served and .mr_ahead <= $ahead * $cells' "$report"
}

@test "of blocks that extend across the places where the heap grew" {
	rows in_one <<- 'END'
		merge eager: one that is made of 24 freed ones
		grow lazy: each larger than the last
		realloc eager: one that grows by realloc
		any lazy: of any size, freed out of order
	END
}

# bats test_tags=thorough
@test "of other sizes, in heaps of 1 and 3 GiB" {
	rows served <<- 'END'
		64 1024 1000
		1024 3072 500
		65536 3072 48
	END
}
