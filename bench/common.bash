# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # what the scripts that source this file read, and have set
#
# What the scripts of bench/ share: --help, which prints the comment at their top; $top, the source; $build,
# where the library is built (another folder, if top_builddir names it: what is there is measured); $work, a
# folder that ends with the script.
set -euo pipefail
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '/^# shellcheck/d; 3,/^[^#]/s/^#\( \|$\)//p' "$0" && exit; }

top=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
build=$(realpath "${top_builddir:-$top}")

# Ends a script that is called wrongly.
refuse() {
	sed -n '/usage:/s/^# *//p' "$0" >&2
	exit 2
}

make_work() {
	work=$(mktemp -d "${TMPDIR:-/tmp}/pinalloc-${0##*/}.XXXXXX")
	trap 'rm -rf "$work"' EXIT
}

# build_library [--all]: from a bare Debian 12, with all packages that a measurement wants.
build_library() {
	cd "$top"
	[ "$build" = "$top" ] || return 0
	test/install-packages "$@"
	[ -x configure ] || autoreconf -i
	[ -f Makefile ] || ./configure
	make -s -j"$(nproc)"
}

# compile OUTPUT ARGUMENT…: of C, into $work.
compile() {
	gcc -std=gnu11 -O2 -Wall -Wextra -I"$top" -I"$build" -o "$work/$1" "${@:2}"
}

# compile_stand_in OUTPUT SOURCE…: a libibverbs without an adapter, of test/fake-verbs.c and these.
compile_stand_in() {
	compile "$1" -shared -fPIC -fvisibility=hidden -Wl,-soname,libibverbs.so.1 \
		-Wl,--version-script=test/fake-ibverbs.map test/fake-ibverbs.c test/fake-verbs.c "${@:2}"
}

# --- ways of sending from memory that changes -----------------------------------------

# in_way WAY COMMAND…: with the environment of that way; without the library, registrations are counted.
in_way() {
	local settings=(LD_PRELOAD="$work/count-reg.so")

	case $1 in
	shipped) ;;
	mallopt) settings+=(MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=-1) ;;
	off) settings+=(UCX_IB_REG_METHODS=direct UCX_RCACHE_ENABLE=n) ;; # till 1.15, since
	none) settings+=(UCX_MEM_MMAP_HOOK_MODE=none) ;;
	pinalloc) settings=(LD_PRELOAD="$build/.libs/libpinalloc.so") ;;
	esac
	env "${settings[@]}" "${@:2}"
}

# registrations WAY: real ones of both ranks in the first job; those that the library made ahead as well.
registrations() {
	case $1 in
	pinalloc) jq -s 'map(.registration | .mr_created + .passed_through) | add' "$work/ctl/$1".0.?.json ;;
	*) awk '/^registrations/ { n += $4 } END { print n }' "$work/ctl/$1.0.out" ;;
	esac
}

# row WIDTH TITLE COMMAND [ARGUMENT…]: one figure for each of $ways.
row() {
	local way

	printf '%-*s' "$1" "$2"
	for way in $ways; do
		printf '%14s' "$("$3" "$way" "${@:4}")"
	done
	echo
}
