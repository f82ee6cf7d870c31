#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: the library may be built with one release of rdma-core and used with another, and a
# process may have two. The newer one is that of Debian sid, which is fetched with the libc that it
# needs, and not installed.

load lab

setup_file() {
	libc=$BATS_FILE_TMPDIR/libc newer=$BATS_FILE_TMPDIR/newer other=$BATS_FILE_TMPDIR/other
	load ../scripts
	guest_variables=(libc newer other loader script)
	fetch "$libc" libc6 libnl-3-200 libnl-route-3-200
	fetch "$newer" libibverbs1 ibverbs-providers
	loader=$(echo "$libc"/ld-linux-*)
	rename
	build
	boot
}

# fetch DIRECTORY PACKAGE…: the libraries in these packages of sid. This system's apt is left as it is.
fetch() {
	local package apt=$BATS_FILE_TMPDIR/apt
	local options=(-q -o "Dir::Etc::SourceList=$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
		-o "Dir::State::Lists=$apt/lists" -o "Dir::Cache=$apt" -o APT::Sandbox::User=root)

	mkdir -p "$1" "$apt"/{lists,archives}/partial
	apt-get indextargets --format 'deb $(REPO_URI) sid main' 'Created-By: Packages' \
		'Origin: Debian' 'Label: Debian' | head -n 1 > "$apt/sources.list"
	{ [ -e "$apt/updated" ] || apt-get "${options[@]}" update && touch "$apt/updated"; } > "$apt/log" 2>&1
	cd "$apt"
	apt-get "${options[@]}" download "${@:2}" >> log 2>&1 || { cat log && false; }
	for package in ./*.deb; do
		dpkg-deb -x "$package" unpacked
	done
	find unpacked -path '*/lib/*' -name '*.so*' -exec cp -L -t "$1" {} +
	rm -rf ./*.deb unpacked
}

# rename: the newer libibverbs under another name, as in Python wheels, beside this system's.
rename() {
	mkdir "$other"
	cp "$newer"/*-rdmav*.so "$other"
	cp "$newer/libibverbs.so.1" "$other/libibverbs.so.N"
	sed -i 's/libibverbs\.so\.1/libibverbs.so.N/g' "$other"/*
}

build() {
	build_shared own.so rdma-plugin -libverbs
	build_shared other.so rdma-plugin "$other/libibverbs.so.N"
	gcc -O2 -x c -o "$BATS_FILE_TMPDIR/two" - -ldl <<- 'END'
		#include <dlfcn.h>

		int main(int argc, char **argv)
		{
			int failed = 0;

			for (int round = 0; round < 3; round++) {
				void *plugins[3];

				for (int i = 1; i < 3; i++) {
					void (*start)(void);

					if (!(plugins[i] = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL)))
						return 1;
					start = dlsym(plugins[i], "plugin_start");
					start();
				}
				for (int i = 1; i < 3; i++) {
					_Bool (*send)(unsigned) = dlsym(plugins[i], "plugin_send");

					failed += !send(7);
				}
				for (int i = 1; i < 3; i++)
					dlclose(plugins[i]);
			}
			return failed;
		}
	END
}

in_guest() {
	local case
	local newest=("$loader" --library-path "$libc:$newer" "$programs/rdma-script")
	local two=("$loader" --library-path "$libc:$other" "$BATS_FILE_TMPDIR/two"
		"$BATS_FILE_TMPDIR"/{own,other}.so)

	for case in others closed growing reused busy not-imported; do
		attempt "plain-$case" "${newest[@]}" "${script[$case]}"
		shimmed "$case" "${newest[@]}" "${script[$case]}"
	done
	attempt plain-two "${two[@]}"
	shimmed two "${two[@]}"
}

# fine CASE: it was right without the library and with it, which said nothing, and has deregistered what
# it registered.
fine() {
	ended "plain-$1"
	ended "$1"
	[ ! -s "$results/$1.err" ]
	holds "$1" '.registration.mr_created > 0' '.memory.pinned_bytes == 0'
}

@test "with a newer release than the library's, domains and devices end and come again" {
	local case
	for case in others closed reused busy not-imported; do
		fine "$case"
	done
}

@test "devices are closed while the registration thread is at work" {
	fine growing
}

@test "two libraries, of which each has a release of its own, use it in one process" {
	fine two
	[ "$(grep -c '^destructor of a library: 0 failed$' "$results/two.out")" -eq 6 ]
	[ "$(reported two .registration.served)" -eq 12 ]
}
