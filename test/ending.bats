#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: a program that exits leaves one complete report, one that ends otherwise a record of what
# the report would have said, and each ends as it would without the library.
load helper

setup() {
	mkdir "$BATS_TEST_TMPDIR/here"
	cd "$BATS_TEST_TMPDIR/here"
	ends=$programs/ends
	ulimit -S -c 0
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

@test "a report is written on exit(): in main, another thread, an atexit handler, or by returning; and on quick_exit()" {
	local how
	leaves 'at exit'
	for how in exit thread-exit pthread_exit exit-in-atexit cancel quick_exit; do
		leaves 'at exit' "$how"
	done
	leaves 'at exit' ignored 15
}

@test "however else it ends, it leaves a record" {
	local how name
	for how in _exit _Exit _exit-in-atexit execve abort fault; do
		recorded "$how"
	done
	for name in SEGV TERM KILL; do
		recorded raise "$(kill -l $name)"
		recorded thread-raise "$(kill -l $name)"
	done
}

# interrupted ROUNDS: the signal of a timer comes while the program allocates and frees.
interrupted() {
	local round
	for ((round = 0; round < $1; round++)); do
		leaves 'at exit' malloc-exit
		recorded malloc-_exit
		recorded malloc-fault
		recorded malloc-execve
	done
}

@test "so it does if a handler that interrupted malloc exits, or ends it otherwise" {
	interrupted 3
}

@test "children of every kind write no report, and end as without the library" {
	local how
	for how in vfork fork spawn system popen; do
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

@test "env, nice and shells that exec a program leave only its report" {
	local how
	for how in env nice 'nice env' 'sh -c exec' "bash -c exec"; do
		case $how in
		*exec) set -- ${how% exec} "exec '$programs/grow' 1" ;;
		*) set -- $how "$programs/grow" 1 ;;
		esac
		rm -f out.json
		preloaded PINALLOC_REPORT="$PWD/out.json" "$@"
		jq -e '.program == "grow" and .trigger == "at exit"' out.json
		preloaded PINALLOC_REPORT="$PWD/out.json" "$@"
		[ "$(figure out.json .program)" = grow ]
	done
	rm out.json
	preloaded PINALLOC_REPORT="$PWD/out.json" env LD_PRELOAD= "$programs/grow" 1
	[ ! -e out.json ]
}

# overtaken ROUNDS: a thread calls pinalloc_report() when the program exits.
overtaken() {
	local round
	cat > ../reporting.py <<- 'END'
		import ctypes, os, threading
		libc = ctypes.CDLL(None)
		def reports():
		    while True:
		        libc.pinalloc_report(b"called.json")
		threading.Thread(target=reports).start()
		while not os.path.exists("called.json"):
		    pass
		libc.exit(7)
	END
	for ((round = 0; round < $1; round++)); do
		rm -f ./*
		run -7 --separate-stderr preloaded PINALLOC_REPORT=out.json /usr/bin/python3 ../reporting.py
		[ -z "$stderr" ]
		[ "$(figure out.json .trigger)" = 'at exit' ]
		jq -es 'length == 1 and (.[0] | .elapsed_s as $now | .trigger == "on call" and
			([.timeline[][0]] | . == sort and last == $now))' called.json
		[ "$(ls | xargs)" = 'called.json out.json' ]
	done
}

@test "if the program ends while a report is being written, both are complete" {
	overtaken 10
}

# Both are process 1, each of a namespace.
@test "a child with the number of the process that began writes no report" {
	run -0 unshare --user --map-root-user --pid --fork \
		env LD_PRELOAD="$library" PINALLOC_REPORT="$PWD/out.json" /usr/bin/python3 -c '
import ctypes, os
kept = bytearray(10 << 20)
assert not ctypes.CDLL(None).unshare(0x20000000) # CLONE_NEWPID
if not os.fork():
    raise SystemExit(os.getpid() != 1)
assert os.wait()[1] == 0 and os.getpid() == 1
more = bytearray(20 << 20)'
	[ "$(figure out.json .memory.live_peak_bytes)" -gt $((30 << 20)) ]
}
