#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: with PINALLOC_SAMPLE the report says who held memory at the peak, within the
# statistical error of its samples: five standard deviations, one case in two million.

setup() {
	load helper
	cd "$BATS_TEST_TMPDIR"
	untold=$((96 << 10)) # what the part of a thread in the peak may be off, of five at most
}

# estimated NAME FIELD: what the report gives for all stacks that function is on.
estimated() {
	figure out.json "[.peak_sites[] | select(any(.stack[]; startswith(\"$1 (\"))) | .$2] | add"
}

# within A B BY
within() {
	awk -v a="$1" -v b="$2" -v by="$3" \
		'BEGIN { d = a - b; exit !(a != "" && a != "null" && (d < 0 ? -d : d) <= by) }'
}

# holds CASE [NAME=VALUE…]: runs it and compares what the report says with what it did.
holds() {
	local name bytes bytes_off count count_off

	preloaded PINALLOC_SAMPLE=64K PINALLOC_REPORT=out.json "${@:2}" \
		"$programs/holds" "$1" 65536 > truth
	[ "$(figure out.json .peak_sites_kind)" = held ]
	[ -s truth ]
	while read -r name bytes bytes_off count count_off; do
		echo "$name $bytes $(estimated "$name" bytes) $count $(estimated "$name" count)"
		within "$(estimated "$name" bytes)" "$bytes" "$((5 * bytes_off + 5 * untold))"
		within "$(estimated "$name" count)" "$count" \
			"$(awk -v x="$count_off" -v y="$untold" 'BEGIN { print 5 * x + 5 * y / 112 }')"
	done < truth
}

@test "100 MB in blocks of 100 bytes, 70 of 100 from one function and 30 from another" {
	holds small
	[ "$(wc -l < truth)" -eq 2 ]
}

@test "blocks of 50,000 bytes, which are picked as the 57,344 they can hold" {
	holds large
}

@test "blocks of any size from 16 B to 1 MiB" {
	holds mixed
}

@test "blocks of several threads, freed by others" {
	holds threads
	[ "$(wc -l < truth)" -eq 3 ]
}

@test "blocks that were all freed after the peak" {
	holds over
	[ "$(figure out.json .memory.live_bytes)" -lt "$(figure out.json '.memory.live_peak_bytes / 4')" ]
}

@test "blocks that realloc moved belong to who called it" {
	holds moved
	[ "$(cut -d ' ' -f 1 truth)" = hold_grown ]
}

# The report allocates more than realloc has freed.
@test "a block that realloc moves is there twice at the peak, although it ends soon" {
	holds doubled
	[ "$(wc -l < truth)" -eq 2 ]
	[ "$(figure out.json .memory.live_peak_bytes)" -gt $((35 << 20)) ]
}

@test "without thread caches, or with a profiler that the user asked jemalloc for" {
	holds threads MALLOC_CONF=tcache:false
	holds mixed MALLOC_CONF=prof:true,prof_active:true,lg_prof_sample:0
}

@test "PINALLOC_SAMPLE=1 counts every block" {
	preloaded PINALLOC_SAMPLE=1 PINALLOC_REPORT=out.json "$programs/grow" 100000 100
	within "$(estimated main count)" 100000 $((untold / 112))
	within "$(estimated main bytes)" 11200000 "$untold"
}

@test "an interval larger than all there is leaves a program as it is" {
	preloaded PINALLOC_SAMPLE=1T PINALLOC_REPORT=out.json "$programs/grow" 100
	[ "$(figure out.json .peak_sites_kind)" = held ]
	[ "$(figure out.json '.memory.live_bytes')" -ge $((100 << 20)) ]
}
