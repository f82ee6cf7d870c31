#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: `pinalloc report` combines the reports of a job's ranks into correct figures, whatever
# other files are among them. test/transcripts has reports, commands, and all that these print;
# `RENEW=1 test/bats test/command-report.bats` writes what they print anew.
load helper
load job

@test "each subcommand says how it is used, and what is wrong with how it is called" {
	transcript usage
}

@test "what is said of a job's memory and registrations is right, with all there is or the least" {
	transcript job
}

@test "the limit that some process was nearest to is named" {
	transcript limits
}

@test "each rank, what is beside it and what it forked has its place, and who is missing is said" {
	transcript ranks
}

@test "which reports are of one run, and which runs of one job" {
	transcript runs
}

@test "ranks that were killed are marked, and the first is named, with what it was near to" {
	transcript killed
}

@test "call sites are summed over ranks, compared between jobs, and shown with all callers" {
	transcript sites
}

@test "phases are merged, compared and drawn by name" {
	transcript phases
}

@test "--json has each figure of each rank and each host, and their sums and statistics" {
	transcript json
}

@test "the library's own reports are merged" {
	local r
	mkdir job
	for r in 0 1 2; do
		preloaded PINALLOC_REPORT=job/%r.json OMPI_COMM_WORLD_RANK=$r \
			OMPI_COMM_WORLD_SIZE=3 "$programs/grow" $((100 * r))
	done
	run -0 --separate-stderr report
	[ -z "$stderr" ]
	[[ "$output" == "pinalloc: grow, 3 ranks on 1 host, "*" 2  $(uname -n)"* ]]
	[ "$(merged .totals.memory.mapped_bytes)" -eq "$(
		jq -s '[.[].memory.mapped_bytes] | add' job/*.json)" ]
}

@test "frames given as offsets are resolved in the module, if it has not changed" {
	local place offset
	# The address after the call of hold_blocks() in hold_and_drop(), less one.
	offset=$(objdump -d --no-show-raw-insn "$programs/peaks" |
		awk '/<hold_and_drop>:$/ { on = 1 } on && /call.*<hold_blocks>/ { getline; sub(":", "", $1); print $1; exit }')
	place=$programs/peaks+0x$(printf %x $((16#$offset - 1)))
	rank job/0.json ".nranks = 1 | .peak_sites[0].stack = [\"$place\",
		\"$programs/peaks+0xffffff\", \"/no/such/module+0x10\", \"main (main.c:90)\", \"/x+0xzz\"]"
	run -0 pinalloc report --json job
	# The compiler may have split the function, and have inlined a part of it.
	jq -e --arg here "$programs/peaks+0xffffff" '.peak_sites[0].stack[-4:] ==
		[$here, "/no/such/module+0x10", "main (main.c:90)", "/x+0xzz"]' <<< "$output"
	[[ "$(jq -r '.peak_sites[0].stack[0]' <<< "$output")" =~ ^hold_and_drop\ \(peaks\.c:([0-9]+)\)$ ]]
	sed -n "${BASH_REMATCH[1]}p" "$top_srcdir/test/programs/peaks.c" | grep hold_blocks
}

@test "a record of a process that still runs, as the kernel says, is not of one killed" {
	rank job/0.json ".nranks = 1 | $killed | .host = \"$(uname -n)\" | .pid = $$ | .job.started = now
		| .starttime = $(sed 's/.*)//' /proc/$$/stat | cut -d ' ' -f 21)"
	run -0 report
	[[ "$output" == 'pinalloc: app, 1 rank on 1 host, 6.5 s'*$'\n            still runs; last record at 6.5 s\n'* ]]
	[ "$(merged '.ranks[0].memory | .pss_bytes > 0 and .rss_peak_bytes < 160 * 1048576')" = true ]
	for other in '.starttime += 1' '.host += "2"'; do
		jq "$other" job/0.json > other.json
		run -0 pinalloc report other.json
		[[ "${lines[0]}" == 'pinalloc: rank 0 on '*' ended without a report '* ]]
	done
}

# bats test_tags=thorough
@test "sixty thousand reports with forked children take seconds" {
	mkdir job
	jq -c 'range(20000) as $r | .rank = $r | .nranks = 20000 | .host = "node\($r / 128 | floor)" | .pid = 4 * $r
		| ., (.parent = .pid | .pid += 1), (.parent = .pid | .pid += 2)' "$base" |
		split -l 1 -a 5 -d --additional-suffix=.json - job/
	run -0 prlimit --cpu=10 "$pinalloc" report job
	[ "${lines[0]}" = 'pinalloc: app, 20000 ranks and 40000 other processes on 157 hosts, 6.5 s' ]
}

# The heap of rank 1 is the largest.
@test "the examples of pinalloc(1) give what the page says" {
	mkdir bin
	printf '#!/bin/sh\nfor r in 0 1 2; do PMI_RANK=$r PMI_SIZE=3 "$@"; done\n' > bin/mpirun
	printf '#!/bin/sh\nexec "%s" $((1 << (1 - (PMI_RANK - 1) * (PMI_RANK - 1)) * 7))\n' "$programs/grow" > app
	printf '#!/bin/sh\nexec cat\n' > bin/flamegraph.pl
	chmod +x bin/* app
	ln -s "$pinalloc" bin/pinalloc
	sed -nE '/^\.Sh EXAMPLES/,/^\.Sh SEE/{/^\.Bd/,/^\.Ed/{/^\./d; s/\\-/-/g; s/\\\(aq/\x27/g; s/\\e/\\/g; p}}' \
		"$top_srcdir/preload/pinalloc.1" > examples
	[ "$(wc -l < examples)" -eq 13 ]
	PATH=$PWD/bin:$PATH run -0 bash -eo pipefail examples
	echo "$output"
	[ "${lines[-1]}" -eq 1 ]
	[[ "${lines[0]}" == 'pinalloc: grow, 3 ranks on 1 host, '* ]]
	grep -q '^<svg' memory.svg
	grep -qE '^[^ ].*;main \(grow\.c:[0-9]+\);?.* [0-9]+$' sites.svg
}
