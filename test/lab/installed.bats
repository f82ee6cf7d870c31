#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: pinalloc-acceptance, as it is installed and as an ordinary user runs it, tries
# everything on an adapter and leaves one file. (Soft-RoCE is the only one: Debian's kernel has no
# siw.)
# Only here: the acceptance run with an adapter.

load lab

setup_file() {
	local root=$BATS_FILE_TMPDIR/root
	env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -s -C "$top_builddir" DESTDIR="$root" install \
		> "$BATS_FILE_TMPDIR/install.log" 2>&1 || { cat "$BATS_FILE_TMPDIR/install.log"; return 1; }
	installed=$(dirname "$(find "$root" -name pinalloc-acceptance | grep /bin/)")
	guest_variables=(installed)
	vm_options=(--smp 2 --timeout 1200)
	attempt_seconds=$((8 * attempt_seconds))
	boot
}

in_guest() {
	export MPICC=mpicc.openmpi
	# The build directory may not be readable by everyone.
	mkdir -m 755 /run/public
	cp -R "$installed/.." /run/public/pinalloc
	mkdir -m 777 /run/work /ctl/sent
	cd /run/work
	as_nobody attempt acceptance 1073741824 /run/public/pinalloc/bin/pinalloc-acceptance \
		-l 'mpirun.openmpi -n 2' -r 4 \
		-g '(mapped munmap[+]mmap|mapped madvise|behind heap:madvise)/raw$|fallocate$' -o /ctl/sent/file
	ls -A > /ctl/left
}

setup() {
	file=$results/sent/file
}

@test "it tries verbs, perftest and MPI with the library and without, and all is right" {
	cat "$file"
	ended acceptance
	[ "$(grep -c ' ok$' "$results/acceptance.out")" -eq 20 ]
	run -1 grep -E 'FAILED|left out' "$results/acceptance.out"
	grep -E '^pages replaced: nothing is corrupt +ok$' "$results/acceptance.out"
}

@test "the file has the figures, and nothing else is left" {
	local title
	for title in 'registrations, without the library' 'registrations, with the library' \
		'fork, with the library' 'ping-pong, kept buffers, without the library' \
		'ping-pong, fresh buffers, with the library' 'report of the last ping-pong' \
		'what pinalloc-bugreport says' result; do
		grep -xF "=== $title" "$file"
	done
	[ "$(grep -c '^wrong 0$' "$file")" -eq 4 ]
	grep -E '^67108864 [0-9.]+ [0-9.]+$' "$file"
	grep -E '^20 of 20 steps ended well$' "$file"
	[ ! -s "$results/left" ]
}

@test "without the library data is wrong, which the file shows" {
	sed -n '/^=== pages replaced, without/,/^=== pages replaced:/p' "$file" | grep -E ' corrupt [1-9]'
}
