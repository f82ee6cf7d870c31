/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How the libraries are called that have the malloc of a sanitizer, for this library and its
 * command: what their names begin with.
 */
#ifndef PIN_SANITIZER_H
#define PIN_SANITIZER_H

static const char pin_sanitizers[][20] = {
	"libasan.so",	    "libtsan.so",	"liblsan.so",	      "libhwasan.so",
	"libclang_rt.asan", "libclang_rt.tsan", "libclang_rt.hwasan",
};

#endif
