#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: in a memory cgroup a program needs no more memory than without the library, is warned
# once if not all it uses can be pinned, and is not killed for it; also with the limit in an outer group, and with
# memory.high. (report.bats has the files of cgroup version 1, domains.bats limits of objects.)
# Only here: a kernel that kills what goes beyond a limit, and counts pinned pages.

load lab

setup_file() {
	vm_options=(--smp 2)
	load ../scripts
	guest_variables=(script)
	boot limited every_way pieces
}

# limited HOW GROUP [VARIABLE=VALUE…] COMMAND…: runs a case, HOW being attempt or shimmed, named
# after the group, in a new group of 256 MiB, or shimmed of $size; with version 2, nested in another such
# group. Records what was killed there.
limited() {
	local how=$1 name=$2 group=$groups/$2 inner=$groups/$2$within
	shift
	mkdir "$group"
	echo 256M > "$group/$limit"
	[ "$how" != shimmed ] || echo "${size:-256M}" > "$group/$limit"
	if [ -n "$within" ]; then
		echo +memory > "$group/cgroup.subtree_control"
		mkdir "$inner"
	fi
	(
		echo "$BASHPID" > "$inner/cgroup.procs"
		"$how" "$@"
	)
	grep '^oom_kill ' "$group/$events" > "/ctl/$name.killed"
	rmdir "$inner" "$group" 2> /dev/null || :
}

# every_way NAME SCRIPT: without the library, eager and lazy.
every_way() {
	limited attempt "plain-$1" "$programs/rdma-script" "$2"
	limited shimmed "eager-$1" "$programs/rdma-script" "$2"
	limited shimmed "lazy-$1" PINALLOC_REGISTER=lazy "$programs/rdma-script" "$2"
}

in_guest() {
	local groups=/sys/fs/cgroup limit=memory.max events=memory.events within=''

	mount -t cgroup2 none "$groups"
	echo +memory > "$groups/cgroup.subtree_control"
	every_way pieces "$(pieces)"
	every_way held "$(pieces held)"
	within=/step
	every_way within "$(pieces held)"
	within='' limit=memory.high size=208M limited shimmed high "$programs/rdma-script" "$(pieces held)"
}

# alive NAME: the case and its comparison ended normally, and nothing was killed.
alive() {
	local how
	for how in plain eager lazy; do
		cat "$results/$how-$1.killed"
		ended "$how-$1"
		[ "$(< "$results/$how-$1.killed")" = 'oom_kill 0' ]
	done
}

# told CASE: there is one line, from the library, with a cure.
told() {
	[ "$(wc -l < "$results/$1.err")" -eq 1 ]
	grep -E '^pinalloc.*PINALLOC_MAX_PINNED' "$results/$1.err"
}

# registered NAME: all requests were served or registered by libibverbs.
registered() {
	local how
	alive "$1"
	for how in eager lazy; do
		holds "$how-$1" '(.registration | .served + .passed_through) == 29' '.registration.served > 0' \
			'.memory.pinned_peak_bytes < 224 * 1048576'
	done
}

@test "nearly as much as the limit is registered, in pieces or at once" {
	local how
	registered pieces
	told eager-pieces
	registered held
	for how in eager lazy; do
		told "$how-held"
		[ "$(reported $how-held .registration.passed_through)" -gt 0 ]
	done
}

@test "the limit of an outer cgroup counts" {
	registered within
	told eager-within
	told lazy-within
}

@test "memory.high counts as memory.max, and a program that goes beyond it is told what slows it down" {
	holds high '.memory.cgroup_high_bytes == 208 * 1048576' '.memory.cgroup_high_events > 0' \
		'.memory.pinned_peak_bytes <= 156 * 1048576'
	grep -E '^pinalloc.* above its memory\.high, 208\.0 MiB.* raise /sys/fs/cgroup/high/memory\.high$' "$results/high.err"
	sed -i '/memory\.high/d' "$results/high.err"
	told high
}
