#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: each process that ends writes one report, completely or not at all, to the requested
# place in the requested form; its figures are correct.

setup() {
	load helper
	mkdir "$BATS_TEST_TMPDIR/here"
	cd "$BATS_TEST_TMPDIR/here"
	grow=$programs/grow
}

# ranked NAME=VALUE…: the name of the report of a process with this environment.
ranked() {
	rm -f report.*
	preloaded PINALLOC_REPORT=report.%r "$@" "$grow" || return
	echo report.*
}

@test "no report is written unless requested" {
	run -0 --separate-stderr preloaded "$grow" 1
	[ -z "$output$stderr" ]
	run -0 --separate-stderr preloaded PINALLOC_REPORT=off "$grow" 1
	[ -z "$output$stderr" ]
	[ -z "$(ls)" ]
}

@test "PINALLOC_REPORT=stderr: the first line identifies the process, the next four have the answers" {
	run -0 --separate-stderr preloaded PINALLOC_REPORT=stderr "$grow" 100
	[ -z "$output" ]
	[[ "${stderr_lines[0]}" =~ ^pinalloc:\ grow,\ process\ [0-9]+\ on\ $(uname -n),\ [0-9]+\.[0-9]\ s$ ]]
	[ "${stderr_lines[1]}" = "  Registrations of heap memory: none asked for." ]
	[[ "${stderr_lines[2]}" =~ the\ heap\ grew\ to\ 1[0-9][0-9]\.[0-9]\ MiB\;\ [0-9]*\.0\ KiB\ of\ it\ were\ touched ]]
	[[ "${stderr_lines[3]}" == "  No limit was near; the nearest: "* ]]
	[[ "${stderr_lines[4]}" == "  Beside the heap: "*" MiB in memory (mapped files "* ]]
}

@test "PINALLOC_REPORT=stderr works if the program closes standard error as it ends" {
	run -0 --separate-stderr preloaded PINALLOC_REPORT=stderr ls -d /
	[ "$output" = / ]
	[[ "${stderr_lines[0]}" == "pinalloc: ls, process "* ]]
}

@test "PINALLOC_REPORT=stderr never writes to a file that reuses the descriptor" {
	for first in 0 3; do
		run -0 --separate-stderr preloaded PINALLOC_REPORT=stderr /usr/bin/python3 -c "
import os
os.closerange($first, 1024)
while os.open('file', os.O_WRONLY | os.O_CREAT) < 200: pass"
		[ -e file ]
		[ ! -s file ]
	done
	[[ "${stderr_lines[0]}" == "pinalloc: python3, process "* ]]
}

# what_is_said STATEMENT: what a program prints if its report cannot be written, after running the
# statement.
what_is_said() {
	preloaded PINALLOC_REPORT=missing/out /usr/bin/python3 -c "
import os
def opened():
    return os.open('file', os.O_RDWR | os.O_CREAT)
$1"
}

@test "messages never go to a file that reuses the descriptor of standard error" {
	run -0 what_is_said 'os.close(2); assert opened() == 2'
	[ -z "$output" ]
	run -0 what_is_said 'os.dup2(opened(), 2)'
	[ -z "$output" ]
	what_is_said 'assert opened() == 2' 2>&-
	[ -e file ]
	[ ! -s file ]
	run -0 what_is_said 'kept = os.dup(2); os.dup2(opened(), 2); os.dup2(kept, 2)'
	[[ "$output" == *"the report cannot be written to missing/out: "* ]]
}

@test "a path may contain the host, the process and the rank" {
	run -0 preloaded PINALLOC_REPORT="$PWD/%h-%p-%r.txt" PMI_RANK=3 PMI_SIZE=8 "$grow" 1
	[ -z "$output" ]
	file=$(ls)
	[[ "$file" =~ ^$(uname -n)-[0-9]+-3\.txt$ ]]
	[[ "$(head -n 1 "$file")" == *", rank 3 of 8, "* ]]
}

@test "the rank is taken from Open MPI, PMI, PMIx or Slurm" {
	[ "$(ranked OMPI_COMM_WORLD_RANK=1)" = report.1 ]
	[ "$(ranked PMI_RANK=2)" = report.2 ]
	[ "$(ranked PMIX_RANK=3)" = report.3 ]
	[ "$(ranked SLURM_PROCID=4)" = report.4 ]
	[ "$(ranked PMI=5)" = report.none ]
}

