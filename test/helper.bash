# SPDX-License-Identifier: BSD-2-Clause
# Shared by the bats tests: `load helper` in setup().
bats_require_minimum_version 1.5.0

library=$top_builddir/.libs/libpinalloc.so
programs=$top_builddir/test/programs

# preloaded [NAME=VALUE…] COMMAND…: runs a command under the library. Never export
# LD_PRELOAD: bats, awk and the shell would run under it as well.
preloaded() {
	env LD_PRELOAD="$library" "$@"
}

# knows_later_modules FILE: stacks go on through modules that dlopen has loaded (glibc 2.35).
knows_later_modules() {
	nm -D "$1" | grep -q ' U _dl_find_object'
}

# figure FILE .json.path: a value of a JSON report.
figure() {
	jq -r "$2" "$1"
}

# passes PROGRAM SECTION: runs one section of a program that prints TAP, with the library; shows
# failures.
passes() {
	run preloaded PINALLOC_REGISTER=off "$programs/$1" "$2"
	grep -v '^ok' <<< "$output"
	[ "$status" -eq 0 ]
	[[ "${lines[0]}" == "ok 1 "* ]]
}
