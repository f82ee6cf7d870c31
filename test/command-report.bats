#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: `pinalloc report` combines the reports of a job's ranks into correct figures, whatever
# other files are among them.

setup() {
	load helper
	load job
	cd "$BATS_TEST_TMPDIR"
	base_report > "$base"
}

@test "without a known subcommand there is one line of error; with one, --help works" {
	fails 64 'no SUBCOMMAND'
	fails 64 'unknown*retort' retort
	run -0 "$pinalloc" --help
	[[ "$output" == *$'\n  report\n      Merge'* ]]
	run -0 "$pinalloc" --version
	[ "$output" = "pinalloc $(sed -n 's/^AC_INIT(\[pinalloc\],\[\(.*\)\])/\1/p' \
		"$top_srcdir/configure.ac")" ]
	run -0 "$pinalloc" report --help
	for option in --json --plot --job --against --top; do
		[[ "$output" == *"$option"* ]]
	done
}

@test "every subcommand has help, and refuses unknown options" {
	local subcommand help
	help=$("$pinalloc" --help)
	for subcommand in report run check; do
		grep -qx "  $subcommand" <<< "$help"
		fails 64 " $subcommand: *--joson" \
			$subcommand --joson
		fails 64 " $subcommand: *'x'" $subcommand -x
		fails 64 " $subcommand: *--help*argument" $subcommand --help=1
		run -0 "$pinalloc" $subcommand --help
		[[ "${lines[0]}" == "Usage: pinalloc $subcommand [OPTION...] "* ]]
		[[ "$output" == *"  -?, --help"* ]]
	done
	fails 64 " run: *'x'" run --prealloc=4M -xn true
}

@test "wrong arguments give one line of error and status 64" {
	four
	fails 64 ' report: *FILE' report
	fails 64 ' report: *--plot*argument' report job --plot
	fails 64 ' report: *--json*argument' report --json=1 job
	fails 64 ' report: *--top=3x*number' report --top 3x job
	fails 64 ' report: *--top=-1*number' report --top -1 job
	fails 64 ' report: *a.png*.svg*.txt*.dat' report --plot a.png job
	fails 64 ' report: *--against*--json' report --json --against job job
	fails 64 ' report: *--against*--plot' report --plot a.svg --against job job
	[ ! -e a.svg ]
}

@test "the verdict comes first and agrees with the ranks" {
	four
	reported
	[ "${lines[0]}" = "pinalloc: app, 4 ranks on 2 hosts, 9.5 s" ]
	# 128 MiB (1 + 2 + 3 + 4); 100 (1 + 2 + 3 + 4) + (0 + 1 + 2 + 3) MiB
	said '  Registrations of heap memory: all 4014 served, from 58 memory regions (rank 0 spent most time in them: 0.250 s); 12 requests for other memory went to libibverbs.' \
		'  Never returning memory: the heaps grew to 1.3 GiB in total; 1.2 GiB of that were touched, 194.0 MiB (19 %) more than the 1006.0 MiB in use at once, and 349.5 MiB more than in use on average over time.' \
		'  No limit was near; the nearest: locked memory, 25 % of 1.0 GiB, rank 3.' \
		'  Beside the heaps: 260.0 MiB in memory (anonymous mappings 200.0 MiB, mapped files 40.0 MiB, shared memory 20.0 MiB); most in rank 3. At its peak rank 3 had 640.0 MiB in memory, at most 480.0 MiB of that heap.'
	told argest 'rank 3' node2 '512.0 MiB' 1.60
}

@test "the tables have a row for each rank and each host" {
	four
	run -0 "$pinalloc" report job
	run -0 tr -s ' ' <<< "$output"
	said " 0 node1 100.0 MiB 128.0 MiB 1.28 64.0 MiB 160.0 MiB 6.2 % 1000 10" \
		" 3 node2 403.0 MiB 512.0 MiB 1.27 256.0 MiB 640.0 MiB 25 % 1009 19" \
		" min 100.0 MiB 128.0 MiB 1.27 64.0 MiB 160.0 MiB 6.2 % 1000 10" \
		" mean 251.5 MiB 320.0 MiB 1.27 160.0 MiB 400.0 MiB 16 % 1003.5 14.5" \
		" max 403.0 MiB 512.0 MiB 1.28 256.0 MiB 640.0 MiB 25 % 1009 19" \
		" max/mean 1.60 1.60 1.00 1.60 1.60 1.60 1.01 1.31" \
		" 2 node1 301.0 MiB 384.0 MiB 1.28 192.0 MiB 480.0 MiB 12 % 2001 23" \
		" 2 node2 705.0 MiB 896.0 MiB 1.27 448.0 MiB 1.1 GiB 25 % 2013 35"
}

@test "--json: total, minimum, mean, maximum and imbalance of every figure agree with jq" {
	four
	jq -s '[.[] | {memory, resident, registration, watch} | del(.watch.on)
		| map_values(with_entries(select(.value | type == "number")))] as $all
		| def each(f): $all[0] | with_entries(.key as $section
			| .value |= with_entries(.key as $key | .value = ([$all[][$section][$key]] | f)));
		{totals: each(add) | del(.memory[("memlock_limit", "pinned_limit", "heap_limit", "ram") + "_bytes"]), min: each(min),
			mean: each(add / length), max: each(max),
			imbalance: each(if add > 0 then max / (add / length) else null end)}
		| map_values(map_values(map_values(if . == null then . else . * 1e6 | round end)))' \
		job/*.json > expected
	"$pinalloc" report --json job | jq '{totals, min, mean, max, imbalance}
		| map_values(map_values(map_values(if . == null then . else . * 1e6 | round end)))' > found
	[ "$(jq '[.totals[][]] | length' found)" -eq 28 ]
	diff <(jq -S . expected) <(jq -S . found)
}