@test "so is the number of ranks, which in Slurm is that of the job step" {
	preloaded PINALLOC_REPORT=out.json SLURM_PROCID=1 SLURM_NTASKS=8 "$grow" 1
	[ "$(figure out.json .nranks)" -eq 8 ]
	preloaded PINALLOC_REPORT=out.json SLURM_PROCID=1 SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=4 \
		"$grow" 1
	[ "$(figure out.json .nranks)" -eq 4 ]
	preloaded PINALLOC_REPORT=out.json PMI_RANK=0 PMI_SIZE=2 "$grow" 1
	[ "$(figure out.json .nranks)" -eq 2 ]
}

@test "the JSON report has the documented keys" {
	preloaded PINALLOC_REPORT=out.json OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "$grow" 1
	jq -e '.schema == 2 and .rank == 1 and .nranks == 2 and .program == "grow"' out.json
	jq -e '[.pid, .elapsed_s] | all(type == "number")' out.json
	jq -e '.trigger == "at exit" and .job.id == null' out.json
	jq -e '.job.started <= now and .job.started > now - 3600' out.json
	jq -e '.timeline_columns == ["seconds", "live_bytes", "mapped_bytes", "pinned_bytes"] and
		(.timeline | all(length == 4))' out.json
	jq -e '[.version, .host] | all(type == "string")' out.json
	jq -e '.memory | [.live_bytes, .mapped_bytes, .pinned_bytes, .pinned_peak_bytes,
		.rss_peak_bytes, .growth_steps] | all(type == "number")' out.json
	jq -e '.registration | [.mr_created, .mr_ahead, .mr_destroyed, .served, .passed_through,
		.refused, .evicted, .seconds] | all(type == "number")' out.json
	jq -e '.registration.domains == []' out.json
	jq -e '.stability == {checked_pages: 0, moved_pages: 0}' out.json
	jq -e '.watch == {on: false, registrations: 0, unwatchable: 0, events: 0, invalidations: 0, forgotten: 0}' \
		out.json
	run ! jq -e '.memory | [.no_such_key] | all(type == "number")' out.json
}

# job_id ID [NAME=VALUE…]: with these variables the report is of that job.
job_id() {
	local id=$1
	shift
	preloaded PINALLOC_REPORT=job.json "$@" "$grow" 1
	[ "$(figure job.json .job.id)" = "$id" ]
}

@test "the job is what the launcher calls it, or the batch system, and another when it is run again" {
	job_id 17 SLURM_JOB_ID=17
	job_id 17.0 SLURM_JOB_ID=17 SLURM_STEP_ID=0 SLURM_RESTART_COUNT=0
	job_id 17.0/2 SLURM_JOB_ID=17 SLURM_STEP_ID=0 SLURM_RESTART_COUNT=2
	job_id prterun-a-7@1 SLURM_JOB_ID=17 SLURM_STEP_ID=0 PMIX_NAMESPACE=prterun-a-7@1
	job_id 9.server PBS_JOBID=9.server
	job_id '"\' PBS_JOBID='"\'
	job_id "$(printf '%0159d' 0)" PMIX_NAMESPACE="$(printf '%0999d' 0)"
	job_id null SLURM_RESTART_COUNT=1 SLURM_STEP_ID=0
}

@test "a TaskEpilog of Slurm, which has the rank of its task, leaves the task's report" {
	preloaded PINALLOC_REPORT=%r.json SLURM_PROCID=1 SLURM_SCRIPT_CONTEXT=prolog_task "$grow" 1
	sum=$(md5sum 1.json)
	preloaded PINALLOC_REPORT=%r.json SLURM_PROCID=1 SLURM_SCRIPT_CONTEXT=epilog_task "$grow" 2
	[ "$(md5sum 1.json)" = "$sum" ]
	run -0 preloaded PINALLOC_REPORT=stderr SLURM_SCRIPT_CONTEXT=epilog_task "$grow" 1
	[ -z "$output" ]
}

@test "outside an MPI job rank and nranks are null" {
	preloaded PINALLOC_REPORT=out.json "$grow" 1
	jq -e 'has("rank") and .rank == null and has("nranks") and .nranks == null' out.json
}

