#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: a process that reports to a file and is killed at any moment leaves a record of what its
# report would have said, which `pinalloc report` reads; keeping it does the process no harm,
# whatever becomes of the file; and a process that writes its report leaves none.

setup_file() {
	load helper
	build_adapter
}

setup() {
	load helper
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

# begin [NAME=VALUE…]: the program runs, as $program, and has its record.
begin() {
	env LD_PRELOAD="$library" PINALLOC_REPORT="$PWD/out.json" "$@" "$recorded" truth 2> said 3>&- &
	program=$!
	until compgen -G 'out.json.*.running' > /dev/null; do
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
		# Small blocks count with all pages of their slabs; a record may lack the last 256th.
		assert abs(peak - truth) <= truth / 50 + 524288, (peak, truth)
		assert 0 <= memory["live_bytes"] <= memory["mapped_bytes"] >= peak, memory
		assert memory["growth_steps"] >= 1 and memory["rss_peak_bytes"] > 0, memory
		assert rank["trigger"] == "the process ended without a report", rank
	END
}

@test "a process killed at any moment leaves a record, with its peak within 2 %" {
	local i
	for i in {1..20}; do
		begin
		killed "0.$((RANDOM % 3))$RANDOM"
		rm out.json.*
	done
}

# bats test_tags=thorough
@test "so it is two hundred times" {
	local i
	for i in {1..200}; do
		begin
		killed "0.$((RANDOM % 6))$RANDOM"
		rm out.json.*
	done
}

@test "the record names functions, from its modules" {
	begin PINALLOC_GROW=2M
	killed 1
	"$pinalloc" report out.json.*.running > text
	cat text
	grep -E 'take( |$)|main' text
	grep -qx "  Not written at exit: $(hostname):[0-9]* (the process ended without a report)\." text
	# The timeline rises to the peak.
	"$pinalloc" report --plot=plot.txt out.json.*.running > text
	grep -q MiB plot.txt
}

@test "a process that writes its report leaves no record, nor does one of little memory" {
	preloaded PINALLOC_REPORT=out.json "$programs/grow" 20
	[ "$(ls)" = out.json ]
	run -137 preloaded PINALLOC_REPORT=killed.json bash -c 'kill -KILL $$'
	[ "$(ls)" = out.json ]
}

@test "a process that has changed its directory takes its record away all the same" {
	mkdir sub
	run -0 preloaded PINALLOC_REPORT=out.json /usr/bin/python3 -c "
import os
kept = bytearray(8 << 20)
os.chdir('sub')"
	[ "$(ls | xargs)" = "out.json sub" ]
	[ -z "$(ls sub)" ]
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
	jq -e '.ranks[0].memory.live_peak_bytes | . > 100 * 1048576 and . < 110 * 1048576' merged
	[ "$(od -An -tu4 -j24 -N4 ./*.running | tr -d ' ')" -eq "$(figure out.json .pid)" ]
}

@test "the record of another build is told by its layout" {
	begin PINALLOC_GROW=2M
	killed 1
	printf '\0\0\0\0' | dd of="$(ls out.json.*.running)" bs=1 seek=16 conv=notrunc status=none
	run "$pinalloc" report out.json.*.running
	[[ "$output" == *"is the record of another version"* ]]
	truncate -s -4096 out.json.*.running
	run "$pinalloc" report out.json.*.running
	[[ "$output" == *"is the record of another version"* ]]
}

# The number of writes is at the beginning of the second page.
@test "requests that go to libibverbs are written each time that their number has doubled" {
	run -137 adapted LD_PRELOAD="$library" PINALLOC_REPORT=out.json "$programs/rdma-passed" 10000
	[ "$("$pinalloc" report --json out.json.*.running | jq .ranks[0].registration.passed_through)" -ge 8192 ]
	"$pinalloc" report out.json.*.running | tee text
	grep -qx '  Registrations of heap memory: none asked for.*; [0-9]* of other memory went to libibverbs\.' text
	[ "$(od -An -t u8 -j 4096 -N 8 out.json.*.running)" -le 64 ]
}

@test "a record that somebody has cut, or removed, does the process no harm" {
	local record
	begin
	record=$(ls out.json.*.running)
	: > "$record"
	sleep 0.5
	kill -0 "$program"
	grep 'no record is kept beside .*/out.json of what' said
	kill -KILL "$program"
	wait "$program" || true
	rm -f out.json.*
	begin
	rm out.json.*
	sleep 0.3
	kill -0 "$program"
}

@test "a full disk does it no harm, nor one that goes away" {
	mkdir disk
	mount -t tmpfs -o size=16k none disk
	run -0 --separate-stderr preloaded PINALLOC_REPORT="$PWD/disk/out.json" PINALLOC_REPORT_FORMAT=text \
		"$programs/grow" 20
	[[ "$stderr" == *"no record is kept beside "*"/disk/out.json of what"*": No space left on device" ]]
	[ "${#stderr_lines[@]}" -eq 1 ]
	[ "$(ls disk)" = out.json ]
	umount disk
	mount -t tmpfs none disk
	env LD_PRELOAD="$library" PINALLOC_REPORT="$PWD/disk/out.json" "$recorded" truth 2> said 3>&- &
	program=$!
	until compgen -G 'disk/out.json.*.running' > /dev/null; do sleep 0.01; done
	umount -l disk
	sleep 0.3
	kill -0 "$program"
}

# Spoilt in every part, it is one line or a report, and nothing else.
@test "whatever is in a record, pinalloc report reads it or says why not" {
	begin
	killed 0.2
	cp out.json.*.running whole
	python3 - "$pinalloc" <<- 'END'
		import random, subprocess, sys
		whole = open("whole", "rb").read()
		random.seed(1)
		for round in range(300):
		    record = bytearray(whole)
		    for _ in range(random.choice((1, 8, 64))):
		        at = random.choice((random.randrange(16, 600), random.randrange(4096, 4400),
		                            random.randrange(16, len(record))))
		        record[at] = random.choice((0, 255, random.randrange(256)))
		    if round % 10 == 0:
		        del record[random.randrange(len(record)):]
		    open("spoilt.running", "wb").write(record)
		    done = subprocess.run([sys.argv[1], "report", "spoilt.running"], capture_output=True)
		    assert done.returncode in (0, 1, 2), done
		    assert done.returncode == 0 or done.stderr, done
		    assert not [c for c in done.stdout + done.stderr if c < 32 and c != 10], done
	END
}

# bats test_tags=thorough
@test "ten thousand ranks may leave their records in one directory" {
	begin
	killed 0.3
	mkdir job
	python3 - <<- 'END'
		import glob, struct
		record = bytearray(open(glob.glob("out.json.*.running")[0], "rb").read())
		for rank in range(10000):
		    struct.pack_into("=Iqq", record, 20, rank + 1, rank, 10000)
		    open(f"job/{rank}.json.node.{rank}.running", "wb").write(record)
	END
	run -0 --separate-stderr "$pinalloc" report job
	[ -z "$stderr" ]
	[[ "${lines[0]}" == "pinalloc: rank 0 on "*" was killed first, "* ]]
	[[ "${lines[1]}" == "pinalloc: recorded, 10000 ranks on 1 host, "* ]]
}
