#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: `pinalloc check` names what containers, control groups, limits and the kernel's settings
# keep from a program. What a test cannot change it covers with a file of its own.

setup() {
	load helper
	load check
	cd "$BATS_TEST_TMPDIR"
}

# covered PATH TEXT COMMAND…: where that file has other contents.
covered() {
	printf '%s' "$2" > cover
	unshare -rm sh -c 'mount --bind "$1" "$2" && shift 2 && exec "$@"' sh cover "$1" "${@:3}"
}

# grouped FILE TEXT COMMAND…: where its control group, of version 2, has such a file. Capabilities do not
# lift the limit on locked memory there, which is taken to be 4 MiB at least.
grouped() {
	local group
	group=$(sed -n 's/^0:://p' /proc/self/cgroup)
	unshare -rm sh -ec 'mount -t tmpfs none /sys/fs/cgroup; mkdir -p "/sys/fs/cgroup$1"
		printf %s "$3" > "/sys/fs/cgroup$1/$2"; shift 3; exec "$@"' \
		sh "$group" "$1" "$2" "${@:3}"
}

@test "a system call filter that refuses userfaultfd or close_range, or kills, is told apart" {
	checked "$programs/filtered" userfaultfd EPERM "$pinalloc" check
	says warn userfaultfd 'Operation not permitted.*seccomp'
	checked "$programs/filtered" close_range EPERM "$pinalloc" check
	says warn userfaultfd 'Operation not permitted.*seccomp'
	checked "$programs/filtered" userfaultfd KILL "$pinalloc" check
	says fail userfaultfd 'kills.*PINALLOC_WATCH=off'
	checked env PINALLOC_WATCH=off "$programs/filtered" userfaultfd KILL "$pinalloc" check
	says warn userfaultfd PINALLOC_WATCH=off
}

@test "under a filter the heap has huge pages only where they are the rule" {
	local enabled=/sys/kernel/mm/transparent_hugepage/enabled
	checked covered $enabled 'always [madvise] never' "$programs/filtered" mbind EPERM \
		"$pinalloc" check
	says ok 'huge pages' 'small pages.*filter.*echo always'
	checked covered $enabled 'always [madvise] never' "$programs/filtered" mbind EPERM \
		env PINALLOC_HUGEPAGE=thp "$pinalloc" check
	says warn 'huge pages' 'small pages.*filter'
	checked covered $enabled '[always] madvise never' "$programs/filtered" mbind EPERM \
		env PINALLOC_HUGEPAGE=thp "$pinalloc" check
	says ok 'huge pages' 'gets huge pages'
}

@test "without /proc nothing else is blamed" {
	checked unshare -rm sh -c 'mount -t tmpfs none /proc && exec "$@"' sh "$pinalloc" check true
	says warn proc 'there is no /proc.*mount'
	says ok library "$library takes over malloc"
	says ok program '.*/true can be preloaded'
	! grep 'under a system call filter, as containers' <<< "$output" || false
}

@test "huge pages on request are not requested by default" {
	local enabled=/sys/kernel/mm/transparent_hugepage/enabled
	checked covered $enabled 'always [madvise] never' "$pinalloc" check
	says ok 'huge pages' 'madvise: .*small pages.*PINALLOC_HUGEPAGE=thp'
	checked covered $enabled 'always [madvise] never' env PINALLOC_HUGEPAGE=thp "$pinalloc" check
	says ok 'huge pages' 'gets huge pages'
	checked covered $enabled '[always] madvise never' "$pinalloc" check
	says ok 'huge pages' 'gets huge pages'
}

@test "before Linux 5.11 userfaultfd is called without a flag that is not known there" {
	local inject=userfaultfd:error=EINVAL

	checked strace -f -o calls -e trace=userfaultfd -e inject=$inject:when=1 "$pinalloc" check
	says ok userfaultfd noticed
	grep USER_MODE_ONLY calls
	checked strace -f -o calls -e trace=userfaultfd -e inject=$inject "$pinalloc" check
	says warn userfaultfd 'Invalid argument.*kernel'
}

# In a user namespace half of the limit on locked memory is what the heap gets.
@test "what the library would pin is said, and no value is taken that exceeds the memory there is" {
	checked prlimit --memlock=8388608:8388608 unshare -rm "$pinalloc" check
	says ok pinned 'up to 4\.0 MiB may be pinned, of .* of memory$'
	checked grouped memory.max 1073741824 env PINALLOC_MAX_PINNED=2M "$pinalloc" check
	says ok pinned 'up to 2\.0 MiB may be pinned, of 1\.0 GiB of memory that its control group has$'
	local pinned
	for pinned in none 2G; do
		checked grouped memory.max 1073741824 env PINALLOC_MAX_PINNED=$pinned "$pinalloc" check
		says warn pinned '1\.0 GiB.*unset PINALLOC_MAX_PINNED'
	done
	checked grouped memory.max max env PINALLOC_MAX_PINNED=1G "$pinalloc" check
	run -1 grep 'control group' <<< "$output"
}

@test "a kernel that is too old is named where it matters" {
	checked setarch --uname-2.6 "$pinalloc" check
	# Where the kernel's RDMA layer is loaded, it says so itself.
	if [ -d /sys/class/infiniband ]; then
		says ok fork
	else
		says warn fork '5\.12'
	fi
}

@test "a C library that is too old for the library is named" {
	echo 'GLIBC_2.99 { global: *; };' > new.map
	echo 'void newer(void) { }' | gcc -shared -o libc.so.6 -Wl,--version-script=new.map \
		-Wl,-soname,libc.so.6 -nostdlib -x c -
	mkdir .libs
	cp "$pinalloc" .
	echo 'void newer(void); void it(void) { newer(); }' |
		gcc -shared -fPIC -o .libs/libpinalloc.so -nostdlib -x c - -x none ./libc.so.6
	rm libc.so.6
	checked ./pinalloc check
	says fail library ".GLIBC_2\.99' not found.*libpinalloc\.so.*build"
}
@test "the ranks of a node share what may be pinned, where a launcher says how many there are" {
	local variable
	checked "$pinalloc" check
	run -1 grep ranks: <<< "$output"
	for variable in OMPI_COMM_WORLD_LOCAL_SIZE=8 MPI_LOCALNRANKS=8 SLURM_TASKS_PER_NODE='4(x2),8,3'; do
		checked env "$variable" "$pinalloc" check
		says ok ranks 'a launcher has started 8 on this node'
	done
}

