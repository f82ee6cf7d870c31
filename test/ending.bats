#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: a program that exits leaves one complete report, one that ends otherwise a record of what
# the report would have said, and each ends as it would without the library. It can also be asked for
# a report while it runs.

setup() {
	load helper
	mkdir "$BATS_TEST_TMPDIR/here"
	cd "$BATS_TEST_TMPDIR/here"
	ends=$programs/ends
	ulimit -S -c 0
}

teardown() {
	[ -z "$pid" ] || kill -KILL "$pid" 2> "$BATS_TEST_TMPDIR/kill" || true
}

# alike HOW [SIGNAL]: the program ends as without the library, silently, and leaves one file.
alike() {
	local status=0 plain=0
	rm -f ./*
	"$ends" "$@" > ../plain 2>&1 || plain=$?
	env LD_PRELOAD="$library" PINALLOC_REPORT="$PWD/%p.json" "$ends" "$@" > ../out 2>&1 ||
		status=$?
	echo "ends $*: status $status, $plain without; $(ls)"
	diff ../plain ../out
	[ "$status" -eq "$plain" ]
	[ "$(ls | wc -l)" -eq 1 ]
}

# leaves WRITTEN HOW [SIGNAL]: so it does, and the file is a report.
leaves() {
	alike "${@:2}"
	jq -es --arg file "$(ls)" --arg written "$1" 'length == 1 and (.[0] |
		"\(.pid).json" == $file and .trigger == $written and
		.memory.mapped_bytes > 0 and .registration.domains == [])' ./*
}

# recorded HOW [SIGNAL]: so it does, and the file is a record, which `pinalloc report` reads.
recorded() {
	alike "$@"
	"$top_builddir/pinalloc" report --json . > ../merged
	jq -e --arg file "$(ls)" '.ranks[0] | .trigger == "the process ended without a report" and
		"./\(.pid).json.\(.host).\(.pid).running" == .file and .file == "./" + $file and
		.memory.live_peak_bytes >= 4194304 and
		.memory.live_peak_bytes < 6000000 and .memory.growth_steps >= 1 and
		.elapsed_s < 60 and .program == "ends"' ../merged
}

# begin HOW [NAME=VALUE…]: starts a program that keeps running, as $pid, with its report in
# out.json, and waits until it is ready.
begin() {
	local how=$1
	shift
	mkfifo ../ready
	env LD_PRELOAD="$library" PINALLOC_REPORT="$PWD/out.json" "$@" "$ends" "$how" \
		> ../ready 3>&- &
	pid=$!
	read -r -t 60 < ../ready
}

# within SECONDS COMMAND…: repeats the command until it succeeds.
within() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ $SECONDS -lt $end ] || return
		sleep 0.01
	done
}

# ended_by STATUS: the program started by begin ended with this status.
ended_by() {
	local status=0
	wait "$pid" || status=$?
	pid=
	[ "$status" -eq "$1" ]
}

@test "a report is written on exit(): in main, another thread, an atexit handler, or by returning" {
	leaves 'at exit'
	leaves 'at exit' exit
	leaves 'at exit' thread-exit
	leaves 'at exit' pthread_exit
	leaves 'at exit' exit-in-atexit
	leaves 'at exit' cancel
}

@test "so it is on quick_exit(), and of a program that has ignored a signal" {
	leaves 'at exit' quick_exit
	leaves 'at exit' ignored 15
}

@test "however else it ends, it leaves a record" {
	local name
	recorded _exit
	recorded _Exit
	recorded _exit-in-atexit
	recorded execve
	for name in ABRT SEGV TERM INT KILL; do
		recorded raise "$(kill -l $name)"
		recorded kill "$(kill -l $name)"
		recorded thread-raise "$(kill -l $name)"
	done
	recorded abort
	recorded fault
	# An arm64 processor divides by zero, which gives 0.
	[ "$(uname -m)" = aarch64 ] || recorded division 7
	recorded overflow
	recorded crashes
}

# interrupted ROUNDS: the signal of a timer comes while the program allocates and frees.
interrupted() {
	local round
	for ((round = 0; round < $1; round++)); do
		leaves 'at exit' malloc-exit
		recorded malloc-_exit
		recorded malloc-crash
		recorded malloc-exec
	done
}

@test "so it does if a handler that interrupted malloc exits, or ends it otherwise" {
	interrupted 3
}

# bats test_tags=thorough
@test "so it is each of thirty times" {
	interrupted 30
}

@test "children of every kind write no report, and end as without the library" {
	local how ends=$programs/parents
	for how in vfork vfork-kill fork fork-kill spawn system popen; do
		leaves 'at exit' "$how"
	done
}

@test "without PINALLOC_REPORT, or if excluded, nothing is written" {
	local how
	for how in exit _exit quick_exit abort execve fault; do
		run "$ends" $how
		plain=$status
		run preloaded "$ends" $how
		[ "$status" -eq "$plain" ]
		run preloaded PINALLOC_REPORT=out PINALLOC_PROGRAMS='other*' "$ends" $how
		[ "$status" -eq "$plain" ]
	done
	[ -z "$(ls)" ]
}

@test "a report that cannot be written gives one line, and does not change the exit status" {
	run -7 --separate-stderr preloaded PINALLOC_REPORT=none/out "$ends" exit
	[[ "$stderr" == *"the report cannot be written to $PWD/none/out: No such file"* ]]
	[ "${#stderr_lines[@]}" -eq 1 ]
	[ -z "$(ls)" ]
}

# unread COMMAND…: runs it with a standard error whose reader has gone.
unread() {
	python3 -c '
import os, subprocess, sys
reader, writer = os.pipe()
os.close(reader)
print(subprocess.run(sys.argv[1:], stderr=writer).returncode)' "$@"
}

@test "if standard error has no reader, the exit status is the program's, without SIGPIPE" {
	export PINALLOC_REPORT=stderr
	[ "$(unread env LD_PRELOAD="$library" "$ends" exit)" -eq 7 ]
}

@test "env, nice and shells that exec a program leave only its report" {
	local how
	for how in env nice 'nice env' 'sh -c exec' "bash -c exec"; do
		case $how in
		*exec) set -- ${how% exec} "exec '$programs/grow' 1" ;;
		*) set -- $how "$programs/grow" 1 ;;
		esac
		rm -f out.json
		preloaded PINALLOC_REPORT="$PWD/out.json" "$@"
		[ "$(figure out.json .program)" = grow ]
		[ "$(figure out.json .trigger)" = 'at exit' ]
		preloaded PINALLOC_REPORT="$PWD/out.json" "$@"
		[ "$(figure out.json .program)" = grow ]
	done
	rm out.json
	preloaded PINALLOC_REPORT="$PWD/out.json" env LD_PRELOAD= "$programs/grow" 1
	[ ! -e out.json ]
}

@test "PINALLOC_REPORT_SIGNAL makes a report while the program continues" {
	begin waiting PINALLOC_REPORT_SIGNAL=USR2
	[ ! -e out.json ]
	kill -USR2 "$pid"
	within 60 test -e out.json
	[ "$(figure out.json .trigger)" = 'on request' ]
	[ "$(figure out.json .pid)" -eq "$pid" ]
	# The thread that writes the report may make the heap grow meanwhile.
	jq -e '.elapsed_s as $now | [.timeline[][0]] | . == sort and last == $now' out.json
	rm out.json
	kill -USR2 "$pid"
	within 60 test -e out.json
	kill -TERM "$pid"
	ended_by 143
	[ "$(figure out.json .trigger)" = 'on request' ]
	[ "$(ls out.json out.json.*.running | wc -l)" -eq 2 ]
}

# requested ROUNDS
requested() {
	local round request
	begin waiting PINALLOC_REPORT_SIGNAL=RTMIN+3
	for ((round = 0; round < $1; round++)); do
		for request in {1..10}; do
			kill -RTMIN+3 "$pid"
		done
		[ ! -e out.json ] || jq -es 'length == 1 and .[0].trigger == "on request"' out.json
	done
	within 60 test -e out.json
	kill -RTMIN+3 "$pid"
	kill -TERM "$pid"
	ended_by 143
	[ "$(figure out.json .trigger)" = 'on request' ]
	[ "$(ls | wc -l)" -le 3 ]
}

@test "requests and the end at any time leave complete reports" {
	requested 20
}

# overtaken ROUNDS
overtaken() {
	local round
	for ((round = 0; round < $1; round++)); do
		rm -f ./*
		run -7 preloaded PINALLOC_REPORT=out.json PINALLOC_REPORT_SIGNAL=SIGUSR1 \
			bash -c 'kill -USR1 $$; exit 7'
		[ "$(figure out.json .trigger)" = 'at exit' ]
		[ "$(ls)" = out.json ]
	done
}

@test "if the program ends while a report is being written, that of the end stays" {
	overtaken 10
}

# bats test_tags=thorough
@test "so it is many times" {
	requested 100
	overtaken 50
}

@test "a forked child ignores a request" {
	run -7 preloaded PINALLOC_REPORT="$PWD/%p.json" PINALLOC_REPORT_SIGNAL=12 \
		"$programs/parents" signal 12
	[ "$(ls | wc -l)" -eq 1 ]
	[ "$(figure ./*.json .trigger)" = 'at exit' ]
}

# What a handler does shows between the signal and its return.
@test "a child of vfork or fork ignores a request, and wakes no thread of its parent" {
	local how child
	for how in signal vfork-signal; do
		run -7 strace -f -o ../trace -e trace=futex,rt_sigreturn -e signal=USR2 \
			-E LD_PRELOAD="$library" -E PINALLOC_REPORT="$PWD/out.json" \
			-E PINALLOC_REPORT_SIGNAL=USR2 "$programs/parents" $how 12
		child=$(sed -n 's/^\([0-9]*\) *--- SIGUSR2 .*/\1/p' ../trace)
		echo "$how: $child"; cat ../trace
		[ "$(grep -c "^$child .*rt_sigreturn" ../trace)" -eq 1 ]
		run ! grep "^$child .*futex" ../trace
	done
}

