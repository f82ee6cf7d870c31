#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: with PINALLOC_PREALLOC the first registration is the last one. The reserve is heap,
# resident and registered from then on; before, it costs nothing.
load helper
load scripts

setup_file() {
	allowed memlock
	adapted "$programs/rdma-script" "$(blocks)"
}

setup() {
	reserve=PINALLOC_PREALLOC=256M
}

# right [NAME=VALUE…]: with these options the program behaves as without the library.
right() {
	succeeds "$@" "$programs/rdma-script" "$(blocks figures)"
}

# value FIGURE: that the program shows.
value() {
	grep -o "^# $1 [0-9]*" <<< "$output" | cut -d' ' -f3
}

# reserved [NAME=VALUE…]: with these options and a reserve nothing is registered after the first
# registration, and new blocks are resident.
reserved() {
	right $reserve "$@"
	[ "$stderr" = '' ]
	[ "$(value +mr_created)" -eq 0 ]
	jq -e ".registration.passed_through == 0 and .registration.mr_created == $(value mr_created) and
		.memory.pinned_peak_bytes >= $((256 << 20))" "$report"
	[ "$(value absent)" -le $(($(value pages) / 20)) ]
}

@test "with PINALLOC_PREALLOC nothing is registered after the first registration, and blocks are resident" {
	reserved
	# It grows by little beyond the reserve.
	[ "$(figure "$report" .memory.mapped_bytes)" -le $((384 << 20)) ]
	reserved PINALLOC_HUGEPAGE=off
}

@test "without a reserve there are more registrations" {
	right
	[ "$(value +mr_created)" -gt 0 ]
}

@test "a reserve above the limit is reported, and requests are served as far as possible" {
	right $reserve PINALLOC_MAX_PINNED=64M
	[ -n "$stderr" ]
	run ! grep -v '^pinalloc.*PINALLOC_' <<< "$stderr"
	run ! grep 'no such option' <<< "$stderr"
	[ "$(figure "$report" .memory.pinned_peak_bytes)" -le $((64 << 20)) ]
}

@test "a process that registers nothing has no reserve" {
	run -0 --separate-stderr preloaded $reserve grep VmRSS: /proc/self/status
	[ "$stderr" = '' ]
	[ "$(awk '{ print $2 }' <<< "$output")" -lt $((32 * 1024)) ]
}
