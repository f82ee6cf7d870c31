/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the names of libraries begin with that have the malloc of a sanitizer. For the library
 * and its command.
 */
#ifndef PIN_SANITIZER_H
#define PIN_SANITIZER_H

static const char pin_sanitizers[][20] = {
	"libasan.so",	    "libtsan.so",	"liblsan.so",	      "libhwasan.so",
	"libclang_rt.asan", "libclang_rt.tsan", "libclang_rt.hwasan",
};

#endif
