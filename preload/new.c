/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * C++ operator new and delete in C, under their mangled names (Itanium ABI, size_t is m):
 * jemalloc's own object for them would make every C program load libstdc++. Without them a C++
 * program would still work, through malloc, but the operators of another library could take its
 * calls.
 *
 * When memory runs out, libstdc++'s operator of the same name tries again, through malloc: it
 * calls the handler, and throws. It is looked up then, in the copy that the program has loaded.
 */
#include <config.h>

#include "allocator/start.h"
#include "allocator/log.h"

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
#define NEW_PLAIN(name)	  NEW(name, malloc(n), (size_t n), (n))
#define NEW_NOTHROW(name) NEW(name, malloc(n), (size_t n, const void *nothrow), (n, nothrow))
#define NEW_ALIGNED(name) NEW(name, aligned(n, to), (size_t n, size_t to), (n, to))
#define NEW_ALIGNED_NOTHROW(name) \
	NEW(name, aligned(n, to), (size_t n, size_t to, const void *nothrow), (n, to, nothrow))

NEW_PLAIN(_Znwm)
NEW_PLAIN(_Znam)
NEW_NOTHROW(_ZnwmRKSt9nothrow_t)
NEW_NOTHROW(_ZnamRKSt9nothrow_t)
NEW_ALIGNED(_ZnwmSt11align_val_t)
NEW_ALIGNED(_ZnamSt11align_val_t)
NEW_ALIGNED_NOTHROW(_ZnwmSt11align_val_tRKSt9nothrow_t)
NEW_ALIGNED_NOTHROW(_ZnamSt11align_val_tRKSt9nothrow_t)

/*
 * The size and alignment given to delete are ignored: some programs give wrong ones, and free()
 * finds the right ones.
 */
#define DELETE(name)                       \
	PIN_EXPORT_AS(void, name, void *p) \
	{                                  \
		free(p);                   \
	}

DELETE(_ZdlPv)
DELETE(_ZdaPv)
DELETE(_ZdlPvRKSt9nothrow_t)
DELETE(_ZdaPvRKSt9nothrow_t)
DELETE(_ZdlPvm)
DELETE(_ZdaPvm)
DELETE(_ZdlPvSt11align_val_t)
DELETE(_ZdaPvSt11align_val_t)
DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t)
DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t)
DELETE(_ZdlPvmSt11align_val_t)
DELETE(_ZdaPvmSt11align_val_t)