@test "the JSON report is valid for any program name" {
	cp "$grow" 'a "quoted" \ name'
	preloaded PINALLOC_REPORT=out.json './a "quoted" \ name' 1
	[ "$(figure out.json .program)" = 'a "quoted" \ name' ]
}

# Every kind of invalid UTF-8, and similar sequences that are valid.
@test "the JSON report is UTF-8 for any bytes in the program name" {
	library=$library python3 - "$grow" <<- 'END'
		import json, os, subprocess, sys
		bad = [b"\x80", b"\xff", b"\xc3", b"\xc0\xaf", b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xed\xa0\x80",
		       b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xe2\x82", b"\xf0\x9f\x98"]
		good = ["\u0080", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff",
		        "\x01\x1f\x7f\t\n", "\u20ac\u00e9"]
		name = b"x".join([good.encode() for good in good] + bad + [b"\xe2\x82"])
		os.symlink(sys.argv[1], b"./" + name)
		subprocess.run([b"./" + name], check=True,
		               env={"LD_PRELOAD": os.environ["library"], "PINALLOC_REPORT": "out.json"})
		text = open("out.json", "rb").read().decode()
		wanted = "x".join(good + ["?" * len(bad) for bad in bad] + ["??"])
		assert json.loads(text)["program"] == wanted, json.loads(text)["program"]
	END
}

@test "in a directory like /tmp the link of another user is not followed, whatever the kernel does" {
	mkdir -m 1777 shared
	# linked OWNER: writes a report through a link of that user's.
	linked() {
		rm -f target shared/link
		ln -s "$PWD/target" shared/link
		chown -h "$1" shared/link
		run --separate-stderr preloaded PINALLOC_REPORT=shared/link "$grow" 1
		[ "$status" -eq 0 ]
	}
	linked 65534
	[ ! -e target ]
	[[ "$stderr" == *'shared/link'*'Permission denied'* ]]
	linked 0
	[ -s target ]
	chown 65534 shared
	linked 65534
	[ -s target ]
	linked 65533
	[ ! -e target ]
	chmod 755 shared
	linked 65533
	[ -s target ]
}

@test "100 MiB allocated and not touched are live and mapped, but not resident" {
	local mib=$((1 << 20))
	preloaded PINALLOC_REPORT=out.json "$grow" 100
	preloaded PINALLOC_REPORT=none.json "$grow" 0
	live=$(figure out.json .memory.live_bytes)
	mapped=$(figure out.json .memory.mapped_bytes)
	[ "$live" -ge $((100 * mib)) ]
	[ "$live" -lt $((102 * mib)) ]
	[ "$mapped" -ge "$live" ]
	[ "$mapped" -lt $((200 * mib)) ]
	[ "$(figure out.json .memory.growth_steps)" -gt 1 ]
	[ "$(figure out.json .memory.rss_peak_bytes)" -gt $mib ]
	[ "$(figure out.json .memory.rss_peak_bytes)" -lt $((50 * mib)) ]
	[ "$(figure none.json .memory.live_bytes)" -lt $mib ]
	# The first growth step, of which an idle program needs no second.
	[ "$(figure none.json .memory.growth_steps)" -eq 1 ]
	[ "$(figure none.json .memory.mapped_bytes)" -lt "$((mapped / 2))" ]
}

# Resolving the stacks may make the heap grow once more before the figures are taken.
@test "the number of growth steps matches the size of the heap" {
	local steps
	for mib in 1 100; do
		preloaded PINALLOC_LOG=debug PINALLOC_REPORT=out.json "$grow" $mib 2> log
		steps=$(figure out.json .memory.growth_steps)
		sed -n 's/.* the heap grows by \([0-9]*\)\.0 MiB .*/\1/p' log | head -n "$steps" > grown
		[ "$(wc -l < grown)" -eq "$steps" ]
		[ "$(awk '{ n += $1 } END { print n * 1048576 }' grown)" -eq \
			"$(figure out.json .memory.mapped_bytes)" ]
	done
	[ "$steps" -gt 1 ]
}

# megabytes NAME: a figure of a text report, in whole MiB.
megabytes() {
	sed -n "s/^  $1  *\([0-9]*\)\.[0-9] MiB\$/\1/p" out.txt
}

@test "the text report separates current, peak and mapped memory" {
	preloaded PINALLOC_REPORT=out.txt "$programs/peaks" block 50
	cat out.txt
	[ "$(megabytes 'in use at the peak')" -eq 50 ]
	[ -z "$(megabytes 'in use now')" ]
	grep -E '^  in use now +[0-9]+\.[0-9] KiB$' out.txt
	[ "$(megabytes 'heap, never returned')" -gt 50 ]
	preloaded PINALLOC_REPORT=out.txt "$grow" 50
	[ "$(megabytes 'in use now')" -eq 50 ]
}

@test "the limit on locked memory is reported, or null" {
	(ulimit -l 64 && preloaded PINALLOC_REPORT=out.json "$grow" 1)
	[ "$(figure out.json .memory.memlock_limit_bytes)" -eq 65536 ]
	ulimit -S -l "$(ulimit -H -l)"
	preloaded PINALLOC_REPORT=more.json "$grow" 1
	limit=$(ulimit -l)
	[ "$limit" = unlimited ] && limit=null || limit=$((limit * 1024))
	[ "$(figure more.json .memory.memlock_limit_bytes)" = "$limit" ]
}

@test "the text says how much of the limit on locked memory is used, or why it does not apply" {
	run -0 --separate-stderr prlimit --memlock=8388608:8388608 env LD_PRELOAD="$library" \
		PINALLOC_REPORT=stderr "$grow" 1
	grep -qE '^  limit on locked memory +8\.0 MiB, which CAP_IPC_LOCK lifts$' <<< "$stderr"
	run -0 --separate-stderr prlimit --memlock=8388608:8388608 setpriv --inh-caps=-all \
		--bounding-set=-all env LD_PRELOAD="$library" PINALLOC_REPORT=stderr "$grow" 1
	grep -qE '^  limit on locked memory +8\.0 MiB, 0% used at the peak$' <<< "$stderr"
}

@test "PINALLOC_REPORT_FORMAT overrides the suffix of the path" {
	preloaded PINALLOC_REPORT=out.json PINALLOC_REPORT_FORMAT=text "$grow" 1
	[[ "$(head -n 1 out.json)" == "pinalloc: grow, "* ]]
	preloaded PINALLOC_REPORT=out.txt PINALLOC_REPORT_FORMAT=json "$grow" 1
	[ "$(figure out.txt .schema)" -eq 2 ]
	preloaded PINALLOC_REPORT=stderr PINALLOC_REPORT_FORMAT=json "$grow" 1 2> out
	[ "$(figure out .schema)" -eq 2 ]
}

@test "if writing fails, the previous report stays complete; no temporary file is left" {
	echo before > out
	touch -d '1 hour ago' out
	run -1 bash -c "trap '' XFSZ; ulimit -f 0
		LD_PRELOAD='$library' PINALLOC_REPORT=out exec '$programs/exhaust'"
	[[ "$output" == *"the report cannot be written to out: File too large" ]]
	[ "$(ls)" = out ]
	[ "$(cat out)" = before ]
	preloaded PINALLOC_REPORT=out "$grow" 1
	[ "$(ls)" = out ]
	[ "$(cat out)" != before ]
}

@test "a file that is not regular is written to, not replaced" {
	mkfifo pipe
	timeout 10 cat pipe > out 3>&- &
	preloaded PINALLOC_REPORT="$PWD/pipe" "$grow" 1
	[ -p pipe ]
	wait $!
	[[ "$(head -n 1 out)" == "pinalloc: grow, "* ]]
	ln -s /dev/null sink
	preloaded PINALLOC_REPORT=sink "$grow" 1
	[ -c sink ]
}

# /dev/stdout and the like are such links; a test must not harm those.
@test "if a path leads to an open file of the program, the report is appended to it" {
	ln -s /proc/self/fd/2 stderr
	ln -s /proc/self/fd/1 stdout
	ln -s "$PWD/stdout" there
	ln -s stderr "$(uname -n)"
	for path in ./stderr there %h /proc/self/fd/2 /dev/fd/1 /proc/thread-self/fd/2; do
		{
			echo before
			(
				export LD_PRELOAD=$library PINALLOC_REPORT=$path
				exec bash -c 'echo program; echo program >&2'
			)
			echo after
		} > ../log 2>&1
		cat ../log
		[ "$(head -n 3 ../log | xargs)" = "before program program" ]
		[[ "$(sed -n 4p ../log)" == "pinalloc: bash, process "* ]]
		[ "$(tail -n 1 ../log)" = after ]
		[ "$(grep -c ^pinalloc: ../log)" -eq 1 ]
		[ "$(find . -type l | wc -l)" -eq 4 ]
		[ "$(ls | wc -l)" -eq 4 ]
	done
}

@test "so it is if the program closes that file as it ends, and not to one that reuses its descriptor" {
	ln -s /proc/self/fd/1 stdout
	preloaded PINALLOC_REPORT=stdout ls -d / > ../log
	[[ "$(cat ../log)" == "/"$'\n'"pinalloc: ls, process "* ]]
	preloaded PINALLOC_REPORT=stdout /usr/bin/python3 -c "
import os
os.close(1)
assert os.open('file', os.O_WRONLY | os.O_CREAT) == 1" > ../log
	[ ! -s file ]
	[[ "$(cat ../log)" == "pinalloc: python3, process "* ]]
}

@test "a closed descriptor gives one line that says so" {
	run -0 --separate-stderr preloaded PINALLOC_REPORT=/proc/self/fd/77 "$grow" 1
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ "$stderr" == *"the report cannot be written to /proc/self/fd/77: Bad file descriptor" ]]
}

