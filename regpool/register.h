/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Real registrations of heap memory: within the budget, on the memory node of the heap there,
 * counted, and with failures logged.
 */
#ifndef PIN_REGISTER_H
#define PIN_REGISTER_H

#include "regpool/granule.h"
#include "regpool/domain.h"

/*
 * Registers a range with these IBV_ACCESS_* flags. Returns NULL and sets *error to an errno
 * value on failure; the caller logs it. Slow, and calls malloc.
 */
struct ibv_mr *pin_register_range(struct pin_domain *domain, unsigned access,
				  struct pin_range range, int *error);

/*
 * Whether a call that failed with this errno value may have lacked locked memory, of which it
 * takes n_bytes or a little, or room on this adapter for one more object: a limit that is known
 * is near. All else is no shortage, and fails as it does without this library.
 */
bool pin_register_lacks_memory(int error, size_t n_bytes);
bool pin_register_lacks_room(const char *device, int error, size_t n_bytes);

/* Notes a failure that is no shortage. Returns the address of a page that may not be read, or
 * 0. */
uintptr_t pin_register_note_failure(const struct pin_domain *domain, struct pin_range range,
				    int error);

/* The same, counts any failure, and logs once why the range could not be registered. */
void pin_register_log_failure(const struct pin_domain *domain, struct pin_range range,
			      int error);

/*
 * Deregisters a memory region over the range. Returns false, and logs it, if libibverbs
 * refuses.
 */
bool pin_register_deregister(struct pin_domain *domain, struct ibv_mr *mr,
			     struct pin_range range);

/* Accounts for a registration that is gone or out of reach. */
void pin_register_note_gone(struct pin_domain *domain, struct pin_range range);

/* How many bytes of the provider's structure around a real MR may be copied. */
uint32_t pin_register_readable_bytes(struct ibv_mr *mr);

#endif
