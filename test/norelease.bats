#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: no byte of the heap returns to the kernel, whatever the program, jemalloc's options or
# its mallctls request; freed memory is reused.

setup() {
	load helper
}

# traced [NAME=VALUE…] -- COMMAND…: prints the system calls that returned heap memory.
traced() {
	local environment=()
	while [ "$1" != -- ]; do
		environment+=(-E "$1")
		shift
	done
	shift
	strace -f -o "$BATS_TEST_TMPDIR/trace" "${environment[@]}" \
		-e trace=munmap,madvise,mremap,brk,mmap,mprotect \
		"$@" > "$BATS_TEST_TMPDIR/blocks" || return
	python3 "$top_srcdir/test/heapcalls.py" "$BATS_TEST_TMPDIR"/{trace,blocks}
}

# keeps COMMAND…: the command succeeds, has allocated blocks, and returned nothing.
keeps() {
	run --separate-stderr traced LD_PRELOAD="$library" "$@"
	echo "$* gave back: $output; said: $stderr"
	[ "$status" -eq 0 ]
	[ -z "$output" ]
	[ -s "$BATS_TEST_TMPDIR/blocks" ]
}

@test "no malloc function returns memory to the kernel, for 16 bytes to 1 GiB" {
	keeps -- "$programs/churn" $((1 << 30))
	[ "$(wc -l < "$BATS_TEST_TMPDIR/blocks")" -gt 4000 ]
}

@test "under glibc, the same program returns memory to the kernel" {
	run traced -- "$programs/churn" $((1 << 20))
	[ "$status" -eq 0 ]
	[[ "$output" == *" munmap("* ]]
	[[ "$output" == *" madvise("* ]]
	[[ "$output" == *" brk("* ]]
}

@test "no jemalloc option makes the heap return memory or fail" {
	local conf
	for conf in retain:false dirty_decay_ms:0,muzzy_decay_ms:0 \
		dirty_decay_ms:5,muzzy_decay_ms:5 dirty_decay_ms:-1,muzzy_decay_ms:-1 \
		oversize_threshold:1 dss:primary hpa:true background_thread:true \
		metadata_thp:always,thp:always san_guard_small:1,san_guard_large:1 \
		junk:true zero:true tcache:false narenas:1 percpu_arena:percpu \
		lg_extent_max_active_fit:0 cache_oblivious:true \
		dirty_decay_ms:banana nonsense; do
		keeps MALLOC_CONF="$conf" -- "$programs/churn" $((1 << 20))
	done
}

@test "no jemalloc option changes the settings the promise depends on" {
	local setting said kept wanted
	wanted='retain:true dirty_decay_ms:-1 muzzy_decay_ms:0 oversize_threshold:0
		dss:"disabled" hpa:false background_thread:false'
	said=$(preloaded MALLOC_CONF=retain:false,dirty_decay_ms:5,muzzy_decay_ms:5,\
oversize_threshold:1,dss:primary,hpa:true,background_thread:true \
		"$programs/surface" stats 2>&1)
	for setting in $wanted; do
		kept=$(sed -n "s/^  opt\.${setting%:*}: \([^ ]*\).*/\1/p" <<< "$said")
		echo "$setting: $kept"
		[ "$kept" = "${setting#*:}" ]
	done
}

@test "no mallctl returns memory to the kernel, even by destroying an arena" {
	keeps -- "$programs/ctl" purge
}

@test "in stock jemalloc, the same mallctls return memory to the kernel" {
	run traced LD_PRELOAD=libjemalloc.so.2 -- "$programs/ctl" purge
	[ "$status" -eq 0 ]
	[[ "$output" == *" madvise("* ]]
}

@test "freed memory is reused: 50 equal rounds need no more than five" {
	run -0 --separate-stderr preloaded "$programs/rounds"
	[ "${#lines[@]}" -eq 2 ]
	[ "${lines[0]}" -gt $((10 << 20)) ]
	[ "${lines[0]}" -eq "${lines[1]}" ]
}

@test "a program that leaks makes the heap grow" {
	run -0 --separate-stderr preloaded "$programs/rounds" leak
	[ "${lines[1]}" -gt $((lines[0] * 2)) ]
}

@test "memory freed as small blocks is reused for large ones, and vice versa" {
	run -0 --separate-stderr preloaded "$programs/rounds" phases
	echo "in use ${lines[0]}, heap ${lines[1]}"
	[ "${lines[0]}" -gt $((64 << 20)) ]
	[ "${lines[1]}" -lt $((lines[0] * 3 / 2)) ]
}

@test "the library calls no function that unmaps memory" {
	run -0 nm -D --undefined-only "$library"
	[[ "$output" == *" mmap@"* ]]
	[[ "$output" != *" munmap"* ]]
	[[ "$output" != *" madvise"* ]]
	[[ "$output" != *" mremap"* ]]
	[[ "$output" != *" process_madvise"* ]]
}