@test "symbolic links stay, and lead to a complete report, whether the file existed or not" {
	mkdir sub
	echo before > sub/target
	ln sub/target ../before
	ln -s target sub/link
	ln -s sub/link out.json
	ln -s "$PWD/sub/new" dangling
	preloaded PINALLOC_REPORT=out.json "$grow" 1
	preloaded PINALLOC_REPORT=dangling "$grow" 1
	[ "$(find . -type l | wc -l)" -eq 3 ]
	[ "$(ls sub | xargs)" = "link new target" ]
	[ "$(figure sub/target .program)" = grow ]
	[ "$(cat ../before)" = before ]
	[[ "$(cat sub/new)" == "pinalloc: grow, "* ]]
	preloaded PINALLOC_REPORT=out.json bash -c "sleep 0.1; '$grow' 100; true"
	[ "$(figure sub/target .program)" = grow ]
}

@test "dangling symbolic links give one line, and stay" {
	ln -s circle round
	ln -s round circle
	ln -s missing/out lost
	for path in circle lost; do
		run -0 --separate-stderr preloaded PINALLOC_REPORT=$path "$grow" 1
		[ "${#stderr_lines[@]}" -eq 1 ]
		[[ "$stderr" == *"cannot be written to $path: "[TN]o* ]]
	done
	[ "$(find . -type l | wc -l)" -eq 3 ]
}

