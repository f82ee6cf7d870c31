#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: what pinalloc-admin(7) says of Slurm holds in a cluster of two nodes. By srun with the
# command, by srun with the environment, and by a TaskProlog, every rank has the library and its own
# report; limits, prologs, a requeue and a task killed for its memory lead to what the page says.
# Found here alone: the report of a killed first run took the place of the second one's, and a program of an
# epilog replaced that of its task.

load lab

setup_file() {
	build_mpi peaks
	write_configuration "$BATS_FILE_TMPDIR/slurm"
	public=/run/public
	load ../scripts
	write_scripts
	guest_variables=(public)
	boot_pair start_node step in_allocation until_true requeued
}

# write_scripts: as programs.
write_scripts() {
	local name

	script[held]=$(pieces held)
	for name in sizes waiting held; do
		printf '%s\n' '#!/run/public/rdma-script print' "${script[$name]}" > "$BATS_FILE_TMPDIR/$name"
		chmod 755 "$BATS_FILE_TMPDIR/$name"
	done
}

# write_configuration DIRECTORY: for /etc/slurm of both nodes. Each pretends to have four processors.
# A requeued job waits for as long as a credential lives, which is two minutes otherwise.
write_configuration() {
	local scripts=/etc/slurm library=/run/public/lib/libpinalloc.so script

	mkdir "$1"
	head -c 64 /dev/urandom > "$1/munge.key"
	cat > "$1/slurm.conf" <<- END
		ClusterName=lab
		SlurmctldHost=node1
		SlurmUser=root
		AuthInfo=cred_expire=$((5 * ${TIMEOUT_SCALE:-1}))
		StateSaveLocation=/var/spool/slurmctld
		SlurmdSpoolDir=/var/spool/slurmd
		SlurmctldLogFile=/share/slurmctld.log
		SlurmdLogFile=/share/slurmd.%n.log
		ProctrackType=proctrack/cgroup
		TaskPlugin=task/cgroup
		SelectType=select/cons_tres
		SelectTypeParameters=CR_Core_Memory
		SlurmdParameters=config_overrides
		SchedulerParameters=sched_interval=2
		PropagateResourceLimitsExcept=MEMLOCK
		Prolog=$scripts/prolog
		Epilog=$scripts/epilog
		TaskProlog=$scripts/task-prolog
		TaskEpilog=$scripts/task-epilog
		NodeName=node[1-2] CPUs=4 RealMemory=1800
		PartitionName=lab Nodes=ALL Default=YES DefMemPerNode=600
	END
	# Without systemd, which else makes Slurm's groups.
	cat > "$1/cgroup.conf" <<- END
		CgroupPlugin=cgroup/v2
		IgnoreSystemd=yes
		ConstrainRAMSpace=yes
	END
	for script in prolog epilog; do
		printf '%s\n' '#!/bin/bash' "export LD_PRELOAD=$library PINALLOC_REPORT=stderr" \
			/usr/bin/id "echo $script \$SLURM_JOB_ID >> /share/\$HOSTNAME.scripts" \
			> "$1/$script"
	done
	# shellcheck disable=SC2016 # for the script
	printf '%s\n' '#!/bin/bash' '[ -n "$SITE_REPORT" ] || exit 0' "echo export LD_PRELOAD=$library" \
		'echo "export PINALLOC_REPORT=$SITE_REPORT"' > "$1/task-prolog"
	printf '%s\n' '#!/bin/bash' /usr/bin/id > "$1/task-epilog"
	chmod 755 "$1"/*log
}

# start_node: in each guest. slurmd has no limit on locked memory, as its drop-in for systemd says.
# Slurm 22.05 does not know the last word of cgroup.controllers, so that must not be memory.
start_node() {
	local groups=/sys/fs/cgroup group

	publish "$programs/rdma-script" "$BATS_FILE_TMPDIR"/{sizes,waiting,held,peaks.mpich}
	mkdir -p -m 755 /run/munge /etc/slurm /var/spool/slurm{ctl,}d
	cp "$BATS_FILE_TMPDIR"/slurm/* /etc/slurm
	chmod 600 /etc/slurm/munge.key
	mount -t cgroup2 none $groups
	for group in $groups $groups/system.slice; do
		mkdir -p $group
		echo '+cpuset +cpu +memory +pids' > $group/cgroup.subtree_control
	done
	munged --force --key-file=/etc/slurm/munge.key --log-file=/run/munge/log \
		--pid-file=/run/munge/pid --seed-file=/run/munge/seed
	[ "$(hostname)" != node1 ] || slurmctld
	prlimit --memlock=unlimited slurmd
}

# step NAME OPTION… COMMAND…: a step of the job that is there, from a shell with little locked memory.
step() {
	local name=$1
	shift
	mkdir -p -m 777 "/share/$name"
	as_nobody attempt "$name" $((32 << 20)) srun --jobid="$job" --overlap -N2 "$@"
}

in_allocation() {
	local job

	as_nobody attempt allocated unlimited salloc --no-shell -N2 --ntasks-per-node=2
	job=$(grep -o '[0-9]*$' /ctl/allocated.err | head -n 1)
	# Over rc_verbs a rank of MPICH 4.2 with UCX 1.18 may wait in MPI_Finalize forever.
	export "${little_ucx[@]}" UCX_TLS=ud_verbs,self SLURM_MPI_TYPE=pmi2
	step check -n2 $public/bin/pinalloc check
	step check-little -n2 --propagate=MEMLOCK $public/bin/pinalloc check
	step run -n4 $public/bin/pinalloc run --report=/share/run/%r.json -- $public/peaks.mpich 5
	step environment -n2 \
		--export=ALL,LD_PRELOAD=$public/lib/libpinalloc.so,PINALLOC_REPORT=/share/environment/%r.json \
		$public/peaks.mpich 5
	step site -n2 --propagate=MEMLOCK \
		--export=ALL,UCX_RCACHE_MAX_SIZE=8m,SITE_REPORT=/share/site/%r.json $public/peaks.mpich 5
	printf '%s\n' "0-1,3 $public/sizes" "2 $public/held" > /share/programs
	step killed -n4 --mem=150M --mpi=none --multi-prog --export=ALL,SITE_REPORT=/share/killed/%r.json \
		/share/programs
	scancel "$job"
}

# until_true CONDITION: waits for it, not forever.
until_true() {
	local deadline=$((SECONDS + attempt_seconds))

	until eval "$1" || [ "$SECONDS" -ge "$deadline" ]; do
		sleep 0.5
	done
}

# requeued: submits a job whose tasks wait in the first run, and lets it run again when all do.
requeued() {
	local job

	mkdir -m 777 /share/requeued
	cat > /share/requeued.sh <<- END
		#!/bin/bash
		script=waiting
		[ -z "\$SLURM_RESTART_COUNT" ] || script=sizes
		srun $public/bin/pinalloc run --report=/share/requeued/%h.%p.json -- $public/\$script
	END
	as_nobody attempt submitted unlimited sbatch --parsable -N2 --ntasks-per-node=1 --mem=200M \
		--open-mode=append -o /share/requeued/output /share/requeued.sh
	job=$(< /ctl/submitted.out)
	until_true '[ "$(grep -cs waiting /share/requeued/output)" = 2 ]'
	attempt requeue scontrol requeue "$job"
}

# In a directory that is there for ordinary users: their jobs begin in that of the submitting shell.
in_guest() {
	cd /tmp
	{
		declare -p library programs BATS_FILE_TMPDIR
		declare -f publish start_node
		echo start_node
	} > /share/start
	"$top_srcdir/test/lab/rsh" node2 bash /share/start &
	start_node
	requeued
	in_allocation
	mkdir -m 777 /share/exported
	printf '%s\n' '#!/bin/bash' "srun $public/sizes" 'exit 7' > /share/exported.sh
	as_nobody attempt exported unlimited LD_PRELOAD=$public/lib/libpinalloc.so \
		PINALLOC_REPORT=/share/exported/%h.%p.json \
		sbatch --wait -N2 --ntasks-per-node=1 --mem=200M -o /share/exported/output /share/exported.sh
	until_true '[ -z "$(squeue -h)" ]'
	sinfo -h -o '%T %D' > /share/nodes
}

setup() {
	pinalloc=$top_builddir/pinalloc
	cd "$results"
}

# right NAME RANKS: the job's step ended well, every word of its messages was right, and each rank
# has left its report, with the size of the step.
right() {
	local r

	ended "$1"
	[ "$(grep -c ' wrong 0$' "$1.out")" -eq $((3 * $2)) ]
	[ "$(ls "$1" | wc -l)" -eq "$2" ]
	for ((r = 0; r < $2; r++)); do
		[ "$(figure "$1/$r.json" '.rank, .nranks, .trigger, .registration.served > 0' | tr '\n' ' ')" = \
			"$r $2 at exit true " ]
		# The peak is that of the program: nothing else took the place of the report.
		[ "$(figure "$1/$r.json" .memory.live_peak_bytes)" -gt $(((r + 1) * 5 << 20)) ]
	done
}

@test "srun pinalloc run: reports of four ranks on two nodes are one job" {
	right run 4
	run -0 --separate-stderr "$pinalloc" report run
	echo "$output"
	[ -z "$stderr" ]
	[[ ${lines[0]} == "pinalloc: peaks.mpich, 4 ranks on 2 hosts, "* ]]
	[ "$(merged run '[.missing_ranks, [.hosts[] | .host, .processes], [.ranks[] | .rank, .host]]')" = \
		'[[],["node1",2,"node2",2],[0,"node1",1,"node1",2,"node2",3,"node2"]]' ]
}

@test "srun --export: the ranks have the library, and a TaskEpilog leaves their reports" {
	ended environment
	[ "$(grep -c ' wrong 0$' environment.out)" -eq 6 ]
	# The shell of the TaskProlog has the library, too, and may have the first name: 0.json.
	[ "$(merged environment '[.ranks[] | select(.rank != null) | .rank, .host, .program, .trigger,
		.registration.served > 0, .memory.live_peak_bytes > (.rank + 1) * 5242880]')" = \
		'[0,"node1","peaks.mpich","at exit",true,true,1,"node2","peaks.mpich","at exit",true,true]' ]
}

@test "a TaskProlog gives the library to ranks, whose data are right with little locked memory" {
	right site 2
	[ "$(merged site '[.ranks[] | .rank, .host, .program, .memory.memlock_limit_bytes]')" = \
		'[0,"node1","peaks.mpich",33554432,1,"node2","peaks.mpich",33554432]' ]
	[ "$(merged site '[.ranks[].memory | .pinned_peak_bytes > 0 and .pinned_peak_bytes <= 33554432] | all')" = true ]
}

@test "pinalloc check tells the limit on locked memory of jobs from that of the shell" {
	ended check "$(< check.status)"
	[ "$(grep -cx 'ok    memlock: no less than the memory there is' check.out)" -eq 2 ]
	[ "$(grep -c '^fail' check.out)" -eq 0 ]
	ended check-little "$(< check-little.status)"
	[ "$(grep -cE '^(warn|fail)  memlock: a process may pin 32\.0 MiB of .*; ulimit -l \$\(ulimit -H -l\) where the ranks are started' \
		check-little.out)" -eq 2 ]
}

@test "a task killed for its memory leaves what its report would have said, the others are complete" {
	ended killed "$(< killed.status)"
	[ "$(< killed.status)" -ne 0 ]
	grep -q -E 'task 2: (Out Of Memory|Killed)' killed.err
	[ "$(grep -c 'send x+16380K:4K y: ok' killed.out)" -eq 3 ]
	run -0 --separate-stderr "$pinalloc" report killed
	echo "$output"
	grep -A1 '^ *2  ' <<< "$output" | grep KILLED
	[ "$(merged killed '[.missing_ranks, [.ranks[] | .rank, .trigger]]')" = \
		'[[],[0,"at exit",1,"at exit",2,"the process ended without a report",3,"at exit"]]' ]
}

@test "of a job that was requeued, the second run is reported" {
	ended requeue
	cat requeued/output
	[ "$(grep -c '^send .*: ok' requeued/output)" -eq $((13 * 4)) ]
	[ "$(ls requeued | grep -c '\.json\..*\.running$')" -eq 2 ]
	run -0 "$pinalloc" report requeued
	echo "$output"
	[[ $output != *KILLED* ]]
	[ "$(merged requeued '[.ranks[] | .rank, .host, .trigger]')" = '[0,"node1","at exit",1,"node2","at exit"]' ]
}

@test "LD_PRELOAD exported to a whole job changes no output and no status, and the ranks are reported" {
	ended exported 7
	cat exported/output
	[ "$(grep -c '^send .*: ok' exported/output)" -eq 26 ]
	[ "$(grep -vc ': ok$' exported/output)" -eq 0 ]
	[ "$(merged exported '[.ranks[] | select(.rank >= 0) | .rank, .host, .program]')" = \
		'[0,"node1","rdma-script",1,"node2","rdma-script"]' ]
}

@test "prologs and epilogs run under the library, and no node is taken out of service" {
	local node
	for node in node1 node2; do
		cat $node.scripts
		[ "$(grep -c '^prolog ' $node.scripts)" -ge 4 ]
		[ "$(grep -c '^epilog ' $node.scripts)" -ge 4 ]
	done
	[ "$(< nodes)" = 'idle 2' ]
}
