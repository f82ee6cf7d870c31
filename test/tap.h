/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Test Anything Protocol for the unit tests: ok(condition, "what must hold"), and
 * at the end `return done_testing();`.
 */
#ifndef TAP_H
#define TAP_H

#include <stdbool.h>
#include <stdio.h>

static int tap_count, tap_failed;

#define ok(condition, ...) tap_ok((condition), __FILE__, __LINE__, __VA_ARGS__)

__attribute__((format(printf, 4, 5))) static inline bool
tap_ok(bool good, const char *file, int line, const char *format, ...)
{
	__builtin_va_list args;

	printf("%sok %d - ", good ? "" : "not ", ++tap_count);
	__builtin_va_start(args, format);
	vprintf(format, args);
	__builtin_va_end(args);
	printf("\n");
	if (!good) {
		tap_failed++;
		printf("# failed at %s:%d\n", file, line);
	}
	fflush(stdout);
	return good;
}

static inline int done_testing(void)
{
	printf("1..%d\n", tap_count);
	return tap_failed != 0;
}

#endif
