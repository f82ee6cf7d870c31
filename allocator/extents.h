/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PIN_EXTENTS_H
#define PIN_EXTENTS_H

/* For fork(): slabs kept aside by a pool that is busy then would be lost to the child. */
void pin_extents_lock(void);
void pin_extents_unlock(void);

#endif
