/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * C++ operator new and delete in C, under their mangled names (Itanium ABI, size_t is m):
 * jemalloc's own object for them would make every C program load libstdc++. Without them a C++
 * program would still work, through malloc, but the operators of another library could take its
 * calls.
 *
 * When memory runs out, new needs the handler and the exception of libstdc++. They are looked
 * up then, in the copy the program has loaded.
 */
#include <config.h>

#include "allocator/start.h"
#include "allocator/log.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>

/*
 * A C++ program has it behind this library, where finding it takes no memory. Finding one that
 * a library has loaded for itself does, when memory has run out.
 */
static void *find_cxx(const char *symbol)
{
	void *found = dlsym(RTLD_NEXT, symbol), *library;

	if (found)
		return found;
	pin_start_give_spare();
	library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
	return library ? dlsym(library, symbol) : NULL;
}

static void *cxx(void *_Atomic *known, const char *symbol)
{
	if (!*known)
		*known = find_cxx(symbol);
	if (!*known)
		pin_fatal("operator new has no memory and finds no libstdc++ to throw "
			  "bad_alloc");
	return *known;
}

/* Calls the program's std::new_handler; false when it has none. */
static bool handled(void)
{
	static void *_Atomic known;
	void (*(*get)(void))(void) = (void (*(*)(void))(void))cxx(&known,
								  "_ZSt15get_new_handlerv");
	void (*handler)(void) = get();

	if (handler)
		handler();
	return handler;
}

static _Noreturn void throw_bad_alloc(void)
{
	static void *_Atomic known;
	void (*throw_it)(void) = (void (*)(void))cxx(&known, "_ZSt17__throw_bad_allocv");

	throw_it();
	__builtin_unreachable();
}

static void *allocate(size_t n_bytes, size_t alignment)
{
	void *p;

	if (!alignment)
		return malloc(n_bytes);
	/* posix_memalign refuses 1, which std::pmr asks for, and what is not an alignment. */
	if (alignment < sizeof(void *) && !(alignment & (alignment - 1)))
		alignment = sizeof(void *);
	return posix_memalign(&p, alignment, n_bytes) ? NULL : p;
}

/* A handler cannot make room if the alignment is not a power of two. */
static PIN_COLD void *retry(size_t n_bytes, size_t alignment)
{
	void *p;

	do {
		if (alignment & (alignment - 1) || !handled())
			throw_bad_alloc();
		p = allocate(n_bytes, alignment);
	} while (!p);
	return p;
}

static inline void *or_throw(void *p, size_t n_bytes, size_t alignment)
{
	return PIN_LIKELY(p != NULL) ? p : retry(n_bytes, alignment);
}

/*
 * The handler may throw, and C cannot catch: the nothrow form of libstdc++ does, around the
 * throwing form, which is ours.
 */
static PIN_COLD void *retry_nothrow(size_t n_bytes, size_t alignment, const void *nothrow)
{
	void *(*plain)(size_t, const void *) = find_cxx("_ZnwmRKSt9nothrow_t");
	void *(*aligned)(size_t, size_t,
			 const void *) = find_cxx("_ZnwmSt11align_val_tRKSt9nothrow_t");

	if (!plain || !aligned)
		return NULL;
	return alignment ? aligned(n_bytes, alignment, nothrow) : plain(n_bytes, nothrow);
}

static inline void *or_null(void *p, size_t n_bytes, size_t alignment, const void *nothrow)
{
	return PIN_LIKELY(p != NULL) ? p : retry_nothrow(n_bytes, alignment, nothrow);
}

PIN_EXPORT_AS(void *, _Znwm, size_t n_bytes)
{
	return or_throw(malloc(n_bytes), n_bytes, 0);
}

PIN_EXPORT_AS(void *, _Znam, size_t n_bytes)
{
	return or_throw(malloc(n_bytes), n_bytes, 0);
}

PIN_EXPORT_AS(void *, _ZnwmRKSt9nothrow_t, size_t n_bytes, const void *nothrow)
{
	return or_null(malloc(n_bytes), n_bytes, 0, nothrow);
}

PIN_EXPORT_AS(void *, _ZnamRKSt9nothrow_t, size_t n_bytes, const void *nothrow)
{
	return or_null(malloc(n_bytes), n_bytes, 0, nothrow);
}

PIN_EXPORT_AS(void *, _ZnwmSt11align_val_t, size_t n_bytes, size_t alignment)
{
	return or_throw(allocate(n_bytes, alignment), n_bytes, alignment);
}

PIN_EXPORT_AS(void *, _ZnamSt11align_val_t, size_t n_bytes, size_t alignment)
{
	return or_throw(allocate(n_bytes, alignment), n_bytes, alignment);
}

PIN_EXPORT_AS(void *, _ZnwmSt11align_val_tRKSt9nothrow_t, size_t n_bytes, size_t alignment,
	      const void *nothrow)
{
	return or_null(allocate(n_bytes, alignment), n_bytes, alignment, nothrow);
}

PIN_EXPORT_AS(void *, _ZnamSt11align_val_tRKSt9nothrow_t, size_t n_bytes, size_t alignment,
	      const void *nothrow)
{
	return or_null(allocate(n_bytes, alignment), n_bytes, alignment, nothrow);
}

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
