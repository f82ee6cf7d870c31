#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: the release makes Debian packages that hold what they should, work where they are
# unpacked, are upgraded under a running job, and leave nothing behind.
load helper

setup_file() {
	export packages=$BATS_FILE_TMPDIR/packages root=$BATS_FILE_TMPDIR/root version release
	version=$(sed -n 's/^VERSION = //p' "$top_builddir/Makefile")
	# As packages write it: a candidate is older than its release.
	export package_version=${version/-/\~}
	release=$BATS_FILE_TMPDIR/pinalloc-$version
	{
		env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL \
			make -C "$top_builddir" distdir distdir="$release" &&
			tar -C "$BATS_FILE_TMPDIR" -cJf "$release.tar.xz" "pinalloc-$version" &&
			env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL DEB_BUILD_OPTIONS='nocheck parallel=2' \
				"$top_srcdir/preload/packaging/build" deb "$packages" "$release.tar.xz"
	} > "$BATS_FILE_TMPDIR/log" 2>&1 || { tail -n 40 "$BATS_FILE_TMPDIR/log"; return 1; }
	mkdir -p "$root"/var/lib/dpkg/{info,updates}
	touch "$root"/var/lib/dpkg/status
	in_root -i "$packages"/{libpinalloc0,libpinalloc-dev,pinalloc}_*.deb
}

setup() {
	cd "$BATS_TEST_TMPDIR"
	library=$(echo "$root"/usr/lib/*/pinalloc/libpinalloc.so)
}

# in_root ARGUMENT…: dpkg for a system that consists of these packages and nothing else.
in_root() {
	fakeroot dpkg --root="$root" --log=/dev/null --force-not-root --force-depends "$@" \
		> "$BATS_FILE_TMPDIR/dpkg.log" 2>&1 || { cat "$BATS_FILE_TMPDIR/dpkg.log"; return 1; }
}

# files PACKAGE: those it brings, besides copyright, changelog and overrides.
files() {
	dpkg-deb --fsys-tarfile "$packages/$1"_*.deb | tar -t | grep -v '/$' | sed 's/^\.//' |
		grep -vE '/(copyright|changelog.*|overrides/.*)$' | sort
}

field() { # PACKAGE FIELD
	dpkg-deb -f "$packages/$1"_*.deb "$2"
}

@test "each package brings its files and no others" {
	local lib=/usr/lib/$(field libpinalloc0 Architecture | xargs dpkg-architecture -q DEB_HOST_MULTIARCH -f -a)
	diff <(files libpinalloc0) - <<< "$lib/pinalloc/libpinalloc.so"
	diff <(files libpinalloc-dev) - <<- END
		/usr/include/pinalloc.h
		$lib/pkgconfig/pinalloc.pc
		/usr/share/man/man3/pinalloc.3.gz
	END
	diff <(files pinalloc) - <<- 'END'
		/usr/bin/pinalloc
		/usr/bin/pinalloc-acceptance
		/usr/bin/pinalloc-bugreport
		/usr/share/doc/pinalloc/NEWS.gz
		/usr/share/doc/pinalloc/README.gz
		/usr/share/doc/pinalloc/SECURITY
		/usr/share/man/man1/pinalloc-acceptance.1.gz
		/usr/share/man/man1/pinalloc-bugreport.1.gz
		/usr/share/man/man1/pinalloc.1.gz
		/usr/share/man/man7/pinalloc-admin.7.gz
		/usr/share/man/man7/pinalloc-problems.7.gz
		/usr/share/man/man7/pinalloc-python.7.gz
		/usr/share/man/man7/pinalloc.7.gz
		/usr/share/pinalloc/adapter.c
		/usr/share/pinalloc/calls.h
		/usr/share/pinalloc/exchange.py
		/usr/share/pinalloc/mpi-stale.c
		/usr/share/pinalloc/pinalloc/__init__.py
		/usr/share/pinalloc/pinalloc/__main__.py
		/usr/share/pinalloc/pinalloc/pools.py
		/usr/share/pinalloc/pinalloc/py.typed
		/usr/share/pinalloc/pingpong.c
		/usr/share/pinalloc/plot.gp
		/usr/share/pinalloc/stale-heap.h
		/usr/share/pinalloc/stale-mapped.h
		/usr/share/pinalloc/stale-others.h
		/usr/share/pinalloc/stale-shared.h
		/usr/share/pinalloc/stale-way.h
		/usr/share/pinalloc/stale-ways.h
		/usr/share/pinalloc/wrong.h
	END
}

@test "the library needs the C library only, the others need the library of their version" {
	[[ "$(field libpinalloc0 Depends)" =~ ^libc6\ \(\>=\ [0-9.]+\)$ ]]
	[ "$(field libpinalloc-dev Depends)" = "libpinalloc0 (= $package_version-1)" ]
	[[ "$(field pinalloc Depends)" == *"libpinalloc0 (= $package_version-1)"* ]]
	[[ "$(field libpinalloc0 Static-Built-Using)" == "jemalloc (= 5."* ]]
}

# How old the policy is that was read, and which fields are known, depends on lintian's own age. And
# there is no bug of Debian's that a first upload would close.
@test "lintian finds nothing" {
	[[ "$(lintian --version)" == *v2.116.* ]] || not_here lintian "there is no lintian 2.116"
	TMPDIR=$BATS_TEST_TMPDIR run lintian --allow-root -I --fail-on error,warning,info "$packages"/*.changes \
		--suppress-tags newer-standards-version,out-of-date-standards-version,unknown-field,initial-upload-closes-no-bugs
	echo "$output"
	[ "$status" -eq 0 ]
}

@test "the run-time package alone makes LD_PRELOAD=libpinalloc.so work" {
	run -0 env LD_LIBRARY_PATH="${library%/*}" LD_PRELOAD=libpinalloc.so PINALLOC_HELP=1 true
	[[ "$output" == *PINALLOC_LOG* ]]
	[ ! -L "$library" ]
}

@test "a package with a program that is linked with the library depends on it" {
	local lib since
	dpkg-deb -R "$packages"/libpinalloc0_*.deb library
	echo 'int pinalloc_report(const char *); int main(void) { return pinalloc_report(0); }' > program.c
	lib=$(echo library/usr/lib/*/pinalloc)
	gcc -o program program.c "$lib/libpinalloc.so" -Wl,-rpath,"/${lib#library/}"
	mkdir debian
	cp "$top_srcdir/preload/packaging/debian/control" debian
	run -0 --separate-stderr dpkg-shlibdeps -Slibrary -O program
	since=$(awk '$1 ~ /^pinalloc_report@/ { print $2 }' \
		"$top_srcdir"/preload/packaging/debian/libpinalloc0.symbols)
	[[ "$output" == *"libpinalloc0 (>= $since)"* ]]
}

