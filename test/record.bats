#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: a process that reports to a file and is killed at any moment leaves a record of what its
# report would have said, which `pinalloc report` reads; keeping it does the process no harm,
# whatever becomes of the file; and a process that writes its report leaves none.
load helper

setup() {
	cd "$BATS_TEST_TMPDIR"
	recorded=$programs/recorded
	pinalloc=$top_builddir/pinalloc
	program=
}

teardown() {
	[ -z "$program" ] || kill -KILL "$program" 2> /dev/null || true
	cd /
	umount -q "$BATS_TEST_TMPDIR/disk" 2> /dev/null || true
}

# begin [NAME=VALUE…]: the program runs, as $program, and has written its record.
begin() {
	env LD_PRELOAD="$library" PINALLOC_REPORT="$PWD/out.json" "$@" "$recorded" truth 2> said 3>&- &
	program=$!
	# The first writing is in the second part, whose number comes last.
	until compgen -G 'out.json.*.running' > /dev/null &&
		[ -n "$(od -An -j $((128 * 1024 + 8)) -N 8 -t u8 out.json.*.running | tr -d ' 0')" ]; do
		kill -0 "$program"
		sleep 0.01
	done
}

# killed SECONDS: it is killed after that, and its record has what it held.
killed() {
	sleep "$1"
	kill -KILL "$program"
	wait "$program" || true
	program=
	"$pinalloc" report --json out.json.*.running > merged
	python3 - <<- 'END'
		import json, struct
		rank = json.load(open("merged"))["ranks"][0]
		memory = rank["memory"]
		truth, = struct.unpack("Q", open("truth", "rb").read())
		peak = memory["live_peak_bytes"]
		# Small blocks count with all pages of their slabs; a record may lack a 64th, or 4 MiB.
		assert abs(peak - truth) <= truth / 50 + (9 << 19), (peak, truth)
		assert 0 <= memory["live_bytes"] <= memory["mapped_bytes"] >= peak, memory
		assert memory["growth_steps"] >= 1 and memory["rss_peak_bytes"] > 0, memory
		assert rank["trigger"] == "the process ended without a report", rank
	END
}

# at_any_moment TIMES: it begins and is killed.
at_any_moment() {
	local i
	for ((i = 0; i < $1; i++)); do
		begin
		killed "0.$((RANDOM % 6))$RANDOM"
		rm out.json.*
	done
}

@test "a process killed at any moment leaves a record, with its peak within 2 % or 4 MiB" {
	at_any_moment 10
}

# bats test_tags=thorough
@test "so it is two hundred times" {
	at_any_moment 200
}

@test "pinalloc report reads the record of a program that runs, and of one that was killed, with its functions" {
	begin
	sleep 0.1
	run -0 "$pinalloc" report .
	[[ "${lines[0]}" == "pinalloc: recorded, 1 process on 1 host, "* ]]
	[[ "$output" == *" still runs; last record at "* ]]
	kill -0 "$program"
	killed 0.1
	run -0 "$pinalloc" report --plot=plot.txt out.json.*.running
	grep -E 'take( |$)|main' <<< "$output"
	# The timeline rises to the peak.
	grep -q MiB plot.txt
}

@test "a process that writes its report leaves no record, nor does one of little memory" {
	preloaded PINALLOC_REPORT=out.json "$programs/grow" 20
	[ "$(ls)" = out.json ]
	run -137 preloaded PINALLOC_REPORT=killed.json bash -c 'kill -KILL $$'
	[ "$(ls)" = out.json ]
}

