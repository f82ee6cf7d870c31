#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: for an MPI job with known peaks, the ranks' reports say how much memory was live at the peak, and
# which code allocated it; `pinalloc report` does so for the job. Jobs of two nodes that communicate as real codes do,
# from buffers allocated anew in each step and without a registration cache, get right data; after the first steps no
# request waits for a registration.
# Found here alone: frames of components that Open MPI had unloaded had other names, and a process that was
# killed while it touched a large array had a record that said no limit was near.

load lab

setup_file() {
	build_mpi peaks -g
	build_mpi rounds
	boot peaks killed
	results=$BATS_FILE_TMPDIR/pair
	pair_options=(--mem 3G --timeout 1000)
	in_guest() { on_two_nodes; }
	boot_pair peaks patterns on_two_nodes
}

# peaks NAME MPI OPTION…: four ranks. Only they run with the library, and leave reports in the directory of
# that name in $to, which all nodes see.
peaks() {
	local command

	mkdir "/ctl/$1"
	ranks "$2" 4 "${little_ucx[@]}" LD_PRELOAD="$library" PINALLOC_REPORT="$to/$1/%r.json" "${@:3}"
	attempt "$1" "${command[@]}"
}

# killed: kills rank 2 when all ranks wait. Open MPI ends the others, whose reports have time.
killed() {
	local job
	peaks openmpi-killed openmpi --mca odls_base_sigkill_timeout 10 "$BATS_FILE_TMPDIR/peaks.openmpi" 50 wait &
	job=$!
	until [ "$(grep -c ' is process ' /ctl/openmpi-killed.out)" -eq 4 ] || [ -e /ctl/openmpi-killed.status ]; do
		sleep 0.2
	done
	kill -KILL "$(sed -n 's/^rank 2 is process //p' /ctl/openmpi-killed.out)"
	wait $job
}

in_guest() {
	local to=/ctl

	peaks openmpi openmpi "$BATS_FILE_TMPDIR/peaks.openmpi"
	peaks mpich mpich "$BATS_FILE_TMPDIR/peaks.mpich"
	PINALLOC_SAMPLE=128K peaks openmpi-held openmpi "$BATS_FILE_TMPDIR/peaks.openmpi"
	killed
}

# patterns NAME MPI STEPS PATTERN…: four ranks, without UCX's cache. From 4 KiB on, messages are sent from where
# they are. Below are those of MPICH itself, on its stack.
patterns() {
	local command

	mkdir "/ctl/$1"
	ranks "$2" 4 UCX_RNDV_THRESH=4k "${no_ucx_cache[@]}" LD_PRELOAD="$library" PINALLOC_REPORT="$to/$1/%r.json" \
		"${on_both[@]}" "$BATS_FILE_TMPDIR/rounds.$2" patterns "${@:3}"
	attempt "$1" "${command[@]}"
}

on_two_nodes() {
	local all=(halo window forks) rsh=$top_srcdir/test/lab/rsh to=/share
	local on_both=(--host node1:2,node2:2 --mca plm_rsh_agent "$rsh" --mca osc ucx)

	cd /tmp
	patterns openmpi openmpi 2 "${all[@]}"
	patterns threads openmpi 2 threads
	peaks two openmpi "${on_both[@]}" "$BATS_FILE_TMPDIR/peaks.openmpi"
	on_both=(-hosts node1:2,node2:2 -launcher rsh -launcher-exec "$rsh")
	patterns mpich mpich 2 "${all[@]}"
}

setup() {
	pinalloc=$top_builddir/pinalloc
	ranks="0 1 2 3"
	cd "$results"
}

# asked NAME RANK: bytes that were live in hold_peak(), according to the program.
asked() {
	sed -n "s/^rank $2 before [0-9]* asked \([0-9]*\) wrong 0$/\1/p" "$1.out" | sort -n | tail -n 1
}

# truth NAME RANK: these bytes and what was live before.
truth() {
	sed -n "s/^rank $2 before \([0-9]*\) asked \([0-9]*\) wrong 0$/\1 \2/p" "$1.out" |
		awk '$1 + $2 > most { most = $1 + $2 } END { print most + 0 }'
}

# within PERCENT FIGURE TRUTH: whether the figure is that close to the truth.
within() {
	echo "$2, within $1 % of $3?"
	awk -v p="$1" -v x="$2" -v y="$3" 'BEGIN { exit !(y > 0 && x > y * (1 - p / 100) && x < y * (1 + p / 100)) }'
}

# rank_figure NAME RANK PATH: a value of the rank's report.
rank_figure() {
	figure "$1/$2.json" "$3"
}

# knows_peaks NAME: the peak is right in every rank.
knows_peaks() {
	local r
	for r in $ranks; do
		[ "$(asked "$1" "$r")" -eq $(((r + 1) * 50 << 20)) ]
		within 1 "$(rank_figure "$1" "$r" .memory.live_peak_bytes)" "$(truth "$1" "$r")"
		[ "$(rank_figure "$1" "$r" '.rank, .nranks' | tr '\n' ' ')" = "$r 4 " ]
	done
}

