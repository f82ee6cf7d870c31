/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A shared library of variables only: pages of its file, and pages of zeroes.
 */
#define SHOWN __attribute__((visibility("default"), aligned(4096)))

extern char plugin_data[3 * 4096], plugin_zeroes[64 * 4096];

SHOWN char plugin_data[3 * 4096] = {1};
SHOWN char plugin_zeroes[64 * 4096];
