#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: `pinalloc report --plot` draws the memory of a job's ranks over time, or says why it
# cannot and leaves existing files as they were.

setup() {
	load helper
	load job
	cd "$BATS_TEST_TMPDIR"
	base_report > "$base"
}

# drawn FILE.svg: counts its curves (a heap and live memory for each rank), how many of their
# segments are neither horizontal nor vertical, its peak marks and its texts.
drawn() {
	python3 - "$1" <<- 'END'
		import re, sys, xml.etree.ElementTree as tree
		svg = "{http://www.w3.org/2000/svg}"
		root = tree.parse(sys.argv[1]).getroot()
		assert root.tag == svg + "svg"
		plots = [g for g in root.iter(svg + "g") if g.get("id", "").startswith("gnuplot_plot_")]
		paths = [p for g in plots for p in g.iter(svg + "path")]
		print("curves", sum(p.get("d").count(",") > 2 and "Z" not in p.get("d") for p in paths))
		lines = [line for p in paths if "Z" not in p.get("d") for line in p.get("d").split("M")]
		points = [re.findall(r"([\d.]+),([\d.]+)", line) for line in lines]
		print("slanted", sum(a[0] != b[0] and a[1] != b[1] for c in points for a, b in zip(c, c[1:])))
		print("areas", sum(1 for g in plots for p in g.iter(svg + "polygon")))
		print("peaks", sum(1 for g in plots for p in g.iter(svg + "use")) - 1)
		print(*["text " + "".join(t.itertext()).strip() for t in root.iter(svg + "text")], sep="\n")
	END
}

# plotted STATUS: what is drawn of job/.
plotted() {
	run "-$1" "$pinalloc" report --json --plot plot.svg job
	run -0 drawn plot.svg
}

@test "--plot: with a few ranks, each has a heap, a line and a peak" {
	four
	rank job/2.json ".rank = 2 | .program = \"it's <app> & \\\"co\" | del(.timeline)"
	rank job/0.json ".program = \"it's <app> & \\\"co\" | .memory.live_peak_bytes *= 3"
	run -0 --separate-stderr "$pinalloc" report --plot "the plot.svg" job
	[ -z "$stderr" ]
	[[ "${lines[0]}" == *" 4 ranks on 2 hosts"* ]]
	[ "$(find . -name '*.svg*')" = "./the plot.svg" ]
	run -0 drawn "the plot.svg"
	said "curves 9" "slanted 0" "areas 0" "peaks 3" "text it's <app> & 'co: 4 ranks on 2 hosts" \
		"text seconds since the start of the rank" "text memory, MiB" \
		"text rank 0 on node1: 300.0 MiB" "text rank 1 on node1: 201.0 MiB" \
		"text rank 3 on node2: 403.0 MiB"
	[ "$(grep -c 'on 2 hosts' <<< "$output")" -eq 1 ]
}

