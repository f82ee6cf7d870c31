/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What `pinalloc check` consists of. Each check says one finding or several; none
 * changes the system. They run in the order of the table in check.c, in one thread.
 */
#ifndef PIN_CHECK_H
#define PIN_CHECK_H

#include "allocator/base.h"

/* The exit status is the worst of them. */
enum pin_grade { PIN_OK, PIN_WARN, PIN_FAIL };

/*
 * One finding: `what` it is about, what was found, and the cure, NULL if there is
 * nothing to cure.
 */
void pin_check_say(enum pin_grade grade, const char *what, const char *cure, const char *format,
		   ...) __attribute__((format(printf, 4, 5)));

/* check-settings.c: options, which later checks use, and what is set for others. */
void pin_check_options(void);
void pin_check_settings(void);

/* check-library.c */
void pin_check_library(void);

/* check-devices.c */
void pin_check_devices(void);
void pin_check_fork(void);

/* Whether fork() copies pinned pages, so that the heap can be registered ahead. */
bool pin_check_fork_copies(void);

/* check-system.c */
void pin_check_memlock(void);
void pin_check_userfaultfd(void);
void pin_check_limits(void);
void pin_check_overcommit(void);
void pin_check_huge_pages(void);

/* Whether RLIMIT_MEMLOCK lets this process pin less than the memory there is. */
bool pin_check_memlock_is_limited(void);

/* Whether the kernel is of this release or a later one. */
bool pin_check_kernel_is(int major, int minor);

#endif
