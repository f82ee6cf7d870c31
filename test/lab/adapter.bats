#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: what test/lookup and watch.bats show with an adapter that
# copies holds with real verbs, of each a case; and so does what takes a real device, libfabric,
# or hugetlb pages.
# Only here: libfabric itself beside the library, and a watch of hugetlb pages.

load lab

setup_file() {
	load ../scripts
	guest_variables=(script)
	build_shared libucm.so.0 listener
	boot
}

in_guest() {
	local case listener=$BATS_FILE_TMPDIR/libucm.so.0

	attempt plain-not-imported "$programs/rdma-script" "${script[not-imported]}"
	for case in keys enable dealloc growing not-imported; do
		shimmed $case "$programs/rdma-script" "${script[$case]}"
	done
	echo 16 > /proc/sys/vm/nr_hugepages
	for case in ways hugetlb; do
		shimmed $case "$programs/rdma-watch-process" $case "$listener"
	done
	attempt unused PINALLOC_LOG=info LD_PRELOAD="$library libfabric.so.1" \
		"$programs/rdma-watch-process" ways "$listener"
}

@test "looked-up keys transfer data, from several threads in two protection domains" {
	ended keys
	ended enable
}

@test "protection domains are busy, and devices end while the heap grows, as without the library" {
	ended dealloc
	holds growing '.registration.passed_through == 0' '.memory.pinned_bytes == 0'
}

@test "importing devices and domains fails as without the library" {
	ended plain-not-imported
	holds not-imported '.memory.pinned_bytes == 0'
}

@test "every replacement of registered memory is notified before the call returns" {
	ended ways
	ended hugetlb
	[ "$(reported ways .watch.unwatchable)" -eq 0 ]
	[ "$(reported hugetlb .watch.unwatchable)" -eq 0 ]
}

@test "libfabric may be loaded without being used" {
	grep -q 'libfabric\.so\.1 is notified of memory that goes away' "$results/unused.err"
	ended unused
}
