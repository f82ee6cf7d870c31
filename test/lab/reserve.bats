#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: with PINALLOC_RESERVE the first registration is the last one. The reserve is heap,
# resident and registered from then on; before, it costs nothing.

setup_file() {
	load ../helper
	load lab
	boot
}

in_guest() {
	local program=$programs/rdma-reserve reserve=PINALLOC_RESERVE=256M

	attempt plain "$program"
	shimmed without "$program"
	shimmed reserved $reserve "$program"
	shimmed reserved-small $reserve PINALLOC_HUGEPAGE=off "$program"
	shimmed short $reserve PINALLOC_MAX_PINNED=64M "$program"
	attempt idle LD_PRELOAD="$library" $reserve grep VmRSS: /proc/self/status
}

setup() {
	load ../helper
	load lab
}

# right NAME: it behaves as without the library.
right() {
	ended plain
	ended "$1"
	diff <(head -n 1 "$results/plain.out") <(head -n 1 "$results/$1.out")
	grep -qx 'blocks [0-9]* refused 0 wrong 0' "$results/$1.out"
}

@test "with PINALLOC_RESERVE nothing is registered after the first registration" {
	local name
	for name in reserved reserved-small; do
		right $name
		[ "$(wc -c < "$results/$name.err")" -eq 0 ]
		[ "$(value $name later)" -eq 0 ]
		[ "$(reported $name .registration.passed_through)" -eq 0 ]
		[ "$(reported $name .registration.mr_created)" -eq "$(value $name first)" ]
		[ "$(reported $name .memory.pinned_peak_bytes)" -ge $((256 << 20)) ]
	done
}

@test "new blocks from the reserve are resident" {
	local name
	for name in reserved reserved-small; do
		ended $name
		[ "$(value $name absent)" -le $(($(value $name pages) / 20)) ]
	done
}

@test "the heap grows by little beyond the reserve" {
	ended reserved
	[ "$(reported reserved .memory.mapped_bytes)" -le $((384 << 20)) ]
}

@test "without a reserve there are more registrations" {
	right without
	[ "$(value without later)" -gt 0 ]
}

@test "a reserve above the limit is reported, and requests are served as far as possible" {
	right short
	[ "$(wc -l < "$results/short.err")" -ge 1 ]
	run ! grep -v '^pinalloc.*PINALLOC_' "$results/short.err"
	run ! grep 'no such option' "$results/short.err"
	[ "$(reported short .memory.pinned_peak_bytes)" -le $((64 << 20)) ]
}

@test "a process that registers nothing has no reserve" {
	ended idle
	[ "$(wc -c < "$results/idle.err")" -eq 0 ]
	[ "$(awk '{ print $2 }' "$results/idle.out")" -lt $((32 * 1024)) ]
}
