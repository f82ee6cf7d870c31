#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: jobs of two nodes that communicate as real codes do, from buffers allocated anew in
# each step and without a registration cache, get right data; after the first steps no request waits
# for a registration; and the reports of both nodes are merged.

setup_file() {
	load ../helper
	load lab
	build_mpi patterns
	pair_options=(--mem 3G --timeout 1000)
	boot_pair job
}

# job NAME MPI STEPS PATTERN…: four ranks, two on each node, which have these ranks_variables. From
# 4 KiB on, messages are sent from where they are. Below are those of MPICH itself, on its stack.
job() {
	local name=$1 mpi=$2 hosts=node1:2,node2:2 rsh=$top_srcdir/test/lab/rsh variable
	local command=("mpirun.$mpi" -np 4)
	shift 2

	for variable in UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=rxe0:1 \
		UCX_UD_VERBS_ETH_DGID_CHECK=n UCX_RNDV_SCHEME=get_zcopy UCX_RNDV_THRESH=4k \
		"${no_ucx_cache[@]}" "${ranks_variables[@]}"; do
		case $mpi in
		openmpi) command+=(-x "$variable") ;;
		mpich) command+=(-env "${variable%%=*}" "${variable#*=}") ;;
		esac
	done
	case $mpi in
	openmpi)
		command+=(--host $hosts --bind-to none --mca plm_rsh_agent "$rsh" --mca pml ucx
			--mca osc ucx --mca btl "^openib,vader,tcp,ofi")
		;;
	mpich)
		command+=(-hosts $hosts -launcher rsh -launcher-exec "$rsh"
			-env MPIR_CVAR_NOLOCAL 1)
		;;
	esac
	attempt "$name" "${command[@]}" "$BATS_FILE_TMPDIR/patterns.$mpi" "$@"
}

in_guest() {
	local mpi ranks_variables patterns=(halo alltoall window forks split)

	cd /tmp
	for mpi in openmpi mpich; do
		ranks_variables=(LD_PRELOAD="$library" PINALLOC_REPORT=/share/$mpi/%r.json)
		mkdir /ctl/$mpi
		job $mpi $mpi 2 "${patterns[@]}"
	done
	ranks_variables=(LD_PRELOAD="$library")
	job threads openmpi 2 threads
	job requests mpich 1 requests
}

setup() {
	load ../helper
	load lab
	cd "$results"
}

# right NAME PATTERN…: the job ended, each pattern ran, and every word was right.
right() {
	local pattern

	ended "$1"
	for pattern in "${@:2}"; do
		grep -q "^$pattern wrong 0 " "$1.out"
	done
	[ "$(grep -c ' wrong ' "$1.out")" -eq $(($# - 1)) ]
}

# sum NAME KEY: over all patterns of a job.
sum() {
	grep -o " $2 [0-9]*" "$1.out" | awk '{ n += $2 } END { print n }'
}

# serves NAME PATTERN…: the patterns' requests are answered from registrations made before. Those made
# ahead meanwhile do not count: how many are late depends on the machine's load. Four for each rank may be,
# of requests that cross from one memory region to the next; and sixteen after fork(), before which memory
# regions that nobody uses are deregistered.
serves() {
	right "$@"
	[ "$(sum "$1" served)" -gt 0 ]
	[ "$(sum "$1" passed)" -eq 0 ]
	[ "$(grep -v '^forks ' "$1.out" | grep -o ' awaited [0-9]*' | awk '{ n += $2 } END { print n + 0 }')" -le 16 ]
	[ "$(grep '^forks ' "$1.out" | grep -o ' awaited [0-9]*' | awk '{ n += $2 } END { print n + 0 }')" -le 64 ]
}

@test "halos, all-to-all, windows, forks, sub-communicators: right, and no request waits for a registration" {
	serves openmpi halo alltoall window forks split
	serves mpich halo alltoall window forks split
}

@test "a thousand requests at a time: right, and no request waits for a registration" {
	serves requests requests
}

@test "MPI_THREAD_MULTIPLE: right, and no request waits for a registration" {
	serves threads threads
}

@test "pinalloc report merges the reports of both nodes" {
	local mpi

	for mpi in openmpi mpich; do
		run -0 --separate-stderr "$top_builddir/pinalloc" report --json $mpi
		[ -z "$stderr" ]
		[ "$(jq -c '[.nranks, .missing_ranks, [.ranks[].rank], [.hosts[] | .host, .processes]]' \
			<<< "$output")" = '[4,[],[0,1,2,3],["node1",2,"node2",2]]' ]
	done
}
