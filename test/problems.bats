#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# What pinalloc-problems(7) says of other preloaded libraries, and of ways to load this one, is so.
load helper

# shared NAME [OPTION…]: builds NAME.so of standard input.
shared() {
	gcc -O1 -Wall -Werror -fno-builtin -shared -fPIC "${@:2}" -o "$1.so" -x c -
}

# As XALT does, it starts a program from its constructor and its destructor; as Darshan does, it
# stands before open and write; as TAU and heaptrack do, before malloc, and counts. What it runs before fork(), installed before anything is allocated, allocates.
tool() {
	shared tool <<- 'END'
		#define _GNU_SOURCE
		#include <dlfcn.h>
		#include <pthread.h>
		#include <stdio.h>
		#include <stdlib.h>
		#include <string.h>
		#include <sys/wait.h>
		#include <unistd.h>
		static unsigned long writes, calls;
		void *malloc(size_t n)
		{
			static void *(*next)(size_t);
			if (!next)
				*(void **)&next = dlsym(RTLD_NEXT, "malloc");
			calls++;
			return next(n);
		}
		ssize_t write(int fd, const void *p, size_t n)
		{
			static ssize_t (*next)(int, const void *, size_t);
			if (!next)
				*(void **)&next = dlsym(RTLD_NEXT, "write");
			writes++;
			return next(fd, p, n);
		}
		static void start(const char *when)
		{
			int status = -1;
			char *copy = strdup(when);
			pid_t child = fork();
			if (!child) {
				unsetenv("LD_PRELOAD");
				execl("/bin/true", "true", copy, NULL);
				_exit(1);
			}
			waitpid(child, &status, 0);
			fprintf(stderr, "tool: %s, status %d, %s, %lu calls\n", copy, status, writes ? "wrote" : "", calls);
			free(copy);
		}
		static void before_fork(void) { free(malloc(1 << 24)); }
		__attribute__((constructor)) static void begin(void)
		{
			pthread_atfork(before_fork, NULL, NULL);
			start("begin");
		}
		__attribute__((destructor)) static void end(void) { start("end"); }
	END
}

@test "a tool works before the library, and behind it, where it hears of no allocation; the heap is the library's" {
	local order
	tool
	for order in "$PWD/tool.so:$library [1-9][0-9]{3,}" "$library:$PWD/tool.so 0"; do
		run -3 --separate-stderr timeout $((60 * ${TIMEOUT_SCALE:-1})) \
			env LD_PRELOAD="${order% *}" PINALLOC_REPORT="$report" PYTHONMALLOC=malloc python3 -c 'import os, sys
x = [str(i) * 50 for i in range(100000)]
os.write(1, b"x" * 99)
sys.exit(3)'
		echo "$order: $stderr"
		[ "${#output}" -eq 99 ]
		[[ "$stderr" == "tool: begin, status 0, "*$'\n'* ]]
		[[ "${stderr_lines[-1]}" =~ ^"tool: end, status 0, wrote, "${order#* }" calls"$ ]]
		jq -e '.program == "python3" and .memory.live_peak_bytes > 10000000' "$report"
		rm "$report"
	done
}

@test "what RTLD_DEEPBIND loads has libc's blocks, of no usable size, and free, as with any preloaded allocator" {
	shared plugin <<- 'END'
		#include <stdlib.h>
		void take(void *p) { free(p); }
		void *give(void) { return malloc(100); }
	END
	gcc -O1 -Wall -Werror -fno-builtin -o host -x c - <<- 'END'
		#define _GNU_SOURCE
		#include <dlfcn.h>
		#include <malloc.h>
		#include <stdio.h>
		#include <stdlib.h>
		int main(int argc, char **argv)
		{
			void *plugin = dlopen("./plugin.so", RTLD_NOW | (argc > 1 ? RTLD_DEEPBIND : 0));
			void (*take)(void *), *(*give)(void);
			*(void **)&take = dlsym(plugin, "take");
			*(void **)&give = dlsym(plugin, "give");
			dprintf(1, "%zu\n", malloc_usable_size(give()));
			take(malloc(100));
			return 0;
		}
	END
	run -0 preloaded ./host
	[ "$output" -ge 100 ]
	run -134 preloaded ./host deep
	[[ "$output" == 0$'\n'*"free(): invalid "* ]]
}

@test "libc's functions by ctypes: looked up in the whole program they are the heap's, and do as libc's" {
	cat > ffi.py <<- 'END'
		import ctypes, sys
		libc = ctypes.CDLL(sys.argv[1] if sys.argv[1:] else None)
		libc.strdup.restype = libc.malloc.restype = libc.memalign.restype = ctypes.c_void_p
		libc.free(ctypes.c_void_p(libc.strdup(b"hello")))
		assert not any(libc.memalign(8, 8) % 16 for i in range(99))
		assert libc.malloc(ctypes.c_size_t(3 << 30))
		libc.mallinfo.restype = type("mallinfo", (ctypes.Structure,), {"_fields_": [("f%d" % i, ctypes.c_int) for i in range(10)]})
		assert libc.mallinfo().f7 > 0
		print("ok")
	END
	[ "$(python3 ffi.py libc.so.6)" = ok ]
	run preloaded python3 ffi.py libc.so.6
	[ "$status" -ge 128 ]
	[ "$(preloaded python3 ffi.py)" = ok ]
}

@test "an audit library takes the loader's setting for more thread-local storage" {
	shared audit <<- 'END'
		#include <link.h>
		unsigned la_version(unsigned version) { return version; }
	END
	run -0 env GLIBC_TUNABLES=glibc.rtld.optional_static_tls=16384 LD_AUDIT="$PWD/audit.so" \
		LD_PRELOAD="$library" PINALLOC_REPORT="$report" python3 -c 'print(6 * 7)'
	[ "$output" = 42 ]
	[ "$(figure "$report" .program)" = python3 ]
}

# section NAME: the tags of a section of pinalloc-problems(7).
section() {
	awk -v name="$1" '/^\.Sh/ { on = $0 == ".Sh " name } on && sub(/^\.It (Li )?/, "")' \
		"$top_srcdir/preload/pinalloc-problems.7"
}

@test "each message that pinalloc-problems(7) explains is one that the library or check prints" {
	local message part n=0
	cat "$top_srcdir"/{allocator,regpool,preload,preload/report}/*.[ch] "$top_srcdir/allocator/options.def" \
		"$top_srcdir/preload/command/check.c" |
		tr '\n\t' '  ' | sed -E 's/" *"//g; s/%[a-z]+/.../g' > said
	while read -r message; do
		while read -r part; do
			echo "looking for: $part, of $message"
			grep -qF "$part" said
			n=$((n + 1))
		done < <(sed -E 's/ ?\.\.\. ?|: |=reloc /\n/g' <<< "$message" | grep -E '.{5}')
	done < <(section MESSAGES)
	[ "$n" -ge 20 ]
}

@test "pinalloc-problems(7) has each reason for which a request for heap memory is not served" {
	local reason n=0
	section 'REQUESTS THAT ARE NOT SERVED' > explained
	while read -r reason; do
		case $reason in served | 'not heap memory' | dma-buf) continue ;; esac
		echo "looking for: $reason"
		grep -qxF "$reason" explained
		n=$((n + 1))
	done < <(sed -nE 's/^\tX\([A-Z_]*, "(.*)"\).*/\1/p' "$top_srcdir/regpool/state.h")
	[ "$n" -ge 10 ]
	[ "$n" -eq "$(wc -l < explained)" ]
}
