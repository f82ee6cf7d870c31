#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise holds on a busy machine too: beside busy loops on each processor, with processes that are
# stopped and continued at random, no word is wrong. What depends on when a thread runs fails here.
# LAB_LOAD=1 does the same to any file of the lab, with more loops.
# Only here: threads and processes that are stopped at any moment.

setup_file() {
	export BATS_TEST_TIMEOUT=$((900 * ${TIMEOUT_SCALE:-1}))
}

# beside_a_load FILE: its short tests, in a machine with such a load.
beside_a_load() {
	local variables=() name

	# Those of this run of bats.
	mapfile -t variables < <(compgen -e | grep '^BATS' | sed 's/^/-u/')
	run env "${variables[@]}" LAB_LOAD=1 LAB_LOAD_LOOPS=2 TEST_ALL= \
		TEST_EVIDENCE="$BATS_FILE_TMPDIR/evidence" \
		"$top_srcdir/test/bats" --formatter tap "$top_srcdir/test/lab/$1.bats"
	echo "$output"
	[ "$status" -eq 0 ]
	grep -q '^ok ' <<< "$output"
	run ! grep '^not ok ' <<< "$output"
}

setup() {
	load ../helper
}

@test "beside a load messages are right" {
	beside_a_load stale
}
