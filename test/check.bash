# SPDX-License-Identifier: BSD-2-Clause
# What the tests of `pinalloc check` share. On a host without a device.

pinalloc=$top_builddir/pinalloc

# checked COMMAND…: runs it, keeps the lines; 2, for there is no device.
checked() {
	run -2 --separate-stderr "$@"
	echo "$output"
	[ -z "$stderr" ]
}

# says STATUS WHAT [REGEX]: there is one such line, which has this after its name.
says() {
	[ "$(grep -cE "^$(printf '%-4s' "$1")  $2: (.*[^A-Za-z0-9])?$3" <<< "$output")" -eq 1 ]
}

# limited OPTION VALUE COMMAND…: a command under a ulimit.
limited() {
	ulimit "$1" "$2" || return
	shift 2
	"$@"
}

# finds STATUS WHAT REGEX [COMMAND…]: what `pinalloc check` says, run by that command.
finds() {
	checked "${@:4}" "$pinalloc" check
	says "$1" "$2" "$3"
}
