#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: no byte of the heap returns to the kernel, whatever the program or jemalloc's options
# request. (test/unit-blocks.c: freed memory is reused.)

setup() {
	load helper
	cd "$BATS_TEST_TMPDIR"
}

# traced [NAME=VALUE…] -- COMMAND…: prints the system calls that returned heap memory.
traced() {
	local environment=()
	while [ "$1" != -- ]; do
		environment+=(-E "$1")
		shift
	done
	shift
	strace -f -o "$BATS_TEST_TMPDIR/trace" "${environment[@]}" \
		-e trace=munmap,madvise,mremap,brk,mmap,mprotect \
		"$@" > "$BATS_TEST_TMPDIR/blocks" || return
	python3 "$top_srcdir/test/heapcalls.py" "$BATS_TEST_TMPDIR"/{trace,blocks}
}

# keeps COMMAND…: the command succeeds, has allocated blocks, and returned nothing.
keeps() {
	run --separate-stderr traced LD_PRELOAD="$library" "$@"
	echo "$* gave back: $output; said: $stderr"
	[ "$status" -eq 0 ]
	[ -z "$output" ]
	[ -s "$BATS_TEST_TMPDIR/blocks" ]
}

@test "no malloc function returns memory to the kernel, for 16 bytes to 1 GiB" {
	keeps -- "$programs/churn" $((1 << 30))
	[ "$(wc -l < "$BATS_TEST_TMPDIR/blocks")" -gt 4000 ]
}

@test "under glibc, the same program returns memory to the kernel" {
	run traced -- "$programs/churn" $((1 << 20))
	[ "$status" -eq 0 ]
	[[ "$output" == *" munmap("* ]]
	[[ "$output" == *" madvise("* ]]
	[[ "$output" == *" brk("* ]]
}

# Which keep the heap small: that nothing is returned does not depend on them.
@test "no jemalloc option changes a setting that the library relies on" {
	local setting said kept wanted
	wanted='retain:false dirty_decay_ms:0 muzzy_decay_ms:0 oversize_threshold:0
		dss:"disabled" background_thread:false percpu_arena:"disabled"'
	wanted+=" $(sed -n 's/^#define JE_SETTINGS//p' "$top_builddir/config.h" | grep -oE '(hpa|prof|tcache_max):[a-z0-9]+')"
	said=$(preloaded MALLOC_CONF=nonsense:1,retain:true,dirty_decay_ms:5,muzzy_decay_ms:5,\
oversize_threshold:1,dss:primary,hpa:true,background_thread:true,percpu_arena:percpu,prof:true,tcache_max:4096 \
		"$programs/surface" jemalloc-stats 2>&1)
	grep 'Invalid conf pair: nonsense:1' <<< "$said"
	for setting in $wanted; do
		kept=$(sed -n "s/^  opt\.${setting%:*}: \([^ ]*\).*/\1/p" <<< "$said")
		echo "$setting: $kept"
		[ "$kept" = "${setting#*:}" ]
	done
}

# imported FILE…: what they need of others.
imported() {
	nm --undefined-only "$@" | sed -nE 's/^.* U ([A-Za-z0-9_]+)(@.*)?$/\1/p' | sort -u
}

# Which map memory, unmap, protect, move or advise it, or open files.
releasing='munmap madvise posix_madvise process_madvise mremap remap_file_pages brk sbrk shmat shmdt'

@test "nothing in the library can reach a function that unmaps or discards memory" {
	local name archive=$top_builddir/libjemalloc.a own
	own=$(sed -n 's/^JEMALLOC_PIC = //p' "$top_builddir/Makefile")
	imported -D "$library" > imports
	grep -qx mmap imports
	for name in $releasing; do
		echo "$name"
		run ! grep -x "$name" imports
		# By its number allocator/os.c calls madvise(2), whose advice keeps contents (test/layering.bats).
		[ $name = madvise ] || run ! grep -rw "SYS_$name" "$top_srcdir"/{allocator,regpool,preload} --include=*.[ch]
	done
	# jemalloc's calls go to functions that refuse, in allocator/jemalloc-refused.c.
	imported "$own" > of-jemalloc
	imported "$archive" > of-copy
	functions "$top_builddir"/allocator/.libs/libpinalloc_la-jemalloc-refused.o > of-refused
	for name in $releasing mmap mprotect syscall open; do
		echo "$name, of jemalloc"
		run ! grep -x "$name" of-copy
		grep -qx "$name" of-jemalloc || continue
		grep -x "pin_refused_$name" of-copy
		grep -x "pin_refused_$name" of-refused
	done
	grep -x munmap of-jemalloc
	# And in that file is no call of the system's but one that writes a message.
	run -0 imported "$top_builddir"/allocator/.libs/libpinalloc_la-jemalloc-refused.o
	! grep -vxE 'pin_io_write_some|__errno_location|_GLOBAL_OFFSET_TABLE_|__stack_chk_fail' <<< "$output"
}

# functions OBJECT: that it defines.
functions() {
	nm "$1" | sed -nE 's/^.* [tT] ([A-Za-z0-9_]+)(\..*)?$/\1/p' | sort -u
}

@test "the linker takes the library's pages for jemalloc, and none of jemalloc's own" {
	run -0 nm "$library"
	[ "$(grep -c ' je_extent_[d]*alloc_mmap$' <<< "$output")" -eq 2 ]
	[ "$(nm "$top_builddir"/allocator/.libs/libpinalloc_la-jemalloc.o | grep -c ' T je_extent_')" -eq 2 ]
}
