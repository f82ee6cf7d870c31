/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/classes.h"

const uint16_t pin_class_sizes[PIN_CLASSES] = {
	16,   32,   48,	  64,	80,   96,   112,  128,	160,   192,   224,  256,
	320,  384,  448,  512,	640,  768,  896,  1024, 1280,  1536,  1792, 2048,
	2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 10240, 12288, 14336};

PIN_WRITTEN_FIRST uint8_t pin_class_table[PIN_SMALL_MOST / PIN_QUANTUM + 1];

void pin_classes_init(void)
{
	unsigned class = 0;

	for (size_t i = 0; i < PIN_ARRAY_SIZE(pin_class_table); i++) {
		if (i * PIN_QUANTUM > pin_class_sizes[class])
			class ++;
		pin_class_table[i] = (uint8_t) class;
	}
}
