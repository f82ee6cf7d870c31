#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: a process with a registered heap can have children. A child has a working heap, the
# parent's transfers stay right while both write, and the child leaves no report.
# Only here: a kernel that does not copy pinned pages, and Python's workers beside transfers.

load lab

setup_file() {
	vm_options=(--smp 2)
	build_shared plugin.so rdma-plugin -libverbs
	build_shared fork-needed.so fork-needed
	load ../scripts
	boot with_reports older forking
}

# with_reports NAME COMMAND…: runs a case with the library, and a report for each process.
with_reports() {
	local name=$1
	shift
	attempt "$name" LD_PRELOAD="$library" PINALLOC_REPORT="/ctl/$name.%p.json" "$@"
}

# older NAME COMMAND…: the same on what appears to the library as a kernel that does not copy pinned
# pages.
older() {
	with_reports "$1" LD_PRELOAD="$library:$BATS_FILE_TMPDIR/fork-needed.so" "${@:2}"
}

in_guest() {
	local program=("$programs/rdma-script" "$(forking)") init=("$programs/rdma-script" "$(forking init)")
	local apart=("$programs/rdma-script" "$(forking init apart)")
	local python=(python3 "$top_srcdir/test/programs/rdma-fork.py" "$BATS_FILE_TMPDIR/plugin.so")

	attempt plain "${program[@]}"
	attempt plain-apart "${apart[@]}"
	attempt plain-older LD_PRELOAD="$BATS_FILE_TMPDIR/fork-needed.so" "${init[@]}"
	attempt plain-python "${python[@]}"
	with_reports fork "${program[@]}"
	with_reports python "${python[@]}"
	with_reports safe RDMAV_FORK_SAFE=1 "${program[@]}"
	older older-safe RDMAV_FORK_SAFE=1 "$programs/rdma-script" "$(forking apart)"
	older older "${program[@]}"
	older older-init "${init[@]}"
	older older-apart "${apart[@]}"
}

# report CASE PATH: a value of the report that the case left, beside those of what it forked.
report() {
	jq -r "select(.program == \"${program:-rdma-script}\" and .parent == null)$2" "$results/$1".*.json > \
		"$BATS_TEST_TMPDIR/figures"
	[ "$(wc -l < "$BATS_TEST_TMPDIR/figures")" -eq 1 ] || return
	cat "$BATS_TEST_TMPDIR/figures"
}

# served CASE: one process left a report, and all requests were served.
served() {
	[ "$(report "$1" .registration.served)" -eq 2 ]
	[ "$(report "$1" .registration.passed_through)" -eq 0 ]
}

# fine CASE: everything was right, and was served.
fine() {
	ended "$1"
	served "$1"
	[ ! -s "$results/$1.err" ]
}

# guarded CASE: nothing was pinned, all requests went to libibverbs, and one line says why.
guarded() {
	[ "$(report "$1" .registration.served)" -eq 0 ]
	[ "$(report "$1" .registration.mr_created)" -eq 0 ]
	[ "$(report "$1" .memory.pinned_peak_bytes)" -eq 0 ]
	[ "$(report "$1" '.registration.passed_through_reasons["fork protection without copy-on-fork"]')" -eq 2 ]
	[ "$(wc -l < "$results/$1.err")" -eq 1 ]
	grep -q '^pinalloc\[.*fork protection is on' "$results/$1.err"
}

# workers CASE: Python's workers and their parent were right.
workers() {
	ended "$1"
	diff - "$results/$1.out" <<'END'
workers right: True
sent right: True while they worked: True
untouched: True
destructor of a library: 0 failed
END
}

# loses CASE: the child lacks its parent's buffers.
loses() {
	ended "$1" 1
	grep -q '^# child: status 0xb$' "$results/$1.out"
}

@test "parent and child write their heaps while the parent's data is in flight" {
	ended plain
	fine fork
}

@test "so they do with RDMAV_FORK_SAFE=1; where the kernel does not copy, nothing is registered" {
	fine safe
	ended older-safe
	guarded older-safe
}

@test "Python's forked worker processes work while the parent uses RDMA" {
	workers plain-python
	workers python
	program=python3 served python
}

@test "on a kernel that does not copy pinned pages, a program without ibv_fork_init() is served" {
	fine older
}

@test "there, after ibv_fork_init(), children have the same memory as without the library" {
	loses plain-older
	loses older-init
	diff "$results/plain-older.out" "$results/older-init.out"
	guarded older-init
	ended plain-apart
	ended older-apart
	guarded older-apart
}
