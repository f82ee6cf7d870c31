/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stacks: taking one, which may be done inside malloc, and putting names to it,
 * which may not.
 */
#ifndef PIN_BACKTRACE_H
#define PIN_BACKTRACE_H

#include "allocator/base.h"

/*
 * The return addresses through which the caller was reached, the innermost, in the
 * caller itself, first; at most n of them. Returns how many; the walk ends early behind
 * code without unwind tables, and before what is in no module (compiled at run time).
 *
 * Thread-safe, async-signal-safe, and safe inside malloc: no allocation, no lock, no
 * system call, some 140 ns a frame. It trusts the tables as C++ exceptions do. The first walk of
 * a process sets something up; one in a signal handler that interrupts it finds nothing.
 */
int pin_backtrace_walk(void **frames, int n);

/*
 * From now on walks of at most 32 frames are shorter, on x86-64: what the stack has in
 * common with the calling thread's last one costs next to nothing. For samples, which are
 * many. It trusts in addition that the stack of a thread, or of a coroutine, stays mapped
 * further out than where it was left.
 */
void pin_backtrace_use_trails(void);

/*
 * Whether the calling thread is in a signal handler, as far as a walk can tell. Safe
 * wherever that is.
 */
bool pin_backtrace_in_handler(void);

/*
 * Puts the place, as pin_backtrace_place() does, from which this library was called into buf;
 * "?" if it is not known. Safe wherever the walk is.
 */
void pin_backtrace_caller(char *buf, size_t size);

/*
 * Whether a frame is in this library. What lies at the inner end of a stack taken
 * inside malloc is, and tells nobody anything. Safe wherever the walk is.
 */
bool pin_backtrace_ours(const void *frame);

/* More than any name without templates; a longer one is cut, and still has its place. */
#define PIN_BACKTRACE_NAME 256

/*
 * Keeps in mind which modules frames are in, now that they are on a stack: later these
 * may be unloaded, and others be in their place. Safe wherever the walk is; one thread
 * at a time.
 */
void pin_backtrace_keep(void *const *frames, size_t n);

/*
 * Whether the module of a frame that was kept is no longer there. If so it puts the
 * frame's place into buf, as pin_backtrace_place() does. Thread-safe, async-signal-safe.
 */
bool pin_backtrace_gone(const void *frame, char *buf, size_t size);

/*
 * The name of a frame, in one of these forms:
 *
 *	NAME (FILE.c:LINE)		the call itself, not what follows it
 *	NAME (MODULE)			without line information
 *	/path/to/MODULE+0xOFFSET	without a name; as addr2line -e MODULE takes it. So are
 *					kept frames in a module that is no longer loaded
 *	?+0xADDRESS			in such a module that was not kept, or in none
 *
 * C++ names are demangled in programs that have libstdc++. With lines it reads debug
 * information through libdw where that is installed, else only the dynamic loader's
 * tables, which know exported functions, and no lines.
 *
 * With lines: it allocates, opens files, may take a second where there is much debug
 * information; one thread at a time, and pin_backtrace_done() afterwards. Without:
 * thread-safe; it allocates the name, and does with less if there is no memory. Neither
 * in a signal handler nor inside malloc: it takes the loader's lock.
 */
void pin_backtrace_name(const void *frame, bool lines, char *buf, size_t size);

/*
 * The place of a frame: "/path/to/MODULE+0xOFFSET" or "?+0xADDRESS", as above. Thread-safe
 * and async-signal-safe: no allocation, no lock.
 */
void pin_backtrace_place(const void *frame, char *buf, size_t size);

/*
 * Whether the calling thread has stack enough for names; where not, places are to be had.
 * May allocate.
 */
bool pin_backtrace_has_room(void);

/* Gives back what names with lines have taken: memory, mappings and open files. */
void pin_backtrace_done(void);

/*
 * Says on standard error through which functions the caller was reached, one
 * line a frame. Not from inside malloc.
 */
void pin_backtrace_say(void);

#endif
