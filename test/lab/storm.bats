#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: transfers are right, whatever else happens: threads that allocate at full speed,
# memory that is compacted, swapped out and reclaimed, devices, protection domains and children that
# are created and destroyed, transfers that are broken off, processes that are killed. And at the end nothing
# is left. STORM_SECONDS=600 makes it run for ten minutes.

load lab

setup_file() {
	build_shared libucm.so.0 listener
	seconds=${STORM_SECONDS:-${everything:+60}}
	seconds=${seconds:-10}
	vm_options=(--smp 2 --mem 3G --timeout $((seconds + 600)))
	guest_variables=(seconds)
	boot make_swap storm killed disturb
}

in_guest() {
	local group=/sys/fs/cgroup/storm

	make_swap
	storm plain
	storm shimmed LD_PRELOAD="$library"
}

# Swap: pages that are not pinned go there, and return elsewhere.
make_swap() {
	modprobe zram
	echo 1G > /sys/block/zram0/disksize
	mkswap -q /dev/zram0
	swapon /dev/zram0
	mount -t cgroup2 none /sys/fs/cgroup
	echo +memory > /sys/fs/cgroup/cgroup.subtree_control
	mkdir "$group"
	echo $$ > "$group/cgroup.procs"
}

# storm NAME [VARIABLE=VALUE…]: runs it beside others, each of which is killed.
storm() {
	local name=$1 weather others attempt_seconds=$((attempt_seconds + seconds))
	local program=("$programs/rdma-storm" "$BATS_FILE_TMPDIR/libucm.so.0")

	shift
	while disturb; do echo; done > "/run/$name.disturbed" &
	weather=$!
	while killed "$@"; do echo; done > "/run/$name.killed" &
	others=$!
	attempt "$name" PINALLOC_REPORT="/ctl/$name.json" "$@" "${program[@]}" "$seconds" wild
	kill $weather $others
	{
		echo "kills $(wc -l < "/run/$name.killed") compactions $(wc -l < "/run/$name.disturbed")"
		awk '/^pswpout/ { print "swapped-out", $2 }
			/^compact_migrate_scanned/ { print "scanned", $2 }
			/^oom_kill / { print "oom-killed", $2 }' /proc/vmstat
	} >> "/ctl/$name.out"
}

killed() {
	! timeout -s KILL 4 env "$@" "${program[@]}" 100 wild > /dev/null 2>&1
}

# The kernel may reclaim less than requested.
disturb() {
	sleep 1
	echo 1 > /proc/sys/vm/compact_memory
	echo 3 > /proc/sys/vm/drop_caches
	echo 32M > "$group/memory.reclaim" 2> /dev/null || :
}

# there_was_one NAME STATUS: it ended so, data was transferred, also through cached registrations.
there_was_one() {
	local what

	ended "$1" "$2"
	for what in rounds broken hits blocks domains children kills compactions swapped-out scanned; do
		[ "$(value "$1" $what)" -gt 0 ]
	done
	[ "$(value "$1" oom-killed)" -eq 0 ]
}

@test "with glibc's malloc, a cache without notifications transfers wrong data" {
	there_was_one plain 1
	[ "$(value plain wrong)" -gt 0 ]
}

@test "with the library every word is right, in messages and in all other blocks" {
	there_was_one shimmed 0
	[ "$(grep -vc 'replaced pages of its heap behind malloc' "$results/shimmed.err")" -eq 0 ]
}

@test "the report counts every registration, and none is left at the end" {
	jq -c .registration "$results/shimmed.json"
	[ "$(reported shimmed '.registration | .served + .passed_through')" -eq "$(value shimmed registrations)" ]
	holds shimmed '.registration.served > 0' '.registration.mr_created > 0' '.registration.refused == 0' \
		'.registration.mr_created == .registration.mr_destroyed' '.memory.pinned_bytes == 0'
	[ "$(value shimmed pinned)" -eq 0 ]
	[ "$(value shimmed kernel)" -eq 0 ]
}
