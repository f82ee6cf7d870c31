/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Real registrations of heap memory: within the budget, on the memory node of the heap there,
 * counted, and if they fail, said.
 */
#ifndef PIN_REGISTER_H
#define PIN_REGISTER_H

#include "regpool/granule.h"
#include "regpool/registry.h"

/*
 * Registers a range with these rights. Returns NULL and sets *error if it fails. Takes time,
 * and mallocs.
 */
struct ibv_mr *pin_register_range(struct pin_domain *domain, unsigned access,
				  struct pin_range range, int *error);

/* Whether it failed by that error for lack of room: of memory regions, or of what they pin. */
bool pin_register_lacks_room(int error);

/* Says once why a range could not be registered, and counts it. */
void pin_register_say_failed(const struct pin_domain *domain, struct pin_range range,
			     int error);

/* Deregisters it. Returns false when libibverbs refuses, which is said. */
bool pin_register_undo(struct pin_domain *domain, struct ibv_mr *mr, struct pin_range range);

/* A registration that is gone, or cannot be reached any more. */
void pin_register_note_gone(struct pin_domain *domain, struct pin_range range);

/* Something was deregistered: what failed for lack of room may be tried again. */
void pin_register_released(void);

/* How often that was so. */
uint32_t pin_register_releases(void);

/* How many bytes of the provider's structure around a real MR may be copied. */
uint32_t pin_register_readable_bytes(struct ibv_mr *mr);

#endif
