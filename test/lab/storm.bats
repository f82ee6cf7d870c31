#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: transfers are right, whatever else happens: threads that allocate at full speed,
# memory that is compacted, swapped out and reclaimed, devices, protection domains and children that
# are created and destroyed, peers that are killed. And at the end nothing is left. STORM_SECONDS=600
# makes it run for ten minutes.

load lab

setup_file() {
	build_shared libucm.so.0 listener
	seconds=${STORM_SECONDS:-${everything:+60}}
	seconds=${seconds:-10}
	vm_options=(--smp 2 --mem 3G --timeout $((seconds + 600)))
	guest_variables=(seconds)
	boot make_swap storm it_was_wrong time_is_up start rage live shown end_of finish disturb
}

in_guest() {
	local groups=/sys/fs/cgroup

	make_swap
	known plain.serve || known plain.drive || known plain || storm plain it_was_wrong
	storm shimmed time_is_up LD_PRELOAD="$library"
}

# Swap: pages that are not pinned go there, and return elsewhere.
make_swap() {
	modprobe zram
	echo 1G > /sys/block/zram0/disksize
	mkswap -q /dev/zram0
	swapon /dev/zram0
	mount -t cgroup2 none "$groups"
	echo +memory > "$groups/cgroup.subtree_control"
	mkdir -p "$groups"/storm/{serve,drive}
}

# storm NAME ENOUGH [VARIABLE=VALUE…]: runs both processes, of which one is killed and replaced at
# the end of each round, in turn, until ENOUGH, or until one has died by itself.
storm() {
	local name=$1 enough=$2 began=$SECONDS round weather
	local -A pids
	shift 2
	local variables=("$@") roles=(serve drive)
	while disturb; do echo; done > "/run/$name.disturbed" &
	weather=$!
	start serve
	start drive
	for ((round = 1; ; round++)); do
		rage || break
		! $enough || break
		end_of "${roles[round % 2]}" || break
		start "${roles[round % 2]}"
	done
	finish drive
	finish serve
	kill $weather
	{
		"$programs/rdma-storm" show "/run/$name"
		echo "seconds $((SECONDS - began)) kills $((round - 1))" \
			"compactions $(wc -l < "/run/$name.disturbed")"
		awk '/^pswpout/ { print "swapped-out", $2 }
			/^compact_migrate_scanned/ { print "scanned", $2 }
			/^oom_kill / { print "oom-killed", $2 }' /proc/vmstat
	} > "/ctl/$name.out"
	echo 0 > "/ctl/$name.status"
}

it_was_wrong() {
	[ $round -ge 20 ] ||
		{ [ $round -ge 2 ] && [ "$(shown wrong)" -gt 0 ] && [ "$(shown broken)" -gt 0 ]; }
}

time_is_up() {
	[ $round -ge 3 ] && [ $((SECONDS - began)) -ge "$seconds" ]
}

# A round lasts long enough for any event, and until each thread has made progress, or never will.
rage() {
	"$programs/rdma-storm" mark "/run/$name"
	sleep 3
	while live && [ "$(shown least)" -lt 2 ]; do
		sleep 0.5
	done
	live
}

live() {
	kill -0 "${pids[serve]}" && kill -0 "${pids[drive]}"
}

shown() {
	"$programs/rdma-storm" show "/run/$name" | grep -o "$1 [0-9]*" | cut -d' ' -f2
}

start() {
	(
		echo "$BASHPID" > "$groups/storm/$1/cgroup.procs"
		exec env --block-signal=USR1 "${variables[@]}" \
			PINALLOC_REPORT="/ctl/$name.$1.json" "$programs/rdma-storm" "$1" "/run/$name" \
			"$BATS_FILE_TMPDIR/libucm.so.0"
	) > "/ctl/$name.$1.out" 2>> "/ctl/$name.$1.err" < /dev/null &
	pids[$1]=$!
}

# Kills the process, and its children, which have its sockets. Fails if it was dead before.
end_of() {
	local status=0
	echo 1 > "$groups/storm/$1/cgroup.kill"
	wait "${pids[$1]}" || status=$?
	until grep -q '^populated 0' "$groups/storm/$1/cgroup.events"; do
		sleep 0.1
	done
	[ $status -eq 137 ]
}

finish() {
	local status=0
	kill -USR1 "${pids[$1]}"
	wait "${pids[$1]}" || status=$?
	echo "$status" > "/ctl/$name.$1.status"
}

# The kernel may reclaim less than requested.
disturb() {
	sleep 1
	echo 1 > /proc/sys/vm/compact_memory
	echo 3 > /proc/sys/vm/drop_caches
	echo 32M > "$groups/storm/memory.reclaim" 2> /dev/null || :
}

# there_was_one NAME: data arrived, also through cached registrations, although processes were
# killed.
there_was_one() {
	local what
	cat "$results/$1.out"
	ended "$1.serve"
	ended "$1.drive"
	[ "$(value "$1" messages)" -ge 100 ]
	[ "$(value "$1" hits)" -ge 20 ]
	[ "$(value "$1" connections)" -gt 8 ]
	[ "$(value "$1" blocks)" -ge 1000 ]
	for what in failed oom-killed; do
		[ "$(value "$1" $what)" -eq 0 ]
	done
	for what in broken domains children compactions swapped-out scanned; do
		[ "$(value "$1" $what)" -gt 0 ]
	done
}

@test "with glibc's malloc, a cache without notifications transfers wrong data" {
	there_was_one plain
	[ "$(value plain wrong)" -gt 0 ]
}

@test "with the library every word is right, in messages and in all other blocks" {
	there_was_one shimmed
	[ "$(value shimmed wrong)" -eq 0 ]
	[ "$(value shimmed spoilt)" -eq 0 ]
	[ ! -s "$results/shimmed.serve.err" ]
	[ ! -s "$results/shimmed.drive.err" ]
}

# sum_of NAME .json.path .json.path…: the sum of values in its report.
sum_of() {
	local sum=0 path
	for path in "${@:2}"; do
		sum=$((sum + $(reported "$1" "$path")))
	done
	echo "$sum"
}

@test "the report counts every registration, and none is left at the end" {
	local role
	for role in shimmed.serve shimmed.drive; do
		cat "$results/$role.out"
		jq -c .registration "$results/$role.json"
		[ "$(sum_of $role .registration.served .registration.passed_through)" -eq \
			"$(value $role registrations)" ]
		holds $role '.registration.served > 0' '.registration.mr_created > 0'
		[ "$(reported $role .registration.mr_created)" -eq \
			"$(reported $role .registration.mr_destroyed)" ]
		holds $role '.registration.refused == 0' '.memory.pinned_bytes == 0'
		[ "$(value $role pinned)" -eq 0 ]
		[ "$(value $role kernel)" -eq 0 ]
	done
}