@test "an upgrade goes unnoticed by a running job, and by the programs it starts" {
	local before
	dpkg-deb -R "$packages"/libpinalloc0_*.deb next
	sed -i "s/^Version: .*/&.1/" next/DEBIAN/control
	dpkg-deb --root-owner-group -b next next.deb
	before=$(stat -c %i "$library")
	# It starts programs one after another, until a file `stop` is there, and says how many.
	env LD_PRELOAD="$library" bash -c 'echo $$ > pid
		until [ -e stop ]; do /bin/true && n=$((n + 1)) || exit; done
		echo "$n"' > job.log 2>&1 3>&- &
	until [ -s pid ]; do sleep 0.1; done
	in_root -i next.deb
	[ "$(stat -c %i "$library")" != "$before" ]
	grep -q "$library.* (deleted)$" "/proc/$(cat pid)/maps"
	touch stop
	wait $!
	cat job.log
	[ "$(< job.log)" -gt 0 ]
}

@test "a wheel has all but glibc and what finds adapters, and works in a virtual environment" {
	local wheel site exchange
	env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL "$top_srcdir/preload/packaging/build" wheel . "$release.tar.xz"
	wheel=$(echo pinalloc-"${version/-/}"-py3-none-manylinux_2_*_"$(uname -m)".whl)
	/usr/bin/python3 -m venv --system-site-packages venv
	PATH=$PWD/venv/bin:/usr/bin:/bin
	pip install -q --no-index "$wheel"
	site=$(echo venv/lib/python3*/site-packages)
	exchange=$site/pinalloc/share/pinalloc/exchange.py
	[ "$(pinalloc --version)" = "pinalloc $version" ]
	[[ "$(pinalloc-acceptance --help)" == 'usage: pinalloc-acceptance '* ]]
	[ "$(man -w pinalloc)" = "$PWD/venv/share/man/man1/pinalloc.1" ]
	[ -s "$site/pinalloc/include/pinalloc.h" ]
	# What is linked is from the wheel or glibc, and has its licence.
	ldd "$site"/pinalloc/bin/pinalloc "$site"/pinalloc/lib/* | awk '/=>/ { print $3 }' | sort -u > linked
	run -1 grep -vE '/venv/|/lib[cm]\.so\.6$' linked
	[ "$(grep -c /venv/ linked)" -ge 7 ]
	ls "$site"/*.dist-info/licenses | grep -cE '^(lib(dw|elf|unwind|jansson|jemalloc|iberty|lzma|bz2).*|zlib1g|pinalloc)$' | grep -x 10
	# The library, with its own libunwind, NumPy and mpi4py.
	run -0 env PINALLOC_REPORT=out.json python3 -m pinalloc run -- python3 -c 'import pinalloc, numpy
a = numpy.ones(1 << 20)
assert pinalloc.stats()["live"] > a.nbytes
print(pinalloc.library(), {line.split()[-1] for line in open("/proc/self/maps") if "unwind" in line})'
	echo "$output"
	[[ "$output" == "$PWD/$site/pinalloc/lib/libpinalloc.so {"*/lib/libunwind-*"}" && "$output" != *\'/usr/lib* ]]
	jq -e --arg version "$version" '.version == $version' out.json
	run -0 mpirun.openmpi --allow-run-as-root --oversubscribe -n 2 pinalloc run -- python3 "$exchange" 2
	[ "$(grep -cE '^rank [01] rounds 2 wrong 0 registrations 0$' <<< "$output")" = 2 ]
}

