#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: with PINALLOC_NODE_PINNED all ranks of a user on a host pin no more than that together,
# each gets its share when it wants it, and none fails because of it.

setup_file() {
	load helper
	build_adapter
}

setup() {
	load helper
	cd "$BATS_TEST_TMPDIR"
	declare -p library programs adapter > functions
	declare -f rank slots sum most until_holds ended_well >> functions
}

# on_a_host COMMANDS: runs them with a /dev/shm of their own, and the functions below. In a user
# namespace a limit on locked memory would hold for root, too.
on_a_host() {
	local namespaces=-m
	[ "$EUID" -eq 0 ] || namespaces=-rm
	run --separate-stderr unshare $namespaces bash -euc "mount -t tmpfs none /dev/shm
		. ./functions
		$1"
	printf '%s\n' "$output" "$stderr"
	[ "$status" -eq 0 ]
}

# rank NAME MIB: starts one, of a budget of 128 MiB.
rank() {
	LD_LIBRARY_PATH=$adapter LD_PRELOAD=$library PINALLOC_NODE_PINNED=128M PINALLOC_WATCH=off \
		PINALLOC_REPORT="$1.json" "$programs/rdma-neighbour" "$2" stop > "$1.out" 2> "$1.err" &
}

# slots: what each process has pinned, in bytes.
slots() {
	od -An -v -w64 -j64 -t u8 /dev/shm/pinalloc-pinned-1-* | awk '$1 > 1 { print $3 }'
}

# sum: all of them, which must never be above the budget by more than a memory region for each.
sum() {
	slots | awk '{ n += $1 } END { print n + 0; exit n > 134217728 + NR * 2097152 }'
}

# most N: the N-th largest.
most() {
	slots | sort -n -r | sed -n "$1p" | grep . || echo 0
}

# until_holds COMMAND…: for a minute at most. The sum is looked at meanwhile.
until_holds() {
	local try
	for try in {1..600}; do
		sum > /dev/null || { echo "the sum is $(sum)"; return 1; }
		! "$@" || return 0
		sleep 0.1
	done
	echo "$* does not hold:" $(slots)
	return 1
}

# ended_well NAME…: they printed what they had pinned, and said one line at most.
ended_well() {
	local name
	for name; do
		cat "$name.err"
		grep -q '^pinned [0-9]*$' "$name.out"
		[ "$(grep -c . "$name.err")" -le 1 ]
		[ "$(grep -c PINALLOC_NODE_PINNED "$name.err")" -eq "$(grep -c . "$name.err")" ]
	done
}

@test "eight ranks with unequal needs finish, each with its share, and keep the limit" {
	on_a_host '
		has_all() { [ "$(sum)" -ge 125000000 ]; }
		have_shares() { [ "$(most 8)" -ge 10066330 ] && [ "$(most 4)" -ge 13421773 ]; }
		for i in 4 5 6 7; do rank $i 64; done
		sleep 0.5
		until_holds has_all
		for i in 0 1 2 3; do rank $i 12; done
		sleep 0.5
		until_holds have_shares
		for i in {1..20}; do until_holds true; sleep 0.1; done
		until_holds have_shares
		touch stop
		wait
		ended_well 0 1 2 3 4 5 6 7'
}

@test "ranks that are killed at random leave nothing behind" {
	on_a_host '
		has_most() { [ "$(sum)" -ge 110000000 ]; }
		is_alone_with_most() { [ "$(slots | wc -l)" -eq 1 ] && has_most; }
		for i in {0..7}; do rank $i 32; pids[i]=$!; done
		for round in {1..40}; do
			i=$((RANDOM % 8))
			kill -9 "${pids[i]}"
			wait "${pids[i]}" 2> /dev/null || :
			rank $i 32
			pids[i]=$!
			sleep 0.1
			until_holds true
		done
		until_holds has_most
		touch stop
		wait
		ended_well 0 1 2 3 4 5 6 7
		rm stop
		rank last 160
		until_holds is_alone_with_most
		touch stop
		wait
		ended_well last
		jq -e ".memory | .node_pinned_limit_bytes == 134217728 and .node_pinned_peak_bytes > 110000000" \
			last.json
		[ "$(sed "s/pinned //" last.out)" -ge 107000 ]'
}

# bats test_tags=thorough
@test "64 ranks finish" {
	on_a_host '
		for i in {0..63}; do rank $i 6; done
		sleep 5
		for i in {1..50}; do until_holds true; sleep 0.1; done
		touch stop
		wait
		ended_well {0..63}'
}