@test "the signal ends a program without PINALLOC_REPORT_SIGNAL, as ever" {
	begin waiting
	kill -USR2 "$pid"
	ended_by 140
}

@test "PINALLOC_REPORT_SIGNAL without PINALLOC_REPORT gives one line" {
	run -0 --separate-stderr preloaded PINALLOC_REPORT_SIGNAL=USR2 true
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ "$stderr" == *"PINALLOC_REPORT_SIGNAL has no effect without PINALLOC_REPORT, which"* ]]
}

@test "a signal that PINALLOC_REPORT_SIGNAL cannot use is refused, the others accepted" {
	local name
	for name in KILL STOP SEGV SIGTERM 9 0 32 65 RTMIN+99 RTMIN- RTMINx SIG usr2; do
		run -0 --separate-stderr preloaded PINALLOC_REPORT_SIGNAL="$name" true
		[[ "$stderr" == *"_SIGNAL=$name is not understood: it takes off, or a "* ]]
	done
	for name in off USR1 SIGUSR2 QUIT 12 64 RTMIN RTMIN+1 SIGRTMIN+30; do
		run -0 --separate-stderr preloaded PINALLOC_REPORT=out \
			PINALLOC_REPORT_SIGNAL="$name" true
		[ -z "$stderr" ]
	done
}

# Both are process 1, each of a namespace.
@test "a child with the number of the process that began writes no report" {
	gcc -o first -x c - <<- 'END'
		#define _GNU_SOURCE
		#include <sched.h>
		#include <stdlib.h>
		#include <string.h>
		#include <sys/wait.h>
		#include <unistd.h>

		static void use(size_t n)
		{
			char *volatile p = malloc(n);

			memset(p, 1, n);
		}

		int main(void)
		{
			use(10 << 20);
			if (unshare(CLONE_NEWPID))
				return 1;
			if (!fork())
				exit(getpid() != 1);
			wait(NULL);
			use(20 << 20);
			return getpid() != 1;
		}
	END
	run -0 unshare --user --map-root-user --pid --fork \
		env LD_PRELOAD="$library" PINALLOC_REPORT="$PWD/out.json" ./first
	[ "$(figure out.json .memory.live_peak_bytes)" -gt $((30 << 20)) ]
}
