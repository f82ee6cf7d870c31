#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: a stack is what the program's code says, wherever it is taken: in a signal handler, on a
# coroutine's stack, with code compiled at run time, under the loader's lock, in a thread that ends.
# At worst it is shorter. A module that has been closed keeps its name.
load helper

# program NAME [FLAG…]: builds a program or module from the C on standard input, after grow(), which
# makes the heap grow.
program() {
	{
		cat <<- 'END'
			#define _GNU_SOURCE
			#include <dlfcn.h>
			#include <pthread.h>
			#include <signal.h>
			#include <stdio.h>
			#include <stdlib.h>
			#include <string.h>
			#include <sys/mman.h>
			#include <ucontext.h>
			#include <unistd.h>
			static __attribute__((noinline, unused)) void *grow(void)
			{
				void *block = malloc(32 << 20);
				__asm__ volatile("" : : "r"(block) : "memory");
				return block;
			}
			/* Of n bytes, just above as many that cannot be read. */
			static __attribute__((unused)) char *fenced_stack(size_t n)
			{
				char *stack = mmap(NULL, 3 * n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
				mprotect(stack + n, n, PROT_READ | PROT_WRITE);
				return stack + n;
			}
			static __attribute__((unused)) void begin_on(ucontext_t *context, char *stack, size_t n, void (*run)(void))
			{
				getcontext(context);
				context->uc_stack.ss_sp = stack;
				context->uc_stack.ss_size = n;
				makecontext(context, run, 0);
			}
		END
		cat
	} > "$1.c"
	gcc -Wall -g -O1 -fno-optimize-sibling-calls -o "$1" "${@:2}" "$1.c" -pthread -ldl
}

# stacks [NAME=VALUE…] COMMAND…: runs it with a report, and prints the stacks, innermost first.
stacks() {
	timeout $((60 * ${TIMEOUT_SCALE:-1})) env LD_PRELOAD="$library" PINALLOC_REPORT="$PWD/out.json" "$@" || return
	"$top_builddir/pinalloc" report --json out.json | jq -r '.peak_sites[] | .stack | map(split(" ")[0]) | join(" ")'
}

# taken REGEX [NAME=VALUE…] COMMAND…: it succeeds, and a stack is like that.
taken() {
	run -0 stacks "${@:2}"
	grep -E "$1" <<< "$output"
}

@test "frames are modules and offsets, with the modules' build ids; the command names them" {
	program plain <<< 'int main(void) { return !grow(); }'
	run -0 stacks ./plain
	[[ "$output" == "grow main "* ]]
	[[ "$(figure out.json '.peak_sites[0].stack[0]')" =~ ^"$PWD/plain+"(0x[0-9a-f]+)$ ]]
	[[ "$(addr2line -f -s -e plain "${BASH_REMATCH[1]}")" == grow$'\n'plain.c:* ]]
	readelf -n plain | grep -F "Build ID: $(figure out.json ".modules[\"$PWD/plain\"]")"
	[ "$(figure out.json '([.peak_sites[].stack[] | split("+")[0]] | unique) - (.modules | keys)')" = "[]" ]
	run -0 bash -c 'exec -a another env LD_PRELOAD='"$library"' PINALLOC_REPORT=other.json ./plain'
	[ "$(figure other.json '.peak_sites[0].stack[0]')" = "$(figure out.json '.peak_sites[0].stack[0]')" ]
}

@test "names of C++ are those of the source; the text begins where the program's own code asks for memory" {
	cat > own.cc <<- 'END'
		#include <vector>
		namespace own { struct Grid { std::vector<double> a; }; }
		__attribute__((noinline)) static void fill(own::Grid &g)
		{
			for (int i = 0; i < 5000000; i++)
				g.a.push_back(i);
		}
		int main() { own::Grid g; fill(g); return g.a.size() != 5000000; }
	END
	g++ -g -O2 -o own own.cc
	preloaded PINALLOC_SAMPLE=64K PINALLOC_REPORT=out.json ./own
	run -0 "$top_builddir/pinalloc" report out.json
	[[ "$output" == *"  fill(own::Grid&) (own.cc:6)"$'\n'*"  main (own.cc:8)" ]]
	[ "$(resolved out.json '.peak_sites[0].stack | map(split("(")[0]) | index("std::vector<double, std::allocator<double> >::push_back") < index("fill")')" = true ]
	g++ -O2 -o own own.cc
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
	strace -o calls -e trace=openat -E LD_PRELOAD="$library" "$programs/grow" 10
	run ! grep libunwind calls
	# A shell reports, and what it starts does not, unless it is a rank.
	strace -f -o calls -e trace=openat -E LD_PRELOAD="$library" -E PINALLOC_REPORT=%r.json \
		sh -c "'$programs/grow' 1; PMI_RANK=3 PMI_SIZE=4 '$programs/grow' 1; :"
	[ "$(grep -c 'libunwind-.*= [0-9]' calls)" -eq 2 ]
}

@test "libunwind keeps no descriptor open" {
	run -0 env sh -c 'ls /proc/$$/fd; :'
	without=$output
	run -0 preloaded PINALLOC_REPORT=out.json sh -c 'ls /proc/$$/fd; :'
	[ "$output" = "$without" ]
}

@test "in a signal handler, the stack goes on to what was interrupted" {
	program handler <<- 'END'
		static void handle(int sig) { if (!grow()) _exit(1); }
		static __attribute__((noinline)) void interrupted(void) { raise(SIGUSR1); __asm__ volatile(""); }
		int main(void)
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
			return 0;
		}
	END
	taken '^grow handle .* interrupted main ' ./handler
}

@test "a handler that interrupts malloc at any place, and allocates little, does no harm" {
	program storm <<- 'END'
		static volatile sig_atomic_t n;
		static void handle(int sig) { n++; }
		int main(void)
		{
			struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
			sigaction(SIGVTALRM, &action, NULL);
			timer_t timer;
			struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGVTALRM};
			struct itimerspec often = {{0, 50000}, {0, 50000}};
			timer_create(CLOCK_MONOTONIC, &event, &timer);
			timer_settime(timer, 0, &often, NULL);
			for (int i = 0; i < 20000; i++)
				free(malloc(1 << 20));
			return !n;
		}
	END
	run -0 stacks PINALLOC_SAMPLE=64K ./storm
}

