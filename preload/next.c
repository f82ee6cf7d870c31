/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/next.h"

#include <dlfcn.h>

PIN_WRITTEN_FIRST struct pin_next pin_next;

void pin_next_find(void)
{
#define FIND(name) pin_next.name = (__typeof__(pin_next.name))dlsym(RTLD_NEXT, #name);
	PIN_NEXT_NAMES(FIND)
#undef FIND
}
