#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: a process with a registered heap can have children. A child has a
# heap that works, the parent's transfers stay right while both write, and the child
# leaves no report.

setup_file() {
	load ../helper
	load lab
	# forking NAME VARIABLE=VALUE ARGUMENT…: rdma-fork, a report for each process.
	forking() {
		local name=$1 variable=$2
		shift 2
		attempt "$name" LD_PRELOAD="$library" PINALLOC_REPORT="/ctl/$name.%p.json" \
			"$variable" "$programs/rdma-fork" "$@"
	}
	in_guest() {
		attempt plain "$programs/rdma-fork"
		attempt plain-init "$programs/rdma-fork" init
		attempt plain-safe RDMAV_FORK_SAFE=1 "$programs/rdma-fork"
		forking fork A=B
		forking init A=B init
		forking safe RDMAV_FORK_SAFE=1
		forking early A=B early
	}
	boot forking
}

setup() {
	load ../helper
	load lab
}

# reports CASE: how many processes of the program left one.
reports() {
	jq -r .program "$results/$1".*.json | grep -c '^rdma-fork$'
}

# fine CASE: everything was right, and everything was served from the regions.
fine() {
	ended "$1"
	[ "$(reports "$1")" -eq 1 ]
	[ "$(jq -r 'select(.program == "rdma-fork").registration.served' "$results/$1".*.json)" -eq 2 ]
}

@test "parent and child write their heaps while the parent's data is on its way" {
	ended plain
	fine fork
}

@test "also after ibv_fork_init(), where a child has lost its buffers otherwise" {
	ended plain-init 1
	grep -q '^# child: status 0xb$' "$results/plain-init.out"
	fine init
}

@test "also with RDMAV_FORK_SAFE=1, where a child has lost its buffers otherwise" {
	ended plain-safe 1
	grep -q '^# child: status 0xb$' "$results/plain-safe.out"
	fine safe
}

@test "a child that was there before any registration leaves no report either" {
	fine early
}