@test "on a coroutine's stack it ends where that begins" {
	program coroutine <<- 'END'
		static ucontext_t outside, inside;
		static __attribute__((noinline)) void deep(int n) { if (n) deep(n - 1); else if (!grow()) _exit(1); __asm__ volatile(""); }
		static void run(void) { deep(3); swapcontext(&inside, &outside); }
		int main(void)
		{
			/* Just below a page that cannot be read, and with rubbish beyond what is used. */
			begin_on(&inside, memset(fenced_stack(1 << 16), 0x41, 1 << 16), 1 << 16, run);
			swapcontext(&outside, &inside);
			return 0;
		}
	END
	taken '^grow deep deep deep deep run' PINALLOC_SAMPLE=1M ./coroutine
}

@test "a frame pointer or return address that is rubbish ends it" {
	program rubbish <<- 'END'
		static ucontext_t outside, inside;
		static void run(void) { if (!grow()) _exit(1); setcontext(&outside); }
		int main(void)
		{
			char *stack = fenced_stack(1 << 16);
			static volatile int step;
			const unsigned long values[] = {0, 1, 0x4141414141414141, (unsigned long)stack - (1 << 16), 0x1000,
				(unsigned long)&outside, (unsigned long)main + 1, -1ul, -8ul, 0x7fffffffffff};
			getcontext(&outside);
			if (step == 10)
				return 0;
			unsigned long *top = (unsigned long *)(stack + (1 << 16)) - 1 - step % 2 * 2;
			*top = values[step];
			inside = outside;
		#ifdef __x86_64__
			inside.uc_mcontext.gregs[REG_RSP] = (long)top;
			inside.uc_mcontext.gregs[REG_RBP] = (long)values[step];
			inside.uc_mcontext.gregs[REG_RIP] = (long)run;
		#else
			inside.uc_mcontext.sp = (long)top & -16l;
			inside.uc_mcontext.regs[29] = values[step];
			inside.uc_mcontext.regs[30] = values[step];
			inside.uc_mcontext.pc = (long)run;
		#endif
			step++;
			setcontext(&inside);
			return 1;
		}
	END
	taken '^grow run' PINALLOC_SAMPLE=1M ./rubbish
}

@test "code compiled at run time ends it, as an address" {
	program jit <<- 'END'
		typedef void *callee(void);
		int main(void)
		{
		#ifdef __x86_64__
			static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
		#else
			static const unsigned code[] = {0xa9bf7bfd, 0x910003fd, 0xd63f0000, 0xa8c17bfd, 0xd65f03c0};
		#endif
			char *made = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			memcpy(made, code, sizeof code);
			__builtin___clear_cache(made, made + sizeof code);
			return !((void *(*)(callee *))made)(grow);
		}
	END
	taken '^grow 0x[0-9a-f]+$' ./jit
}

