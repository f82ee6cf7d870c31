#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: with PINALLOC_SAMPLE the report says which code had allocated the memory at the peak,
# within the statistical error of its samples: five standard deviations, one case in two million.
load helper

setup() {
	cd "$BATS_TEST_TMPDIR"
	untold=$((96 << 10)) # what the part of a thread in the peak may be off, of five at most
}

# estimated NAME FIELD: the sum in the report over all stacks that contain this function.
estimated() {
	resolved out.json "[.peak_sites[] | select(any(.stack[]; startswith(\"$1 (\"))) | .$2] | add"
}

# within A B BY: whether A and B differ by at most BY.
within() {
	awk -v a="$1" -v b="$2" -v by="$3" \
		'BEGIN { d = a - b; exit !(a != "" && a != "null" && (d < 0 ? -d : d) <= by) }'
}

# holds CASE [NAME=VALUE…]: runs a case and compares the report with what it did.
holds() {
	local name bytes bytes_off count count_off

	preloaded PINALLOC_SAMPLE=64K PINALLOC_REPORT=out.json "${@:2}" \
		"$programs/holds" "$1" 65536 > truth
	[ "$(figure out.json .peak_sites_kind)" = held ]
	[ -s truth ]
	while read -r name bytes bytes_off count count_off; do
		echo "$name $bytes $(estimated "$name" bytes) $count $(estimated "$name" count)"
		within "$(estimated "$name" bytes)" "$bytes" "$((5 * bytes_off + 5 * untold))"
		within "$(estimated "$name" count)" "$count" \
			"$(awk -v x="$count_off" -v y="$untold" 'BEGIN { print 5 * x + 5 * y / 100 }')"
	done < truth
}

# held CASE FUNCTIONS [NAME=VALUE]: so it is, of blocks from so many functions.
held() {
	holds "$1" "${@:3}"
	[ "$(wc -l < truth)" -eq "$2" ]
}

@test "samples estimate blocks" {
	rows held <<- 'END'
		small 2: of 100 bytes, 100 MB in all, 70 % from one function and 30 % from another
		mixed 2: of any size from 16 B to 1 MiB
		threads 3: of several threads, freed by others
		threads 3 MALLOC_CONF=tcache:false: without thread caches
		mixed 2 MALLOC_CONF=prof:true,prof_active:true,lg_prof_sample:0: with jemalloc's profiler in use
		moved 1: that realloc moved, as of its caller
	END
	[ "$(cut -d ' ' -f 1 truth)" = hold_grown ]
}

@test "PINALLOC_SAMPLE=1 counts every block" {
	preloaded PINALLOC_SAMPLE=1 PINALLOC_REPORT=out.json "$programs/grow" 100000 100
	within "$(estimated main count)" 100000 $((untold / 100))
	within "$(estimated main bytes)" 10000000 "$untold"
}

@test "with an interval larger than the heap, a program runs as without sampling" {
	preloaded PINALLOC_SAMPLE=1T PINALLOC_REPORT=out.json "$programs/grow" 100
	[ "$(figure out.json .peak_sites_kind)" = held ]
	[ "$(figure out.json '.memory.live_bytes')" -ge $((100 << 20)) ]
}

@test "a dlopen() that opens its caller, as UCX's does, does not start the library again at the end" {
	gcc -shared -fPIC -o opens.so -x c - <<- 'END'
		#define _GNU_SOURCE
		#include <dlfcn.h>
		#include <stdio.h>

		void *dlopen(const char *file, int mode)
		{
			void *(*next)(const char *, int) =
				(void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
			Dl_info caller;

			if (dladdr(__builtin_return_address(0), &caller) &&
			    next(caller.dli_fname, RTLD_LAZY))
				fprintf(stderr, "opened %s\n", caller.dli_fname);
			return next(file, mode);
		}
	END
	LD_PRELOAD=$library:$PWD/opens.so PINALLOC_SAMPLE=64K PINALLOC_REPORT=out.json \
		"$programs/holds" small 65536 > truth 2> err
	cat err
	grep -q 'opened .*libpinalloc' err
	[ "$(figure out.json '.peak_sites | length > 0')" = true ]
}