@test "--json: each rank and each host has its own figures" {
	four
	[ "$(merged '[.schema, .kind, .job, .nranks]')" = \
		'[3,"job",{"id":"17","started":1700000000.25},4]' ]
	for r in 0 1 2 3; do
		diff <(jq -S '{rank, host, pid, program, elapsed_s, trigger, memory, resident, registration, watch}
			| .memory += ({cgroup_limit_bytes, cgroup_high_bytes, cgroup_peak_bytes, cgroup_high_events, cgroup_oom_kills, pss_bytes} | map_values(null))
			| del(.watch.on, .registration.passed_through_reasons,
				.registration.domains)' "job/$r.json") \
			<(merged ".ranks[$r] | del(.file, .run, .parent, .tree_peak_bytes)" | jq -S .)
		[ "$(merged ".ranks[$r].file")" = "\"job/$r.json\"" ]
	done
	[ "$(merged '[.hosts[].processes]')" = '[2,2]' ]
	[ "$(merged '[.hosts[].memory.mapped_bytes]')" = "[$((384 * mib)),$((896 * mib))]" ]
	[ "$(merged '[.hosts[].memory.ram_bytes]')" = "[$((65536 * mib)),$((65536 * mib))]" ]
	[ "$(merged '[.hosts[] | .memlock_worst_rank, .memlock_worst_share]')" = \
		'[1,0.125,3,0.25]' ]
}

@test "what was not served is said, with the main reason and its cure" {
	rank job/0.json '.nranks = 2 | .registration.passed_through = 9
		| .registration.passed_through_reasons = {"not heap memory": 3, "table full": 2,
			"a page that is protected": 4, "of a newer version": 1}'
	rank job/1.json '.nranks = 2 | .rank = 1'
	run -0 "$pinalloc" report job
	said '  Registrations of heap memory: 2000 of 2006 served, from 20 memory regions (rank 0 spent most time in them: 0.250 s); 6 requests for other memory went to libibverbs.' \
		'    Not served, mostly: a page that is protected. Cure: leave guard pages and read-only pages out of what is registered.'
	rank none.json '.nranks = 1 | .registration |= map_values(0) | .registration.passed_through_reasons = {}'
	run -0 "$pinalloc" report none.json
	said '  Registrations of heap memory: none were requested.'
	rank job/0.json '.nranks = 2 | .registration.passed_through_reasons = {"table full": -1}'
	run -1 --separate-stderr "$pinalloc" report job
	[[ "$stderr" == *'job/0.json has no valid table full; left out' ]]
}

# nearest EDIT LINE: of a job of two ranks on one host, one of them changed, the text has the line.
nearest() {
	rank job/0.json '.nranks = 2'
	rank job/1.json ".nranks = 2 | .rank = 1 | .memory |= ($1)"
	run -0 "$pinalloc" report job
	said "  $2"
}

@test "the limit that some process was nearest to is named, with what helps if there is little left" {
	nearest '.registered_peak_bytes *= 4' 'Nearest to a limit: locked memory, 50 % of 1.0 GiB, rank 1.'
	nearest '.registered_peak_bytes *= 8' 'Nearest to a limit: locked memory, 100 % of 1.0 GiB, rank 1. Cure: raise ulimit -l, where the program or its launcher is started.'
	# A page in two memory regions counts once, as the library counts it.
	nearest '.registered_peak_bytes *= 3 | .pinned_peak_bytes = 268435456 | .pinned_limit_bytes = 536870912' \
		'Nearest to a limit: pinned memory, 50 % of 512.0 MiB, rank 1.'
	nearest '.cgroup_limit_bytes = 1e9 | .cgroup_peak_bytes = 99e7' \
		'Nearest to a limit: memory of the control group, 99 % of 953.7 MiB, rank 1. Cure: ask the batch system for more memory, or start fewer processes on a node.'
	nearest '.cgroup_limit_bytes = 1e9 | .cgroup_peak_bytes = 99e7 | .cgroup_high_events = 0 | .cgroup_oom_kills = 3' \
		'Nearest to a limit: memory of the control group, 99 % of 953.7 MiB, rank 1 (memory.events: high 0, oom_kill 3). Cure: ask the batch system for more memory, or start fewer processes on a node.'
	# What others of the group know of the same events is not added.
	nearest '.cgroup_limit_bytes = 1e9 | .cgroup_high_bytes = 1e9 | .cgroup_peak_bytes = 11e8 | .cgroup_high_events = 7 | .cgroup_oom_kills = 0' \
		'OVER A LIMIT: memory.high of the control group, 110 % of 953.7 MiB, rank 1 (memory.events: high 7, oom_kill 0). Cure: ask the batch system for more memory, or start fewer processes on a node: above memory.high the kernel slows them down.'
	jq '.rank = 0 | .pid = 99 | .memory.cgroup_high_events = 5' job/1.json > job/0.json
	run -0 "$pinalloc" report job
	told OVER 'events: high 7, oom'
	nearest '.cgroup_limit_bytes = 1e9 | .cgroup_high_bytes = 1e9 | .cgroup_peak_bytes = 4e8 | .cgroup_high_events = 0 | .cgroup_oom_kills = 0' \
		'No limit was near; the nearest: memory.high of the control group, 40 % of 953.7 MiB, rank 1.'
	nearest '.heap_limit_bytes = .mapped_bytes' \
		'Nearest to a limit: addresses of the heap, 100 % of 128.0 MiB, rank 1. Cure: raise ulimit -v and ulimit -d.'
	nearest '.rss_peak_bytes = 48e9' "Nearest to a limit: the machine's memory, 70 % of 64.0 GiB, node1."
	nearest '.rss_peak_bytes = 72e9' "OVER A LIMIT: the machine's memory, 105 % of 64.0 GiB, node1. Cure: start fewer processes on a node."
	# Half of what it had in the end others had as well.
	nearest '.rss_peak_bytes = 48e9 | .rss_bytes = 40e9 | .pss_bytes = 20e9' \
		"Nearest to a limit: the machine's memory, 70 % of 64.0 GiB, rank 1."
	[ "$(merged '.hosts[0].memory.rss_peak_bytes')" -eq $((28 * 10 ** 9 + 160 * mib)) ]
}

@test "of a process that left a record or an older report only what is known is said of its memory" {
	rank job/0.json '.nranks = 2'
	rank job/1.json '.nranks = 2 | .rank = 1 | del(.resident) | .memory.rss_bytes *= 8'
	run -0 "$pinalloc" report job
	said '  Never returning memory: the heaps grew to 256.0 MiB in total; at most 248.0 MiB of that were touched, 48.0 MiB (24 %) more than the 200.0 MiB in use at once.'
	told Beside 'as far as it is known: 35.0 MiB'
}

@test "a peak of memory that the program unmapped is named" {
	rank job/0.json '.nranks = 2'
	rank job/1.json ".nranks = 2 | .rank = 1 | .memory.rss_peak_bytes = 700 * $mib"
	run -0 "$pinalloc" report job
	said '  Beside the heaps: 70.0 MiB in memory (anonymous mappings 40.0 MiB, mapped files 20.0 MiB, shared memory 10.0 MiB); most in rank 0. At its peak rank 1 had 700.0 MiB in memory, at most 120.0 MiB of that heap.'
	jq '.nranks = 1 | .rank = 0' job/1.json > one.json
	run -0 "$pinalloc" report one.json
	told Beside 'At its peak the process had 700.0 MiB in memory, at most 120.0 MiB of that heap.'
	# Of less than 64 MiB more than there is beside the heap at the end nothing is said.
	rank one.json ".nranks = 1 | .memory.rss_peak_bytes = (120 + 35 + 63) * $mib"
	run -0 "$pinalloc" report one.json
	run ! told 'At its peak'
}

@test "memory that stays shows where ranks have it one after the other, or for a short time" {
	local mib=1048576
	# Each has 400 MiB in use for two seconds, the second one when the first one has freed its.
	rank job/0.json ".nranks = 2 | .elapsed_s = 8 | .memory |= (.live_peak_bytes = 400 * $mib | .mapped_bytes = 400 * $mib)
		| .resident.heap_bytes = 400 * $mib
		| .timeline = [[0, 400 * $mib, 400 * $mib, 0], [2, $mib, 400 * $mib, 0]]"
	jq '.rank = 1 | .pid += 1 | .timeline |= ([[0, 0, 0, 0]] + map(.[0] += 5))' job/0.json > job/1.json
	run -0 "$pinalloc" report job
	told Never 'heaps grew to 800.0 MiB in total; 800.0 MiB of that were touched' \
		'399.0 MiB (100 %) more than the 401.0 MiB in use at once' '349.1 MiB more than in use on average over time'
	# The host never had both in use either.
	run -0 tr -s ' ' <<< "$output"
	said " 2 node1 401.0 MiB 800.0 MiB 2.00 256.0 MiB 800.0 MiB 12 % 2000 20"
	jq '.rank = null | .nranks = null | .pid = 300 | .timeline |= (.[1][0] = 0.5)' job/0.json > one.json
	run -0 "$pinalloc" report one.json
	told Never 'no more than the 400.0 MiB in use at the peak, and 374.1 MiB more than in use on average over time'
}

@test "of little memory no percentage is said" {
	rank small.json '.nranks = 1 | .memory.live_peak_bytes = 77 * 1024 | .resident.heap_bytes = 5 * 1048576'
	run -0 "$pinalloc" report small.json
	said '  Never returning memory: the heap grew to 128.0 MiB; 5.0 MiB of that were touched, 4.9 MiB more than the 77.0 KiB in use at the peak.'
}

@test "ranks without a report are listed, as ranges, and the status is 1" {
	local r
	for r in 0 1 3 4 8; do
		rank "job/$r.json" ".rank = $r | .nranks = 12"
	done
	run -1 --separate-stderr "$pinalloc" report job
	[ -z "$stderr" ]
	said "pinalloc: app, 5 of 12 ranks on 1 host, 6.5 s"
	told '7 of 12' 2,5-7,9-11
	[ "$(merged .missing_ranks)" = '[2,5,6,7,9,10,11]' ]
	run -1 "$pinalloc" report job/0.json
	[[ "${lines[0]}" == "pinalloc: app, 1 of 12 ranks on 1 host, "* ]]
	run -0 "$pinalloc" report <(jq 'del(.nranks)' "$base")
	run ! told ' of ' ranks
}

@test "memory that cannot be watched is reported, if there is any" {
	four
	run -0 "$pinalloc" report job
	[[ "$output" != *watched* ]]
	rank job/2.json '.rank = 2 | .watch.unwatchable = 3'
	run -0 "$pinalloc" report job
	told ' 3 registrations' watched 'most in rank 2'
}

# used TEXT…: the only line on standard error has these, in this order: what is used comes first.
used() {
	[ "${#stderr_lines[@]}" -eq 1 ]
	output=$stderr told 'pinalloc report: ' "$@"
}

@test "of two reports of one process the later is used, and one line says so" {
	four
	rank "again/2.json" '.rank = 2 | .pid += 2 | .host = "node2" | .elapsed_s = 2 | .memory.mapped_bytes = 1'
	run -0 --separate-stderr "$pinalloc" report again job
	used 'job/2.json and again/2.json' 'process 102 of node2' 'first, of 8.5 s'
	[ "$(merged .totals)" = "$(
		"$pinalloc" report --json again job 2> /dev/null | jq -c .totals)" ]
}

# A shell started by the launcher has the rank's number.
@test "of two processes of one rank, the one that registered memory is it, the other one beside it" {
	rank shell.json '.nranks = 1 | .program = "sh" | .pid = 99 | .elapsed_s = 9
		| .registration.served = 0 | .registration.passed_through = 0'
	rank app.json '.nranks = 1'
	for files in "shell.json app.json" "app.json shell.json"; do
		run -0 --separate-stderr "$pinalloc" report $files
		[ -z "$stderr" ]
		[[ "${lines[0]}" == "pinalloc: app, 1 rank and 1 other process on 1 host, 6.5 s" ]]
		[ "$("$pinalloc" report --json $files | jq -c '[.ranks[] | .rank, .pid], .max.memory.mapped_bytes')" = \
			"[0,100,null,99]"$'\n'$((128 * mib)) ]
	done
}

@test "of the reports of several jobs those of the one that started last are taken, or of --job" {
	four
	mv job jobs
	rank jobs/4.json '.nranks = 1 | .job = {id: "16", started: 1600000000} | .program = "old"'
	rank jobs/5.json '.nranks = 2 | .rank = 1 | .job = {id: "17/1", started: 1800000000} | .program = "new"'
	rank jobs/6.json '.nranks = 2 | .job = {id: "17/1", started: 1800000001} | .program = "new"'
	rank jobs/7.json '.rank = null | .nranks = null | .job = {id: null, started: 1799999999} | .program = "mpirun"'
	run -0 --separate-stderr "$pinalloc" report jobs
	[[ "${lines[0]}" == "pinalloc: new, 2 ranks and 1 other process on 1 host, 6.5 s" ]]
	[ "${#stderr_lines[@]}" -eq 1 ]
	output=$stderr told '5 reports' '17/1' '--job=ID'
	[ "$("$pinalloc" report --json jobs 2> /dev/null | jq -c .job)" = '{"id":"17/1","started":1799999999}' ]
	reported --job=17 jobs
	[[ "${lines[0]}" == "pinalloc: app, 4 ranks and 1 other process on 2 hosts, 9.5 s" ]]
	fails 2 'no report is of job 15' report --job 15 jobs
	rank jobs/8.json '.nranks = 1 | .job = null | .program = "none"'
	run -0 --separate-stderr "$pinalloc" report jobs
	output=$stderr told '6 reports' '17/1' '--job=ID'
}

@test "runs that overlap in time are of one job, with a row for each; a run afterwards is another job" {
	local r
	four
	for r in 0 2; do
		rank job/spawned$r.json ".nranks = 3 | .rank = $r | .pid = 200 + $r | .host = \"node1\" | .job = {id: \"18\", started: 1700000005}"
	done
	run -1 --separate-stderr "$pinalloc" report job
	[ -z "$stderr" ]
	[ "${lines[0]}" = 'pinalloc: app, 6 of 7 ranks on 2 hosts, 9.5 s' ]
	told 'locked memory' 'rank 3 of 17.'
	said '  No report of 1 of 3 ranks of 18: 1.'
	run -0 tr -s ' ' <<< "$output"
	said ' 4 17 0.0 s 1006.0 MiB 1.6 GiB' ' 2 18 4.8 s 200.0 MiB 320.0 MiB' ' run 18'
	[ "$(sed -n '/^ run 18/,/^ min/s/^ \([02]\) node1.*/\1/p' <<< "$output" | xargs)" = '0 2' ]
	[ "$(merged '[.job.id, .nranks, .missing_ranks, (.runs[] | .id, .ranks, .nranks), (.ranks[] | .run)]')" = \
		'["17",7,[1],"17",4,4,"18",2,3,"17","17","17","17","18","18"]' ]
	# One that overlaps only the second joins the job.
	rank job/third.json '.nranks = 1 | .pid = 300 | .job = {id: "19", started: 1700000011}'
	run -1 --separate-stderr "$pinalloc" report job
	[ -z "$stderr" ]
	[ "${lines[0]}" = 'pinalloc: app, 7 of 8 ranks on 2 hosts, 9.5 s' ]
	run -1 --separate-stderr "$pinalloc" report --job=18 job
	[ "${lines[0]}" = 'pinalloc: app, 2 of 3 ranks on 1 host, 6.5 s' ]
	told 'The largest heap' 'rank 0 on node1'
	rank job/third.json '.nranks = 1 | .pid = 300 | .job = {id: "19", started: 1700000011.5}'
	run -0 --separate-stderr "$pinalloc" report job
	used '6 reports' 'other jobs than 19'
	[ "${lines[0]}" = 'pinalloc: app, 1 rank on 1 host, 6.5 s' ]
}

@test "a record ends no run, but where its rank comes again without an id" {
	local r killed='.trigger = "the process ended without a report" | .elapsed_s = 0.1 | .timeline |= map(select(.[0] == 0))'
	for r in 0 1; do
		rank job/$r.json ".nranks = 2 | .rank = $r | .pid += $r | $killed | .job.id = \"A\""
		rank job/b$r.json ".nranks = 2 | .rank = $r | .pid += 10 + $r | .job.id = \"B\" | .job.started += 3 | $killed"
	done
	run -0 --separate-stderr "$pinalloc" report job
	[ -z "$stderr" ]
	[ "${lines[1]}" = 'pinalloc: app, 4 ranks on 1 host, 3.1 s' ]
	told Never '400.0 MiB in use at once'
	# A run that left reports began when the other had ended.
	sed -i 's/the process ended without a report/at exit/' job/b*.json
	run -0 --separate-stderr "$pinalloc" report job
	used '2 reports' 'other jobs than B'
	# One of a rank that is slow to begin is of the same run.
	sed -i 's/"\(A\|B\)"/null/' job/*.json
	rank job/slow.json '.nranks = 3 | .rank = 2 | .pid = 120 | .job = {id: null, started: 1700000010}'
	run -0 --separate-stderr "$pinalloc" report job
	used '2 reports' 'other jobs than the last'
	[ "${lines[0]}" = 'pinalloc: app, 3 ranks on 1 host, 6.5 s' ]
}

@test "memory that ranks share counts once, though some end before others, or are killed" {
	local r
	for r in 0 1 2 3; do
		rank job/$r.json ".rank = $r | .pid += $r | .resident |= (.shared_bytes = 1024 * $mib | .file_bytes = 0)
			| .memory |= (.rss_bytes = 1184 * $mib | .rss_peak_bytes = .rss_bytes | .pss_bytes = (160 + 1024 / (4 - $r) | floor) * $mib)"
	done
	# 160 MiB of each, as the first that ended knows.
	[ "$(merged '.hosts[0].memory.rss_peak_bytes / 1048576 | round')" -eq $((4 * 160 + 1024)) ]
	for r in 1 2 3; do
		jq '.trigger = "the process ended without a report" | .resident |= {shared_bytes} | del(.memory.pss_bytes)' job/$r.json > job/$r
		mv job/$r job/$r.json
	done
	# A record does not say what was not touched.
	[ "$(merged '.hosts[0].memory.rss_peak_bytes / 1048576 | round')" -eq $((4 * 160 + 1024)) ]
	# Nor what a child has copied of its parent: the peak of its heap counts.
	rank job/child.json ".pid = 104 | .parent = 103 | .rank = 3 | .trigger = \"the process ended without a report\" | del(.resident)
		| .memory |= (.live_peak_bytes = 20 * $mib | .mapped_bytes = 32 * $mib | .rss_peak_bytes = 1204 * $mib)"
	[ "$(merged '.hosts[0].memory.rss_peak_bytes / 1048576 | round')" -eq $((4 * 160 + 1024 + 20)) ]
}

@test "without an id a run begins where ranks come again, in whatever order they begin" {
	local r
	# Of an earlier run one report is left.
	rank job/0.json '.nranks = 3 | .job.id = null | .elapsed_s = 2 | .timeline = []'
	for r in 0 1 2; do
		rank job/$((r + 1)).json ".nranks = 3 | .rank = $((2 - r)) | .pid = 200 + $r | .job = {id: null, started: $((1700000003 + r))}"
	done
	run -0 --separate-stderr "$pinalloc" report job
	used '1 report' 'other jobs than the last'
	[ "${lines[0]}" = 'pinalloc: app, 3 ranks on 1 host, 6.5 s' ]
	# What a rank has forked after its record is no other run.
	rm job/*
	rank job/0.json '.nranks = 1 | .job.id = null | .elapsed_s = 0.1 | .timeline = [] | .trigger = "the process ended without a report"'
	rank job/1.json '.nranks = 1 | .pid = 101 | .parent = 100 | .job = {id: null, started: 1700000003}'
	run -0 --separate-stderr "$pinalloc" report job
	[ -z "$stderr" ]
	[ "${lines[1]}" = 'pinalloc: app, 1 rank and 1 other process on 1 host, 9.2 s' ]
}

# Slurm sets the number and count of ranks in a batch script, too.
@test "what a batch script starts beside its steps is no rank" {
	rank job/0.json '.nranks = 1 | .job.id = "17.0"'
	rank job/srun.json '.nranks = 4 | .pid = 50 | .elapsed_s = 7 | .program = "srun"'
	reported
	[ "${lines[0]}" = 'pinalloc: app, 1 rank and 1 other process on 1 host, 6.5 s' ]
}

@test "a report with only one of rank and number of ranks makes no rank missing" {
	rank shell.json '.rank = null | .nranks = 4'
	run -0 "$pinalloc" report shell.json
	[ "${lines[0]}" = "pinalloc: app, 1 process on 1 host, 6.5 s" ]
	rank job/0.json '.nranks = 2'
	rank job/1.json '.rank = 1 | .nranks = null'
	run -0 "$pinalloc" report job
	rank job/7.json '.rank = 7 | .nranks = null'
	rm job/1.json
	[ "$(merged .missing_ranks)" = '[1]' ]
}

@test "the largest limit that a number can express is accepted" {
	rank huge.json '.nranks = 1 | .memory |= with_entries(select(.key | test("limit|ram") | not))
		| .memory.memlock_limit_bytes = "LIMIT"'
	sed -i 's/"LIMIT"/9223372036854775807/' huge.json
	reported huge.json
	told 'locked memory, 0 % of 8192.0 PiB.'
}

@test "if all heaps are empty, none is the largest" {
	rank job/0.json '.nranks = 2 | .memory.mapped_bytes = 0'
	rank job/1.json '.nranks = 2 | .rank = 1 | .memory.mapped_bytes = 0'
	run -0 "$pinalloc" report job
	[[ "$output" != *largest* ]]
}

@test "a limit that is exceeded does not hold, and there is no share of it" {
	rank free.json '.nranks = 2 | .memory.memlock_limit_bytes = 64 * 1048576'
	rank bound.json '.nranks = 2 | .rank = 1'
	run -1 "$pinalloc" report free.json
	told 'the nearest: pinned memory'
	[[ "$output" != *" 200 %"* ]]
	run -0 "$pinalloc" report free.json bound.json
	told 'locked memory, 13 % of 1.0 GiB, rank 1.'
	run -0 "$pinalloc" report --json free.json bound.json
	[ "$(jq -c '.hosts[0] | [.memlock_worst_rank, .memlock_worst_share]' <<< "$output")" = '[1,0.125]' ]
}

@test "processes without a rank are named by host and process" {
	rank a.json '.rank = null | .nranks = null | .pid = 7 | .host = "left"'
	rank b.json '.rank = null | .nranks = null | .pid = 8'
	run -0 "$pinalloc" report a.json b.json
	said "pinalloc: app, 2 processes on 2 hosts, 6.5 s"
	[[ "$output" == *"  7  left "*"  8  node1 "* ]]
	local host=a-name.of-a.host-that.goes-on.and-on.but-is.not-too-long
	rank b.json ".rank = null | .nranks = null | .pid = 4194304 | .host = \"$host\""
	run -0 "$pinalloc" report a.json b.json
	told 'The largest heap' "$host:4194304"
	[[ "$output" == *"  4194304  a-name...ong "* ]]
	run -0 "$pinalloc" report a.json
	said "pinalloc: app, 1 process on 1 host, 6.5 s"
	told 'locked memory, 13 % of 1.0 GiB.'
}

@test "among ranks, a launcher counts only towards its host" {
	four
	rank job/none.json '.rank = null | .nranks = null | .program = "mpirun" | .host = "node2"'
	run -0 "$pinalloc" report job
	said "pinalloc: app, 4 ranks and 1 other process on 2 hosts, 9.5 s"
	told eap '1.3 GiB'
	[[ "$output" == *"  100  node2 "* ]]
	[ "$(merged .max.memory.mapped_bytes)" -eq $((512 * mib)) ]
	[ "$(merged '[.hosts[].processes]')" = '[2,3]' ]
	[ "$(merged '.hosts[1].memory.mapped_bytes')" -eq $((1024 * mib)) ]
	local pid
	for pid in {101..110}; do
		rank job/none$pid.json ".rank = null | .nranks = null | .pid = $pid"
	done
	run -0 "$pinalloc" report job
	told '... 1 more process' --json
}

@test "reports of an older version are accepted without the newer keys" {
	rank old.json '.nranks = 1 | .schema = 2 | .job.started |= floor | del(.starttime) | .stability = {moved_pages: 0} | .memory |= with_entries(select(.key | test("limit") | not))
		| del(.resident, .memory.rss_bytes, .trigger, .timeline, .peak_sites, .peak_sites_kind, .watch,
			.memory.live_peak_bytes, .memory.ram_bytes)'
	reported old.json
	said '  Never returning memory: the heap grew to 128.0 MiB.'
	run ! grep -q 'limit\|Beside' <<< "$output"
	run -0 "$pinalloc" report old.json
	run -0 tr -s ' ' <<< "$output"
	said " 0 node1 - 128.0 MiB - 128.0 MiB 160.0 MiB - 1000 10"
	[ "$(merged '[.min.memory.live_peak_bytes, .ranks[0].trigger, .peak_sites_kind, .peak_sites]' \
		old.json)" = '[null,null,null,[]]' ]
}

@test "missing figures in a report may also be null or empty" {
	rank null.json '.nranks = 1 | .peak_sites_kind = null | .peak_sites = []
		| .timeline = null | .trigger = null | .watch.events = null'
	reported null.json
	run ! grep -q 'sites\|MOVED\|ritten' <<< "$output"
}

@test "keys added by a newer version are ignored" {
	rank new.json '.nranks = 1 | .memory.colour = "blue" | .weather = [1, {}]
		| .timeline[] += [7, "x"]'
	reported new.json
}

@test "of a thousand ranks the ten largest are shown, and the rest counted" {
	mkdir job
	jq -c 'range(1000) as $r | .rank = $r | .nranks = 1000 | .host = "node\($r % 50)"
		| .memory.mapped_bytes += $r * 1048576' "$base" |
		split -l 1 -a 4 -d --additional-suffix=.json - job/
	reported
	told '... 990 more ranks' --json
	told '... 40 more hosts' --json
	[ "$(sed '/processes/,$d' <<< "$output" | awk '$1 ~ /^[0-9]+$/ && $2 ~ /^node/ { print $1 }' | tr '\n' ' ')" = \
		"999 998 997 996 995 994 993 992 991 990 " ]
	[ "$(sed '1,/processes/d' <<< "$output" | grep -c '  node')" -eq 10 ]
	[ "${#lines[@]}" -lt 60 ]
	[ "$(merged '.ranks | length')" -eq 1000 ]
	[ "$(merged .totals.memory.mapped_bytes)" -eq $((mib * (128 * 1000 + 999 * 500))) ]
	[ "$(merged .peak_sites[0].ranks)" -eq 1000 ]
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

@test "call sites are summed over the ranks, and shown with all callers, one a line" {
	sites
	run -0 "$pinalloc" report job
	told sampled '4 of 4 sites' '8.3 KiB of 8.3 KiB'
	[ "$(sed '1,/sampled/d' <<< "$output")" = "     7.8 KiB       2 ranks  grid (g.c:1)
                               main (m.c:2)
       500 B       1 rank   libx.so+0x1f
                               a; b (m.c:3)
                               c
                               d
                               e
        20 B       1 rank   (unknown)
         1 B       1 rank   grid (g.c:1)
                               main (m.c:9)" ]
	[ "$(merged '[.peak_sites[] | .bytes, .count, .ranks]')" = '[8000,8,2,500,1,1,20,2,1,1,1,1]' ]
	[ "$(merged '.peak_sites[1].stack')" = "$(jq -c '.peak_sites[1].stack' job/0.json)" ]
	run -0 "$pinalloc" report --top 1 job
	told sampled '1 of 4 sites' '7.8 KiB of 8.3 KiB'
	[ "$(sed '1,/sampled/d' <<< "$output" | wc -l)" -eq 2 ]
	run -0 "$pinalloc" report --top 0 job
	run ! grep -q 'sites\|main' <<< "$output"
}

@test "the text leaves out frames of libraries for memory, and no part of long names" {
	rank job/0.json '.nranks = 1 | .peak_sites = [
		{bytes: 700, count: 1, stack: ["operator new(unsigned long) (libstdc++.so.6)",
			"std::vector<double, std::allocator<double> >::_M_realloc_insert<double>(double&&) (vector.tcc:453)",
			"/usr/lib/libstdc++.so.6+0x1f", "solver::Matrix<double, std::less<double> >::assemble(solver::Grid const&) (matrix.cc:12)",
			"strdup (libc.so.6)", "alloc::run(std::ostream&) (run.cc:3)", "main (main.cc:9)", "_start (app)"]},
		{bytes: 600, count: 1, stack: ["std::string::_M_create(unsigned long&, unsigned long) (basic_string.tcc:9)",
			"solver::Matrix<double, std::less<double> >::assemble(solver::Grid const&) (matrix.cc:12)",
			"alloc::run(std::ostream&) (run.cc:3)", "main (main.cc:9)", "_start (app)"]},
		{bytes: 500, count: 1, stack: ["alloc::raw_vec::finish_grow (app)", "<core::iter::Map as core::iter::Iterator>::next (map.rs:2)",
			"app::fill (main.rs:4)", "std::rt::lang_start::{closure#0} (rt.rs:206)", "main (app)"]},
		{bytes: 400, count: 1, stack: ["std::thread::run() (libstdc++.so.6)"]}]'
	run -0 "$pinalloc" report job
	said "     1.3 KiB       1 rank   solver::Matrix<double, std::less<double> >::assemble(solver::Grid const&) (matrix.cc:12)" \
		"                               alloc::run(std::ostream&) (run.cc:3)" "                               main (main.cc:9)" \
		"       500 B       1 rank   app::fill (main.rs:4)" "                               main (app)" \
		"       400 B       1 rank   std::thread::run() (libstdc++.so.6)"
	[ "$(merged '[.peak_sites[].stack | length]')" = '[8,5,5,1]' ]
}

@test "--against: what grew since another job, whatever the numbers of lines" {
	sites
	rank now/0.json '.nranks = 1 | (.memory | .live_peak_bytes, .mapped_bytes, .rss_peak_bytes) *= 3 | .elapsed_s = 13 | .timeline = [] | .peak_sites = [
		{bytes: 9000, count: 3, stack: ["grid (g.c:7)", "main (m.c:8)", "_start (app)"]},
		{bytes: 700, count: 1, stack: ["new (n.c:1)", "main (m.c:2)"]}]'
	reported --against job now
	# 100 MiB in each of two ranks, then 300 in one.
	said "in use at once             200.0 MiB   300.0 MiB  + 100.0 MiB  +50 %" \
		"largest peak of one        100.0 MiB   300.0 MiB  + 200.0 MiB  +200 %" \
		"  +     999 B to    8.8 KiB  grid (g.c)" "                               main (m.c)" \
		"  +     700 B to      700 B  new (n.c)"
	[ "$(grep -c main <<< "$output")" -eq 2 ]
	run -0 "$pinalloc" report --against=now --top 1 job
	said "in use at once             300.0 MiB   200.0 MiB  - 100.0 MiB  -33 %" \
		"  +     500 B to      500 B  libx.so+0x1f" "                               a; b (m.c)"
	run ! grep -q main <<< "$output"
	rank now/0.json '.nranks = 1 | .peak_sites_kind = "growth"'
	run -0 "$pinalloc" report --against=now job
	run ! grep -q main <<< "$output"
	rm now/0.json
	run -2 "$pinalloc" report --against=now job
}

@test "growth sites are labelled as such, and not added to live sites" {
	sites
	jq '.peak_sites_kind = "growth"' job/1.json > grown.json
	run -1 "$pinalloc" report grown.json
	told grew '2 of 2 sites' '4.9 KiB of 4.9 KiB'
	run -0 "$pinalloc" report --json job/0.json grown.json
	[ "$(jq '.peak_sites[0].bytes' <<< "$output")" -eq 3000 ]
}

@test "the library's own reports are merged" {
	local r
	mkdir job
	for r in 0 1 2; do
		preloaded PINALLOC_REPORT=job/%r.json OMPI_COMM_WORLD_RANK=$r \
			OMPI_COMM_WORLD_SIZE=3 "$programs/grow" $((100 * r))
	done
	reported
	[[ "${lines[0]}" == "pinalloc: grow, 3 ranks on 1 host, "* ]]
	told argest 'rank 2' "$(uname -n)"
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
	run -0 "$pinalloc" report --json job
	# The compiler may have split the function, and have inlined a part of it.
	jq -e --arg here "$programs/peaks+0xffffff" '.peak_sites[0].stack[-4:] ==
		[$here, "/no/such/module+0x10", "main (main.c:90)", "/x+0xzz"]' <<< "$output"
	[[ "$(jq -r '.peak_sites[0].stack[0]' <<< "$output")" =~ ^hold_and_drop\ \(peaks\.c:([0-9]+)\)$ ]]
	sed -n "${BASH_REMATCH[1]}p" "$top_srcdir/test/programs/peaks.c" | grep hold_blocks
}

# died RANK SECONDS EDIT: that rank left a record, with what it knew then.
died() {
	rank "job/$1.json" ".rank = $1 | .host = \"node2\" | .pid += $1 | .elapsed_s = $2
		| .trigger = \"the process ended without a report\" | $3"
}

@test "ranks that were killed are marked with when and what they were near to; the first line names the first" {
	four
	died 2 3.25 '.memory.cgroup_limit_bytes = 4e9 | .memory.cgroup_peak_bytes = 392e7'
	run -0 "$pinalloc" report job
	[ "${lines[0]}" = 'pinalloc: rank 2 on node2 ended without a report (it was killed, or called _exit), last seen 3.2 s after its start, at 98 % of its limit (memory of the control group)' ]
	[ "${lines[1]}" = "pinalloc: app, 4 ranks on 2 hosts, 9.5 s" ]
	[[ "$(grep -m1 -A1 '^ *2  node2' <<< "$output")" == *$'\n            KILLED or _exit, last seen at 3.2 s: 98 % of its limit (memory of the control group)' ]]
	[ "$(grep -c KILLED <<< "$output")" -eq 1 ]
	# What it had allocated may have killed it when it was touched.
	died 2 3.25 '.memory |= (.cgroup_limit_bytes = 4e9 | .cgroup_peak_bytes = 1e9 | .live_peak_bytes = 5e9)'
	run -0 "$pinalloc" report job
	[[ "${lines[0]}" == *'at 100 % of its limit (memory of the control group)' ]]
	died 2 3.25 '.memory.cgroup_limit_bytes = 4e9 | .memory.cgroup_peak_bytes = 392e7'
	# One near to a limit is taken to have been first.
	died 3 2 .
	run -0 "$pinalloc" report job
	[[ "${lines[0]}" == 'pinalloc: rank 2 on node2 ended first without a report (it was killed, or called _exit), last seen 3.2 s '* ]]
	[[ "$(grep -m1 -A1 '^ *3  node2' <<< "$output")" == *$'\n            KILLED or _exit, last seen at 2.0 s' ]]
	died 2 3.25 .
	run -0 "$pinalloc" report job
	# The record of one that waits is older, and says nothing of when the process died.
	[ "${lines[0]}" = 'pinalloc: 2 ranks ended without a report (killed, or by _exit); which was the first is not known' ]
}

@test "what a process had when its record ends counts in the sums, until its host is last seen" {
	local r mib=1048576
	rank job/0.json ".nranks = 1 | .trigger = \"the process ended without a report\" | .elapsed_s = 2 | del(.resident)
		| .memory.live_peak_bytes = 600 * $mib | .memory.mapped_bytes = 600 * $mib
		| .timeline = [[0, 0, 0, 0], [2, 600 * $mib, 600 * $mib, 0]]"
	run -0 "$pinalloc" report job
	told Never 'no more than the 600.0 MiB in use at the peak'
	# Ranks that grew one after the other, and were killed together.
	for r in 0 1 2; do
		jq ".nranks = 3 | .rank = $r | .pid = 100 + $r | .elapsed_s = 2 * $r + 1 | .timeline[][0] |= . * $r" job/0.json > killed
		mv killed job/$((r + 1)).json
	done
	rm job/0.json
	run -0 "$pinalloc" report job
	[ "${lines[1]}" = 'pinalloc: app, 3 ranks on 1 host, 5.0 s' ]
	told Never 'no more than the 1.8 GiB in use at once'
	[ "$(merged '.hosts[0].memory.live_peak_bytes')" -eq $((1800 * mib)) ]
}

@test "a record of a process that executed another program, or still runs, is not of one killed" {
	rank job/shell.json '.nranks = 1 | .program = "before" | .elapsed_s = 2 | .trigger = "the process ended without a report"'
	rank job/0.json '.nranks = 1 | .job.started += 2'
	run -0 "$pinalloc" report job
	[ "${lines[0]}" = 'pinalloc: before, 1 rank and 1 other process on 1 host, 2.0 s' ]
	said '            executed another program; last record at 2.0 s'
	[ "$(merged '[.ranks[].trigger]')" = '["executed another program","at exit"]' ]
	# A process with the same number later is another one, or its start is not known.
	for other in '.starttime += 1' 'del(.starttime)' '.pid += 1' '.host = "node2"'; do
		rank job/0.json ".nranks = 1 | .job.started += 2 | $other"
		run -0 "$pinalloc" report job
		[[ "${lines[0]}" == 'pinalloc: rank 0 on node1 ended without a report '* ]]
	done
	rm -r job
	# What it has now the kernel says.
	rank job/0.json ".nranks = 1 | .trigger = \"the process ended without a report\" | .host = \"$(uname -n)\" | .pid = $$ | .job.started = now
		| .starttime = $(sed 's/.*)//' /proc/$$/stat | cut -d ' ' -f 21)"
	run -0 "$pinalloc" report job
	[ "${lines[0]}" = 'pinalloc: app, 1 rank on 1 host, 6.5 s' ]
	said '            still runs; last record at 6.5 s'
	[ "$(merged '.ranks[0].memory | .pss_bytes > 0 and .rss_peak_bytes < 160 * 1048576')" = true ]
	jq '.starttime += 1' job/0.json > other.json
	run -0 "$pinalloc" report other.json
	[[ "${lines[0]}" == 'pinalloc: rank 0 on '*' ended without a report '* ]]
}

@test "of many ranks, those that were killed have a row" {
	mkdir job
	jq -c 'range(64) as $r | .rank = $r | .nranks = 64 | .pid += $r | .memory.mapped_bytes += $r * 1048576
		| if $r == 30 then .trigger = "the process ended without a report" else . end' "$base" |
		split -l 1 -a 4 -d --additional-suffix=.json - job/
	run -0 "$pinalloc" report job
	[[ "${lines[0]}" == 'pinalloc: rank 30 on node1 ended without a report (it was killed, '* ]]
	[[ "$(grep -A1 '^ *30  node1' <<< "$output")" == *KILLED* ]]
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

@test "what a rank forked is under it, and counts in the peak of its tree while it ran" {
	local pid mib=1048576
	rank job/0.json '.nranks = 2'
	rank job/1.json '.nranks = 2 | .rank = 1 | .pid = 200 | .memory.live_peak_bytes = 1153434 | .elapsed_s = 100'
	# Four of 100 MiB at a time, of which the last forked one more; and one when they had ended.
	for pid in 201 202 203 204; do
		rank job/$pid.json ".nranks = 2 | .rank = 1 | .pid = $pid | .parent = 200 | del(.timeline)"
	done
	rank job/205.json ".nranks = 2 | .rank = 1 | .pid = 205 | .parent = 204 | del(.timeline)"
	rank job/206.json ".nranks = 2 | .rank = 1 | .pid = 206 | .parent = 200 | del(.timeline) | .job.started += 50
		| .peak_sites = [{bytes: 77, count: 7, stack: [\"forked (child.c:1)\"]}]"
	reported
	[ "${lines[0]}" = 'pinalloc: app, 2 ranks and 6 other processes on 1 host, 100.0 s' ]
	said '            with its 6 forked: 501.1 MiB in use at the peak'
	[ "$(sed -n '/^ *1  node1/,/with its/s/^ *\(+*[0-9]*\)  node1 .*/\1/p' <<< "$output" | tr '\n' ' ')" = \
		'1 +201 +202 +203 +204 +205 +206 ' ]
	[ "$(merged '[.ranks[] | select(.rank == 1) | .tree_peak_bytes / 1048576 | round]')" = '[501]' ]
	[ "$(merged '[.ranks[] | select(.pid > 200) | .rank, .parent] | unique')" = '[null,200,204]' ]
	# Its sites are among the rank's.
	[ "$(merged '[.peak_sites[] | select(.stack == ["forked (child.c:1)"]) | .bytes, .count, .ranks]')" = '[77,7,1]' ]
	[ "$(merged '[.peak_sites[].ranks] | max')" -eq 2 ]
	# A ring, as of process ids that came again, is none.
	rank job/0.json '.nranks = 2 | .parent = 205'
	rank job/205.json '.nranks = 2 | .rank = null | .pid = 205 | .parent = 100'
	run --separate-stderr timeout 20 "$pinalloc" report job
	[ "$status" -le 1 ]
}

@test "tables have at most 100 columns, with any names" {
	local host=a-very.long-name.of-a.node-in.a-cluster.example.org wide
	wide=$(jq -n '[range(60) | "function_with_a_long_name_\(.) (file_with_a_long_name.cc:12345)"] | tojson')
	rank job/0.json ".nranks = 2 | .host = \"$host\" | .peak_sites[0].stack = ($wide | fromjson | .[:5])
		| .memory |= map_values(if . == null then . else . * 1000 end) | .registration.served = 12345678"
	rank job/1.json ".nranks = 2 | .rank = 1 | .host = \"$host\" | .trigger = \"the process ended without a report\"
		| .memory.cgroup_limit_bytes = 4e9 | .memory.cgroup_peak_bytes = 392e7"
	rank job/2.json ".rank = 1 | .host = \"$host\" | .pid = 4194303 | .parent = 100"
	run -0 "$pinalloc" report job
	sed '1,/^ *rank  host/d' <<< "$output"
	[ "$(sed '1,/^ *rank  host/d' <<< "$output" | wc -L)" -le 100 ]
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
	[ "$(wc -l < examples)" -eq 12 ]
	PATH=$PWD/bin:$PATH run -0 bash -eo pipefail examples
	echo "$output"
	[ "${lines[-1]}" -eq 1 ]
	[[ "${lines[0]}" == 'pinalloc: grow, 3 ranks on 1 host, '* ]]
	grep -q '^<svg' memory.svg
	grep -qE '^[^ ].*;main \(grow\.c:[0-9]+\);?.* [0-9]+$' sites.svg
}
