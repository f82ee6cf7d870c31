#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: a process that reports to a file and is killed at any moment leaves a record of what its
# report would have said, which `pinalloc report` reads; keeping it does the process no harm,
# whatever becomes of the file; and a process that writes its report leaves none.
load helper

setup_file() {
	allowed memlock
}

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

@test "the record names functions, from its modules" {
	begin
	killed 1
	"$pinalloc" report out.json.*.running > text
	cat text
	grep -E 'take( |$)|main' text
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

@test "nor does one in which the destructor of another library allocates after the report" {
	gcc -fno-builtin -shared -fPIC -o libends.so -x c - <<- 'END'
		#include <stdlib.h>
		#include <string.h>

		void nothing(void)
		{
		}

		__attribute__((destructor)) static void end(void)
		{
			memset(malloc(20 << 20), 1, 20 << 20);
		}
	END
	gcc -o ends -x c - -x none ./libends.so <<< 'void nothing(void); int main(void) { nothing(); return 0; }'
	preloaded PINALLOC_REPORT=out.json ./ends
	[ -f out.json ]
	run ! compgen -G '*.running'
}

# Each change takes 30 ms here. Two threads allocate for two seconds, and the longest call is printed.
@test "a thread in malloc writes the record three times at most, however much others allocate" {
	gcc -fno-builtin -shared -fPIC -o slow.so -x c - <<- 'END'
		#define _GNU_SOURCE
		#include <sys/syscall.h>
		#include <sys/uio.h>
		#include <unistd.h>

		ssize_t process_vm_writev(pid_t pid, const struct iovec *from, unsigned long n,
					  const struct iovec *to, unsigned long m, unsigned long flags)
		{
			usleep(10000);
			return syscall(SYS_process_vm_writev, pid, from, n, to, m, flags);
		}
	END
	cat > longest.py <<- 'END'
		import ctypes, threading, time
		malloc = ctypes.CDLL(None).malloc
		longest = [0, 0]
		def take(i):
		    begin = after = time.monotonic()
		    while after < begin + 2:
		        time.sleep(1e-4)
		        before = time.monotonic()
		        malloc(1 << 20)
		        after = time.monotonic()
		        longest[i] = max(longest[i], after - before)
		other = threading.Thread(target=take, args=(1,))
		other.start()
		take(0)
		other.join()
		print(round(1000 * max(longest)))
	END
	run -0 --separate-stderr env LD_PRELOAD="$library:$PWD/slow.so" PINALLOC_REPORT="$PWD/out.json" \
		/usr/bin/python3 longest.py
	echo "$output ms"
	((output >= 30 && output < 1000))
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
	jq -e --argjson pid "$(figure out.json .pid)" '.ranks[0] | .parent == $pid and
		(.memory.live_peak_bytes | . > 100 * 1048576 and . < 110 * 1048576)' merged
}

@test "pinalloc report reads the record of a program that runs, which goes on" {
	begin
	sleep 0.3
	"$pinalloc" report --json out.json.*.running > merged
	jq -e --argjson pid "$program" '.ranks[0] | .pid == $pid and .program == "recorded" and
		.memory.live_peak_bytes >= 67108864' merged
	run -0 "$pinalloc" report .
	[[ "${lines[0]}" == "pinalloc: recorded, 1 process on 1 host, "* ]]
	[[ "$output" == *" still runs; last record at "* ]]
	kill -0 "$program"
	killed 0.3
}

@test "the record follows what the process has, though the heap grows no more" {
	env LD_PRELOAD="$library" PINALLOC_REPORT="$PWD/out.json" /usr/bin/python3 -c '
import time
used = bytearray(300 << 20)
more = bytearray(20 << 20)
del used
open("freed", "w")
time.sleep(100)' 3>&- &
	program=$!
	until [ -e freed ]; do sleep 0.01; done
	"$pinalloc" report --json out.json.*.running > merged
	jq -e '.ranks[0].memory | .live_bytes < 50 * 1048576 and .live_peak_bytes >= 300 * 1048576' merged
}

@test "requests that go to libibverbs are written each time that their number has doubled" {
	run -137 adapted LD_PRELOAD="$library" PINALLOC_REPORT=out.json "$programs/rdma-script" \
		$'a=map 64K\n10000 times: x=reg a; dereg x\nkill 9'
	[ "$("$pinalloc" report --json out.json.*.running | jq .ranks[0].registration.passed_through)" -ge 8192 ]
	"$pinalloc" report out.json.*.running | tee text
	grep -qx '  Registrations of heap memory: none were requested.*; [0-9]* requests for other memory went to libibverbs\.' text
	for part in 0 1; do
		[ "$(od -An -j $((part * 128 * 1024 + 8)) -N 8 -t u8 out.json.*.running)" -le 64 ]
	done
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

# totals SEED…: what is said of jobs that are drawn from these, with processes that ended, were killed or
# still run, that forked or share memory, agrees with what there was.
totals() {
	run -0 --separate-stderr python3 "$top_srcdir/test/generated-jobs.py" "$library" "$pinalloc" "$programs/member" 4 "$@"
	[ "${#lines[@]}" -ge $((8 * $#)) ]
}

@test "totals of a job are those of its processes, whatever becomes of these" {
	totals 104 114 117 143
}

# bats test_tags=thorough
@test "so it is of forty jobs" {
	totals {1..40}
}

# bats test_tags=thorough
@test "ten thousand ranks may leave their records in one directory" {
	begin
	killed 0.3
	mkdir job
	python3 - <<- 'END'
		import glob, json, struct
		record = open(glob.glob("out.json.*.running")[0], "rb").read()
		numbers, texts = [], []
		for part in (record[:1 << 17], record[1 << 17:]):
		    number, n_bytes = struct.unpack_from("QQ", part, 8)
		    numbers.append(number)
		    texts.append(part[24:24 + n_bytes])
		report = json.loads(texts[numbers.index(max(numbers))])
		for rank in range(10000):
		    report.update(pid=rank + 1, rank=rank, nranks=10000)
		    text = json.dumps(report).encode()
		    with open(f"job/{rank}.json.node.{rank}.running", "wb") as out:
		        out.write(struct.pack("8xQQ", 1, len(text)) + text.ljust((1 << 17) - 32) + struct.pack("Q", 1))
	END
	run -0 --separate-stderr "$pinalloc" report job
	[ -z "$stderr" ]
	[[ "${lines[0]}" == "pinalloc: 10000 ranks ended without a report (killed, or by _exit); which "* ]]
	[[ "${lines[1]}" == "pinalloc: recorded, 10000 ranks on 1 host, "* ]]
}
