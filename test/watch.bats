#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: registration caches are notified when memory goes away before the program continues,
# whatever the program does with its memory, locks, descriptors and children; and memory that cannot
# be watched works as without the library. (The lab has what takes a real device, hugetlb pages or
# fewer mappings.)

setup_file() {
	load helper
	allowed userfaultfd
	allowed memlock
	cd "$BATS_FILE_TMPDIR"
	mkdir wheel
	build listener libucm.so.0
	build plugin-data data.so
	cp libucm.so.0 wheel/libucm-1a2b3c.so.0.0.0
}

# build PROGRAM LIBRARY
build() {
	gcc -shared -fPIC -fvisibility=hidden -o "$2" "$top_srcdir/test/programs/$1.c"
}

setup() {
	load helper
	listener=$BATS_FILE_TMPDIR/libucm.so.0
}

# late STATUS CASE [FILE]: ends so.
late() {
	ends "$1" "$programs/rdma-watch-process" "$2" "$listener" "${@:3}"
}

process() {
	succeeds "$programs/rdma-watch-process" "$1" "$listener" "${@:2}"
}

# watched FIGURE: a value of the report.
watched() {
	figure "$report" ".watch.$1"
}

@test "every replacement of registered memory is notified before the call returns" {
	process ways
	[ "$(watched unwatchable)" -eq 0 ]
}

@test "memory that is not registered, or once, causes no notification and no cost" {
	process quiet
	[ "$(watched events)" -le 6 ]
	[ $(($(watched registrations) + $(watched forgotten))) -eq 16 ]
	[ "$(watched registrations)" -le 6 ]
}

@test "a process can end during a notification, in any thread" {
	late 7 exit
	late 7 thread
}

@test "memory unmapped in an atexit handler is notified" {
	late 7 atexit
	[ "$output" = 'handler of atexit: told' ]
}

@test "a library whose variables are registered can be unloaded" {
	late 0 plugin "$BATS_FILE_TMPDIR/data.so"
}

# bats test_tags=slow
@test "whatever the process does" {
	rows process <<- 'END'
		closed: it may close all descriptors, and gets the numbers it expects
		sought: what is registered while a listener is being found is watched
		locked: the watch works under mlockall()
	END
}

# bats test_tags=slow
@test "whatever other threads do when it is forked, a child registers, allocates and loads" {
	process forks "$BATS_FILE_TMPDIR/data.so" 300
}

@test "listeners may be loaded late, from any path, twice at once, and unloaded" {
	process loaded "$BATS_FILE_TMPDIR/wheel/libucm-1a2b3c.so.0.0.0"
}

@test "with PINALLOC_WATCH=off no userfaultfd is opened" {
	local quiet=("$programs/rdma-watch-process" quiet "$listener")
	succeeds PINALLOC_WATCH=off "$programs/filtered" userfaultfd KILL "${quiet[@]}"
	[ "$stderr" = '' ]
	[ "$(watched on)" = false ]
	ends 159 "$programs/filtered" userfaultfd KILL "${quiet[@]}" # by SIGSYS
}

@test "if nothing can be watched, one line names the call that fails, what follows, and the cure" {
	rows refused <<- 'END'
		userfaultfd: by a filter
		close_range: by a filter
	END
}

refused() {
	succeeds "$programs/filtered" "$1" EPERM "$programs/rdma-watch-process" quiet "$listener"
	[ "$(grep -c ^pinalloc <<< "$stderr")" -eq 1 ]
	grep -q "is not noticed: $1: Operation not permitted; if the program .* reaches the old ones; allow the system call" \
		<<< "$stderr"
	[ "$(watched on)" = false ]
}

@test "unwatchable memory is registered and counted, and not disturbed" {
	process kinds
	[ "$(watched unwatchable)" -eq 4 ]
	[ "$(grep -c ^pinalloc <<< "$stderr")" -eq 1 ]
	process data
	[ "$(watched unwatchable)" -eq 0 ]
	[ "$stderr" = '' ]
}

# stale NAME=VALUE KIND: how many answers of UCX's cache were stale, by calls of that kind.
stale() {
	run -0 adapted "$1" "$BATS_FILE_TMPDIR/ucx-rcache" 32 $((TEST_ALL ? 10 : 3))
	echo "$output"
	stale=$(awk -v kind="/$2$" '$1 ~ kind { n += $3; all += $5 } END { print all ? n + 0 : "none" }' <<< "$output")
}

@test "UCX's own registration cache is right in 32 threads, and stale without the library" {
	gcc -E -x c - <<< '#include <ucs/memory/rcache.h>' > /dev/null 2>&1 ||
		skip "ucs/memory/rcache.h is not here (Debian: libucx-dev); test/newest builds it from sources of UCX"
	gcc -std=gnu11 -Wall -I"$top_srcdir" -o "$BATS_FILE_TMPDIR/ucx-rcache" \
		"$top_srcdir/test/programs/ucx-rcache.c" -pthread -libverbs -lucs -lucm
	stale LD_PRELOAD= raw
	[ "$stale" -ge 700 ]
	stale LD_PRELOAD="$library" '[a-z]*'
	[ "$stale" -eq 0 ]
}
