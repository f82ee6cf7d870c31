#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: what is registered ahead serves requests of any size, from buffers that begin on any page:
# at most a tenth of the first requests waits, and at most a quarter is registered twice, also where
# buffers were freed and others of other sizes allocated.
load helper
load scripts

setup_file() {
	allowed memlock
}

# served KIB MIB CHANGES
served() {
	succeeds PINALLOC_MAX_PINNED=none "$programs/rdma-script" "$(ahead "$@")"
}

@test "of buffers of 64 KiB, 1 MiB, 4 MiB and 64 MiB" {
	rows served <<- 'END'
		64 128 2000
		1024 128 500
		4096 256 200
		65536 640 20
	END
}

# bats test_tags=thorough
@test "of other sizes, in heaps of 256 MiB to 3 GiB" {
	rows served <<- 'END'
		64 3072 4000
		256 256 1000
		1024 3072 3000
		2048 1024 500
		8192 1024 100
		16384 256 16
		65536 3072 48
	END
}
