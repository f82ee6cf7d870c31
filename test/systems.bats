#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: test/systems runs what it says in another system's root, tells what passed there, and
# leaves nothing mounted and nothing running; with --fresh roots and tree have nothing of before. The
# root here is of a few programs, and what is run in it stands in for a build and its tests.
load helper

setup() {
	cd "$BATS_TEST_TMPDIR"
	tree=$BATS_TEST_TMPDIR/tree
	export SYSTEMS_DIR=$BATS_TEST_TMPDIR/systems GIT_CEILING_DIRECTORIES=$BATS_TEST_TMPDIR
	root=$SYSTEMS_DIR/tiny
	mkdir -p "$tree"/{bench,test} "$root"/{dev,etc/apt/apt.conf.d,proc,root,sys}
	cp "$top_srcdir"/test/{systems,copy-tree} "$tree/test"
	cp "$top_srcdir/README" "$tree"
	echo 13.7 > "$root/etc/debian_version"
	local program
	for program in bash cat env sleep umount; do
		program=$(type -P $program)
		# shellcheck disable=SC2046 # none has a space
		cp -L --parents "$program" $(ldd "$program" | grep -o '/[^ ]*') "$root"
	done
	echo 'echo "12 passed, 0 failed"' > "$tree/test/run"
	echo '[ ! -e /of-before ] && echo "it is $(< /etc/debian_version)" > seen && echo it ran' > "$tree/bench/demo"
}

# systems STATUS ARGUMENT…: it ends so.
systems() {
	run --separate-stderr "$tree/test/systems" "${@:2}"
	echo "$output; $stderr"
	[ "$status" -eq "$1" ]
}

@test "README's commands run there, and a table says how each part ended, and what there is; so does the status" {
	systems 0 --only demo,test tiny
	grep -E '^tiny +demo +passed +[0-9]+ s  it ran$' <<< "$output"
	grep -E '^tiny +test +passed +[0-9]+ s  12 passed, 0 failed$' <<< "$output"
	[[ "${lines[-1]}" == tiny*"Debian 13.7, gcc -, "* ]]
	[ "$(< "$root/root/pinalloc/seen")" = 'it is 13.7' ]
	printf 'echo "7 passed, 2 failed"\nexit 1\n' > "$tree/test/run"
	echo 'exit 3' > "$tree/bench/demo"
	systems 1 tiny
	grep -E '^tiny +demo +failed ' <<< "$output"
	grep -E '^tiny +units +failed .*  7 passed, 2 failed$' <<< "$output"
}

@test "--fresh makes the roots anew, has what is committed only, and removes what has passed" {
	git -C "$tree" init -q
	git -C "$tree" add .
	git -C "$tree" -c user.name=x -c user.email=x@localhost commit -qm x
	echo 'exit 3' > "$tree/bench/demo"
	touch "$root/of-before"
	# In place of debootstrap.
	mkdir bin
	cp -a "$root" "$BATS_TEST_TMPDIR/minbase"
	rm "$BATS_TEST_TMPDIR/minbase/of-before"
	printf '#!/bin/bash\nmkdir -p "${@: -2:1}"/usr/sbin && cp -a %q/. "${@: -2:1}"\n' "$BATS_TEST_TMPDIR/minbase" > bin/debootstrap
	chmod +x bin/debootstrap
	PATH=$PWD/bin:$PATH systems 0 --fresh --only demo,test tiny
	grep -E '^tiny +demo +passed .*  it ran$' <<< "$output"
	[ -e "$SYSTEMS_DIR/tiny.demo.log" ]
	[ -z "$(find "$SYSTEMS_DIR" -mindepth 1 -type d)" ]
}

@test "it has /proc, /sys and /dev, of which nothing stays, nor what it has started" {
	cat > "$tree/bench/demo" <<- 'END'
		echo x > /dev/null && [ -e /sys/kernel ] && [ -r /proc/self/maps ] || exit
		sleep 5432 &
		while read -r _ _ _ _ where _; do echo "$where"; done < /proc/self/mountinfo > mounts
	END
	systems 0 --only demo tiny
	grep -qx /proc "$root/root/pinalloc/mounts"
	grep -qx / "$root/root/pinalloc/mounts"
	run ! grep -q "$BATS_TEST_TMPDIR" "$root/root/pinalloc/mounts"
	run ! grep -q "$root" /proc/self/mountinfo
	run ! pgrep -f 'sleep 5432'
	[ -z "$(ls "$root/dev" "$root/proc" "$root/sys" | grep -v ':$')" ]
}

@test "wrong usage, and a user who is not root, get one line" {
	local line
	for line in '' --nonsense '--only nothing tiny' --only '../x' 'tiny/sparc' 'tiny/arm64/x'; do
		# shellcheck disable=SC2086 # words
		systems 2 $line
		[ "$(wc -l <<< "$stderr")" -eq 1 ]
	done
	cd / # which everybody may
	run -1 --separate-stderr setpriv --reuid 65534 --regid 65534 --clear-groups \
		bash < "$tree/test/systems" -s tiny
	echo "$stderr"
	[[ "$stderr" == *"run this as root: "* ]]
	[ "$(wc -l <<< "$stderr")" -eq 1 ]
}

@test "of a release that was built, only the release is copied" {
	local copy=$BATS_TEST_TMPDIR/copy

	touch "$tree/built"
	printf 'distclean:\n\trm -f built Makefile\n' > "$tree/Makefile"
	run -0 "$tree/test/copy-tree" "$copy"
	[ -z "$output" ]
	[ -e "$copy/test/copy-tree" ]
	[ ! -e "$copy/built" ]
	[ -e "$tree/built" ]
}
