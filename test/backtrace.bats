#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: the frames of a stack have names if the modules have symbols, and lines if they have
# debug information; otherwise an offset that addr2line takes. Nothing is downloaded for this.

setup() {
	load helper
	cp "$top_builddir/test/stack" "$BATS_TEST_TMPDIR/"
	cd "$BATS_TEST_TMPDIR"
}

# module NAME.c|NAME.cc FLAG…: builds a module whose start() calls back through hidden(), from its
# lines 7 and 15.
module() {
	local source=$1
	shift
	cat > "$source" <<-END
		#ifdef __cplusplus
		extern "C" void start(void (*callback)(void));
		namespace ours {
		#endif
		static __attribute__((noinline)) void hidden(void (*callback)(void))
		{
			callback();
			__asm__ volatile("");
		}
		#ifdef __cplusplus
		} using namespace ours;
		#endif
		void start(void (*callback)(void))
		{
			hidden(callback);
			__asm__ volatile("");
		}
	END
	gcc -fPIC -shared -O1 "$@" -o "${source%.*}.so" "$source"
}

@test "with debug information, frames have function, file and line, also in static functions" {
	run -0 ./stack -l
	[[ "${lines[0]}" =~ ^print\ \(stack\.c:[0-9]+\)$ ]]
	[[ "${lines[1]}" =~ ^itself\ \(stack\.c:[0-9]+\)$ ]]
	[[ "${lines[2]}" =~ ^main\ \(stack\.c:[0-9]+\)$ ]]
	line=$(grep -n 'int n = pin_backtrace_walk' "$top_srcdir/test/stack.c" | cut -d: -f1)
	[ "${lines[0]}" = "print (stack.c:$line)" ]
}

@test "so do frames in a module that is loaded later" {
	module late.c -g
	run -0 ./stack -l ./late.so
	# Without _dl_find_object() the stack ends before such a module.
	if ! knows_later_modules stack; then
		[ "${#lines[@]}" -eq 1 ]
		return
	fi
	[ "${lines[1]}" = "hidden (late.c:7)" ]
	[ "${lines[2]}" = "start (late.c:15)" ]
}

@test "the same where the compiler writes no .debug_aranges, as clang does not" {
	echo 'int other(int n) { return n + 1; }' > other.c
	module units.c -g other.c
	objcopy --remove-section .debug_aranges units.so
	run -0 env LD_PRELOAD=./units.so ./stack -l ./units.so
	[ "${lines[1]}" = "hidden (units.c:7)" ]
	[ "${lines[2]}" = "start (units.c:15)" ]
}

@test "without debug information, frames have function and module" {
	module bare.c
	run -0 env LD_PRELOAD=./bare.so ./stack -l ./bare.so
	[ "${lines[1]}" = "hidden (bare.so)" ]
	[ "${lines[2]}" = "start (bare.so)" ]
}

@test "debug information kept by build id below /usr/lib/debug is found" {
	# Those of libc, which valgrind needs.
	run ! grep -q '\.debug_info' <(readelf -SW "$(gcc -print-file-name=libc.so.6)")
	run -0 ./stack -l
	[[ "$output" == *"__libc_start_main (libc-start.c:"* ]]
}

@test "in a stripped module, frames have exported functions, or offsets that nm and addr2line accept" {
	module whole.c -g
	cp whole.so unstripped.so
	strip whole.so
	run -0 env LD_PRELOAD=./whole.so ./stack -l ./whole.so
	[[ "${lines[1]}" =~ ^"$PWD/whole.so+"(0x[0-9a-f]+)$ ]]
	[ "$(addr2line -f -s -e unstripped.so "${BASH_REMATCH[1]}")" = $'hidden\nwhole.c:7' ]
	[ "${lines[2]}" = "start (whole.so)" ]
}

@test "in a stripped position-independent program, frames have its path and an offset" {
	cp stack unstripped
	strip stack
	readelf -h stack | grep -q 'Type: *DYN'
	run -0 bash -c 'exec -a another ./stack -l'
	[[ "${lines[1]}" =~ ^"$PWD/stack+"(0x[0-9a-f]+)$ ]]
	[[ "$(addr2line -f -s -e unstripped "${BASH_REMATCH[1]}")" == itself$'\n'stack.c:* ]]
	[[ "${lines[2]}" =~ ^"$PWD/stack+"(0x[0-9a-f]+)$ ]]
	[[ "$(addr2line -f -s -e unstripped "${BASH_REMATCH[1]}")" == main$'\n'stack.c:* ]]
}

@test "C++ names are demangled if libstdc++ is loaded" {
	module cxx.cc -g
	run -0 env LD_PRELOAD=libstdc++.so.6:./cxx.so ./stack -l ./cxx.so
	[ "${lines[1]}" = "ours::hidden(void (*)()) (cxx.cc:7)" ]
	run -0 env LD_PRELOAD=./cxx.so ./stack -l ./cxx.so
	[ "${lines[1]}" = "_ZN4oursL6hiddenEPFvvE (cxx.cc:7)" ]
}

@test "without line numbers, frames have the loader's symbols, and libdw is not loaded" {
	module quick.c -g
	run -0 strace -o calls -E LD_PRELOAD=./quick.so -e trace=openat ./stack ./quick.so
	[[ "${lines[1]}" == "$PWD/quick.so+0x"* || "${lines[1]}" == "./quick.so+0x"* ]]
	[ "${lines[2]}" = "start (quick.so)" ]
	run ! grep libdw calls
	run -0 strace -o calls -E LD_PRELOAD=./quick.so -e trace=openat ./stack -l ./quick.so
	grep libdw calls
}

@test "no debuginfod server is asked for debug information" {
	module asks.c
	strip asks.so
	run -0 env DEBUGINFOD_URLS=http://127.0.0.1:9 DEBUGINFOD_CACHE_PATH="$PWD/cache" \
		strace -f -o calls -E LD_PRELOAD=./asks.so -e trace=socket,connect,openat ./stack -l ./asks.so
	[[ "${lines[1]}" == *"asks.so+0x"* ]]
	run ! grep -E 'debuginfod|connect\(|socket\(' calls
	[ ! -e cache ]
}


@test "a fatal error prints the stack of the call that failed" {
	cat > fatal.c <<-END
		extern void *ibv_reg_mr(void *pd, void *addr, unsigned long n, int access);
		#pragma weak ibv_reg_mr
		int main(void)
		{
			static void *pd[16];

			return !ibv_reg_mr(pd, 0, 0, 0);
		}
	END
	gcc -O1 -rdynamic -o fatal fatal.c
	run env LD_PRELOAD="$library" ./fatal
	echo "$output"
	[ "$status" -eq 134 ]
	[[ "${lines[0]}" == *"no libibverbs.so.1 is loaded"* ]]
	[[ "$output" == *"  at main (fatal)"* ]]
}

@test "the unwinder is the library's own copy, so the program cannot hold its locks" {
	run -0 nm -D "$library"
	[[ "$output" != *_Unwind_* ]]
	[[ "$(nm "$library")" == *" t _Unwind_Backtrace"* ]]
}
