/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * C++ operator new and delete in C, under their mangled names (Itanium ABI, size_t is m):
 * jemalloc's own object for them would make every C program load libstdc++. Without them a C++
 * program would still work, through malloc, but the operators of another library could take its
 * calls.
 *
 * When memory runs out, libstdc++'s operator of the same name tries again, through malloc: it
 * calls the handler, and throws. It is looked up then, in the copy that the program has loaded.
 *
 * A program may replace the plain operators alone, and keep something of its own before each
 * block: so each other form calls the one that the standard names, which may be the program's.
 */
#include <config.h>

#include "allocator/start.h"
#include "allocator/log.h"
#include "preload/report/stacks.h"

#include <dlfcn.h>
#include <stdlib.h>

/*
 * A C++ program has it behind this library, where finding it takes no memory. Finding one that
 * a library has loaded for itself does, when memory has run out.
 */
static void *in_libstdcxx(const char *symbol)
{
	static void *_Atomic library;
	void *found = dlsym(RTLD_NEXT, symbol);

	if (!found && !library) {
		pin_start_give_spare();
		library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
	}
	if (!found && library)
		found = dlsym(library, symbol);
	if (!found)
		pin_fatal("operator new has no memory and finds no libstdc++ to throw "
			  "bad_alloc");
	return found;
}

static void *aligned(size_t n_bytes, size_t alignment)
{
	void *p;

	/* posix_memalign refuses 1, which std::pmr asks for, and what is not an alignment. */
	if (alignment < sizeof(void *) && !(alignment & (alignment - 1)))
		alignment = sizeof(void *);
	return posix_memalign(&p, alignment, n_bytes) ? NULL : p;
}

/* An operator with these parameters, which gets a block so. */
#define NEW(name, block, parameters, arguments)                                       \
	PIN_EXPORT void *name parameters;                                             \
	void *name parameters                                                         \
	{                                                                             \
		void *p = block;                                                      \
                                                                                      \
		return PIN_LIKELY(p != NULL)                                          \
			       ? p                                                    \
			       : ((void *(*)parameters)in_libstdcxx(#name))arguments; \
	}
/* Only C++ can catch what a program's operator throws: libstdc++'s form calls it then. */
#define NEW_NOTHROW(name, ours, block, parameters, arguments) \
	NEW(name, ours ? block : NULL, parameters, arguments)
/* An operator that calls another function. */
#define CALLS(type, name, parameters, call) \
	PIN_EXPORT type name parameters;    \
	type name parameters                \
	{                                   \
		return call;                \
	}
#define OURS(plain) pin_stacks_ours((void *)plain)

NEW(_Znwm, malloc(n), (size_t n), (n))
CALLS(void *, _Znam, (size_t n), _Znwm(n))
NEW_NOTHROW(_ZnwmRKSt9nothrow_t, OURS(_Znwm), malloc(n), (size_t n, const void *nothrow),
	    (n, nothrow))
NEW_NOTHROW(_ZnamRKSt9nothrow_t, OURS(_Znam) && OURS(_Znwm), malloc(n),
	    (size_t n, const void *nothrow), (n, nothrow))

NEW(_ZnwmSt11align_val_t, aligned(n, to), (size_t n, size_t to), (n, to))
CALLS(void *, _ZnamSt11align_val_t, (size_t n, size_t to), _ZnwmSt11align_val_t(n, to))
NEW_NOTHROW(_ZnwmSt11align_val_tRKSt9nothrow_t, OURS(_ZnwmSt11align_val_t), aligned(n, to),
	    (size_t n, size_t to, const void *nothrow), (n, to, nothrow))
NEW_NOTHROW(_ZnamSt11align_val_tRKSt9nothrow_t,
	    OURS(_ZnamSt11align_val_t) && OURS(_ZnwmSt11align_val_t), aligned(n, to),
	    (size_t n, size_t to, const void *nothrow), (n, to, nothrow))

/*
 * The size and alignment given to delete are ignored: some programs give wrong ones, and free()
 * finds the right ones.
 */
#pragma GCC diagnostic ignored "-Wunused-parameter"
CALLS(void, _ZdlPv, (void *p), free(p))
CALLS(void, _ZdaPv, (void *p), _ZdlPv(p))
CALLS(void, _ZdlPvRKSt9nothrow_t, (void *p, const void *nothrow), _ZdlPv(p))
CALLS(void, _ZdaPvRKSt9nothrow_t, (void *p, const void *nothrow), _ZdaPv(p))
CALLS(void, _ZdlPvm, (void *p, size_t n), _ZdlPv(p))
CALLS(void, _ZdaPvm, (void *p, size_t n), _ZdaPv(p))
CALLS(void, _ZdlPvSt11align_val_t, (void *p, size_t to), free(p))
CALLS(void, _ZdaPvSt11align_val_t, (void *p, size_t to), _ZdlPvSt11align_val_t(p, to))
CALLS(void, _ZdlPvSt11align_val_tRKSt9nothrow_t, (void *p, size_t to, const void *nothrow),
      _ZdlPvSt11align_val_t(p, to))
CALLS(void, _ZdaPvSt11align_val_tRKSt9nothrow_t, (void *p, size_t to, const void *nothrow),
      _ZdaPvSt11align_val_t(p, to))
CALLS(void, _ZdlPvmSt11align_val_t, (void *p, size_t n, size_t to),
      _ZdlPvSt11align_val_t(p, to))
CALLS(void, _ZdaPvmSt11align_val_t, (void *p, size_t n, size_t to),
      _ZdaPvSt11align_val_t(p, to))
