/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Real registrations of heap memory: within the budget, on the memory node of the heap there,
 * counted, and with failures logged.
 */
#pragma once

#include "regpool/granule.h"
#include "regpool/domains.h"

/* Errors of our own, with values that no registration returns: by limits that are known. */
#define PIN_TOO_LARGE  EFBIG
#define PIN_OVER_LIMIT EDQUOT

/*
 * Registers a range with these IBV_ACCESS_* flags. Returns NULL and sets *error to an errno
 * value on failure; the caller logs it. Slow, and calls malloc.
 */
struct ibv_mr *pin_register_range(struct pin_domain *domain, unsigned access,
				  struct pin_range range, int *error);

/* Logs once why the range could not be registered. */
void pin_register_log_failure(const struct pin_domain *domain, struct pin_range range,
			      int error);

/*
 * Deregisters a memory region over the range. Returns 0, or the errno value with which
 * libibverbs refuses, which is logged.
 */
int pin_register_deregister(struct pin_domain *domain, struct ibv_mr *mr,
			    struct pin_range range);

/* Accounts for a registration that is gone or out of reach. */
void pin_register_note_gone(struct pin_domain *domain, struct pin_range range);

/* Copies a real MR with what of its provider's structure can be read. */
void pin_register_copy(struct pin_mr_copy *copy, const struct ibv_mr *mr);
