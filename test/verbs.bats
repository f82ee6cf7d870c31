#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: a program that calls verbs finds them, whichever file they come from. Uses a stand-in
# for libibverbs; test/lab/unchanged.bats tries the real one.
load helper

setup_file() {
	export work=$BATS_FILE_TMPDIR
	cat > "$work/common.h" <<-'END'
		#define _GNU_SOURCE
		#include <config.h>
		#include "regpool/ibverbs.h"
		#include <dlfcn.h>
		#include <pthread.h>
		#include <stdio.h>
		#include <stdlib.h>
		#include <sys/mman.h>
		#include <sys/wait.h>
		#include <unistd.h>

		static struct ibv_pd *new_pd(void)
		{
			return ibv_alloc_pd(ibv_open_device(ibv_get_device_list(NULL)[0]));
		}

		static bool registers(void)
		{
			struct ibv_mr *mr = ibv_reg_mr(new_pd(), malloc(4096), 4096, 1);

			return mr && !ibv_dereg_mr(mr);
		}

		static bool registers_own(void)
		{
			static char variables[8192];

			return ibv_reg_mr(new_pd(), variables, sizeof variables, 1);
		}
	END
	# With symbols of libibverbs' that have addresses in the program, which does not define them.
	cat > "$work/register.c" <<-'END'
		int main(void)
		{
			void *volatile taken[] = {ibv_reg_mr_iova2, ibv_dereg_mr, ibv_alloc_pd, ibv_query_device,
						  ibv_get_device_list, ibv_free_device_list};

			quick_exit(!taken[0] || !registers());
		}
	END
	# Of two copies, which are loaded in turn, each serves its devices.
	cat > "$work/two.c" <<-'END'
		static bool serves(void *copy)
		{
			__typeof__(&ibv_get_device_list) list = dlsym(copy, "ibv_get_device_list");
			bool (*reach)(const struct ibv_mr *, const void *, size_t) = dlsym(copy, "fake_verbs_reach");
			struct ibv_context *context = ibv_open_device(list(NULL)[0]);
			struct ibv_pd *pd = ibv_alloc_pd(context);
			char own, *p[] = {malloc(4096), &own};
			bool right = true;

			for (int i = 0; i < 2; i++) {
				struct ibv_mr *mr = ibv_reg_mr(pd, p[i], 1, 1);

				right &= mr && reach(mr, p[i], 1) && !ibv_dereg_mr(mr);
			}
			return right && !ibv_dealloc_pd(pd) && !ibv_close_device(context);
		}

		int main(int argc, char **argv)
		{
			void *first = dlopen(argv[1], RTLD_NOW), *second;

			return !serves(first) || !(second = dlopen(argv[2], RTLD_NOW)) || !serves(second) ||
			       !serves(first) || dlclose(first) || !serves(second);
		}
	END
	# Of rdma-core 61 and later, whose headers may not be here.
	cat > "$work/newer.c" <<-'END'
		int main(int argc, char **argv)
		{
			__typeof__(&ibv_reg_mr_ex) extended = dlsym(RTLD_DEFAULT, "ibv_reg_mr_ex");
			__typeof__(&ibv_reg_buf_mr) buffer = dlsym(RTLD_DEFAULT, "ibv_reg_buf_mr");
			struct ibv_mr_init_attr heap = {4096, 1, IBV_REG_MR_MASK_ADDR, 0, malloc(4096)};
			struct ibv_mr_init_attr own = heap, fd = heap, iova = heap;
			struct ibv_pd *pd = new_pd();

			own.addr = mmap(NULL, 8192, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			fd.comp_mask = 4; /* of a dma-buf */
			iova.comp_mask |= IBV_REG_MR_MASK_IOVA;
			if (argc == 1)
				return extended(pd, &heap) || errno != EOPNOTSUPP ||
				       buffer(pd, (void *)&own, own.addr, 4096, 1) || errno != EOPNOTSUPP;
			if (!dlopen(argv[1], RTLD_NOW) || !extended(pd, &heap))
				return 1;
			heap.comp_mask |= 16; /* with a hint */
			return !extended(pd, &heap) || !extended(pd, &own) || !extended(pd, &fd) ||
			       !extended(pd, &iova) || !buffer(pd, (void *)&own, own.addr + 4096, 4096, 1);
		}
	END
	# Another thread opens a device and registers, while the loader runs this constructor.
	cat > "$work/waits.c" <<- 'END'
		static void *run(void *unused)
		{
			puts(registers() && (!getenv("EARLIER") || registers_own()) ? "registered" : "not registered");
			return unused;
		}

		__attribute__((constructor)) static void wait_for_thread(void)
		{
			pthread_t thread;

			pthread_create(&thread, NULL, run, NULL);
			pthread_join(thread, NULL);
		}
	END
	cat > "$work/opens.c" <<- 'END'
		int main(int argc, char **argv)
		{
			return getenv("EARLIER") && !registers_own() || !dlopen(argv[1], RTLD_NOW);
		}
	END
	# Caches of libfabric, Open MPI and UCX, each found at another time. The status says what is not so.
	cat > "$work/caches.c" <<- 'END'
		#define PAGE 4096
		#define FAR  (6 << 20)
		#define must(holds) ((holds) ? (void)0 : _exit(__LINE__))

		static bool (*may_cache)(const void *, size_t);
		static char *heap, *pages;
		static _Atomic unsigned n_mpi, n_ucx;

		static void *load(const char *path, void (*hook)(void *, size_t), const char *name)
		{
			void *file = dlopen(path, RTLD_NOW);

			*(void (**)(void *, size_t))dlsym(file, "listener_hook") = hook;
			return dlsym(file, name);
		}

		/* Open MPI aborts if a registration in use begins there. Heap that is going is not cached. */
		static void tell_mpi(void *addr, size_t n)
		{
			must((size_t)addr % PAGE && !may_cache(heap + FAR, 1));
			n_mpi++;
		}

		static void tell_ucx(void *addr, size_t n) { n_ucx++; }

		int main(void)
		{
			struct ibv_mr *(*by_ucx)(__typeof__(&ibv_reg_mr), struct ibv_pd *, void *, size_t, int);
			struct ibv_context *context;
			struct ibv_pd *pd;
			int status;

			heap = aligned_alloc(PAGE, 8 << 20);
			pages = mmap(NULL, 9 * PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			may_cache = load("./libfabric.so.1", NULL, "listener_subscribe");
			context = ibv_open_device(ibv_get_device_list(NULL)[0]);
			must(may_cache(heap, 1) != !!getenv("FI_MR_CACHE_MONITOR"));
			may_cache = load("./other-libfabric.so.1", NULL, "listener_subscribe");
			pd = ibv_alloc_pd(context);
			must(may_cache(heap, 1) != !!getenv("FI_MR_CACHE_MONITOR"));
			load("./libopen-pal.so.40", tell_mpi, "listener_hook");
			by_ucx = load("./libucm.so.0", tell_ucx, "listener_register");
			must(by_ucx(ibv_reg_mr, pd, pages, PAGE, 1) && n_ucx && !n_mpi);
			must(ibv_reg_mr(pd, pages + 4 * PAGE, PAGE, 1) && n_ucx == 1);
			must(getenv("FI_MR_CACHE_MONITOR") || may_cache(pages + 4 * PAGE, PAGE));
			must(!may_cache(pages + 4 * PAGE, PAGE + 1) && !may_cache(pages + 3 * PAGE, 2 * PAGE));
			must(ibv_reg_mr(pd, heap, 1, 1) && !madvise(heap, PAGE, MADV_DONTNEED) && n_mpi && n_ucx == 2);
			n_ucx = 0;
			if (!fork()) {
				pd = new_pd();
				must(by_ucx(ibv_reg_mr, pd, pages, PAGE, 1) && n_ucx && !may_cache(heap + FAR, 1));
				must(ibv_reg_mr(pd, pages, PAGE, 1) && n_ucx == 1);
				_exit(0);
			}
			return wait(&status) < 0 || status;
		}
	END
	cd "$work"
	gcc -w -O1 -fno-pie -I"$top_srcdir" -I"$top_builddir" -include ./common.h -c register.c two.c newer.c opens.c caches.c
	gcc -w -O1 -fPIC -I"$top_srcdir" -I"$top_builddir" -include ./common.h -c waits.c
	gcc -O1 -shared -fPIC -fvisibility=hidden -o libucm.so.0 "$top_srcdir/test/programs/listener.c"
	gcc -std=gnu11 -O1 -I"$top_srcdir" -I"$top_builddir" -fPIC -fvisibility=hidden -c \
		"$top_srcdir"/test/fake-{ibverbs,verbs}.c
}

# copy NAME [MAP]: a libibverbs of this name.
copy() {
	mkdir -p lib
	gcc -shared -Wl,-soname,"$1" -Wl,--version-script="${2:-$top_srcdir/test/fake-ibverbs.map}" -o "lib/$1" \
		"$work"/fake-*.o
}

# made_with NAME [PROGRAM [MAP]]: a program that is linked with a libibverbs of this name.
made_with() {
	copy "$1" "${@:3}"
	gcc -no-pie -o register "$work/${2:-register}.o" "lib/$1"
}

# succeeds [ARGUMENT…]: such a program does, and a report is in $report.
succeeds() {
	run -0 --separate-stderr preloaded LD_LIBRARY_PATH="$PWD/lib" PINALLOC_REPORT="$report" ./register "$@"
	[ -z "$stderr" ]
}

# registers NAME: such a program runs, and its request is served, as its report says: it ends by quick_exit().
registers() {
	made_with "$1"
	succeeds
	[ "$(figure "$report" .registration.served)" -eq 1 ]
}

@test "verbs are found" {
	rows registers <<- 'END'
		libibverbs.so.1: of the system's libibverbs
		libibverbs-1a2b3c4d.so.1.14.44.0: of a copy with another name, as in Python wheels
		libtransport.so.3: of a copy that is linked into a library of any name
	END
}

@test "a constructor may wait for a thread that uses verbs" {
	made_with libibverbs.so.1 opens
	gcc -shared -o waits.so "$work/waits.o" lib/libibverbs.so.1
	# Or where a cache has been found, which is to hear.
	for how in TZ= "EARLIER=1 LD_PRELOAD=$library:$work/libucm.so.0"; do
		# shellcheck disable=SC2086 # words
		run -0 preloaded LD_LIBRARY_PATH="$PWD/lib" $how timeout $((60 * ${TIMEOUT_SCALE:-1})) ./register ./waits.so
		[ "$output" = registered ]
	done
}

@test "of several copies each is called for its own devices, when it was loaded, and until it is unloaded" {
	copy first.so
	copy second.so
	gcc -no-pie -o register "$work/two.o" "$library"
	succeeds lib/first.so lib/second.so
	[ "$(figure "$report" .registration.served)" -eq 4 ]
}

@test "requests by the functions of newer releases are served, or passed on and forgotten" {
	made_with libibverbs.so.1 newer
	succeeds "$work/libucm.so.0"
	jq -e '.registration.served == 1 and .registration.passed_through == 5 and
		.watch.forgotten == 2' "$report"
}

@test "where libibverbs does not have these functions, they say so" {
	sed 's/ibv_reg_mr_ex\|ibv_reg_buf_mr/no_such_&/' "$top_srcdir/test/fake-ibverbs.map" > map
	made_with libibverbs.so.1 newer map
	succeeds
}

@test "caches are found when a device is opened, or a domain made, and hear what concerns them" {
	local name
	allowed userfaultfd
	made_with libibverbs.so.1 caches
	for name in libucm.so.0 libopen-pal.so.40 libfabric.so.1 other-libfabric.so.1; do
		cp "$work/libucm.so.0" $name
	done
	export PINALLOC_LOG=error
	succeeds
	FI_MR_CACHE_MONITOR=disabled succeeds
}
