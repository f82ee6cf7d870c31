/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which files the loader has loaded. dl_iterate_phdr(3) holds a lock of the loader that glibc
 * does not renew in a forked child: so the list is looked at only when it has changed, which is
 * found without that lock, and not while fork() copies the process. In a child it has changed
 * only after a dlopen() or dlclose() there, which took the loader's lock and gave it back.
 */
#pragma once

#include "allocator/sites.h"
#include "regpool/range.h"

#include <link.h>

/*
 * Another number each time the list has changed; 0 in a child as long as it has not changed
 * there. Takes no lock while it has not. Thread-safe.
 */
uint32_t pin_files_state(void);

/* Whether it meets the addresses of a file that was there at the last look. Takes no lock. */
bool pin_files_meet(struct pin_range range);

/* From a file's first segment to the end of its last. */
struct pin_range pin_files_range(const struct dl_phdr_info *file);

/* In a child, from a handler of fork(), while it has one thread. */
void pin_files_begin_child(void);
