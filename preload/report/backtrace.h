/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stacks: walking one, which is safe inside malloc, and naming its frames, which is not.
 */
#ifndef PIN_BACKTRACE_H
#define PIN_BACKTRACE_H

#include "allocator/base.h"

/*
 * Takes the caller's stack: at most n return addresses, innermost first, beginning in the
 * caller itself. Returns how many. The walk ends early behind code without unwind tables and
 * before code that is in no module (compiled at run time).
 *
 * Thread-safe, async-signal-safe, and safe inside malloc: no allocation, no lock, no
 * system call, some 140 ns a frame. It trusts the tables as C++ exceptions do. The first walk
 * of a process sets up the unwinder; a walk in a signal handler that interrupts it finds
 * nothing.
 */
int pin_backtrace_walk(void **frames, int n);

/*
 * From now on walks of at most 32 frames reuse the calling thread's last walk, on x86-64:
 * frames that both have in common cost next to nothing. For samples, which are many. This
 * relies on the stack of a thread, or of a coroutine, staying mapped outside the frames it has
 * left.
 */
void pin_backtrace_reuse_walks(void);

/*
 * Whether the calling thread is in a signal handler, as far as a walk can tell. Safe wherever a
 * walk is.
 */
bool pin_backtrace_in_handler(void);

/*
 * Puts the place from which this library was called into buf, as pin_backtrace_place() does;
 * "?" if it is not known. Safe wherever a walk is.
 */
void pin_backtrace_caller(char *buf, size_t size);

/*
 * Whether a frame is in this library, as the innermost ones of a stack taken inside malloc are,
 * which are of no interest. Safe wherever a walk is.
 */
bool pin_backtrace_ours(const void *frame);

/* Enough for any name without templates. A longer one is cut, but not its place. */
#define PIN_BACKTRACE_NAME 256

/*
 * Notes which modules the frames of a stack are in: later these may be unloaded, and others
 * loaded in their place. Safe wherever a walk is; one thread at a time.
 */
void pin_backtrace_note_modules(void *const *frames, size_t n);

/*
 * Whether the module that was noted for a frame is no longer loaded. If so, puts the frame's
 * place into buf, as pin_backtrace_place() does. Thread-safe, async-signal-safe.
 */
bool pin_backtrace_unloaded(const void *frame, char *buf, size_t size);

/*
 * The name of a frame, in one of these forms:
 *
 *	NAME (FILE.c:LINE)		the call itself, not what follows it
 *	NAME (MODULE)			without line information
 *	/path/to/MODULE+0xOFFSET	without a name, as addr2line -e MODULE takes it; also
 *					where the module was noted and is no longer loaded
 *	?+0xADDRESS			in such a module that was not noted, or in none
 *
 * C++ names are demangled in programs that have libstdc++. With `lines` it reads debug
 * information through libdw if that is installed. Otherwise it has only the dynamic loader's
 * tables, which know exported functions, and no lines.
 *
 * With `lines` it allocates, opens files, and may take a second if there is much debug
 * information; one thread at a time, and pin_backtrace_done() afterwards. Without, it is
 * thread-safe; it allocates the name, and gives the mangled one if there is no memory. Must not
 * be called from a signal handler or from inside malloc: it takes the loader's lock.
 */
void pin_backtrace_name(const void *frame, bool lines, char *buf, size_t size);

/*
 * The place of a frame: "/path/to/MODULE+0xOFFSET" or "?+0xADDRESS", as above. Thread-safe and
 * async-signal-safe: no allocation, no lock.
 */
void pin_backtrace_place(const void *frame, char *buf, size_t size);

/* Whether the calling thread has enough stack for names. Places need little. May allocate. */
bool pin_backtrace_has_room(void);

/* Releases what names with lines have taken: memory, mappings and open files. */
void pin_backtrace_done(void);

/* Logs the caller's stack, one line a frame. Must not be called from inside malloc. */
void pin_backtrace_log(void);

#endif
