#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: `pinalloc check` names what containers, control groups, limits and the kernel's settings
# keep from a program. What a test cannot change it covers with a file of its own.
load helper
load check

# covered PATH TEXT COMMAND…: where that file has other contents.
covered() {
	printf '%s' "$2" > cover
	unshare -rm sh -c 'mount --bind "$1" "$2" && shift 2 && exec "$@"' sh cover "$1" "${@:3}"
}

# pages SETTING STATUS REGEX COMMAND…: what it finds of huge pages where that is the kernel's setting.
pages() {
	finds "$2" 'huge pages' "$3" covered /sys/kernel/mm/transparent_hugepage/enabled "$1" "${@:4}"
}

@test "what the heap's pages are follows from the kernel and the option" {
	local madvise='always [madvise] never'
	pages "$madvise" ok 'may have huge pages' env
	pages "$madvise" ok 'may have huge pages' "$programs/filtered" mbind EPERM env PINALLOC_HUGEPAGE=thp
	pages 'always madvise [never]' ok 'small pages.*says never' env
	pages 'always madvise [never]' warn 'small pages.*says never' env PINALLOC_HUGEPAGE=thp
	pages '[always] madvise never' ok 'may have huge pages' env
	checked env PINALLOC_HUGEPAGE=off "$pinalloc" check
	run -1 grep 'huge pages' <<< "$output"
}

# sized SETTING STATUS REGEX COMMAND…: the same where that is the setting of pages of 2 MiB, and of all
# pages "madvise"; files that only Linux 6.8 and newer have.
sized() {
	local name=transparent_hugepage
	mkdir -p mm/$name/hugepages-{64,2048}kB
	echo 'always [madvise] never' > mm/$name/enabled
	echo '[always] inherit madvise never' > mm/$name/hugepages-64kB/enabled
	echo "$1" > mm/$name/hugepages-2048kB/enabled
	finds "$2" 'huge pages' "$3" unshare -rm sh -c 'mount --bind mm /sys/kernel/mm && exec "$@"' sh "${@:4}"
}

@test "pages of 2 MiB may have a setting of their own, which is named if it keeps the heap from them" {
	local never='/hugepages-2048kB/enabled says never$'
	sized 'always inherit madvise [never]' ok "small pages.*$never" env
	sized 'always inherit madvise [never]' warn "small pages.*$never" env PINALLOC_HUGEPAGE=thp
	sized '[always] inherit madvise never' ok 'may have huge pages' env
	sized 'always [inherit] madvise never' ok 'may have huge pages' env
}

@test "a kernel that would move pages to other memory nodes is named" {
	[ ! -e /proc/sys/kernel/numa_balancing ] ||
		finds warn environment 'numa_balancing is 1.*set it to 0' covered /proc/sys/kernel/numa_balancing 1
}

@test "before Linux 5.11 userfaultfd is called without a flag that is not known there" {
	local inject=userfaultfd:error=EINVAL

	finds ok userfaultfd notices strace -f -o calls -e trace=userfaultfd -e inject=$inject:when=1
	grep USER_MODE_ONLY calls
	finds warn userfaultfd 'Invalid argument.*use Linux 5.9' strace -f -o calls -e trace=userfaultfd -e inject=$inject
}

# In a user namespace half of the limit on locked memory is what the heap gets.
@test "what the library would pin is said, and no value is taken that exceeds the memory there is" {
	finds ok pinned 'up to 4\.0 MiB of the heap of each process may be pinned, of .* of memory for 1 rank on this node$' \
		prlimit --memlock=8388608:8388608 unshare -rm
	finds ok pinned 'up to 2\.0 MiB of the heap .*, of 1\.0 GiB of memory for 1 rank .*' \
		grouped memory.max 1073741824 env PINALLOC_MAX_PINNED=2M
	local pinned
	for pinned in none 2M; do
		finds warn pinned '1\.0 MiB.*unset PINALLOC_MAX_PINNED' \
			grouped memory.max 1048576 env PINALLOC_MAX_PINNED=$pinned
	done
	checked grouped memory.max max memory.high max env PINALLOC_MAX_PINNED=1G "$pinalloc" check
	run -1 grep 'on this node, by' <<< "$output"
}

# of FILE FILES…: with these files of control groups that one has the limit, of 4 MiB.
of() {
	finds ok pinned "up to 3\.0 MiB .*, of 4\.0 MiB of memory for .*, by $1\$" \
		grouped "${@:2}" env PINALLOC_MAX_PINNED=auto
}

@test "the lower of memory.high and memory.max counts, of whichever group; check says which, and the cure" {
	local high='above 4\.0 MiB the kernel slows down .*/sys/fs/cgroup/job.*/memory\.high; ask for more memory,'
	of memory.max memory.max 4194304
	of memory.max memory.max 4194304 memory.high 4194304
	of memory.max memory.max 4194304 ../memory.high 8388608
	run -1 grep 'slows down' <<< "$output"
	of memory.high memory.high 4194304
	of memory.high memory.max 8388608 ../memory.high 4194304
	of memory.high memory.high 4194304 ../memory.max 8388608
	says warn 'memory\.high' "$high"
}

# As container runtimes set both: what is lower counts, and no line says more than another one.
@test "limits on locked memory and on memory are compared with each other" {
	local little=(prlimit --memlock=8388608:8388608) pinned
	for pinned in none 64G 90%; do
		checked "${little[@]}" unshare -rm env PINALLOC_MAX_PINNED=$pinned "$pinalloc" check
		says fail memlock 'a process may pin 8\.0 MiB .*--ulimit memlock=-1 .*capability IPC_LOCK'
		says ok pinned 'up to 4\.0 MiB'
	done
	finds ok memlock 'the limit of 8\.0 MiB does not hold here, by CAP_IPC_LOCK; make sure' "${little[@]}" env PINALLOC_MAX_PINNED=none
	says warn pinned 'more than .*unset PINALLOC_MAX_PINNED'
	finds ok memlock 'no less than the memory there is' grouped memory.max 6291456 "${little[@]}"
	finds fail memlock '8\.0 MiB of 16\.0 MiB of memory' grouped memory.max 16777216 "${little[@]}"
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
	says fail library ".*does not take over malloc: .*GLIBC_2\.99' not found.*libpinalloc\.so.*"
}

@test "the ranks of a node share what may be pinned, where a launcher says how many there are" {
	local variable
	finds ok pinned '.* for 1 rank on this node'
	for variable in OMPI_COMM_WORLD_LOCAL_SIZE=8 MPI_LOCALNRANKS=8 SLURM_TASKS_PER_NODE='4(x2),8,3'; do
		finds ok pinned '.* for 8 ranks on this node' env "$variable"
	done
}

