#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: in a container with Docker's default system calls and capabilities and a read-only
# root, and in a rootless one, a program gets what it gets without the library, and its heap is
# registered; one line says what the container forbids. In a machine of 1 GiB.

load lab

setup_file() {
	build_mpi rounds
	vm_options+=(--mem 1G)
	load ../scripts
	guest_variables=(script)
	boot write_container
}

# The command `container OPTION… -- COMMAND…`, OPTION… being more for unshare(1). Capabilities and
# system calls are Docker's default; /tmp, /dev and a volume, /ctl, can be written to.
write_container() {
	cat > /run/public/container <<- 'END'
		#!/bin/bash
		options=()
		while [ "$1" != -- ]; do
			options+=("$1")
			shift
		done
		shift
		exec unshare --mount --pid --ipc --fork --kill-child "${options[@]}" bash -ec '
			mount -t tmpfs -o mode=1777 tmpfs /tmp
			mount -t proc proc /proc
			mount -o remount,bind,ro /
			! touch /written 2> /dev/null || exit 99
			exec setpriv --inh-caps=-all --bounding-set="-all,$(printf "+%s," chown \
				dac_override fowner fsetid kill setgid setuid setpcap \
				net_bind_service net_raw sys_chroot mknod audit_write)+setfcap" \
				/run/public/filtered docker EPERM "$@"' container "$@"
	END
	chmod 755 /run/public/container
}

in_guest() {
	local docker=(/run/public/container --) mib=1048576 sizes
	local pair=(mpirun.openmpi -n 2 /run/public/rounds.openmpi exchange 6) unlimited=(prlimit --memlock=unlimited)
	local with=(env LD_PRELOAD=/run/public/lib/libpinalloc.so)

	publish "$programs"/{filtered,rdma-script} "$BATS_FILE_TMPDIR/rounds.openmpi"
	write_container
	sizes=(/run/public/rdma-script print "${script[sizes]}")

	attempt plain-job "${unlimited[@]}" "${docker[@]}" "${pair[@]}"
	attempt job PINALLOC_REPORT=/ctl/%r.json "${unlimited[@]}" "${docker[@]}" "${with[@]}" "${pair[@]}"
	attempt check "${unlimited[@]}" "${docker[@]}" /run/public/bin/pinalloc check
	attempt read-only PINALLOC_REPORT=/root/report.json "${unlimited[@]}" "${docker[@]}" "${with[@]}" \
		"${sizes[@]}"
	attempt plain-read-only "${unlimited[@]}" "${docker[@]}" "${sizes[@]}"

	# With the limits that a container has by default.
	attempt plain-limited prlimit --memlock=$((8 * mib)):$((8 * mib)) "${docker[@]}" "${sizes[@]}"
	attempt limited PINALLOC_REPORT=/ctl/limited.json prlimit --memlock=$((8 * mib)):$((8 * mib)) \
		"${docker[@]}" "${with[@]}" "${sizes[@]}"

	docker=(/run/public/container --user --map-root-user --)
	as_nobody attempt plain-rootless $((256 * mib)) "${docker[@]}" "${sizes[@]}"
	as_nobody attempt rootless $((256 * mib)) PINALLOC_REPORT=/ctl/rootless.json "${docker[@]}" "${with[@]}" \
		"${sizes[@]}"
	as_nobody attempt rootless-check $((8 * mib)) "${docker[@]}" /run/public/bin/pinalloc check
}

# registered CASE: how many requests for the heap were answered from it, with data that was right.
registered() {
	grep -qx 'send x+4092K:4K y: ok' "$results/$1.out"
	[ "$(reported "$1" .registration.served)" -gt 0 ]
}

@test "an MPI job registers its heap, and one line for each rank says what is not watched" {
	local rank

	unchanged job
	grep -qx 'rounds 6 wrong 0' "$results/job.out"
	for rank in 0 1; do
		[ "$(reported $rank '.registration.served')" -gt 0 ]
		[ "$(of_the_heap "$results/$rank.json")" = '{}' ]
	done
	[ "$(said job | wc -l)" -eq 2 ]
	[ "$(said job | grep -c 'userfaultfd: Operation not permitted')" -eq 2 ]
}

@test "a report that has no place costs one line and nothing else" {
	unchanged read-only
	grep -qx 'send x+16380K:4K y: ok' "$results/read-only.out"
	grep -q 'the report cannot be written to /root/report.json: Read-only file system$' \
		<(said read-only)
	[ "$(said read-only | wc -l)" -eq 2 ]
}

@test "with 8 MiB of locked memory nothing is refused that is not without the library" {
	unchanged limited
	grep -qx 'send x+4092K:4K y: ok' "$results/limited.out"
	[ "$(said limited | grep -c 'raise ulimit -l$')" -eq 1 ]
	[ "$(said limited | wc -l)" -eq 2 ]
}

@test "in a rootless container the heap is registered within the user's limit" {
	unchanged rootless
	registered rootless
	[ "$(said rootless | wc -l)" -eq 1 ]
}

@test "pinalloc check says what to allow" {
	ended check 1
	grep -qE '^warn  userfaultfd: .*allow it in the container.s seccomp profile' \
		"$results/check.out"
	[ "$(grep -cvE '^(ok|info) ' "$results/check.out")" -eq 1 ]
	ended rootless-check 2
	grep -E '^fail  memlock: .*LimitMEMLOCK=infinity .*containerd\.service' \
		"$results/rootless-check.out"
}
