#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: a line that the library writes on standard error neither ends a program nor stops it,
# whatever that is, and whoever reads it.
load helper

# with_standard_error KIND COMMAND…: runs it with one of that kind, for at most 30 seconds. Prints what
# can be read there at the end, if anything can; the exit status is the command's.
with_standard_error() {
	python3 - "$@" <<- 'END'
		import os, pty, resource, socket, subprocess, sys, termios
		kind, command = sys.argv[1], sys.argv[2:]
		def fill(fd):
		    os.set_blocking(fd, False)
		    try:
		        while True:
		            os.write(fd, b"x")
		    except BlockingIOError:
		        os.set_blocking(fd, True)
		limit = None
		if kind == "stopped-terminal":
		    reader, writer = pty.openpty()
		    termios.tcflow(writer, termios.TCOOFF)
		elif kind.endswith("socket"):
		    ends = socket.socketpair()
		    reader, writer = (os.dup(end.fileno()) for end in ends)
		    for end in ends:
		        end.close()
		elif kind == "file-at-limit":
		    reader, writer = -1, os.open("out", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
		    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
		else:
		    reader, writer = os.pipe()
		if kind.startswith("full"):
		    fill(writer)
		if kind.startswith("unread"):
		    os.close(reader)
		program = subprocess.Popen(command, stderr=writer, preexec_fn=limit, close_fds=True)
		try:
		    status = program.wait(timeout=30)
		except subprocess.TimeoutExpired:
		    program.kill()
		    status = 124
		if kind in ("pipe", "socket"):
		    os.close(writer)
		    sys.stdout.buffer.write(os.read(reader, 100000))
		sys.exit(status if status >= 0 else 128 - status)
	END
}

kinds='unread-pipe full-pipe unread-socket full-socket stopped-terminal file-at-limit'

@test "a pipe or socket that is read gets the line, whole and once" {
	local kind
	for kind in pipe socket; do
		run -0 with_standard_error $kind env LD_PRELOAD="$library" PINALLOC_PREALLOC=banana true
		echo "$kind: $output"
		[ "${#lines[@]}" -eq 1 ]
		[[ "$output" =~ ^'pinalloc['[0-9]+']: PINALLOC_PREALLOC=banana '.*$ ]]
	done
}

# harmless OUTPUT [NAME=VALUE…] COMMAND…: that is all it prints, with each of these.
harmless() {
	local kind
	for kind in $kinds; do
		echo "$kind"
		run -0 with_standard_error $kind env LD_PRELOAD="$library" "${@:2}"
		[ "$output" = "$1" ]
	done
}

@test "a line at the start does no harm where nobody reads it, or it cannot be written" {
	harmless ran PINALLOC_PREALLOC=banana bash -c 'echo ran'
}

@test "nor does one that is written inside malloc" {
	run -0 preloaded PINALLOC_HUGEPAGE=hugetlb "$programs/grow" 100
	[ "$(grep -c '^pinalloc\[' <<< "$output")" -gt 0 ]
	harmless '' PINALLOC_HUGEPAGE=hugetlb "$programs/grow" 100
}

@test "signals are blocked and pending as before" {
	local kind without
	without=$(grep ^Sig /proc/self/status)
	for kind in unread-pipe file-at-limit; do
		run -0 with_standard_error $kind env LD_PRELOAD="$library" PINALLOC_PREALLOC=banana \
			grep ^Sig /proc/self/status
		[ "$(grep -v '^SigQ\|^SigIgn' <<< "$output")" = "$(grep -v '^SigQ\|^SigIgn' <<< "$without")" ]
	done
}
