#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: the adapter and the program never see different memory: what a key reaches are the pages that
# the program has there, whatever it does with malloc or behind it, in any thread, and beside children. The
# adapter here pins pages by io_uring, and moves what is in these pages. STALE_SECONDS is how long each
# storm takes. (The lab has the same of MPI messages over real verbs.)

setup_file() {
	load helper
	allowed userfaultfd
	allowed memlock
	build_listeners
	adapted FAKE_PINS=1 LD_PRELOAD="$adapter/libibverbs.so.1" "$(type -P true)" 2> "$BATS_FILE_TMPDIR/refused" ||
		echo "# test/stale.bats is skipped: $(cat "$BATS_FILE_TMPDIR/refused")" >&3
	export BATS_TEST_TIMEOUT=$((600 * ${TIMEOUT_SCALE:-1}))
}

setup() {
	load helper
	load scripts
	[ ! -s "$BATS_FILE_TMPDIR/refused" ] || skip "not here: $(cat "$BATS_FILE_TMPDIR/refused")"
	export FAKE_PINS=1
	seconds=${STALE_SECONDS:-${TEST_ALL:+60}}
	seconds=${seconds:-2}
}

# cached NAME=VALUE LISTENER GROUPS: all ways to replace pages but of these groups, with a cache of this kind, are
# right.
cached() {
	succeeds "$1" "$programs/rdma-replaced" cached "$BATS_FILE_TMPDIR/$2" "$3"
	[ "$(grep -c '^ok' <<< "$output")" -ge 80 ]
	[ "$(grep -o '^# hits [0-9]*' <<< "$output" | cut -d ' ' -f 3)" -ge 30 ]
}

# stormy LISTENER [NAME=VALUE…]
stormy() {
	succeeds "${@:2}" "$programs/rdma-storm" "$BATS_FILE_TMPDIR/$1" "$seconds"
}

@test "with glibc's malloc, a cached registration transfers wrong data" {
	run -1 --separate-stderr adapted "$programs/rdma-script" "$(stale 120)"
	[ "$(grep -c '^not ok' <<< "$output")" -eq 2 ]
	grep -q '^# write x y: wrong' <<< "$output"
	grep -q '^# write y x: wrong' <<< "$output"
}

@test "with the library it is always right, however heap is registered" {
	rows always_right <<- 'END'
		eager: ahead
		lazy: on request
		off: without the library, as the heap alone never moves
	END
}

always_right() {
	succeeds PINALLOC_REGISTER="$1" "$programs/rdma-script" "$(stale 1000)"
	[ "$(grep -o 'hits [0-9]*' <<< "$output" | cut -d ' ' -f 2)" -ge 1000 ]
	[ "$1" != off ] || [ "$(figure "$report" .registration.mr_created)" -eq 0 ]
}

@test "pages replaced behind malloc are not taken for the old ones" {
	succeeds PINALLOC_REGISTER=lazy "$programs/rdma-replaced"
	succeeds "$programs/rdma-replaced" 20
	[ "$(figure "$report" '.registration.passed_through_reasons["pages replaced by the program"]')" -eq 320 ]
	[ "$(figure "$report" .registration.served)" -ge 100 ]
	[ "$(grep -c '^pinalloc.* replaced pages of its heap behind malloc' <<< "$stderr")" -eq 1 ]
}

