/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cases of registration, each in a process of its own that has the stand-in for libibverbs, the
 * simulated kernel, a heap, and a protection domain P. A case is text: words that do something,
 * or say what must hold. After each word all that is held must be right: an MR has the PD, the
 * range and exactly the rights that were asked for, and its keys reach it; so do keys that were
 * looked up. At the end everything is given back, and nothing may be left.
 *
 *   a=100,5000     registers 5000 bytes at offset 100 of the heap; a to z are MRs
 *   .100,5000      the same, and deregisters it at once
 *   A=0,64         looks up keys; A to O are keys
 *   -a  -Q         deregisters; deallocates a PD
 *   a>0,64  a>Q  a>/l   changes a registration: the range, the PD, the rights
 *   a~b  a#b       have the same key, or not; also of MRs that have gone
 *   a|             the key of a reaches nothing beside it
 *   +Q  +Q1  +Q?   another PD, P to Z; on another device; one whose allocation nobody sees
 *   live=2 live<2 live>2    a figure (see there) is that, at most that, more than that
 *   most:3g        a setting, or a command with arguments
 *
 * Numbers are sums of bytes, pages (4p), granules (2g), MiB (3m), cells of 256 MiB (1c); none
 * is SIZE_MAX. An address that begins with f is not heap. After a range may come /lrwaomd or /-
 * rights: local, read, write, atomic, relaxed order, windows, on demand; none
 *   @              another device address
 *   ?split         why libibverbs gets the request; otherwise the library must serve it
 *   !ENOMEM        the error; otherwise it must succeed
 * and before a request Q: for the PD.
 */
#ifndef CASES_H
#define CASES_H

#include "allocator/base.h"
#include "test/tap.h"

#include <string.h>

#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

struct ibv_pd;

struct test_case {
	const char *name, *words;
	/* What is said on standard error: one line, with all of these texts between "|"; or
	 * nothing (""). NULL: anything. */
	const char *says;
	/* The word "call". */
	void (*call)(void);
};

/* With a name that ends with a colon, an address and a number follow (or zeroes). */
struct case_word {
	const char *name;
	void (*call)(char *p, size_t n, bool is_on);
	bool is_on;
};

/* Those of a unit, up to one without a name. */
extern const struct case_word *more_words;

/* The heap, to offsets of which addresses refer. */
extern char *heap;

/* A heap that is in memory, with a pool as of lazy_pool(). */
bool make_case_heap(size_t n_bytes);

bool case_holds(const struct test_case *it);

/* All in turn; or those whose names contain the program's argument. */
static inline void run_cases(const struct test_case *cases, size_t n, char **argv)
{
	for (size_t i = 0; i < n; i++)
		if (!argv[1] || strstr(cases[i].name, argv[1]))
			ok(case_holds(&cases[i]), "%s", cases[i].name);
}

/* --- for calls and more words ------------------------------------------------------------ */

struct ibv_pd *case_pd(void);

/* Ends the case if that does not hold. */
#define must(holds, ...) ((holds) ? (void)0 : case_fails(__VA_ARGS__))
__attribute__((noreturn, format(printf, 1, 2))) void case_fails(const char *format, ...);

/* What follows in a word: an address; a number; rights; and whether that text is next. */
char *case_address(void);
size_t case_number(void);
unsigned case_rights(void);
bool case_skips(const char *text);

/* Whether all that is held is checked after each word. */
extern bool case_checks;

/* Does these words. */
void case_do(const char *text);

#endif
