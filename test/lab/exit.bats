#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: until the last destructor has run a program can use and end its registrations; it
# ends as without the library, and leaves one report.

setup_file() {
	load ../helper
	load lab
	gcc -O2 -shared -fPIC -fvisibility=hidden -I"$top_srcdir" \
		-o "$BATS_FILE_TMPDIR/plugin.so" "$top_srcdir/test/programs/rdma-plugin.c" -libverbs
	in_guest() {
		local plugin=$BATS_FILE_TMPDIR/plugin.so program=$programs/rdma-exit

		attempt plain-opened "$program" "$plugin"
		attempt opened LD_PRELOAD="$library" PINALLOC_REPORT=/ctl/opened.%p.json \
			"$program" "$plugin"
		# A preloaded library is loaded from the start.
		attempt plain-linked LD_PRELOAD="$plugin" "$program"
		attempt linked LD_PRELOAD="$library:$plugin" PINALLOC_REPORT=/ctl/linked.%p.json \
			"$program"
		attempt spoken LD_PRELOAD="$library" PINALLOC_REPORT=stderr "$program" "$plugin"
	}
	boot
}

setup() {
	load ../helper
	load lab
}

# all_given_up CASE: everything was deregistered in each place, and the status is the program's own.
all_given_up() {
	ended "$1" 7
	diff - "$results/$1.out" <<'END'
handler of atexit: 0 failed
destructor of the program: 0 failed
domain: 0 failed
destructor of a library: 0 failed
END
}

# as_promised CASE: it works with the library and without, and there is one report, which counts all
# requests.
as_promised() {
	all_given_up "plain-$1"
	all_given_up "$1"
	[ ! -s "$results/$1.err" ]
	set -- "$results/$1".*.json
	[ $# -eq 1 ]
	[ "$(figure "$1" .program)" = rdma-exit ]
	[ "$(figure "$1" .registration.served)" -eq 6 ]
	[ "$(figure "$1" .registration.passed_through)" -eq 0 ]
	[ "$(figure "$1" '.registration.domains | length')" -eq 2 ]
	# The program's own domain was deallocated before; a library's may follow later.
	[ "$(figure "$1" '.registration.mr_destroyed > 0')" = true ]
	[ "$(figure "$1" '.memory.pinned_bytes <= .memory.mapped_bytes')" = true ]
}

@test "atexit handlers, and destructors of the program and of a dlopened library, can use verbs" {
	as_promised opened
}

@test "so can the destructor of a library loaded at the start" {
	as_promised linked
}

@test "a report on standard error is written once" {
	all_given_up spoken
	[ "$(grep -c '^pinalloc: rdma-exit, process ' "$results/spoken.err")" -eq 1 ]
	[ "$(grep -c '^registration$' "$results/spoken.err")" -eq 1 ]
	grep -q '^  requests served  *6$' "$results/spoken.err"
}