@test "a file in a directory that is not writable is written in place" {
	seq 10000 > out
	chmod a-w .
	setpriv --inh-caps=-all --bounding-set=-all env LD_PRELOAD="$library" \
		PINALLOC_REPORT=out "$grow" 1
	[[ "$(head -n 1 out)" == "pinalloc: grow, "* ]]
	run ! grep -qx 10000 out
}

# Uses a file system of 64 KiB that holds the previous report, and has some free space or none.
@test "on a full disk the previous report stays complete, and one line says so" {
	for room in 0 1; do
		run -0 unshare --mount bash -ec "
			mount -t tmpfs -o size=64k none .
			cd \"\$PWD\"
			echo before > out.json
			dd if=/dev/zero of=filler bs=4k count=$((15 - room)) status=none
			LD_PRELOAD='$library' PINALLOC_GROW=2M PINALLOC_REPORT=out.json '$grow' 200
			[ \"\$(ls | xargs)\" = 'filler out.json' ]
			[ \"\$(cat out.json)\" = before ]
			rm filler
			LD_PRELOAD='$library' PINALLOC_GROW=2M PINALLOC_REPORT=out.json '$grow' 200
			[ \"\$(stat -c %s out.json)\" -gt 4096 ]"
		echo "$output"
		[ "${#lines[@]}" -eq 2 ]
		[[ "${lines[0]}" == *"no record is kept beside out.json of "*": No space left on device" ]]
		[[ "${lines[1]}" == *"cannot be written to out.json: No space left on device" ]]
	done
}

@test "of a script that calls helpers there is one report, and one of each that held much" {
	cat > script <<- 'END'
		#!/bin/bash
		d=$(dirname "$(readlink -f "$0")")
		x=$(basename "$d"; echo "$(uname)")
		env true
		"$1" 1
		"$1" 100
	END
	run -0 --separate-stderr preloaded PINALLOC_REPORT=stderr bash script "$grow"
	[ "$(sed -n 's/^pinalloc: \([a-z]*\), process .*/\1/p' <<< "$stderr" | xargs)" = 'grow bash' ]
	run -0 preloaded PINALLOC_REPORT="$PWD/%p.json" bash script "$grow"
	[ "$(ls ./*.json | wc -l)" -gt 5 ]
	rm ./*.json
	# A rank is no helper of what has started it, which is none.
	preloaded PINALLOC_REPORT="%r.json" bash -c "PMI_RANK=3 '$grow' 1; true"
	[ "$(figure 3.json .program)" = grow ]
	[ "$(figure none.json .program)" = bash ]
	preloaded PINALLOC_REPORT="%r.json" PMI_RANK=4 bash -c "'$grow' 1; true"
	[ "$(figure 4.json .program)" = bash ]
}

@test "a small heap is not said to be larger by a percentage" {
	run -0 --separate-stderr preloaded PINALLOC_REPORT=stderr "$grow" 1
	[[ "${stderr_lines[2]}" == "  Never returning memory: the heap grew to "* ]]
	[[ "${stderr_lines[2]}" != *%* ]]
}

@test "memory is counted by the kind of its mapping" {
	preloaded PINALLOC_REPORT="$PWD/none.json" "$programs/kinds"
	preloaded PINALLOC_REPORT="$PWD/some.json" "$programs/kinds" 16
	for kind in heap anonymous brk stack file shared hugetlb; do
		grown=$(($(figure some.json .resident.${kind}_bytes) - $(figure none.json .resident.${kind}_bytes)))
		echo "$kind: $grown"
		case $kind in
		hugetlb) [ "$grown" -eq 0 ] ;;
		*) [ "$grown" -ge $((15 << 20)) ] && [ "$grown" -le $((18 << 20)) ] ;;
		esac
	done
	[ "$(figure some.json .memory.mappings)" -gt 20 ]
	[ "$(figure some.json '.memory.mappings_limit')" -eq "$(cat /proc/sys/vm/max_map_count)" ]
}

@test "a shell leaves the report of the program it ran" {
	preloaded PINALLOC_REPORT="$PWD/out.json" bash -c "sleep 0.1; '$grow' 100; true"
	[ "$(figure out.json .program)" = grow ]
	preloaded PINALLOC_REPORT="$PWD/out.json" bash -c true
	[ "$(figure out.json .program)" = bash ]
}

@test "a program excluded by PINALLOC_PROGRAMS writes no report" {
	preloaded PINALLOC_REPORT=out PINALLOC_PROGRAMS='other*' "$grow" 1
	[ -z "$(ls)" ]
	preloaded PINALLOC_REPORT=out PINALLOC_PROGRAMS='gr*' "$grow" 1
	[ "$(ls)" = out ]
}

@test "a forked child that exits writes no report" {
	preloaded PINALLOC_REPORT="$PWD/%p.json" "$programs/forks" 3
	[ "$(ls | wc -l)" -eq 1 ]
	[ "$(figure ./*.json .pid).json" = "$(ls)" ]
}

@test "resident memory is reported for a process in any number of groups" {
	python3 -c 'import os, sys
os.setgroups(range(1000000, 1001000))
os.environ.update(LD_PRELOAD=sys.argv[1], PINALLOC_REPORT=sys.argv[2])
os.execv(sys.argv[3], [sys.argv[3], "1"])' "$library" "$BATS_TEST_TMPDIR/out.json" "$programs/grow"
	[ "$(figure "$BATS_TEST_TMPDIR/out.json" .memory.rss_peak_bytes)" -ge $((1 << 20)) ]
}