@test "a forked child that used much and is killed leaves a record, which names its parent" {
	preloaded PINALLOC_REPORT=out.json /usr/bin/python3 -c '
import os
kept = bytearray(20 << 20)
if not os.fork():
    used = bytearray(100 << 20)
    os.kill(os.getpid(), 9)
os.wait()'
	[ "$(ls | wc -l)" -eq 2 ]
	"$pinalloc" report --json ./*.running > merged
	jq -e --argjson pid "$(figure out.json .pid)" '.ranks[0] | .parent == $pid and
		(.memory.live_peak_bytes | . > 100 * 1048576 and . < 110 * 1048576)' merged
}

@test "each program that a process executed has a record, and the one that used most is the rank" {
	PMI_RANK=0 PMI_SIZE=1 preloaded PINALLOC_REPORT=out.json /usr/bin/python3 -c '
import os, sys
kept = bytearray(30 << 20)
os.execv("/usr/bin/python3", ["python3", "-c", """
import os, sys
kept = bytearray(60 << 20)
os.execv(sys.argv[1], [sys.argv[1], "8"])""", sys.argv[1]])' "$programs/grow"
	[ "$(ls | wc -l)" -eq 3 ]
	run -0 "$pinalloc" report .
	[[ "${lines[0]}" == "pinalloc: python3"*", 1 rank and 2 other processes on 1 host, "* ]]
	[ "$(grep -c 'executed another program' <<< "$output")" -eq 2 ]
	"$pinalloc" report --json . | jq -e '.ranks[0].memory.live_peak_bytes / 1048576 | . > 60 and . < 70'
}

@test "a record that somebody has cut, or removed, does the process no harm" {
	local record
	begin
	record=$(ls out.json.*.running)
	: > "$record"
	until grep 'the record beside .*/out.json cannot be written: ' said; do
		kill -0 "$program"
		sleep 0.01
	done
	kill -KILL "$program"
	wait "$program" || true
	rm -f out.json.*
	begin
	rm out.json.*
	sleep 0.3
	kill -0 "$program"
}

@test "if the record cannot be made though the report can, there is one line" {
	local name digits=$((249 - ${#BASHPID} - 5))
	# The report's first name has ".PID.part" more, and fits; the record's has the host's as well.
	name=$(printf "%0${digits}d.json" 0)
	run -0 --separate-stderr preloaded PINALLOC_REPORT="$PWD/$name" "$programs/grow" 20
	[[ "$stderr" == *"the record beside "*"/$name cannot be written: File name too long; if the process is killed, it leaves no report" ]]
	[ "${#stderr_lines[@]}" -eq 1 ]
	[ "$(ls ./*.json*)" = "./$name" ]
}

@test "a full disk does it no harm, nor one that goes away" {
	mkdir disk
	mount -t tmpfs -o size=16k none disk
	run -0 --separate-stderr preloaded PINALLOC_REPORT="$PWD/disk/out" "$programs/grow" 20
	[[ "$stderr" == *"the record beside "*"/disk/out cannot be written: No space left on device; if the process is killed, it leaves no report" ]]
	[ "${#stderr_lines[@]}" -eq 1 ]
	[ "$(ls disk)" = out ]
	umount disk
	mount -t tmpfs none disk
	env LD_PRELOAD="$library" PINALLOC_REPORT="$PWD/disk/out.json" "$recorded" truth 2> said 3>&- &
	program=$!
	until compgen -G 'disk/out.json.*.running' > /dev/null; do sleep 0.01; done
	umount -l disk
	sleep 0.3
	kill -0 "$program"
}

# totals SEED…: what is said of jobs that are drawn from these, with processes that ended, were killed or
# still run, that forked or share memory, agrees with what there was.
totals() {
	run --separate-stderr python3 "$top_srcdir/test/generated-jobs.py" "$library" "$pinalloc" "$programs/member" 4 "$@"
	grep WRONG <<< "$output" || [ "$status" -eq 0 ]
	[ "$status" -eq 0 ] && [ "${#lines[@]}" -ge $((11 * $#)) ]
}

# bats test_tags=slow
@test "totals of a job are those of its processes, whatever becomes of these" {
	totals 14 36 72 115 134 149
}

# bats test_tags=thorough
@test "so it is of forty jobs" {
	totals {1..40}
}