@test "from a constructor that dlopen runs, while another thread waits for the loader's lock" {
	program late.so -shared -fPIC <<- 'END'
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
				_exit(1);
			pthread_detach(waits);
		}
	END
	program opens <<< 'int main(void) { return !dlopen("./late.so", RTLD_NOW); }'
	run -0 stacks ./opens
	grep -E '^grow begin ' <<< "$output"
	grep -E '^grow take ' <<< "$output"
}

@test "in a thread that ends" {
	program ends <<- 'END'
		static pthread_key_t key;
		static void end(void *value) { if (!grow()) _exit(1); if (value == (void *)1) pthread_setspecific(key, (void *)2); }
		static void *begin(void *unused) { pthread_setspecific(key, (void *)1); return unused; }
		int main(void)
		{
			pthread_t thread;
			pthread_key_create(&key, end);
			for (int i = 0; i < 3; i++) {
				pthread_create(&thread, NULL, begin, NULL);
				pthread_join(thread, NULL);
			}
			return 0;
		}
	END
	taken '^grow end ' ./ends
}

@test "a module that was closed keeps its name, also where another has taken its place" {
	local name
	# The same code at the same place, on frames of another size.
	for name in one:3000 two:5000; do
		program ${name%:*}.so -shared -fPIC -Dtakes=takes_${name%:*} -DROOM=${name#*:} <<- 'END'
			void *takes(void) { volatile char room[ROOM]; void *p = grow(); room[0] = !p; return p; }
		END
	done
	program closes <<- 'END'
		int main(int argc, char **argv)
		{
			void *places[2];
			for (int i = 0; i < 4; i++) {
				void *module = dlopen(i % 2 ? "./two.so" : "./one.so", RTLD_NOW);
				void *(*takes)(void) = (void *(*)(void))dlsym(module, i % 2 ? "takes_two" : "takes_one");
				if (!takes())
					return 1;
				places[i % 2] = (void *)takes;
				dlclose(module);
			}
			return places[0] != places[1];
		}
	END
	run -0 stacks ./closes
	[ "$(grep -o '^grow takes_[a-z]* main ' <<< "$output" | sort)" = $'grow takes_one main \ngrow takes_two main ' ]
	[ "$(figure out.json '[.peak_sites[] | select(.stack[1] | test("/(one|two)[.]so[+]")) | .count] | add')" -ge 4 ]
}

@test "modules for whose paths there is no room have none, and no path is cut" {
	local long i
	program late.so -shared -fPIC <<< 'void *takes(void) { return grow(); }'
	program opens <<- 'END'
		int main(int argc, char **argv)
		{
			for (int i = 1; i < argc; i++)
				if (!((void *(*)(void))dlsym(dlopen(argv[i], RTLD_NOW), "takes"))())
					return 1;
			return 0;
		}
	END
	long=$PWD$(printf "/$(printf '%0200d' 0)%.0s" {1..17})
	mkdir -p "$long"
	for i in {10..99}; do
		cp late.so "$long/$i.so"
	done
	run -0 stacks ./opens "$long"/*.so
	jq -e '.modules | keys | (map(length + 1) | add) <= 131072 and
		(map(select(test("/00"))) | length >= 30 and all(endswith(".so")))' out.json
}

@test "a stack of 16 KiB is enough for malloc with a report" {
	program small <<- 'END'
		static ucontext_t outside, inside;
		static void run(void) { if (!grow()) _exit(1); free(malloc(100)); setcontext(&outside); }
		int main(void)
		{
			static volatile int step;
			getcontext(&outside);
			if (step++ == 8)
				return 0;
			begin_on(&inside, fenced_stack(16 << 10), 16 << 10, run);
			setcontext(&inside);
			return 1;
		}
	END
	taken '^grow run' PINALLOC_SAMPLE=64K ./small
}

@test "a fatal error prints the stack of the call that failed" {
	program fatal -rdynamic <<- 'END'
		extern void *ibv_reg_mr(void *pd, void *addr, unsigned long n, int access);
		#pragma weak ibv_reg_mr
		int main(void) { static void *pd[16]; return !ibv_reg_mr(pd, 0, 0, 0); }
	END
	run -134 preloaded PINALLOC_REPORT=stderr ./fatal
	echo "$output"
	[[ "${lines[0]}" == *"no libibverbs.so.1 is loaded"* ]]
	[[ "$output" == *"  at $PWD/fatal+0x"* ]]
}
