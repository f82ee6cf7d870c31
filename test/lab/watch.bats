#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: registration caches are notified when memory goes away before the program continues,
# whatever the program does with its memory, locks, descriptors and children; and memory that cannot
# be watched works as without the library.

setup_file() {
	load ../helper
	load lab
	local build=(gcc -O2 -shared -fPIC -fvisibility=hidden)
	"${build[@]}" -o "$BATS_FILE_TMPDIR/libucm.so.0" "$top_srcdir/test/programs/listener.c"
	"${build[@]}" -o "$BATS_FILE_TMPDIR/data.so" "$top_srcdir/test/programs/plugin-data.c"
	"${build[@]}" -o "$BATS_FILE_TMPDIR/constructor.so" \
		"$top_srcdir/test/programs/constructor.c"
	mkdir "$BATS_FILE_TMPDIR/wheel"
	cp "$BATS_FILE_TMPDIR/libucm.so.0" "$BATS_FILE_TMPDIR/wheel/libucm-1a2b3c.so.0.0.0"
	in_guest() {
		local listener=$BATS_FILE_TMPDIR/libucm.so.0 way
		local process=$programs/rdma-watch-process kinds=$programs/rdma-watch-kinds

		echo 16 > /proc/sys/vm/nr_hugepages
		for way in ways quiet grown dereg heap; do
			shimmed $way "$programs/rdma-watch-ways" "$listener" $way
		done
		for way in lock exit thread atexit; do
			shimmed $way "$programs/rdma-watch-late" "$listener" $way
		done
		shimmed plugin "$programs/rdma-watch-late" "$listener" plugin \
			"$BATS_FILE_TMPDIR/data.so"
		for way in closed children armed locked; do
			shimmed $way "$process" $way "$listener"
		done
		shimmed loaded "$process" loaded "$listener" \
			"$BATS_FILE_TMPDIR/wheel/libucm-1a2b3c.so.0.0.0"
		shimmed constructor "$process" constructor "$listener" \
			"$BATS_FILE_TMPDIR/constructor.so"
		attempt unused PINALLOC_LOG=info LD_PRELOAD="$library libfabric.so.1" \
			"$programs/rdma-watch-ways" "$listener" ways
		way=("$programs/rdma-watch-ways" "$listener" quiet)
		shimmed off PINALLOC_WATCH=off "$process" seccomp-kill "${way[@]}"
		shimmed killed "$process" seccomp-kill "${way[@]}"
		shimmed forbidden "$process" seccomp-eperm "${way[@]}"
		shimmed kinds "$kinds" "$listener" kinds
		shimmed data "$kinds" "$listener" data
		attempt many prlimit --nofile=1024:1024 env LD_PRELOAD="$library" \
			PINALLOC_REPORT=/ctl/many.json "$kinds" "$listener" many 300
		attempt few prlimit --nofile=16:16 env LD_PRELOAD="$library" \
			PINALLOC_REPORT=/ctl/few.json "$kinds" "$listener" many 300
		echo 1000 > /proc/sys/vm/max_map_count
		shimmed full "$kinds" "$listener" many 450 200
		echo 65530 > /proc/sys/vm/max_map_count
		shimmed model "$programs/rdma-watch-model" "$listener" 5
	}
	boot
}

setup() {
	load ../helper
	load lab
}

# watched NAME FIGURE: a value of a case's report.
watched() {
	reported "$1" ".watch.$2"
}

@test "every replacement of registered memory is notified before the call returns" {
	ended ways
	[ "$(watched ways unwatchable)" -eq 0 ]
}

@test "unregistered memory causes no notification and, if it is small, no cost" {
	ended quiet
	# Ranges of 128 KiB and more stay watched for a while: three of the 22 ways, tried twice.
	[ "$(watched quiet events)" -le 6 ]
	[ "$(watched quiet ranges)" -eq 22 ]
	ended grown
}

@test "a listener can deregister at once" {
	ended dereg
}

@test "heap pages replaced before the first registration are noticed" {
	ended heap
}

@test "a listener that waits for the caller delays it, but not for long" {
	ended lock
	[ "$(watched lock late)" -ge 2 ]
}

@test "a process can end during a notification, in any thread" {
	ended exit 7
	ended thread 7
}

@test "memory unmapped in an atexit handler is notified" {
	ended atexit 7
	grep -q '^handler of atexit: told$' "$results/atexit.out"
}

@test "a library whose variables are registered can be unloaded" {
	ended plugin
}

@test "the program may close all descriptors, and gets the numbers it expects" {
	ended closed
}

@test "children of every kind neither hang nor notify, and can register" {
	ended children
	ended armed
}

@test "listeners may be loaded late, from any path, twice at once, and unloaded" {
	ended loaded
}

@test "libfabric may be loaded without being used" {
	grep -q "libfabric's cache is notified" "$results/unused.err"
	ended unused
}

@test "a constructor may wait for a thread that registers memory" {
	ended constructor
}

@test "the watch works under mlockall()" {
	ended locked
}

@test "with PINALLOC_WATCH=off no userfaultfd is opened; if it is forbidden one line says so" {
	ended off
	[ ! -s "$results/off.err" ]
	run ! ended killed
	ended forbidden
	[ "$(grep -c ^pinalloc "$results/forbidden.err")" -eq 1 ]
	grep -q 'is not noticed: userfaultfd: Operation not permitted' "$results/forbidden.err"
	[ "$(watched off on)" = false ]
	[ "$(watched forbidden on)" = false ]
}

@test "unwatchable memory is registered and counted, and not disturbed" {
	ended kinds
	[ "$(watched kinds unwatchable)" -eq 6 ]
	[ "$(grep -c ^pinalloc "$results/kinds.err")" -eq 1 ]
	ended data
	[ "$(watched data unwatchable)" -eq 1 ]
	[ ! -s "$results/data.err" ]
}

@test "there may be more registrations than descriptors, and than permitted mappings" {
	ended many
	[ "$(watched many ranges)" -eq 300 ]
	ended few
	[ "$(watched few ranges)" -eq 300 ]
	ended full
	[ "$(watched full ranges)" -eq 250 ]
}

@test "a cache that is notified is right, whatever threads replace" {
	ended model
}
