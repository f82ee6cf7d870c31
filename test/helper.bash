# SPDX-License-Identifier: BSD-2-Clause
# Shared by the bats tests, which begin with `load helper`.
bats_require_minimum_version 1.5.0

library=$top_builddir/.libs/libpinalloc.so
programs=$top_builddir/test/programs
report=$BATS_TEST_TMPDIR/report.json

# Each test runs in a folder of its own, unless its file has another setup().
setup() {
	cd "$BATS_TEST_TMPDIR"
}

# preloaded [NAME=VALUE…] COMMAND…: runs a command under the library. Never export
# LD_PRELOAD: bats, awk and the shell would run under it as well.
preloaded() {
	env LD_PRELOAD="$library" "$@"
}

# allowed WHAT: in setup_file, whether this machine allows what `pinalloc check` calls so; if not, says
# what is missing.
allowed() {
	run "$top_builddir/pinalloc" check
	grep -q "^ok  *$1:" <<< "$output" && return
	echo "# ${BATS_TEST_FILENAME##*/} cannot run here; it takes root, or this to be allowed:" >&3
	grep "^[a-z]*  *$1:" <<< "$output" | sed 's/^/# /' >&3
	false
}

# not_here WHAT REASON: skips a test for what no package changes, which test/run takes for no failure, but tells.
not_here() {
	echo "# $1 is skipped: $2" >&3
	skip "not here: $2"
}

# build_listeners: in setup_file, stand-ins for UCX, Open MPI and libfabric, by which a program hears what the
# library tells these.
build_listeners() {
	local name

	for name in libucm.so.0 libopen-pal.so.40 libfabric.so.1; do
		gcc -O2 -shared -fPIC -fvisibility=hidden -o "$BATS_FILE_TMPDIR/$name" \
			"$top_srcdir/test/programs/listener.c"
	done
}

# A libibverbs.so.1 whose adapter copies what it transfers: programs that use a real one in the lab run with it on
# any machine that lets them lock memory.
adapter=$top_builddir/test/adapter

# adapted [NAME=VALUE…] COMMAND…: runs a command with that adapter.
adapted() {
	env LD_LIBRARY_PATH="$adapter" "$@"
}

# ends STATUS [NAME=VALUE…] COMMAND…: runs a command with that adapter, the library and a $report, and
# shows what it says, in $output and $stderr; whether it ends so.
ends() {
	run --separate-stderr adapted LD_PRELOAD="$library" PINALLOC_REPORT="$report" "${@:2}"
	printf '%s\n' "$output" "$stderr"
	[ "$status" -eq "$1" ]
}

succeeds() {
	ends 0 "$@"
}

# rows COMMAND…: runs it for each line of standard input, which is not empty, with the words before a colon; what follows
# says what holds then.
rows() {
	local row table
	mapfile -t table
	[ ${#table[@]} -gt 0 ]
	for row in "${table[@]}"; do
		echo "$row"
		# shellcheck disable=SC2086 # words
		"$@" ${row%%: *}
	done
}

# figure FILE .json.path: a value of a JSON report.
figure() {
	jq -r "$2" "$1"
}

# resolved FILE .json.path: the same, of what `pinalloc report` makes of it: frames have names.
resolved() {
	"$top_builddir/pinalloc" report --json "$1" | jq -r "$2"
}

# grouped FILE TEXT [FILE TEXT…] COMMAND…: in a control group of version 2, within another one, that has such
# files. Capabilities do not lift the limit on locked memory there, which is taken to be 4 MiB at least.
grouped() {
	unshare -rm sh -ec 'mount -t tmpfs none /sys/fs/cgroup
		mkdir -p /sys/fs/cgroup/job/step
		echo 0::/job/step > /sys/fs/cgroup/own
		mount --bind /sys/fs/cgroup/own /proc/$$/cgroup
		while [ "${1#*memory.}" != "$1" ]; do
			printf %b "$2" > "/sys/fs/cgroup/job/step/$1"
			shift 2
		done
		exec "$@"' sh "$@"
}

# passes PROGRAM SECTION: runs one section of a program that prints TAP, with the library; shows
# failures.
passes() {
	run preloaded PINALLOC_REGISTER=off "$programs/$1" "$2"
	grep -v '^ok' <<< "$output"
	[ "$status" -eq 0 ]
	[[ "${lines[0]}" == "ok 1 "* ]]
}
