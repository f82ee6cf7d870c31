#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: a stack is what the program's code says, wherever it is taken: in a signal handler, on a
# coroutine's stack, with code compiled at run time, under the loader's lock, in a thread that ends.
# At worst it is shorter. A module that has been closed keeps its name.
load helper

# built NAME [FLAG…]: builds a program or module from the C on standard input, after grow(), which makes the heap grow.
built() {
	{
		cat <<- 'END'
			#define _GNU_SOURCE
			#include <dlfcn.h>
			#include <pthread.h>
			#include <signal.h>
			#include <stdint.h>
			#include <stdlib.h>
			#include <string.h>
			#include <sys/mman.h>
			#include <ucontext.h>
			#include <unistd.h>
			static __attribute__((noinline)) void *grow(void)
			{
				void *block = malloc(32 << 20);
				__asm__ volatile("" : : "r"(block) : "memory");
				return block ? block : (exit(1), block);
			}
		END
		cat
	} | gcc -Wall -g -O1 -fno-optimize-sibling-calls -o "$1" "${@:2}" -x c - -pthread -ldl
}

# The program does what its first argument names, with modules that the others do.
setup_file() {
	built "$BATS_FILE_TMPDIR/program" <<- 'END'
		static ucontext_t outside, inside;
		/* Of n bytes, just above as many that cannot be read, and just below. */
		static char *fenced_stack(size_t n)
		{
			char *stack = mmap(NULL, 3 * n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			mprotect(stack + n, n, PROT_READ | PROT_WRITE);
			return stack + n;
		}
		static void switch_to(char *stack, size_t n, void (*run)(void))
		{
			getcontext(&inside);
			inside.uc_stack.ss_sp = stack;
			inside.uc_stack.ss_size = n;
			makecontext(&inside, run, 0);
			swapcontext(&outside, &inside);
		}
		static void plain(void) { grow(); __asm__ volatile(""); }

		static void handle(int sig) { grow(); }
		static __attribute__((noinline)) void interrupted(void) { raise(SIGUSR1); __asm__ volatile(""); }
		static void handler(void)
		{
			static char other[1 << 16];
			stack_t stack = {.ss_sp = other, .ss_size = sizeof other};
			struct sigaction action = {.sa_handler = handle};
			sigaction(SIGUSR1, &action, NULL);
			interrupted();
			sigaltstack(&stack, NULL);
			action.sa_flags = SA_ONSTACK;
			sigaction(SIGUSR1, &action, NULL);
			interrupted();
		}

		static volatile sig_atomic_t n_signals;
		static void count(int sig) { n_signals++; }
		static void storm(void)
		{
			struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
			struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGVTALRM};
			struct itimerspec often = {{0, 50000}, {0, 50000}};
			timer_t timer;
			sigaction(SIGVTALRM, &action, NULL);
			timer_create(CLOCK_MONOTONIC, &event, &timer);
			timer_settime(timer, 0, &often, NULL);
			for (int i = 0; i < 10000 || n_signals < 100; i++)
				free(malloc(1 << 20));
		}

		static __attribute__((noinline)) void deep(int n) { if (n) deep(n - 1); else grow(); __asm__ volatile(""); }
		static void run_deep(void) { deep(3); swapcontext(&inside, &outside); }
		/* With rubbish beyond what is used. */
		static void coroutine(void) { switch_to(memset(fenced_stack(1 << 16), 0x41, 1 << 16), 1 << 16, run_deep); }

		static void run_little(void) { grow(); free(malloc(100)); setcontext(&outside); }
		static void little(void) { for (int i = 0; i < 8; i++) switch_to(fenced_stack(16 << 10), 16 << 10, run_little); }

		static void run_grow(void) { grow(); setcontext(&outside); }
		static void rubbish(void)
		{
			char *stack = fenced_stack(1 << 16);
			static volatile int step;
			const unsigned long values[] = {0, 1, 0x4141414141414141, (unsigned long)stack - (1 << 16), 0x1000,
				(unsigned long)&outside, (unsigned long)grow + 1, -1ul, -8ul, 0x7fffffffffff};
			getcontext(&outside);
			if (step == 10)
				return;
			unsigned long *top = (unsigned long *)(stack + (1 << 16)) - 1 - step % 2 * 2;
			*top = values[step];
			inside = outside;
		#ifdef __x86_64__
			inside.uc_mcontext.gregs[REG_RSP] = (long)top;
			inside.uc_mcontext.gregs[REG_RBP] = (long)values[step];
			inside.uc_mcontext.gregs[REG_RIP] = (long)run_grow;
		#else
			inside.uc_mcontext.sp = (long)top & -16l;
			inside.uc_mcontext.regs[29] = values[step];
			inside.uc_mcontext.regs[30] = values[step];
			inside.uc_mcontext.pc = (long)run_grow;
		#endif
			step++;
			setcontext(&inside);
		}

		/* Of its unwinding nothing is known; by its frame pointer one could guess. */
		typedef void *callee(void);
		void *bare(callee *callee);
		extern const char bare_end[];
		__asm__(".text\n.type bare, STT_FUNC\nbare:\n"
		#ifdef __x86_64__
			"push %rbp\nmov %rsp, %rbp\ncall *%rdi\npop %rbp\nret\n"
		#else
			"stp x29, x30, [sp, #-16]!\nmov x29, sp\nblr x0\nldp x29, x30, [sp], #16\nret\n"
		#endif
			"bare_end:\n.size bare, bare_end - bare\n");
		static void untold(void) { bare(grow); }
		static void jit(void)
		{
			size_t n = bare_end - (char *)bare;
			char *made = mmap(NULL, n, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			memcpy(made, bare, n);
			__builtin___clear_cache(made, made + n);
			((void *(*)(callee *))made)(grow);
		}

		static pthread_key_t key;
		static void end(void *value) { grow(); if (value == &key) pthread_setspecific(key, &inside); }
		static void *begin(void *unused) { pthread_setspecific(key, &key); return unused; }
		static void ends(void)
		{
			pthread_t thread;
			pthread_key_create(&key, end);
			for (int i = 0; i < 3; i++) {
				pthread_create(&thread, NULL, begin, NULL);
				pthread_join(thread, NULL);
			}
		}

		static char **files;
		static callee *found(const char *file, const char *name, void **module)
		{
			*module = dlopen(file, RTLD_NOW);
			return *module ? (callee *)dlsym(*module, name) : (exit(1), NULL);
		}
		static void opens(void)
		{
			void *module;
			while (*files) {
				callee *takes = found(*files++, "takes", &module);
				if (takes)
					takes();
			}
		}
		static void killed(void) { opens(); raise(SIGKILL); }
		/* Two in turn, which are at one place; and at last the first at another. */
		static void closes(void)
		{
			callee *place = NULL;
			void *module;
			for (int i = 0; i < 4; i++) {
				callee *takes = found(files[i % 2], i % 2 ? "takes_two" : "takes_one", &module);
				if (place && place != takes)
					exit(1);
				place = takes;
				takes();
				dlclose(module);
			}
			mmap((void *)((uintptr_t)place & -4096ul), 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
			found(files[0], "takes_one", &module)();
		}

		int main(int argc, char **argv)
		{
		#define WAY(way) if (!strcmp(argv[1], #way)) way();
			files = argv + 2;
			WAY(plain) WAY(handler) WAY(storm) WAY(coroutine) WAY(little) WAY(rubbish) WAY(untold) WAY(jit)
			WAY(ends) WAY(opens) WAY(killed) WAY(closes)
			return 0;
		}
	END
}

setup() {
	cd "$BATS_TEST_TMPDIR"
	program=$(realpath "$BATS_FILE_TMPDIR")/program
}

# named REPORT…: prints their stacks, innermost first.
named() {
	"$top_builddir/pinalloc" report --json "$@" | jq -r '.peak_sites[] | .stack | map(split(" ")[0]) | join(" ")'
}

# stacks [NAME=VALUE…] COMMAND…: runs it with a report, and prints its stacks.
stacks() {
	timeout $((60 * ${TIMEOUT_SCALE:-1})) env LD_PRELOAD="$library" PINALLOC_REPORT="$PWD/out.json" "$@" || return
	named out.json
}

@test "frames are modules and offsets, with the modules' build ids; the command names them" {
	run -0 stacks "$program" plain
	[[ "$output" == "grow plain main "* ]]
	[[ "$(figure out.json '.peak_sites[0].stack[0]')" =~ ^"$program+"(0x[0-9a-f]+)$ ]]
	[[ "$(addr2line -f -s -e "$program" "${BASH_REMATCH[1]}")" == grow$'\n'* ]]
	readelf -n "$program" | grep -F "Build ID: $(figure out.json ".modules[\"$program\"]")"
	run -0 bash -c 'exec -a another env LD_PRELOAD='"$library"' PINALLOC_REPORT=other.json "$0" plain' "$program"
	jq -es '.[0].peak_sites[0].stack[0] == .[1].peak_sites[0].stack[0] and
		([.[0].peak_sites[].stack[] | split("+")[0]] | unique) - (.[0].modules | keys) == []' out.json other.json
}

@test "names of C++ are those of the source; the text begins where the program's own code asks for memory" {
	cat > own.cc <<- 'END'
		#include <stdlib.h>
		namespace std {
		template <typename T> struct allocator {};
		template <typename T, typename A = allocator<T>> struct vector {
			T *a;
			__attribute__((always_inline)) void push_back(T x) { a = (T *)malloc(32 << 20); *a = x; }
		};
		}
		namespace own { struct Grid { std::vector<double> a; }; }
		__attribute__((noinline)) static void fill(own::Grid &g) { g.a.push_back(1); }
		int main() { own::Grid g; fill(g); return g.a.a[0] != 1; }
	END
	g++ -g -O2 -o own own.cc
	preloaded PINALLOC_SAMPLE=64K PINALLOC_REPORT=out.json ./own
	run -0 "$top_builddir/pinalloc" report out.json
	[[ "$output" == *"  fill(own::Grid&) (own.cc:10)"$'\n'*"  main (own.cc:11)" ]]
	[ "$(resolved out.json '.peak_sites[0].stack | map(split("(")[0]) | index("std::vector<double, std::allocator<double> >::push_back") < index("fill")')" = true ]
	strip --strip-debug own
	preloaded PINALLOC_SAMPLE=64K PINALLOC_REPORT=without.json ./own
	run -0 "$top_builddir/pinalloc" report without.json
	[[ "$output" == *"  fill(own::Grid&) (own)"$'\n'*"  main (own)" ]]
}

@test "without libunwind one line says that there are no stacks, where some were wanted" {
	mkdir none
	echo > "none/libunwind-$(uname -m).so.8"
	run -0 env LD_LIBRARY_PATH="$PWD/none" LD_PRELOAD="$library" PINALLOC_REPORT=out.json "$programs/grow" 100
	[ "${#lines[@]}" -eq 1 ]
	[[ "$output" == *"the report has no stacks: libunwind-"*" is not installed "* ]]
	[ "$(figure out.json '.peak_sites')" = "[]" ]
	run -0 env LD_LIBRARY_PATH="$PWD/none" LD_PRELOAD="$library" "$programs/grow" 100
	[ -z "$output" ]
}

@test "libunwind is loaded where there is a report, or samples, and nowhere else" {
	for option in PINALLOC_REPORT=out.json PINALLOC_SAMPLE=1M; do
		strace -o calls -e trace=openat -E LD_PRELOAD="$library" -E "$option" "$programs/grow" 10
		grep libunwind calls
	done
	[ "$(preloaded PINALLOC_REPORT=out.json ls /proc/self/fd)" = "$(ls /proc/self/fd)" ]
	strace -o calls -e trace=openat -E LD_PRELOAD="$library" "$programs/grow" 10
	run ! grep libunwind calls
	# A shell reports, and what it starts does not, unless it is a rank.
	strace -f -o calls -e trace=openat -E LD_PRELOAD="$library" -E PINALLOC_REPORT=%r.json \
		sh -c "'$programs/grow' 1; PMI_RANK=3 PMI_SIZE=4 '$programs/grow' 1; :"
	[ "$(grep -c 'libunwind-.*= [0-9]' calls)" -eq 2 ]
}

@test "where the program ends a stack, or interrupts itself, that is right, or shorter" {
	local way
	# Where libunwind looks without tables depends on addresses, which are random.
	for way in handler coroutine little rubbish untold{,,,,,,,} jit ends; do
		preloaded PINALLOC_SAMPLE=64K PINALLOC_REPORT=$way.json "$program" $way
	done
	named ./*.json > all
	# It goes on to what was interrupted, and ends where a coroutine's stack begins; 16 KiB are enough for malloc.
	grep -E '^grow handle .* interrupted handler main ' all
	grep '^grow deep deep deep deep run_deep' all
	grep '^grow run_little' all
	# A frame pointer or return address that is rubbish ends it; so does code without tables, or compiled at run time.
	grep '^grow run_grow' all
	grep -E '^grow bare$' all
	grep -E '^grow 0x[0-9a-f]+$' all
	# In a thread that ends.
	grep '^grow end ' all
}

@test "a handler that interrupts malloc at any place, and allocates little, does no harm" {
	preloaded PINALLOC_SAMPLE=64K PINALLOC_REPORT=out.json timeout $((60 * ${TIMEOUT_SCALE:-1})) "$program" storm
	[ -s out.json ]
}

@test "from a constructor that dlopen runs, while another thread waits for the loader's lock" {
	built late.so -shared -fPIC <<- 'END'
		static void *look(void *unused) { void *self = dlopen(NULL, RTLD_NOW); dlclose(self); return unused; }
		static void *take(void *unused) { return grow() ? unused : (void *)1; }
		static __attribute__((constructor)) void begin(void)
		{
			pthread_t waits, grows;
			void *failed;
			pthread_create(&waits, NULL, look, NULL);
			pthread_create(&grows, NULL, take, NULL);
			pthread_join(grows, &failed); /* would never return if it waited for the loader */
			if (failed || !grow())
				exit(1);
			pthread_detach(waits);
		}
	END
	run -0 stacks "$program" opens ./late.so
	grep -E '^grow begin ' <<< "$output"
	grep -E '^grow take ' <<< "$output"
}

@test "a module that was closed keeps its name, also where another has taken its place" {
	local name
	# The same code at the same place, on frames of another size.
	for name in one:3000 two:5000; do
		built ${name%:*}.so -shared -fPIC -Dtakes=takes_${name%:*} -DROOM=${name#*:} <<- 'END'
			void *takes(void) { volatile char room[ROOM]; void *p = grow(); room[0] = !p; return p; }
		END
	done
	run -0 stacks "$program" closes ./one.so ./two.so
	[ "$(grep -o '^grow takes_[a-z]* closes main ' <<< "$output" | sort -u)" = $'grow takes_one closes main \ngrow takes_two closes main ' ]
	[ "$(figure out.json '[.peak_sites[] | select(.stack[1] | test("/(one|two)[.]so[+]")) | .count] | add')" -eq 5 ]
	# The first was at two places.
	[ "$(grep -c '/one.so":' out.json)" -eq 1 ]
}

@test "modules for whose paths there is no room have none, and no path is cut" {
	local long i
	built late.so -shared -fPIC <<< 'void *takes(void) { return grow(); }'
	long=$PWD$(printf "/$(printf '%0200d' 0)%.0s" {1..17})
	mkdir -p "$long"
	for i in {10..69}; do
		cp late.so "$long/$i.so"
	done
	run -0 stacks "$program" opens "$long"/*.so
	jq -e '.modules | keys | (map(length + 1) | add) <= 131072 and
		(map(select(test("/00"))) | length >= 30 and all(endswith(".so")))' out.json
	# A record has no room for such stacks.
	run -137 stacks "$program" killed "$long"/*.so
	run -0 --separate-stderr "$top_builddir/pinalloc" report out.json.*.running
	[ -z "$stderr" ]
}