@test "purging leaves nothing" {
	in_root -P pinalloc libpinalloc-dev libpinalloc0
	run -1 grep . <(find "$root" ! -type d ! -path "$root/var/lib/dpkg/*")
	run -1 grep . <(find "$root" -mindepth 1 -type d ! -path "$root/var*")
	run -1 grep -r pinalloc "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/status"
}

# module COMMAND: what Environment Modules would have a shell do.
module() {
	MODULEPATH=$PWD/modules /usr/bin/tclsh /usr/lib/*/modulecmd.tcl sh "$1" "pinalloc/$version" 2>&1
}

@test "the module file has the directories of the installation, and unloads when these have gone" {
	local at=$PWD/at
	run -1 grep '@[A-Za-z]*@' "$top_builddir/preload/modulefile"
	mkdir -p modules/pinalloc at/lib
	sed "s|@VERSION@|$version|; s|@libdir@|$at/lib|; s|@bindir@|$at/bin|; s|@mandir@|$at/man|" \
		"$top_srcdir/preload/packaging/modulefile.in" > "modules/pinalloc/$version"
	[[ "$(module load)" == *"there is no $at/lib/libpinalloc.so any more"* ]]
	touch at/lib/libpinalloc.so
	run -0 module load
	[[ "$output" == *"LIBPINALLOC=$at/lib/libpinalloc.so"* ]]
	[[ "$output" != *LD_PRELOAD* ]]
	eval "$output"
	rm -r at
	run -0 module unload
	[[ "$output" == *"unset LIBPINALLOC"* ]]
	[[ "$output" != *"any more"* ]]
}

@test "a package wants libunwind, which is loaded by its name, and none builds jemalloc's profiler" {
	cd "$top_srcdir/preload/packaging"
	grep -qE '^Recommends: +libunwind-' pinalloc.spec
	grep -q '^Recommends: libunwind8$' debian/control
	run -1 grep -r enable-prof pinalloc.spec spack easybuild
}

@test "every package has the version of the release" {
	cd "$top_srcdir/preload/packaging"
	[ "$(dpkg-parsechangelog -l debian/changelog -S Version)" = "$package_version-1" ]
	[ "$(sed -n 's/^Version: *//p' pinalloc.spec)" = "$package_version" ]
	grep -qx "%global upstream $version" pinalloc.spec
	grep -q "^    version(\"$version\"" spack/package.py
	[ "$(sed -n 's/^version: //p' CITATION.cff)" = "$version" ]
	grep -qx "version = '$version'" "easybuild/pinalloc-$version"-*.eb
	python3 -c 'import ast, sys; [ast.parse(open(f).read()) for f in sys.argv[1:]]' spack/package.py easybuild/*.eb
}