# as_promised MPI: and the job's table has the place that held the peak in all ranks.
as_promised() {
	ended "$1"
	knows_peaks "$1"
	run -0 --separate-stderr "$pinalloc" report "$1"
	echo "$output"
	[ -z "$stderr" ]
	[[ ${lines[0]} == "pinalloc: peaks.$1, 4 ranks on 1 host, "* ]]
	grep -A 1 -E ' 4 ranks +hold_peak \(mpi-peaks.c:[0-9]+\)$' <<< "$output" | grep -E '^ +(wave|main)'
}

@test "Open MPI: peaks are within 1 %, and growth is attributed to its lines" {
	as_promised openmpi
}

@test "MPICH: peaks are within 1 %, and growth is attributed to its lines" {
	as_promised mpich
}

@test "frames in components that Open MPI has unloaded are attributed to them" {
	run -0 "$pinalloc" report --json openmpi-held
	# Debian's Open MPI 5 has it in its library.
	jq -e '[.peak_sites[].stack[]] | any(test("^mca_pml_ucx_add_procs [(](mca_pml_ucx|libmpi)[.]so[.0-9]*[)]$"))' \
		<<< "$output"
}

@test "of a job of which one rank is killed after its peak, all ranks are reported, with their peaks" {
	local r peak truth
	ended openmpi-killed "$(< openmpi-killed.status)"
	run -0 --separate-stderr "$pinalloc" report openmpi-killed
	echo "$output"
	[ -z "$stderr" ]
	[ "${lines[0]}" = "pinalloc: 4 ranks ended without a report (killed, or by _exit); which was the first is not known" ]
	[[ ${lines[1]} == "pinalloc: peaks.openmpi, 4 ranks on 1 host, "* ]]
	[ "$(grep -c KILLED <<< "$output")" -eq 4 ]
	grep -A 1 -E ' 4 ranks +hold_peak \(mpi-peaks.c:[0-9]+\)$' <<< "$output" | grep -E '^ +(wave|main)'
	# A record is written anew when the peak has risen by a 64th, and by 4 MiB at least.
	for r in $ranks; do
		peak=$(merged openmpi-killed ".ranks[$r].memory.live_peak_bytes")
		truth=$(truth openmpi-killed "$r")
		echo "$peak of $truth"
		[ "$peak" -ge $((truth - (truth / 64 > 4 << 20 ? truth / 64 : 4 << 20))) ]
		[ "$peak" -lt $((truth * 101 / 100)) ]
	done
}

@test "with two nodes, each has the sum of its ranks" {
	cd "$BATS_FILE_TMPDIR/pair"
	run -0 --separate-stderr "$pinalloc" report two
	echo "$output"
	[[ ${lines[0]} == "pinalloc: peaks.openmpi, 4 ranks on 2 hosts, "* ]]
	# At one moment: no more than the peaks of its ranks together, and no less than the largest.
	merged two '[.hosts[].memory.live_peak_bytes]' > "$BATS_TEST_TMPDIR/sums"
	jq -es --slurpfile sums "$BATS_TEST_TMPDIR/sums" 'group_by(.host) | map(map(.memory.live_peak_bytes))
		| [., $sums[0]] | transpose | all(.[1] <= (.[0] | add) and .[1] >= (.[0] | max))' two/*.json
	[ "$(merged two '[.hosts[] | .host, .processes]')" = '["node1",2,"node2",2]' ]
	knows_peaks two
}

# --- patterns of messages, between two nodes ---

# all_right NAME PATTERN…: the job ended, each pattern ran, and every word was right.
all_right() {
	local pattern

	results=$BATS_FILE_TMPDIR/pair
	cd "$results"
	ended "$1"
	for pattern in "${@:2}"; do
		grep -q "^$pattern wrong 0 " "$1.out"
	done
	[ "$(grep -c ' wrong ' "$1.out")" -eq $(($# - 1)) ]
}

# sum NAME KEY [CONDITION]: over all patterns of a job, or those of which awk says so.
sum() {
	awk "${3:-1}" "$1.out" | grep -o " $2 [0-9]*" | awk '{ n += $2 } END { print n + 0 }'
}

# serves NAME PATTERN…: the patterns' requests are answered from registrations made before. Those made
# ahead meanwhile do not count. Four for each rank may be late, before anything is registered ahead, and two
# more beside a load; and sixteen after fork(), before which memory regions that nobody uses are deregistered.
serves() {
	all_right "$@"
	[ "$(sum "$1" served)" -gt 0 ]
	[ "$(sum "$1" passed)" -eq 0 ]
	[ "$(sum "$1" awaited '!/^forks /')" -le 24 ]
	[ "$(sum "$1" awaited '/^forks /')" -le 64 ]
}

@test "halos, windows, forks: right, and no request waits for a registration" {
	serves openmpi halo window forks
	serves mpich halo window forks
}

@test "MPI_THREAD_MULTIPLE: right, and no request waits for a registration" {
	serves threads threads
}