@test "--plot: with many ranks, there are bands of all, and a line of the one with the largest peak" {
	mkdir job
	jq -c 'range(20) as $r | .rank = $r | .nranks = 20 | .memory.live_peak_bytes *= 5 + 3 * $r % 20
		| .timeline[][1] *= 5 + 3 * $r % 20 | .timeline[][2] *= 30' "$base" |
		split -l 1 -a 4 -d --additional-suffix=.json - job/
	run -0 "$pinalloc" report --json --plot plot.svg job
	[ "$(jq .kind <<< "$output")" = '"job"' ]
	run -0 drawn plot.svg
	said "curves 8" "peaks 1" "text node1: sum of 20 processes, at most 28.3 GiB in use" "text in use, least to most" "text in use, median" \
		"text heap, median" "text heap, largest" "text memory, GiB"
	[ "$(sed -n 's/^text rank \([0-9]*\) .*/\1/p' <<< "$output")" = "$(
		jq -s -r 'sort_by(-.memory.live_peak_bytes, .rank) | .[0].rank' job/*.json)" ]
	[[ "$output" != *"areas 0"* ]]
	run -0 "$pinalloc" report --json --plot plot.txt job
	grep 'in use: median' plot.txt
}

# sums FILE.dat: of each moment what a node had in use.
sums() {
	awk -F '\t' '!NF { empty++; next } { set += empty > 1; empty = 0 } set == 4 && n++ { print $1 + 0, $2 / 1048576 }' "$1"
}

@test "--plot: a node's sum is what its processes have at one moment, with the limit" {
	# 400 MiB each, one after the other; a point has the most of a 240th of the time.
	for r in 0 1; do
		rank job/$r.json ".nranks = 2 | .rank = $r | .pid += $r | .elapsed_s = 240 | .memory.live_peak_bytes = 400 * $mib
			| .memory.cgroup_limit_bytes = 1e9 | .timeline = [[0, 0, 0, 0], [$r * 120, 400, 400, 0], [$r * 120 + 60, 8, 400, 0]]
			| .timeline[][1:3] |= map(. * $mib)"
	done
	rank job/alone.json '.host = "alone" | .rank = null | .nranks = null | .memory.rss_peak_bytes *= 99'
	"$pinalloc" report --json --plot plot.dat job
	[ "$(sums plot.dat | awk '$2 != last { print; last = $2 }' | xargs)" = "0 400 61 8 120 408 181 16" ]
	[ "$(grep -c $'^1000000000\tnode1: sum of 2 processes, at most 408.0 MiB in use\t953.7 MiB, limit of the control group$' plot.dat)" -eq 1 ]
	plotted 0
	said "text node1: sum of 2 processes, at most 408.0 MiB in use" "text 953.7 MiB, limit of the control group" "text in memory, at most"
	jq 'del(.memory.cgroup_limit_bytes)' job/1.json > one.json
	mv one.json job/1.json
	rank job/0.json '.nranks = 2 | del(.memory.ram_bytes)'
	plotted 0
	said "text above: 64.0 GiB, the machine's memory"
	rm job/1.json
	plotted 1
	[[ "$output" != *"sum of"* ]]
}

@test "--plot: the median of an even number of ranks is the mean of two" {
	mkdir job
	jq -c 'range(10) as $r | .rank = $r | .nranks = 10 | .timeline = [[0, $r * $r, 10 * $r, 0]]' "$base" |
		split -l 1 -a 4 -d --additional-suffix=.json - job/
	"$pinalloc" report --json --plot plot.dat job
	grep -qx $'0.000000\t0\t20\t81\t45\t90' plot.dat
}

# At each time: 1 to 9 MiB in use, 5 the median; heaps of 10 to 90.
@test "--plot: the bands are those of the ranks that run at the time" {
	mkdir job
	jq -c 'range(9) as $r | .rank = $r | .nranks = 9 | .memory.live_peak_bytes = ($r + 1) * 1048576
		| .timeline = [[0, 1, 10, 0], [2, 1, 10, 0], [6 + $r / 2, 1, 10, 0]]
		| .timeline[][1:] |= map(. * ($r + 1) * 1048576)' "$base" |
		split -l 1 -a 4 -d --additional-suffix=.json - job/
	"$pinalloc" report --json --plot plot.dat job
	tr '\t' ' ' < plot.dat > bands
	grep -qx "0.000000 $((1 * mib)) $((5 * mib)) $((9 * mib)) $((50 * mib)) $((90 * mib))" bands
	# The last to end lives on after its last sample, alone.
	grep -qx "9.958333 $((9 * mib)) $((9 * mib)) $((9 * mib)) $((90 * mib)) $((90 * mib))" bands
	grep -qx "10.000000 $((9 * mib)) $((90 * mib))" bands
}

@test "--plot: a curve goes on to the end of its rank, and no further" {
	rank one.json '.rank = null | .nranks = null | .elapsed_s = 8'
	"$pinalloc" report --json --plot plot.dat one.json
	[ "$(tail -n 2 plot.dat | tr '\t\n' ' |')" = "6.500000 $((50 * mib)) $((128 * mib))|8.000000 $((50 * mib)) $((128 * mib))|" ]
}

@test "--plot: ranks that were killed are marked where they were last seen, by name" {
	four
	rank job/2.json '.rank = 2 | .host = "node2" | .pid = 7 | .elapsed_s = 7
		| .trigger = "the process ended without a report"'
	plotted 0
	said "text killed or _exit, when last seen" "text rank 2" "peaks 6"
	run -0 "$pinalloc" report --json --plot plot.txt job
	[ "$(tr -dc X < plot.txt | wc -c)" -eq 2 ]
	rm job/2.json
	plotted 1
	[[ "$output" != *killed* ]]
}

@test "--plot: the installed script draws the table, and so does a changed copy" {
	four
	"$pinalloc" report --json --plot plot.dat job
	sed 's/seconds/SECONDS/; s/^set xlabel .*/set xlabel "changed"/' "$top_srcdir/preload/command/plot.gp" > mine.gp
	gnuplot -c mine.gp plot.dat svg > mine.svg
	run -0 drawn mine.svg
	said "text changed" "curves 11"
}

# undrawn LINE ARGUMENT…: the report fails with this line.
undrawn() {
	run -2 --separate-stderr "$pinalloc" report "${@:2}"
	[ "$stderr" = "pinalloc report: $1" ]
}

@test "--plot: if it cannot be drawn, there is one line and the old file stays" {
	four
	mkdir there.svg
	undrawn "there.svg cannot be written: Is a directory" --plot there.svg job
	undrawn "no/plot.svg cannot be written: No such file or directory" --plot no/plot.svg job
	undrawn "plot.svg is not drawn: no report has a timeline" --plot plot.svg \
		<(jq '.nranks = 1 | del(.timeline)' "$base")
	echo before > plot.svg
	mkdir bin
	run -2 --separate-stderr env PATH="$PWD/bin" "$pinalloc" report --plot plot.svg job
	[ "$stderr" = "pinalloc report: plot.svg is not drawn: gnuplot is not installed (Debian: gnuplot-nox)" ]
	printf '#!/bin/sh\necho half\necho "\n  ^\nline 3: no such terminal\n" >&2\nexit 1\n' \
		> bin/gnuplot
	chmod +x bin/gnuplot
	run -2 --separate-stderr env PATH="$PWD/bin:$PATH" "$pinalloc" report --plot plot.svg job
	[ "$stderr" = "pinalloc report: plot.svg is not drawn: line 3: no such terminal" ]
	[ "$(cat plot.svg)" = before ]
	[ -z "$(find . -name '*.part' -o -name '*.dat')" ]
}

@test "--plot: a long name of the program is shortened between characters" {
	rank one.json ".rank = null | .nranks = null | .program = \"$(printf 'x%.0s' {1..39})\u00e9x\""
	run -0 "$pinalloc" report --plot plot.svg one.json
	run -0 drawn plot.svg
	said "text $(printf 'x%.0s' {1..20})...$(printf 'x%.0s' {1..14})éx: 1 process on 1 host" \
		"text seconds since the start of the process"
}

@test "--plot: a name ending in .txt gives a complete plot made of characters" {
	four
	run -0 "$pinalloc" report --json --plot plot.txt job
	for r in 0 1 2 3; do
		grep "rank $r on node$((r / 2 + 1)): " plot.txt
	done
	grep 'app: 4 ranks on 2 hosts' plot.txt
	grep 'node2: sum of 2 processes' plot.txt
	grep ' 400 MiB |' plot.txt
	grep 'peak in use' plot.txt
	# Four marks, and one in the legend.
	[ "$(tr -dc O < plot.txt | wc -c)" -eq 5 ]
	# gnuplot begins with a form feed.
	run ! grep -q '[^[:print:]]' <(tr -d '\f' < plot.txt)
}
