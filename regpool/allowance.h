/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What may be registered ahead of requests, besides the limits of budget.h.
 *
 * An adapter's room is not known before a call fails for want of it. From then on half of what
 * was registered there may be registered ahead, in all its domains, or half of what is now; and
 * half a byte less or more for each that the program itself registers or deregisters.
 *
 * Over the life of an access set so much may be registered as the heap has, a fifth of it, and
 * three times what requests have waited for, with what these take themselves. So what comes and
 * goes without requests is not registered again and again, whatever makes it go. What a memory
 * region gives way to is paid for by requests that have used a large part of it. With
 * pinalloc_enable(3) it begins anew.
 */
#ifndef PIN_ALLOWANCE_H
#define PIN_ALLOWANCE_H

#include "regpool/domains.h"

/* Whether so many bytes of the allowance are left to an access set. */
bool pin_allowance_left(const struct pin_access_set *set, int64_t n_bytes);

/* Whether a domain's adapter has room to register so many bytes ahead, as far as is known. */
bool pin_allowance_has_room(const struct pin_domain *domain, size_t n_bytes);

/* A call for this adapter has failed with this errno value, which may be for want of room. */
void pin_allowance_note_error(const char *device, int error);

/* The program has registered so many bytes on an adapter itself, or deregistered if negative.
 */
void pin_allowance_note_own(const char *device, int64_t n_bytes);

#endif