# The limit on threads does not hold for root; others may not be able to read these files.
@test "where nothing tells what is replaced, PINALLOC_WATCH=strict serves nothing from the heap" {
	local strict=(PINALLOC_WATCH=strict "$programs/rdma-replaced")
	succeeds LD_PRELOAD= "$programs/filtered" userfaultfd EPERM env LD_PRELOAD="$library" "${strict[@]}"
	grep -q 'is not noticed: userfaultfd: .*; no request is served from the heap; allow' <<< "$stderr"
	[ "$(figure "$report" '.registration | .served + .mr_created')" -eq 0 ]
	[ "$(figure "$report" '.registration.passed_through_reasons["not watched, with PINALLOC_WATCH=strict"]')" -ge 32 ]
	succeeds LD_PRELOAD= setpriv --reuid=65533 --clear-groups --inh-caps +dac_override,+ipc_lock --ambient-caps \
		+dac_override,+ipc_lock prlimit --nproc=1 env LD_LIBRARY_PATH="$adapter" LD_PRELOAD="$library" "${strict[@]}"
	grep -q 'is not noticed: a thread cannot be started: .*; no request .*; raise ulimit -u' <<< "$stderr"
	[ "$(figure "$report" '.registration | .served + .mr_created')" -eq 0 ]
	succeeds "${strict[@]}" limited
	grep -q 'is not noticed: userfaultfd: Too many open files; no request .*; raise ulimit -n' <<< "$stderr"
}

@test "by default what is replaced then is stale, until it can be watched" {
	ends 1 PINALLOC_REGISTER=lazy "$programs/rdma-replaced" limited
	[ "$(grep -c '^not ok.*limited' <<< "$output")" -eq 16 ]
	[ "$(grep -c '^not ok' <<< "$output")" -eq 16 ]
	[ "$(figure "$report" .watch.on)" = true ]
}

@test "the program has no descriptor of the watch, and no child keeps one" {
	succeeds "$programs/rdma-replaced" forked
}

@test "a cache that is told of nothing misses most replacements" {
	run -1 --separate-stderr adapted LD_PRELOAD="$library" PINALLOC_WATCH=off "$programs/rdma-replaced" cached \
		"$BATS_FILE_TMPDIR/libucm.so.0" heap
	[ "$(grep -c '^not ok' <<< "$output")" -ge 60 ]
}

@test "with the library every replacement is right with UCX's cache, Open MPI's and libfabric's" {
	cached PINALLOC_WATCH=on libucm.so.0 untold
	cached PINALLOC_WATCH=on libopen-pal.so.40 untold
	cached PINALLOC_WATCH=on libfabric.so.1 untold
}

@test "with PINALLOC_WATCH=strict so are those that the kernel tells nobody of" {
	cached PINALLOC_WATCH=strict libucm.so.0 none
}

@test "parent and child write their heaps while the parent's data is in flight" {
	rows forks <<- 'END'
		now: a child that writes
		init: after ibv_fork_init()
		early: after a child forked before any registration
	END
}

forks() {
	succeeds "$programs/rdma-script" "$(forking "$1")"
	[ "$(figure "$report" .registration.served)" -eq 2 ]
	[ -z "$stderr" ]
}

@test "a storm without notifications is wrong" {
	run -1 --separate-stderr adapted LD_PRELOAD="$library" PINALLOC_WATCH=off "$programs/rdma-storm" \
		"$BATS_FILE_TMPDIR/libucm.so.0" 1
	grep -q '^not ok 3' <<< "$output"
}

@test "threads replace pages of the heap and of mappings at full speed, and every message is right" {
	stormy libucm.so.0
	stormy libucm.so.0 PINALLOC_WATCH=strict
	stormy libopen-pal.so.40
	stormy libfabric.so.1
}

# The last storm has two adapters, of which one has little room and does not say so; each thousandth registration
# fails as if the adapter had gone.
@test "so it is where the heap's memory regions are made and deregistered all the time" {
	stormy libucm.so.0 PINALLOC_REGISTER=lazy PINALLOC_MAX_PINNED=1M
	stormy libfabric.so.1 PINALLOC_MAX_PINNED=2M
	[ "$(figure "$report" '.registration.mr_created > 100')" = true ]
	stormy libucm.so.0 FAKE_TWO=1 FAKE_GONE=1000 FAKE_MOST_OBJECTS=70 CACHE_MOST=32
	[ "$(figure "$report" '.registration.evicted > 100')" = true ]
}
