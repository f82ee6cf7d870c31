/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The functions of libc that are taken over here but not replaced: the next ones of
 * these names, which are another preload's if there is one. They are looked up when
 * the library starts, because they are called in signal handlers and in children of
 * vfork(), where dlsym() and its lock are not to be had.
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

/* From the constructor, or before it when that of a library calls one. Idempotent. */
void pin_next_find(void);

#define PIN_NEXT(name) \
	(PIN_LIKELY(pin_next.name) ? pin_next.name : (pin_next_find(), pin_next.name))

#endif
