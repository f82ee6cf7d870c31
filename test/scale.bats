#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: however large the heap is and in however many steps it grew, it is a handful of mappings,
# every block can have keys, growth takes the same system calls, and a report covers all of it.
# No memory is touched. (unit-scale tests 1 TiB of heap, unit-lanes threads and processors in turn.)
load helper

setup_file() {
	export work=$BATS_FILE_TMPDIR
	compile libibverbs.so.1 -shared -fPIC -fvisibility=hidden -Wl,-soname,libibverbs.so.1 \
		-Wl,--version-script="$top_srcdir/test/fake-ibverbs.map" \
		"$top_srcdir"/test/fake-{ibverbs,verbs}.c
	compile growth "$top_srcdir/test/programs/scale-growth.c" -libverbs -lm
}

compile() { # OUTPUT ARGUMENT…
	gcc -std=gnu11 -O2 -I"$top_srcdir" -I"$top_builddir" -L"$work" -o "$work/$1" "${@:2}"
}

# grown GIB: makes a heap of this size and writes its figures to $work/figures.
grown() {
	preloaded PINALLOC_MAX_PINNED=none LD_LIBRARY_PATH="$work" \
		"$work/growth" "$work/report.json" "$1" > "$work/figures"
}

# said WORD…: the figure after these words, which must exist.
said() {
	awk -v what="$*" '{ value = $NF; sub(/ [^ ]*$/, "") } $0 == what { print int(value); n++ }
		END { exit n != 1 }' "$work/figures"
}

# The program fails unless each block of 2 MiB has keys for all of it. A mapping for each growth step would be
# hundreds. For each page that is registered the tables have 8 bytes at most (how often it is pinned, and whose it
# is), beside 2 MiB for each GiB of pages.
@test "16 GiB of heap are at most 16 mappings, every block has keys, and the report is hardly longer" {
	local steps small gib=16
	grown 1
	small=$(said report-bytes)
	grown $gib
	steps=$(said regions)
	[ "$steps" -ge $((gib * 16)) ]
	[ "$steps" -lt $((gib * 32)) ]
	[ "$(said mappings)" -le 16 ]
	[ "$(said resident)" -lt $((64 + gib * 4)) ]
	# One for each block, which is a granule. The first granule has other blocks, the last step has one.
	jq -e ".memory.growth_steps >= $steps and .memory.mapped_bytes >= $((gib << 30)) and
		.registration.mr_created >= $((gib * 512 * 9 / 10)) and
		.registration.domains[0].bytes >= $(((gib << 30) - (68 << 20))) and .timeline[-1][2] >= $((gib << 30))" \
		"$work/report.json"
	# More points in time, and longer numbers; not more regions.
	[ "$(said report-bytes)" -lt $((small * 4)) ]
}

# calls BLOCKS: the number of mapping system calls when that many blocks are allocated, each in a
# growth step.
calls() {
	strace -f -c -o "$BATS_TEST_TMPDIR/calls" -E LD_PRELOAD="$library" \
		-e trace=mmap,mprotect "$programs/grow" "$1" $((64 << 20))
	awk '$NF == "mprotect" || $NF == "mmap" { n += $4 } END { print n }' \
		"$BATS_TEST_TMPDIR/calls"
}

# One for memory and one for its tables, and now and then one more for other tables.
@test "a growth step takes two system calls, in a large heap as in a small one" {
	local none small large
	none=$(calls 0)
	small=$(($(calls 256) - none))
	large=$(($(calls 2048) - none))
	echo "for 256 steps $small, for 2048 $large"
	[ "$small" -ge 256 ]
	[ "$large" -ge 2048 ]
	[ "$small" -lt $((256 * 5 / 2)) ]
	[ "$large" -lt $((2048 * 5 / 2)) ]
}
