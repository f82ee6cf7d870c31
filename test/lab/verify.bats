#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: the page behind an address does not change while it is registered, and verification,
# which says so, would notice if one did.

setup_file() {
	load ../helper
	load lab
	cd "$top_srcdir"
	mkdir "$BATS_FILE_TMPDIR/unpinned"
	gcc -std=gnu11 -O2 -I"$top_srcdir" -I"$top_builddir" -shared -fPIC -fvisibility=hidden \
		-Wl,-soname,libibverbs.so.1 -Wl,--version-script=test/fake-ibverbs.map \
		-o "$BATS_FILE_TMPDIR/unpinned/libibverbs.so.1" test/fake-ibverbs.c test/fake-verbs.c
	gcc -O2 -shared -fPIC -fvisibility=hidden -I"$top_srcdir" \
		-o "$BATS_FILE_TMPDIR/plugin.so" test/programs/rdma-plugin.c -libverbs
	boot unpinned weaker
}

# unpinned NAME …: like shimmed, with a libibverbs whose registrations do not pin.
unpinned() {
	shimmed "$1" LD_LIBRARY_PATH="$BATS_FILE_TMPDIR/unpinned" "${@:2}"
}

# weaker NAME …: like shimmed, as root without the capability to see page frames.
weaker() {
	shimmed "$1" setpriv --bounding-set -sys_admin env "${@:2}"
}

in_guest() {
	local verify=("$programs/rdma-verify" 1) longer=("$programs/rdma-verify" 3.5) i

	# A huge page is as large as the blocks that compaction makes.
	echo never > /sys/kernel/mm/transparent_hugepage/enabled
	shimmed pinned-exit PINALLOC_VERIFY=exit "${verify[@]}"
	shimmed pinned-left PINALLOC_VERIFY=exit "${verify[@]}" leave
	shimmed pinned-every PINALLOC_VERIFY=1 "${longer[@]}"
	shimmed pinned-call "${verify[@]}" call
	shimmed evicted PINALLOC_VERIFY=1 PINALLOC_MAX_PINNED=32M "$programs/rdma-memlock" churn 1
	shimmed off "${verify[@]}"
	unpinned unpinned-exit PINALLOC_VERIFY=exit "${verify[@]}"
	unpinned unpinned-left PINALLOC_VERIFY=exit "${verify[@]}" leave
	unpinned unpinned-every PINALLOC_VERIFY=1 "${longer[@]}" leave
	unpinned unpinned-call "${verify[@]}" call
	weaker weaker PINALLOC_VERIFY=1 "${verify[@]}"
	weaker weaker-call "${verify[@]}" call
	shimmed fork PINALLOC_VERIFY=1 "$programs/rdma-fork"
	shimmed replaced PINALLOC_VERIFY=1 PINALLOC_GROW=2M "$programs/rdma-replaced" 20
	shimmed exit PINALLOC_VERIFY=1 "$programs/rdma-exit" "$BATS_FILE_TMPDIR/plugin.so"
	# Without /proc nobody tells that CAP_IPC_LOCK lifts the limit.
	attempt procless unshare -m bash -c "ulimit -l unlimited && mount -t tmpfs none /proc && LD_PRELOAD='$library' \
		PINALLOC_VERIFY=exit exec '$programs/rdma-exit' '$BATS_FILE_TMPDIR/plugin.so'"
	for ((i = 0; i < 5; i++)); do
		shimmed busy-$i PINALLOC_VERIFY=1 "$programs/rdma-verify" 0.1 leave busy
	done
}

setup() {
	load ../helper
	load lab
}

# still CASE: pages were compared, and none had moved.
still() {
	ended "$1"
	[ ! -s "$results/$1.err" ]
	reported "$1" .stability
	[ "$(reported "$1" .stability.checked_pages)" -gt 10000 ]
	[ "$(reported "$1" .stability.moved_pages)" -eq 0 ]
	[ "$(reported "$1" .registration.served)" -gt 0 ]
}

# seen CASE: several had moved, and one line says so. How many is up to the kernel: thousands were
# seen with 6.1, with 6.12 only 73.
seen() {
	ended "$1"
	reported "$1" .stability
	[ "$(reported "$1" .stability.moved_pages)" -gt 10 ]
	[ "$(reported "$1" '.stability | .checked_pages >= .moved_pages')" = true ]
	[ "$(wc -l < "$results/$1.err")" -eq 1 ]
	grep -q '^pinalloc.*: [0-9]* pages* of the heap moved while registered, the first at 0x' \
		"$results/$1.err"
}

@test "no registered heap page moves, however often the kernel compacts memory" {
	still pinned-exit
}

@test "PINALLOC_VERIFY=1 compares pages every second, and once more at the end" {
	still pinned-every
	[ "$(reported pinned-every '.stability.checked_pages * 4096 >= 3 * .memory.pinned_peak_bytes')" = true ]
}

@test "nor do pages move that are registered when the program ends" {
	still pinned-left
}

@test "pinalloc_verify reports that" {
	still pinned-call
	[ "$(sort -u "$results/pinned-call.out")" = 'moved 0' ]
}

@test "nor do pages of memory regions that are evicted" {
	ended evicted
	[ "$(reported evicted .registration.evicted)" -gt 0 ]
	[ "$(reported evicted .stability.checked_pages)" -gt 10000 ]
	[ "$(reported evicted .stability.moved_pages)" -eq 0 ]
}

@test "if registrations do not pin, pages move, and that is noticed" {
	local case
	for case in exit left every call; do
		seen unpinned-$case
	done
	[ "$(tail -n 1 "$results/unpinned-call.out" | cut -d' ' -f2)" -gt 10 ]
}

@test "nothing is compared unless requested" {
	ended off
	[ "$(reported off .stability)" = "$(jq -n '{checked_pages: 0, moved_pages: 0}')" ]
}

@test "without permission to see page frames, one line says so and the program continues" {
	ended weaker
	[ "$(wc -l < "$results/weaker.err")" -eq 1 ]
	grep -q '^pinalloc.*: page frames are not verified: .* CAP_SYS_ADMIN' "$results/weaker.err"
	[ "$(reported weaker .stability.checked_pages)" -eq 0 ]
	[ "$(reported weaker .registration.served)" -gt 0 ]
	ended weaker-call
	[ ! -s "$results/weaker-call.err" ]
	[ "$(sort -u "$results/weaker-call.out")" = 'verify Operation not permitted' ]
}

@test "so it does without /proc" {
	ended procless 7
	[ "$(wc -l < "$results/procless.err")" -eq 1 ]
	grep -q '^pinalloc.*: page frames are not verified: there is no /proc/self/pagemap' \
		"$results/procless.err"
}

@test "a process that has children keeps its pages" {
	still fork
}

@test "pages replaced by the program do not count as moved" {
	ended replaced
	[ "$(wc -l < "$results/replaced.err")" -eq 1 ]
	grep -q 'replaced pages of its heap behind malloc' "$results/replaced.err"
	[ "$(reported replaced .stability.checked_pages)" -gt 0 ]
	[ "$(reported replaced .stability.moved_pages)" -eq 0 ]
}

@test "a program ends normally, with a last pass, even during another pass" {
	local i
	ended exit 7
	[ ! -s "$results/exit.err" ]
	[ "$(grep -c ': 0 failed$' "$results/exit.out")" -eq 4 ]
	[ "$(reported exit .stability.checked_pages)" -gt 0 ]
	[ "$(reported exit .stability.moved_pages)" -eq 0 ]
	for ((i = 0; i < 5; i++)); do
		still busy-$i
	done
}
