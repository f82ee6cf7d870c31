# SPDX-License-Identifier: BSD-2-Clause
# Makes reports of jobs, for the tests of `pinalloc report`. Load it after helper.

pinalloc=$top_builddir/pinalloc
base=$BATS_TEST_TMPDIR/base
mib=$((1 << 20))
killed='.trigger = "the process ended without a report"'

setup() {
	cd "$BATS_TEST_TMPDIR"
	base_report > "$base"
}

# base_report: makes the report that others are derived from.
base_report() {
	jq -n '{schema: 3, version: "0.1.0", host: "node1", pid: 100,
		job: {id: "17", started: 1700000000.25}, starttime: 4711, rank: 0, nranks: 4,
		program: "app", elapsed_s: 6.5, trigger: "at exit",
		memory: {live_peak_bytes: 100, live_bytes: 50, mapped_bytes: 128, pinned_bytes: 64,
			pinned_peak_bytes: 128, registered_bytes: 64, registered_peak_bytes: 128, rss_bytes: 150,
			rss_peak_bytes: 160, memlock_limit_bytes: 1024, pinned_limit_bytes: 49152,
			ram_bytes: 65536, heap_limit_bytes: 16777216,
			growth_steps: 0},
		resident: {heap_bytes: 120, anonymous_bytes: 20, file_bytes: 10, shared_bytes: 5, hugetlb_bytes: 0},
		registration: {mr_created: 10, mr_ahead: 8, mr_destroyed: 9, served: 1000, passed_through: 3,
			passed_through_reasons: {"not heap memory": 3}, refused: 0, evicted: 0,
			seconds: 0.25, domains: [{device: "rxe0", mrs: 10, bytes: 128}]},
		watch: {on: true, registrations: 5, unwatchable: 0, events: 0, invalidations: 0, forgotten: 0},
		peak_sites_kind: "held",
		peak_sites: [{bytes: 60, count: 3,
			stack: ["grid (grid.c:12)", "set up (main.c:7)", "main (main.c:90)"]}],
		timeline: [[0, 10, 64, 0], [1.5, 100, 128, 64], [6.5, 50, 128, 128]]}
		| (.memory[], .resident[], .peak_sites[].bytes, .timeline[][1:][]) *= 1048576
		| .memory.growth_steps = 2'
}

# rank FILE EDIT: makes a report by applying a jq program to the base, whose timeline then follows the
# figures, unless it is one of its own.
rank() {
	mkdir -p "$(dirname "$1")"
	jq ".timeline as \$before | $2 | ((.memory? | objects) // {})
			as {live_peak_bytes: \$peak, mapped_bytes: \$mapped}
		| if type == \"object\" and .timeline == \$before and \$peak then .timeline |= (map(.[1] |= ([., \$peak] | min))
			| .[1][1] = \$peak | .[1:][][2] = \$mapped) else . end" "$base" > "$1"
}

# four: makes a job of four ranks on two hosts, different in every figure.
four() {
	local r
	for r in 0 1 2 3; do
		rank "job/$r.json" ".rank = $r | .host = \"node$((r / 2 + 1))\" | .pid += $r
			| (.memory | .live_peak_bytes, .live_bytes, .rss_peak_bytes) *= 1 + $r
			| .memory.live_peak_bytes += $r * $mib
			| .resident.heap_bytes *= 1 + $r | .resident.anonymous_bytes *= 1 + $r
			| .memory.mapped_bytes = (1 + $r) * 128 * $mib
			| .memory.pinned_peak_bytes = (1 + $r) * 64 * $mib
			| .memory.registered_peak_bytes = (1 + $r) * 64 * $mib
			| .registration.served += $r * $r | .registration.mr_created += 3 * $r
			| .elapsed_s += $r"
	done
}

# sites: two ranks with sites, some in common; one rank has the same site twice.
sites() {
	rank job/0.json '.nranks = 2 | .peak_sites = [
		{bytes: 3000, count: 3, stack: ["grid (g.c:1)", "main (m.c:2)", "_start (app)"]},
		{bytes: 500, count: 1, stack: ["/usr/lib/libx.so+0x1f", "a; b (m.c:3)", "c", "d", "e"]},
		{bytes: 20, count: 2, stack: []}]'
	rank job/1.json '.nranks = 2 | .rank = 1 | .peak_sites = [
		{bytes: 4000, count: 4, stack: ["grid (g.c:1)", "main (m.c:2)", "_start (app)"]},
		{bytes: 1000, count: 1, stack: ["grid (g.c:1)", "main (m.c:2)", "_start (app)"]},
		{bytes: 1, count: 1, stack: ["grid (g.c:1)", "main (m.c:9)", "_start (app)"]}]'
}

# pinalloc, report, verdict ARGUMENT…: for transcripts; the last prints what is before the first table.
pinalloc() {
	"$pinalloc" "$@"
}
report() {
	pinalloc report "${@:-job}"
}
verdict() {
	report "$@" | sed '/^$/,$d'
}

# transcript NAME: runs the commands of test/transcripts/NAME.expected, those behind "$ ", which go on behind "> ",
# and compares what they print with what is below each: standard error behind "! ", and in brackets a status
# that is not 0. Each line "=== TITLE" begins a case in an empty folder; "# " begins a comment. RENEW=1 writes
# what the commands print into the file.
transcript() {
	local file=$top_srcdir/test/transcripts/$1.expected printed=$BATS_TEST_TMPDIR/printed

	(trap - DEBUG ERR && set +eET && set -o pipefail && replay < "$file" > "$printed")
	[ -z "${RENEW:-}" ] || cp "$printed" "$file"
	[ -s "$printed" ] && diff -u "$file" "$printed"
}

replay() {
	local line command='' status out=$BATS_TEST_TMPDIR/out

	while IFS= read -r line || [ "$command" ]; do
		if [[ $line == '> '* ]]; then
			command+=$'\n'${line#> }
			echo "$line"
			continue
		fi
		if [ "$command" ]; then
			status=0
			eval "$command" > "$out" 2> "$out.err" < /dev/null || status=$?
			command=
			sed -E '/^(Try |information)/d; s/^/! /' "$out.err" # what argp says of --help differs
			sed -E 's/^([$>#!]|===) /\\&/' "$out"
			[ "$status" -eq 0 ] || echo "[$status]"
		fi
		case $line in
		'$ '*) command=${line#\$ } ;;
		'=== '*) rm -rf "$BATS_TEST_TMPDIR/case" && mkdir "$BATS_TEST_TMPDIR/case" && cd "$BATS_TEST_TMPDIR/case" ;;
		'# '*) ;;
		*) continue ;;
		esac
		echo "$line"
	done
}

# merged FILTER [ARGUMENT…]: a value of the merged report of job/.
merged() {
	"$pinalloc" report --json "${2:-job}" | jq -c "$1"
}

# reported [ARGUMENT…]: it reports on job/, or as these say, and says nothing on standard error.
reported() {
	run -0 --separate-stderr "$pinalloc" report "${@:-job}"
	echo "$output$stderr"
	[ -z "$stderr" ]
}

# said LINE…: each is a line of the output.
said() {
	local line
	echo "$output"
	for line in "$@"; do
		grep -qxF -- "$line" <<< "$output"
	done
}

# told TEXT…: a line of the output has all of these, in this order.
told() {
	local line text pattern='*'
	for text in "$@"; do
		pattern+=$(printf %q "$text")*
	done
	while IFS= read -r line; do
		# shellcheck disable=SC2053
		[[ "$line" != $pattern ]] || return 0
	done <<< "$output"
	echo "no line has: $*"
	echo "$output"
	return 1
}
