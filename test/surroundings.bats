#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: malloc and its family may be called wherever glibc's may: by threads that are cancelled, on
# small stacks, under a program's own system call filter, by handlers of fork() that any library has
# installed. Children by posix_spawn() and vfork() copy nothing of the heap.

setup() {
	load helper
	cd "$BATS_TEST_TMPDIR"
}

# built NAME [OPTION…]: compiles standard input.
built() {
	gcc -O1 -fno-builtin -pthread -w -x c - -o "$1" "${@:2}"
}

# pthreads(7) has the list.
points='accept aio_suspend clock_nanosleep close connect creat fcntl fdatasync fsync getmsg getpmsg
	lockf mq_receive mq_send mq_timedreceive mq_timedsend msgrcv msgsnd msync nanosleep open open64
	openat openat64 pause poll ppoll pread pread64 preadv pselect pthread_cond_timedwait
	pthread_cond_wait pthread_join pthread_testcancel putmsg putpmsg pwrite pwrite64 pwritev read
	readv recv recvfrom recvmsg select sem_timedwait sem_wait send sendmsg sendto sigpause
	sigsuspend sigtimedwait sigwait sigwaitinfo sleep system tcdrain usleep wait waitid waitpid
	write writev'

@test "no code below malloc and the verbs imports a cancellation point" {
	# jemalloc opens no file (allocator/jemalloc-refused.c), and has no thread of its own. Nobody
	# cancels the thread that reads the watch's messages; pin_touch() blocks its cancellation.
	nm -A --undefined-only "$top_builddir"/allocator/.libs/lib{core,pinalloc}_la-*.o \
		"$top_builddir"/{regpool/.libs/libcore,preload/.libs/libpinalloc}_la-*.o \
		"$top_builddir/libjemalloc.a" | grep -v 'libjemalloc.a:background_thread' |
		sed -nE 's/^(.*): +U ([A-Za-z0-9_]+).*$/\2 \1/p' |
		grep -vE '^((close|poll|read) .*/regpool/.*-watch|pthread_join .*/regpool/.*-threads)\.o$' \
			> imports
	[ "$(wc -l < imports)" -gt 300 ]
	run ! grep -E "^($(xargs <<< "$points" | tr ' ' '|')) " imports
}

# handlers WHAT: builds a library that begins before ours, as one that the program is linked with does. Its
# constructor installs handlers of fork() that do this; threads allocate under its lock, too.
handlers() {
	local way
	built libhandlers.so -shared -fPIC <<- END
		#include <pthread.h>
		#include <stdlib.h>
		#include <string.h>
		static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
		static void lock(void) { pthread_mutex_lock(&mutex); }
		static void unlock(void) { pthread_mutex_unlock(&mutex); }
		static void allocate(void) { free(malloc(50000)); free(malloc(50)); free(malloc(5 << 20)); }
		static void allocate_and_lock(void) { allocate(); lock(); allocate(); }
		static void unlock_and_allocate(void) { allocate(); unlock(); allocate(); }
		__attribute__((constructor)) static void install(void) { pthread_atfork($1); }
		void work_locked(void)
		{
			lock();
			free(memset(malloc(40000), 1, 40000));
			free(malloc(700000));
			free(malloc(70));
			unlock();
		}
	END
	for way in PINALLOC_LOG=info PINALLOC_SAMPLE=64K; do
		run -0 env LD_PRELOAD="$library:$PWD/libhandlers.so" $way PINALLOC_REPORT="$PWD/forks.json" \
			timeout $((100 * ${TIMEOUT_SCALE:-1})) "$programs/forks" 100
		[ "$output" = 100 ]
	done
}

@test "a library that the program is linked with may lock its own lock before fork()" {
	handlers 'lock, unlock, unlock'
}

@test "or allocate" {
	handlers 'allocate_and_lock, unlock_and_allocate, unlock_and_allocate'
}

