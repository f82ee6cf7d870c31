/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Functions of libc that our functions of the same names call: the next ones in the order of
 * the loader, which may be those of another preload. They are looked up when the library
 * starts, because they are called in signal handlers and in children of vfork(), where dlsym()
 * and its lock must not be used.
 */
#ifndef PIN_NEXT_H
#define PIN_NEXT_H

#include "allocator/base.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define PIN_NEXT_NAMES(name)                                                         \
	name(_exit) name(_Exit) name(execv) name(execve) name(execveat) name(execvp) \
		name(execvpe) name(fexecve) name(sigaction) name(signal) name(sysv_signal)

#define PIN_NEXT_FIELD(name) __typeof__(&name) name;
struct pin_next {
	PIN_NEXT_NAMES(PIN_NEXT_FIELD)
};
#undef PIN_NEXT_FIELD
extern struct pin_next pin_next;

/* From the constructor, or earlier if that of another library calls one. Idempotent. */
void pin_next_find(void);

#define PIN_NEXT(name) \
	(PIN_LIKELY(pin_next.name) ? pin_next.name : (pin_next_find(), pin_next.name))

#endif
