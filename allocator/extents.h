/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PIN_EXTENTS_H
#define PIN_EXTENTS_H

/* For fork(): the slabs that pools keep aside are not to be found half written. */
void pin_extents_lock(void);
void pin_extents_unlock(void);

#endif
