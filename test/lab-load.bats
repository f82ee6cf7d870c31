#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: test/lab/load stops processes of the programs it is told to stop and no others, continues
# each, and ends as its command does, with the busy loops.
load helper

setup() {
	mkdir "$BATS_TEST_TMPDIR/ours"
	cp /bin/sleep "$BATS_TEST_TMPDIR/ours/oursleep-$$"
	sleeper=$BATS_TEST_TMPDIR/ours/oursleep-$$
	loading=("$top_srcdir/test/lab/load" --loops 2 --log "$BATS_TEST_TMPDIR/log")
}

stops() {
	grep -c " ms$" "$BATS_TEST_TMPDIR/log"
}

# state PID: a letter; T is stopped.
state() {
	sed -n 's/^State:\t\(.\).*/\1/p' "/proc/$1/status"
}

# loops: the number of busy loops there are.
loops() {
	pgrep -f -c -- 'while :; do :; done' || :
}

@test "programs of the directory are stopped and continued, and nothing else; the status is the command's" {
	local before
	before=$(loops)
	run -7 "${loading[@]}" --seed 1 "$BATS_TEST_TMPDIR/ours" -- bash -c "
		sleep 100 & $sleeper 100 &
		until [ \$(grep -c ' ms$' '$BATS_TEST_TMPDIR/log') -ge 3 ]; do
			sleep 0.1
		done
		kill %1 %2
		wait
		exit 7"
	[ "$(loops)" -eq "$before" ]
	cat "$BATS_TEST_TMPDIR/log"
	grep -q '^seed 1, 2 loops$' "$BATS_TEST_TMPDIR/log"
	[ "$(stops)" -ge 3 ]
	[ "$(grep -c " oursleep-$$" "$BATS_TEST_TMPDIR/log")" -eq "$(stops)" ]
}

@test "a stopped process is continued when the load is ended" {
	local i process victim
	"$sleeper" 60 3>&- &
	victim=$!
	for i in 1 2 3; do
		"${loading[@]}" --seed $i "$BATS_TEST_TMPDIR/ours" -- sleep 60 3>&- &
		process=$!
		until [ "$(state $victim)" = T ]; do
			sleep 0.01
		done
		kill $process
		wait $process || [ $? -eq 143 ]
		[ "$(state $victim)" != T ]
	done
	kill $victim
}
