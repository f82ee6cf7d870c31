# SPDX-License-Identifier: BSD-2-Clause
# Makes reports of jobs, for the tests of `pinalloc report`. Load it after helper.

pinalloc=$top_builddir/pinalloc
base=$top_srcdir/test/transcripts/base.json # the report that others are derived from
wanted=$BATS_TEST_TMPDIR/wanted
mib=$((1 << 20))
killed='.trigger = "the process ended without a report"'

# rank FILE EDIT: makes a report by applying a jq program to the base, whose timeline then follows the figures,
# unless it is one of its own. The next made() makes it, with all others by one jq, which takes long to start.
rank() {
	printf '%s\0' "$1" "$2" >> "$wanted"
}

made() {
	local file line program rest
	[ -s "$wanted" ] || return 0
	mapfile -d '' rest < "$wanted"
	program=$(printf ', %.0srank(%s)' "${rest[@]}")
	: > "$wanted"
	jq -c "def rank(edit): .timeline as \$before | edit | ((.memory? | objects) // {})
			as {live_peak_bytes: \$peak, mapped_bytes: \$mapped}
		| if type == \"object\" and .timeline == \$before and \$peak then .timeline |= (map(.[1] |= ([., \$peak] | min))
			| .[1][1] = \$peak | .[1:][][2] = \$mapped) else . end; ${program:2}" "$base" > "$wanted.made" || return
	while IFS= read -r line; do
		file=${rest[0]}
		rest=("${rest[@]:2}")
		[[ $file != */* || -d ${file%/*} ]] || mkdir -p "${file%/*}"
		printf '%s\n' "$line" > "$file"
	done < "$wanted.made"
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
	made && "$pinalloc" "$@"
}
report() {
	pinalloc report "${@:-job}"
}
verdict() {
	report "$@" | sed '/^$/,$d'
}

# json REGEX [ARGUMENT…]: the keys of the merged report, of job/ or as these say, with values that are no objects.
json() {
	local keys=$1 text='"([^"\\]|\\.)*"'
	shift
	pinalloc report --json "${@:-job}" |
		grep -oE "\"($keys)\":($text|\[($text|[^][{}\"])*\]|[^][{}\",]+)"
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
	local line command='' status out=$BATS_TEST_TMPDIR/out n_cases=0

	while IFS= read -r line || [ "$command" ]; do
		if [[ $line == '> '* ]]; then
			command+=$'\n'${line#> }
			echo "$line"
			continue
		fi
		if [ "$command" ]; then
			status=0
			# What asks for reports waits for what may read them.
			[[ $command =~ ^(rank|four|died|sites)( |$) ]] || made
			eval "$command" > "$out" 2> "$out.err" < /dev/null || status=$?
			command=
			# What argp says of --help differs.
			[ ! -s "$out.err" ] || sed -E '/^(Try |information)/d; s/^/! /' "$out.err"
			[ ! -s "$out" ] || sed -E 's/^([$>#!]|===) /\\&/' "$out"
			[ "$status" -eq 0 ] || echo "[$status]"
		fi
		case $line in
		'$ '*) command=${line#\$ } ;;
		'=== '*) mkdir "$BATS_TEST_TMPDIR/$((++n_cases))" && cd "$BATS_TEST_TMPDIR/$n_cases" ;;
		'# '*) ;;
		*) continue ;;
		esac
		echo "$line"
	done
}

# merged FILTER [ARGUMENT…]: a value of the merged report of job/.
merged() {
	pinalloc report --json "${2:-job}" | jq -c "$1"
}
