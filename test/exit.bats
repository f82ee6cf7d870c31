#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: until the last destructor has run a program can use and end its registrations; it ends as
# without the library, and leaves one report. (ending.bats holds all other ways to end.)
load helper

setup_file() {
	allowed memlock
	gcc -O2 -shared -fPIC -fvisibility=hidden -I"$top_srcdir" \
		-o "$BATS_FILE_TMPDIR/plugin.so" "$top_srcdir/test/programs/rdma-plugin.c" -libverbs
}

setup() {
	plugin=$BATS_FILE_TMPDIR/plugin.so
	program=$programs/rdma-exit
	reports=$BATS_TEST_TMPDIR/reports
	mkdir "$reports"
}

# all_given_up [NAME=VALUE…] PROGRAM…: everything was deregistered in each place, and the status is
# the program's own.
all_given_up() {
	run -7 --separate-stderr adapted "$@"
	diff - <(echo "$output") <<- 'END'
		handler of atexit: 0 failed
		destructor of the program: 0 failed
		domain: 0 failed
		destructor of a library: 0 failed
	END
}

# one_report: nothing was said, and there is one report, which counts all requests.
one_report() {
	[ "$stderr" = '' ]
	set -- "$reports"/*
	[ $# -eq 1 ]
	# The program's own domain was deallocated before; a library's may follow later.
	jq -e '.program == "rdma-exit" and (.registration | .served == 6 and .passed_through == 0 and
		(.domains | length) == 2 and .mr_destroyed > 0) and (.memory | .pinned_bytes <= .mapped_bytes and
		.registered_peak_bytes >= .pinned_peak_bytes and .pinned_peak_bytes > 0)' "$1"
}

@test "atexit handlers, and destructors of the program and of a dlopened library, can use verbs" {
	all_given_up "$program" "$plugin"
	all_given_up LD_PRELOAD="$library" PINALLOC_REPORT="$reports/%p.json" "$program" "$plugin"
	one_report
}

# A preloaded library is loaded from the start.
@test "so can the destructor of a library loaded at the start" {
	all_given_up LD_PRELOAD="$plugin" "$program"
	all_given_up LD_PRELOAD="$library:$plugin" PINALLOC_REPORT="$reports/%p.json" "$program"
	one_report
}