# What is below main's stack of 16 KiB, the smallest there may be, is its own.
@test "malloc and free need 8 KiB of stack, also if a report is wanted or blocks are sampled" {
	local way
	built stacks <<- 'END'
		#include <limits.h>
		#include <pthread.h>
		#include <stdio.h>
		#include <stdlib.h>
		#include <string.h>
		#include <sys/mman.h>
		#define SIZE (64 << 10)
		static char *base;
		static void *work(void *allocates)
		{
			void *p[64];
			int n = 0;
			if (!allocates)
				return 0;
			for (int i = 4; i < 26; i++)
				p[n++] = malloc(1UL << i);
			p[n++] = calloc(1, 3 << 20);
			p[n++] = calloc(1, 40 << 20);
			p[n] = malloc(5 << 20);
			for (int i = 6; i < 40; i += 3)
				p[n] = realloc(p[n], (size_t)i << 20);
			n++;
			while (n)
				free(p[--n]);
			for (int i = 0; i < 20000; i++)
				malloc(1000);
			return allocates;
		}
		static size_t used(void *allocates)
		{
			pthread_attr_t attr;
			pthread_t thread;
			size_t i;
			memset(base, 0xa5, SIZE);
			pthread_attr_init(&attr);
			pthread_attr_setstack(&attr, base, SIZE);
			if (pthread_create(&thread, &attr, work, allocates))
				abort();
			pthread_join(thread, 0);
			for (i = 0; i < SIZE && base[i] == (char)0xa5; i++)
				;
			return SIZE - i;
		}
		int main(void)
		{
			size_t none, some;
			base = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			none = used(0);
			some = used(base);
			printf("%zu\n", some - none);
			return 0;
		}
	END
	for way in PINALLOC_REGISTER=eager PINALLOC_REPORT="$PWD/report" PINALLOC_SAMPLE=16K; do
		run -0 preloaded $way ./stacks
		echo "$way $output"
		[ "$output" -le 8192 ]
	done
}

# filter [NAME…]: builds a program that forbids itself all other system calls than what glibc's malloc
# needs, madvise(2), and these; then it allocates.
filter() {
	built filtered -DMORE="$(printf 'OK(%s),' "$@")" <<- 'END'
		#include <linux/filter.h>
		#include <linux/seccomp.h>
		#include <malloc.h>
		#include <stddef.h>
		#include <stdlib.h>
		#include <string.h>
		#include <sys/prctl.h>
		#include <sys/syscall.h>
		#include <unistd.h>
		#define OK(n) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##n, 0, 1), \
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
		#define NOT_KEPT(n) n
		int main(int argc, char **argv)
		{
			struct sock_filter code[] = {
				BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
				OK(write), OK(mmap), OK(munmap), OK(mremap), OK(mprotect), OK(brk), OK(madvise),
				OK(futex), OK(exit_group), MORE
				BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
			struct sock_fprog program = {sizeof code / sizeof *code, code};
			size_t most = (size_t)atoi(argv[1]) << 20;
			void *p[100];
			int n = 0;
			free(malloc(100));
			prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
			if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
				return 3;
			for (int round = 0; round < 3; round++, n = 0) {
				for (size_t size = 1; size <= most && n < 40; size *= 2) {
					memset(p[n] = malloc(size), 1, size);
					p[n] = realloc(p[n], size + size / 2);
					n++;
				}
				while (n)
					free(p[--n]);
				for (size_t size = 1; size <= most && n < 97; size *= 2) {
					p[n++] = calloc(1, size);
					p[n++] = memalign(64, size);
					p[n++] = memalign(1 << 20, size);
				}
				while (n)
					free(p[--n]);
				for (int i = 0; i < atoi(argv[2]); i++)
					if (!malloc(i % 5000))
						return 1;
			}
			write(1, "ok\n", 3);
			return 0;
		}
	END
}

@test "under a program's own filter, a heap of up to 16 MiB needs no more than glibc's malloc and madvise" {
	filter sched_getaffinity
	run -0 preloaded PINALLOC_REGISTER=off ./filtered 1 500
	[ "$output" = ok ]
}

@test "and larger ones what pinalloc-problems(7) says" {
	grep -q 'mincore(2) and sysinfo(2)' "$top_srcdir/preload/pinalloc-problems.7"
	filter sched_getaffinity mincore sysinfo
	run -0 preloaded PINALLOC_REGISTER=off ./filtered 64 30000
	[ "$output" = ok ]
}

# In page faults of who writes its heap again: 64 MiB have 16,384 pages. subprocess uses vfork().
@test "posix_spawn() and vfork() copy nothing, fork() what is written since" {
	run -0 preloaded PINALLOC_HUGEPAGE=off /usr/bin/python3 -c '
import os, resource, subprocess
block = bytearray(64 << 20)
def faults(start):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    start()
    block[::4096] = bytes(len(block) // 4096)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
def fork():
    os.fork() or os._exit(0)
    os.wait()
spawn = lambda: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
vfork = lambda: subprocess.run(["/bin/true"])
faults(vfork)
print(faults(spawn) < 1000, faults(vfork) < 1000, faults(fork) > 16000)'
	[ "$output" = 'True True True' ]
}
