#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: the report knows the peak, whatever the program did before and after, and which stacks
# made the heap grow to it.
load helper

# peaks WAY MIB [NAME=VALUE…]: runs a case; the program's own figure is in $truth, the report in
# out.json.
peaks() {
	truth=$(preloaded PINALLOC_REPORT=out.json "${@:3}" "$programs/peaks" "$1" "$2")
	peak=$(figure out.json .memory.live_peak_bytes)
	echo "$1: $truth asked for, $peak reported"
}

# Small blocks count with all pages of their slabs: those of a program that does nothing have less than
# 512 KiB for each thread. The peak is known to a 256th, or 64 KiB.
within_one_percent() {
	local missed=$((truth / 256))
	[ "$((truth - peak))" -le $((missed > 64 << 10 ? missed : 64 << 10)) ]
	[ "$((peak - truth))" -lt $((truth / 100 + (512 << 10))) ]
}

@test "the peak is the sum of the pages of large blocks and of small ones, even when it is over" {
	local way
	for way in block:13 block:50 blocks:13 small:50 aligned:13 unaligned:50 array:13 \
		thread-block:50 thread-blocks:13 thread-small:50; do
		peaks "${way%:*}" "${way#*:}"
		within_one_percent
		jq -e '.memory | .live_bytes < 1000000 and .mapped_bytes >= .live_peak_bytes' out.json
	done
}

@test "realloc counts one block if it grows in place, and both if it moves" {
	peaks grown 50
	[ "$peak" -ge "$truth" ]
	[ "$peak" -lt $((2 * truth)) ]
}

@test "the stack that made the heap grow is reported, with its line" {
	local way line
	for way in blocks:hold_blocks aligned:hold_aligned array:hold_array \
		small:hold_blocks thread-blocks:hold_blocks grown:hold_grown; do
		peaks "${way%:*}" 50
		frame=$(resolved out.json '.peak_sites[0].stack[0]')
		echo "$frame"
		[[ "$frame" =~ ^${way#*:}\ \(peaks\.c:([0-9]+)\)$ ]]
		line=$(sed -n "${BASH_REMATCH[1]}p" "$top_srcdir/test/programs/peaks.c")
		[[ "$line" =~ (malloc|memalign|calloc|realloc)\( ]]
		[[ "$(resolved out.json '.peak_sites[0].stack | join(" ")')" == *" hold_and_drop "* ]]
		figure out.json '.peak_sites | map(.bytes) | . == (sort | reverse)' | grep -x true
	done
	[ "$(figure out.json .peak_sites_kind)" = growth ]
}

@test "all growth is attributed to stacks" {
	peaks small 50
	# The heap's first growth precedes the first possible stack walk.
	jq -e '.memory.mapped_bytes - (.peak_sites | map(.bytes) | add) | . >= 0 and . <= 10 * 1048576' out.json
}

@test "the timeline is in order, has the peak, and ends when the program does" {
	peaks blocks 200
	jq -e '(.timeline | . == sort_by(.[0]) and (map(.[2]) | . == sort) and all(.[1] <= .[2]) and length > 100) and
		(.timeline | map(.[1]) | max) == .memory.live_peak_bytes and
		.timeline[-1][:2] == [.elapsed_s, .memory.live_bytes]' out.json
}

in_order='.elapsed_s as $now | .timeline | map(.[0]) | . == sort and last == $now'

@test "so it is if the program ends at its peak" {
	preloaded PINALLOC_REPORT=out.json "$programs/grow" 10000 1000
	jq -e "$in_order" out.json
	# A thread's small blocks are counted when they have become 32 KiB more.
	[ "$(figure out.json '.memory.live_peak_bytes - .timeline[-1][1] | . >= 0 and . < 32768')" = true ]
}
