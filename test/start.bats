#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: the library reaches every shell and every short program of a job, so their start
# must not cost much: few system calls, no files to look into, little memory to touch.

setup() {
	load helper
}

# calls [NAME=VALUE…]: the system calls of a program that does nothing, one a line. Its
# limit on locked memory is one of those a system comes with.
calls() {
	local environment=() name
	for name in "$@"; do
		environment+=(-E "$name")
	done
	(ulimit -l 64 && strace "${environment[@]}" -o "$BATS_TEST_TMPDIR/calls" true)
	cat "$BATS_TEST_TMPDIR/calls"
}

# opened [NAME=VALUE…]: the files it opens.
opened() {
	calls "$@" | sed -n 's/^open.*"\(.*\)".*/\1/p'
}

@test "the start of a program opens no file but the library" {
	local without with
	without=$(opened)
	with=$(opened LD_PRELOAD="$library")
	echo "without $without, with $with"
	grep -xF "$library" <<< "$with"
	[ "$(grep -vxF "$library" <<< "$with")" = "$without" ]
}

@test "the start of a program takes no more than 26 system calls more" {
	local without with
	without=$(calls | wc -l)
	with=$(calls LD_PRELOAD="$library" | wc -l)
	echo "without $without, with $with"
	[ "$without" -ge 10 ]
	[ "$with" -gt "$without" ]
	[ "$with" -le $((without + 26)) ]
}

# faults [NAME=VALUE…]: how often it touches a page that has to be found or read in first.
faults() {
	python3 - "$@" << 'END'
import os, sys
child = os.posix_spawnp("true", ["true"], dict(v.split("=", 1) for v in ["LC_ALL=C", *sys.argv[1:]]))
_, status, used = os.wait4(child, 0)
print(used.ru_minflt + used.ru_majflt)
sys.exit(status != 0)
END
}

@test "the start of a program touches no more than 100 pages more" {
	local without with
	without=$(faults)
	with=$(faults LD_PRELOAD="$library")
	echo "without $without, with $with"
	[ "$without" -ge 10 ]
	[ "$with" -gt "$without" ]
	[ "$with" -le $((without + 100)) ]
}
