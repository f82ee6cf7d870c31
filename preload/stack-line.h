/* SPDX-License-Identifier: BSD-2-Clause */
/* How the library and its command show the frames of a stack on one line. */
#ifndef PIN_STACK_LINE_H
#define PIN_STACK_LINE_H

#include <stdbool.h>
#include <string.h>

/* Frames on the line, and the width they may have; JSON has more. */
#define PIN_STACK_LINE_FRAMES  4
#define PIN_STACK_LINE_COLUMNS 84

/* What is shown of a name of n bytes: of a place, "/path/to/MODULE+0xOFFSET", the last part. */
static inline const char *pin_stack_line_part(const char *name, size_t n)
{
	const char *slash = n && name[0] == '/' ? memrchr(name, '/', n) : NULL;

	return slash ? slash + 1 : name;
}

/* Nothing is shown beyond main(): what calls it is the same for all stacks. */
static inline bool pin_stack_line_ends_at(const char *name)
{
	return !strncmp(name, "main (", strlen("main ("));
}

#endif
