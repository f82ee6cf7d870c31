#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: for an MPI job with known peaks, the ranks' reports say how much memory was live at the peak, and
# which code allocated it; `pinalloc report` does so for the job. (lab/slurm has a job of two nodes.)
# Found here alone: frames of components that Open MPI had unloaded had other names, and a process that was
# killed while it touched a large array had a record that said no limit was near.

load lab

setup_file() {
	build_mpi peaks -g
	boot peaks killed
}

# peaks NAME MPI OPTION…: four ranks. Only they run with the library, and leave reports in the directory of
# that name.
peaks() {
	local command

	mkdir "/ctl/$1"
	ranks "$2" 4 "${little_ucx[@]}" LD_PRELOAD="$library" PINALLOC_REPORT="/ctl/$1/%r.json" "${@:3}"
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
	peaks openmpi openmpi "$BATS_FILE_TMPDIR/peaks.openmpi"
	peaks mpich mpich "$BATS_FILE_TMPDIR/peaks.mpich"
	PINALLOC_SAMPLE=128K peaks openmpi-held openmpi "$BATS_FILE_TMPDIR/peaks.openmpi"
	killed
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
