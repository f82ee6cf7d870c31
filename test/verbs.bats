#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: a program that calls verbs finds them, whichever file they come from. Uses a stand-in
# for libibverbs; test/lab/verbs.bats tries the real one.

setup_file() {
	load helper
	export work=$BATS_FILE_TMPDIR
	cat > "$work/register.c" <<-'END'
		#include <infiniband/verbs.h>
		#include <stdlib.h>
		int main(void)
		{
			struct ibv_device **list = ibv_get_device_list(NULL);
			struct ibv_pd *pd = ibv_alloc_pd(ibv_open_device(list[0]));
			struct ibv_mr *mr = ibv_reg_mr(pd, malloc(4096), 4096, 1);

			return !mr || ibv_dereg_mr(mr);
		}
	END
}

setup() {
	load helper
}

# made_with NAME: a program that is linked with a libibverbs of this name.
made_with() {
	mkdir -p "$BATS_TEST_TMPDIR/lib"
	gcc -std=gnu11 -O2 -I"$top_srcdir" -I"$top_builddir" -shared -fPIC -fvisibility=hidden \
		-Wl,-soname,"$1" -Wl,--version-script="$top_srcdir/test/fake-ibverbs.map" \
		-o "$BATS_TEST_TMPDIR/lib/$1" "$top_srcdir"/test/fake-{ibverbs,verbs}.c
	gcc -O2 -o "$BATS_TEST_TMPDIR/register" "$work/register.c" "$BATS_TEST_TMPDIR/lib/$1"
}

# registers NAME: such a program runs, and its request is served.
registers() {
	made_with "$1"
	run -0 --separate-stderr preloaded LD_LIBRARY_PATH="$BATS_TEST_TMPDIR/lib" \
		PINALLOC_REPORT="$BATS_TEST_TMPDIR/report.json" "$BATS_TEST_TMPDIR/register"
	[ -z "$stderr" ]
	[ "$(jq .registration.served "$BATS_TEST_TMPDIR/report.json")" -eq 1 ]
}

@test "verbs of the system's libibverbs are found" {
	registers libibverbs.so.1
}

@test "so are those of a copy with another name, as in Python wheels" {
	registers libibverbs-1a2b3c4d.so.1.14.44.0
}
