/* SPDX-License-Identifier: BSD-2-Clause */
/* FRAME before a function: it has its own name on the stack, however the compiler optimizes. */
#ifndef FRAME_H
#define FRAME_H

#if __has_attribute(noipa)
#define FRAME __attribute__((noipa))
#else
#define FRAME __attribute__((noinline))
#endif

#endif
